"""A realm whose policy decides on calls of MCP tools, proxies as processes, and a client that speaks to one."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from tests.agents.hooked import founded
from tests.cli.realm import COMMAND, environment
from tests.server.served import PATH, Place, Served, serving
from worldprotocol.agents.proxy.pins import Pins
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

SCRIPTED = Path(__file__).resolve().parent / "scripted_upstream.py"
GUARD_S = 60.0
"""Longest wait for what has to come, in seconds."""

FORBIDDEN = ["git_reset", "forbidden"]
ASKED = ["git_commit", "asked"]
RULES = f"""
[[rules]]
id = "mcp_tools"
actions = ["mcp.call"]
when = "!(intent.input.name in {[*FORBIDDEN, *ASKED]})"
verdict = "approve"

[[rules]]
id = "mcp_asked"
actions = ["mcp.call"]
when = "intent.input.name in {ASKED}"
verdict = "escalate"
reason = "{{intent.input.name}} is a person's decision"

[[rules]]
id = "mcp_forbidden"
actions = ["mcp.call"]
when = "intent.input.name in {FORBIDDEN}"
verdict = "reject"
reason = "{{intent.input.name}} loses changes"
"""


def ruled(folder: Path, agents: str = "") -> Place:
    """Found a realm of the template, with rules for the tools of these tests in place of the one that asks always."""
    place = founded(folder, agents)
    policy = place.folder / "policy.toml"
    before, _, rest = policy.read_text().partition('[[rules]]\nid = "mcp_tools"')
    after = rest.partition("[[rules]]")[2]
    assert after
    policy.write_text(before + RULES.lstrip() + "\n[[rules]]" + after)
    config = read_config(place.folder / "world.toml")
    with Realm.from_config(config, on_change="adopt") as opened:
        for right in ("actor", "operator"):
            opened.access.grant("ann", right, by="operator")
        place.tokens["ann"] = opened.access.create_token("ann", by="operator").token
    return place


@contextmanager
def governed(folder: Path, agents: str = "") -> Iterator[Served]:
    """Serve such a realm."""
    with serving(ruled(folder, agents)) as served:
        yield served


@dataclass
class Script:
    """What a scripted upstream does.

    Args:
        folder: its folder.
    """

    folder: Path

    @property
    def words(self) -> list[str]:
        """The command that starts it."""
        return [sys.executable, str(SCRIPTED), str(self.folder)]

    def write(self, *tools: dict[str, Any], **members: Any) -> Script:
        """Write what it lists and how it behaves."""
        self.folder.mkdir(exist_ok=True)
        whole = self.folder / "script.new"
        whole.write_text(json.dumps({"tools": list(tools), **members}))
        whole.replace(self.folder / "script.json")  # the upstream reads it meanwhile
        return self

    @property
    def calls(self) -> list[dict[str, Any]]:
        """The calls that reached it."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def tool(name: str, description: str = "does what its name says", **annotations: bool) -> dict[str, Any]:
    """Return the definition of a tool."""
    return {"name": name, "description": description, "inputSchema": {"type": "object"}, "annotations": annotations}


def pinned(served: Served, name: str, *tools: dict[str, Any], instructions: str | None = None) -> None:
    """Pin tools as a person."""
    pins = Pins.listed(tools, instructions)
    done = served.submit("ann", {"type": "mcp.pin", "input": {"server": name, **pins.wire()}})
    assert done.json()["status"] == "completed", done.text


