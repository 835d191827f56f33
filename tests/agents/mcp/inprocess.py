"""The library in memory, served to clients of the official SDK in the same process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

import mcp_types as types
from mcp.client._memory import InMemoryTransport
from mcp.client.client import Client
from mcp.client.session import ClientSession

from tests.agents.mcp.clients import ACTORS
from tests.agents.mcp.library import house, library, press
from worldprotocol import external
from worldprotocol.agents.mcp.local_realm import LocalRealm
from worldprotocol.agents.mcp.serving import server_of
from worldprotocol.agents.mcp.session import Settings
from worldprotocol.api.asynchronous.realm import AsyncRealm
from worldprotocol.api.realm import Realm

INBOX = "http://127.0.0.1:8000/realms/main/inbox"


@dataclass
class Library:
    """The library in memory.

    Args:
        realm: the realm.
    """

    realm: Realm

    def server(self, actor: str = "claude", wait_s: float = 0.05) -> Any:
        """Return the server for an actor."""
        access = LocalRealm(AsyncRealm(self.realm), actor)
        access.inbox_url = INBOX
        return server_of(Settings(lambda _: access, wait_s, report_s=0.05, look_s=0.01))

    @asynccontextmanager
    async def client(
        self, mode: str = "auto", *, actor: str = "claude", wait_s: float = 0.05, **more: Any
    ) -> AsyncIterator[Client]:
        """Connect a client."""
        async with Client(self.server(actor, wait_s), mode=mode, **more) as client:
            yield client

    @asynccontextmanager
    async def speaking(self, revision: str, **more: Any) -> AsyncIterator[ClientSession]:
        """Connect a client that offers an earlier revision of the protocol."""
        async with InMemoryTransport(self.server(**more)) as (read, write), ClientSession(read, write) as session:
            await began(session, revision)
            yield session

    def data(self) -> dict[str, Any]:
        """Return the present state."""
        return dict(self.realm.data())

    def answer(self, choice: Literal["approve", "reject"] = "approve") -> None:
        """Answer the only question as ann."""
        (asked,) = self.realm.inbox()
        self.realm.decide(asked.proposal_id, choice, by="ann", reason="as ann says")


async def began(session: ClientSession, revision: str) -> types.InitializeResult:
    """Initialize a session with an offered revision."""
    params = types.InitializeRequestParams(
        protocol_version=revision,
        capabilities=types.ClientCapabilities(),
        client_info=types.Implementation(name="old", version="1"),
    )
    found = await session.send_request(types.InitializeRequest(params=params), types.InitializeResult)
    session.adopt(found)
    await session.send_notification(types.InitializedNotification())
    return found


def opened() -> Library:
    """Found the library in memory."""
    handlers = [press, external("press.print", time_limit_ms=60_000)]
    realm = Realm.create("sqlite:///:memory:", domain=library, policies=[house], effects=handlers)
    for name, (kind, _) in ACTORS.items():
        binding = {"kind": "policy_rules", "policy": "house", "ask": ["ann"]}
        realm.register(name, kind, binding=binding if kind == "agent" else {"kind": "auto_approve"})  # type: ignore[arg-type]
    return Library(realm)
