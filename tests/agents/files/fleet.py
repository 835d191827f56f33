"""Scripted agents on one realm, without a server: each does what the hooks of an agent do, one step at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import count
from pathlib import Path
from typing import Any

from world.clock import Clock, SystemClock
from world.errors import RefusedError
from worldprotocol.agents import intents
from worldprotocol.agents.call_values import Allowed, Answer, Denied, ToolCall
from worldprotocol.agents.files.calls import FileCalls
from worldprotocol.agents.files.history import Reader
from worldprotocol.agents.intents import Intent
from worldprotocol.agents.project import Project
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

NOT_PROPOSED: Any = None
"""The proposal of a call that was refused before it was proposed."""

ACTORS = ("one", "two", "three")


@dataclass
class Call:
    """A call that was asked for.

    Args:
        key: its key.
        reader: who makes it.
        intent: what it is.
        answer: the last answer.
    """

    key: str
    reader: Reader
    intent: Intent
    answer: Answer


@dataclass
class Fleet:
    """Agents in one project.

    Args:
        realm: their realm.
        project: the folder that they work in.
        files: the contents of its files, as a server keeps them.
    """

    realm: Realm
    project: Project
    files: FileCalls
    _numbers: Iterator[int] = field(default_factory=count)

    def restart(self) -> None:
        """Forget what a server has in memory."""
        self.files = FileCalls(self.project)

    def path(self, name: str) -> Path:
        """The file of a name."""
        return self.project.root / name

    def ask(self, reader: Reader, intent: Intent) -> Call:
        """Ask whether a call may be made."""
        return self.again(reader, intent, f"{reader.client}:{reader.session}:{next(self._numbers)}")

    def again(self, reader: Reader, intent: Intent, key: str, *, has_own_id: bool = True) -> Call:
        """Ask as ``ask`` does, under a key."""
        try:
            seen = self.files.proposed(self.realm, reader, key, intent, has_own_id=has_own_id)
        except RefusedError as refused:
            return Call(key, reader, intent, Denied(NOT_PROPOSED, refused.code, refused.message))
        trace: dict[str, Any] = {"client": reader.client, "session": reader.session}
        if reader.agent_id is not None:
            trace["agentId"] = reader.agent_id
        calls = ToolCalls(self.realm, reader.actor_id, reader.client)
        answer = calls.begin(ToolCall(key, seen.action, seen.input, has_own_id, trace=trace))
        if isinstance(answer, Allowed):
            fault = self.files.begin(self.realm, answer.proposal, key, intent.files)
            if fault is not None:
                calls.report(key, failure=(str(fault[0]), fault[1]))
                answer = Denied(answer.proposal, str(fault[0]), fault[1])
        return Call(key, reader, intent, answer)

    def end(self, call: Call, *, is_partial: bool = False) -> dict[str, Any]:
        """Report that a call was made; return what is recorded of its files."""
        found = self.files.end(self.realm, call.reader.actor_id, call.key, is_partial=is_partial)
        ToolCalls(self.realm, call.reader.actor_id, call.reader.client).report(call.key, {"bytes": 0, **found})
        return found

    def fail(self, call: Call) -> None:
        """Report that a call failed."""
        self.files.forget(call.reader.actor_id, call.key)
        calls = ToolCalls(self.realm, call.reader.actor_id, call.reader.client)
        calls.report(call.key, failure=("TOOL_FAILED", "The tool failed."))

    def reading(self, name: str, *, is_whole: bool = True) -> Intent:
        """A read of a file."""
        return intents.read(self.project, "Read", name, str(self.project.root), is_whole=is_whole)

    def writing(self, name: str, *, is_whole: bool = True) -> Intent:
        """A write of a file, whole or with its context."""
        return intents.edit(self.project, "Write", name, str(self.project.root), is_whole=is_whole)

    def read(self, reader: Reader, name: str) -> Call:
        """Read a file whole."""
        call = self.ask(reader, self.reading(name))
        assert isinstance(call.answer, Allowed), call.answer
        self.end(call)
        return call

    def write(self, reader: Reader, name: str, text: str, *, is_whole: bool = True) -> Call:
        """Write a file where that is allowed."""
        call = self.ask(reader, self.writing(name, is_whole=is_whole))
        if isinstance(call.answer, Allowed):
            self.path(name).write_text(text)
            self.end(call)
        return call


@contextmanager
def fleet(folder: Path, clock: Clock | None = None) -> Iterator[Fleet]:
    """Found a realm of the template, beside a project."""
    realm, project = folder / "realm", folder / "project"
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), realm)
    (project / "src").mkdir(parents=True)
    placed = Project(project)
    config = read_config(realm / "world.toml").model_copy(update={"durability": "normal"})
    with Realm.from_config(config, create=True, clock=clock or SystemClock()) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        for name in ACTORS:
            opened.register(name, "agent", binding={"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]})
        yield Fleet(opened, placed, FileCalls(placed))


def session_of(actor: str, session: str = "s", agent: str | None = None) -> Reader:
    """A session of an agent."""
    return Reader(actor, "claude-code", session, agent)


def code_of(call: Call) -> str:
    """The code of a refusal; ``allowed`` or ``waiting`` for another answer."""
    if isinstance(call.answer, Denied):
        return call.answer.code
    return "allowed" if isinstance(call.answer, Allowed) else "waiting"


def reason_of(call: Call) -> str:
    """The sentence of a refusal; empty for another answer."""
    return call.answer.reason if isinstance(call.answer, Denied) else ""
