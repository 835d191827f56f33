"""The library behind a server or a process of ``worldctl mcp``, and clients of the official SDK."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

import httpx2
import mcp.client.session
from mcp.client.client import Client
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim
from mcp.client.session import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, Result
from pydantic import ConfigDict

from tests.agents.mcp.library import house, library
from tests.cli.realm import COMMAND, environment
from tests.server.served import NO_TLS, Place, Served
from tests.support.patience import PATIENCE_S
from world.events.verification import Right
from worldprotocol.api.realm import Realm

LIBRARY = Path(__file__).resolve().parent / "library.py"
ACTORS: Mapping[str, tuple[str, Sequence[Right]]] = {
    "ann": ("human", ["approver", "reader"]),
    "claude": ("agent", ["actor", "reader"]),
    "other": ("agent", ["actor"]),
    "clerk": ("human", ["reader"]),
    "nil": ("agent", []),
    "veiled": ("agent", ["actor"]),
}
mcp.client.session.DISCOVER_TIMEOUT_SECONDS = PATIENCE_S
"""A client that waits in vain for the first answer of a busy server speaks an earlier revision, which has no tasks."""

TASKS = "io.modelcontextprotocol/tasks"
LIMITS = "requests_per_second = 100000\nburst = 100000\n"


def founded(folder: Path, server: str = LIMITS) -> Place:
    """Found the library with actors, rights and tokens."""
    place = Place(folder, str(folder / "world.db"))
    with Realm.create(place.log, domain=library, policies=[house]) as realm:
        for name, (kind, rights) in ACTORS.items():
            binding = {"kind": "policy_rules", "policy": "house", "ask": ["ann"]}
            realm.register(name, kind, binding=binding if kind == "agent" else {"kind": "auto_approve"})  # type: ignore[arg-type]
            for right in rights:
                realm.access.grant(name, right, by="operator")
            place.tokens[name] = realm.access.create_token(name, by="operator").token
        realm.access.grant("veiled", "reader", by="operator", redaction=["inputs"])
    (folder / "world.toml").write_text(
        f"log = {json.dumps(place.log)}\ndomain = '{LIBRARY}:library'\npolicies = ['{LIBRARY}:house']\n"
        f"effects = ['{LIBRARY}:handlers']\n[server]\n{server}\n",
        encoding="utf-8",
    )
    return place


class TaskStarted(Result):
    """A task that a call was answered with."""

    result_type: Literal["task"]
    task_id: str
    status: str
    status_message: str | None = None
    created_at: str
    last_updated_at: str
    ttl_ms: int | None
    poll_interval_ms: int | None = None


class Tasks(ClientExtension):
    """The extension of tasks, as a client that keeps what it was answered with."""

    identifier = TASKS

    def claims(self) -> Sequence[ResultClaim[Any]]:
        """Return the claim on results that are tasks."""

        async def resolve(claimed: TaskStarted, context: ClaimContext) -> CallToolResult:
            raise AssertionError(f"{claimed.task_id}: these tests look at tasks themselves")

        return (ResultClaim(result_type="task", model=TaskStarted, resolve=resolve),)


def http_of(served: Served, actor: str) -> httpx2.AsyncClient:
    """Return a client for HTTP that is signed in as an actor."""
    headers = {"Authorization": f"Bearer {served.place.tokens[actor]}"}
    return httpx2.AsyncClient(headers=headers, timeout=httpx2.Timeout(PATIENCE_S), verify=NO_TLS, trust_env=False)


@asynccontextmanager
async def over_http(
    served: Served, actor: str = "claude", path: str = "/mcp", mode: str = "auto", **more: Any
) -> AsyncIterator[Client]:
    """Connect to a server as an actor."""
    async with http_of(served, actor) as http:
        transport = streamable_http_client(served.url + path, http_client=http)
        async with Client(transport, mode=mode, **more) as client:
            yield client


def command(place: Place, *arguments: str, **variables: str) -> StdioServerParameters:
    """Return how a client starts ``worldctl mcp``."""
    words = [*COMMAND[1:], "mcp", *arguments]
    return StdioServerParameters(
        command=sys.executable, args=words, env=environment() | variables, cwd=str(place.folder)
    )


@asynccontextmanager
async def over_stdio(
    place: Place, *arguments: str, mode: str = "auto", variables: Mapping[str, str] | None = None, **more: Any
) -> AsyncIterator[Client]:
    """Start ``worldctl mcp`` and connect to it."""
    with (place.folder / "mcp.log").open("a") as complaints:
        transport = stdio_client(command(place, *arguments, **(variables or {})), errlog=complaints)
        async with Client(transport, mode=mode, **more) as client:
            yield client


async def task_method(session: ClientSession, method: str, **params: Any) -> dict[str, Any]:
    """Send a request of the extension of tasks, which the SDK has no model of, and return its result."""
    import mcp_types as types

    named = "taskId" if isinstance(params.get("taskId"), str) else None

    class Found(Result):
        model_config: ClassVar[ConfigDict] = {"extra": "allow"}

    class Asked(types.Request[Any, Any]):
        method: str
        params: dict[str, Any]
        name_param = named

    found = await session.send_request(Asked(method=method, params=params), Found)
    return found.model_dump(by_alias=True, mode="json")


def told(result: Any) -> dict[str, Any]:
    """Return the structured content of a result."""
    assert isinstance(result, CallToolResult), result
    assert result.structured_content is not None, result
    return dict(result.structured_content)


def words(result: Any) -> str:
    """Return the first text of a result."""
    assert isinstance(result, CallToolResult), result
    return str(result.content[0].text)  # type: ignore[union-attr]


def call_id(name: str) -> Any:
    """Return the metadata of a call that has an id of its own."""
    return {"worldprotocol/callId": name}