def pinned_by_command(served: Served, name: str, words: Sequence[str], actor: str = "ann") -> dict[str, Any]:
    """Pin the tools of an upstream as an actor, and return what the command printed."""
    done = worldctl(served, actor, "mcp", "pin", "--json", "--yes", "--name", name, "--", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def worldctl(served: Served, actor: str, *words: str, given: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command of ``worldctl mcp`` for an actor."""
    at = words.index("--") if "--" in words else len(words)
    typed = [*words[:at], "--server", served.url, *words[at:]]
    variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens[actor], "PYTHONWARNINGS": "default"}
    return subprocess.run([*COMMAND, *typed], input=given, capture_output=True, text=True, env=variables, check=False)


@dataclass
class Agent:
    """A client that starts a proxy and speaks plain JSON-RPC to it.

    Args:
        process: the proxy.
        answers: what came from it, by id of the request.
        notes: notifications and requests from it.
    """

    process: subprocess.Popen[str]
    answers: dict[Any, Queue[dict[str, Any]]] = field(default_factory=dict)
    notes: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    begun: dict[str, Any] = field(default_factory=dict)
    reader: threading.Thread | None = None

    def begin(self) -> Agent:
        """Read what comes in a thread, and begin the protocol."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        given = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "agent", "version": "1"}}
        self.begun = self.ask("initialize", given)
        self.write({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message = json.loads(line)
            if "method" in message:
                self.notes.append(message)
            else:
                self.answers[message["id"]].put(message)

    def close(self) -> int:
        """End the client's stream, and return the exit code of the proxy."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        return self.process.wait(GUARD_S)

    def kill(self) -> None:
        """Kill the proxy where it still runs, and close its streams."""
        self.process.kill()
        self.process.wait()
        if self.reader is not None:
            self.reader.join(GUARD_S)
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def write(self, message: dict[str, Any]) -> None:
        """Send a message."""
        self.write_line(json.dumps(message))

    def write_line(self, line: str) -> None:
        """Send a line as it is."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, method: str, params: dict[str, Any] | None = None) -> int:
        """Send a request and return its id."""
        self.count += 1
        self.answers[self.count] = Queue()
        self.write({"jsonrpc": "2.0", "id": self.count, "method": method, "params": params or {}})
        return self.count

    def start_raw(self, name: str, arguments: str) -> int:
        """Begin a call whose arguments are written as they are, and return the id of the request."""
        self.count += 1
        self.answers[self.count] = Queue()
        params = f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
        self.write_line(f'{{"jsonrpc": "2.0", "id": {self.count}, "method": "tools/call", "params": {params}}}')
        return self.count

    def answer(self, number: int | str | None) -> dict[str, Any]:
        """Return the answer to a request."""
        try:
            return self.answers[number].get(timeout=GUARD_S)
        except Empty:
            raise AssertionError(f"no answer to {number}; the proxy: {self.process.poll()}") from None

    def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a request and return its answer."""
        return self.answer(self.send(method, params))

    def start(self, name: str, **arguments: Any) -> int:
        """Begin a call of a tool and return the id of the request."""
        return self.send("tools/call", {"name": name, "arguments": arguments})

    def call(self, name: str, **arguments: Any) -> tuple[bool, str, dict[str, Any]]:
        """Call a tool: whether it is an error, its text, and what is told to programs."""
        return told(self.answer(self.start(name, **arguments)))

    @property
    def tools(self) -> list[str]:
        """Names of the tools that are listed."""
        return [one["name"] for one in self.ask("tools/list")["result"]["tools"]]


def told(answer: dict[str, Any]) -> tuple[bool, str, dict[str, Any]]:
    """Return what an answer to a call says: whether it is an error, its text, and what is told to programs."""
    result = answer["result"]
    words = " ".join(one["text"] for one in result["content"])
    return result.get("isError", False), words, result.get("_meta", {}).get("worldprotocol/call", {})


@contextmanager
def agent(served: Served, name: str, words: Sequence[str], *options: str, actor: str = "claude") -> Iterator[Agent]:
    """Start a proxy with the token of an actor, and a client of it; it is killed at the end where it still runs."""
    variables = environment() | {"WORLDCTL_TOKEN": served.place.tokens[actor]}
    process = subprocess.Popen(
        [*COMMAND, "mcp", "proxy", "--server", served.url, "--name", name, *options, "--", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables | {"PYTHONWARNINGS": "default"},
    )
    client = Agent(process)
    try:
        yield client.begin()
        client.close()
    finally:
        client.kill()


def answered(served: Served, proposal: str, choice: str = "approve", by: str = "ann") -> None:
    """Answer a proposal that waits, as a person who read it."""
    with served.client(by) as client:
        done = client.post(f"{PATH}/proposals/{proposal}:answer", json={"choice": choice})
        assert done.is_success, done.text


def proposals(served: Served, server: str, action: str = "mcp.call") -> list[dict[str, Any]]:
    """Return the proposals of an action that concern an MCP server, the first submitted first."""
    with served.client("ann") as client:
        found = client.get(f"{PATH}/proposals?limit=500").json()["proposals"]
    bodies = [(one, one["intent"]["body"]) for one in found]
    return [one for one, body in bodies if body["type"] == action and body["input"]["server"] == server]


def status(served: Served, server: str) -> str | None:
    """Return the status of the last call of a server's tools; None where there was none."""
    found = proposals(served, server)
    return str(found[-1]["status"]) if found else None


def is_in_doubt(served: Served, proposal: str) -> bool:
    """Return whether it is not known what became of the call of a proposal."""
    with served.client("ann") as client:
        return bool(client.get(f"{PATH}/proposals/{proposal}").json()["effects"].get("inDoubt"))


def until(what: Any, wanted: Any = True) -> Any:
    """Return what a function returns as soon as it is what is wanted; fail if it never is."""
    end = time.monotonic() + GUARD_S
    while (found := what()) != wanted and time.monotonic() < end:
        time.sleep(0.05)
    assert found == wanted, found
    return found
