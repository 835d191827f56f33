"""A realm of coding agents, several servers of it in this process, and calls of one session."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.resources import files
from pathlib import Path

import pytest

from world.clock import ManualClock
from world.events.caller_events import Attended
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.command_runs import CommandRuns, RunRequest
from worldprotocol.agents.hooks.session_guard import MOVE, renew
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls

FILE = {"path": "/src/app.py", "tool": "Edit", "guarded": False, "hidden": False}
NAME = ("bot", "s")
RUN = ("bot", "r")
"""The run of the shell command of the session, by the key of its call."""

COMMAND = {
    "command": "make",
    "cwd": "/",
    "kinds": [],
    "reads": [],
    "writes": ["/*"],
    "touches": [],
    "hosts": [],
    "confined": True,
    "boundary": "namespaces",
    "widened": False,
    "tool": "Bash",
    "guarded": False,
    "hidden": False,
}


class Monotonic:
    """A monotonic clock that stands still."""

    seconds = 1_000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.seconds


def copied(folder: Path) -> Path:
    """Return a copy of the template of coding agents in a folder."""
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), folder / "realm")
    return folder / "realm"


@contextmanager
def founded(folder: Path) -> Iterator[Realm]:
    """Found the realm of a template, with an agent."""
    config = read_config(folder / "world.toml")
    with Realm.from_config(config, create=True, clock=ManualClock(1_800_000_000_000)) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        opened.register("bot", "agent", binding={"kind": "auto_approve"})
        yield opened


def renewed(absent: AbsentCallers) -> bool:
    """Renew the session at a server, and return whether that holds it."""
    return absent.renew(NAME[0], [NAME[1]], moves=False) == []


def begun(realm: Realm, key: str = "a") -> str:
    attended = Attended(by="hook")
    trace = {"client": "codex", "session": "s"}
    found = ToolCalls(realm, "bot").begin(ToolCall(key, "file.edit", FILE, trace=trace, attended=attended))
    assert isinstance(found, Allowed)
    return found.proposal.proposal_id


def allowed_run(realm: Realm) -> str:
    """Begin the call of a shell command that `worldctl run --call` makes; return its proposal."""
    trace = {"client": "codex", "session": "s", "isRun": True}
    attended = Attended(by="run", server=realm._acting.worker)
    found = ToolCalls(realm, "bot").begin(ToolCall("r", "command.run", COMMAND, trace=trace, attended=attended))
    assert isinstance(found, Allowed)
    return found.proposal.proposal_id


def run(realm: Realm, absent: AbsentCallers) -> None:
    """Begin the run of the command at a server."""
    absent.take_run(RUN)
    CommandRuns(realm, "bot").begin(RunRequest("r", "make", "namespaces", False), "namespaces")
    absent.running.hear(RUN)


class Servers:
    """Several servers of one log, behind a balancer that takes them in an order, by clocks of the test."""

    def __init__(self, folder: Path, stack: ExitStack, order: Iterable[int]) -> None:
        config = read_config(folder / "world.toml")
        self.seconds, self.order = Monotonic(), iter(order)
        self.clocks = [ManualClock(1_800_000_000_000) for _ in range(4)]
        opened = [stack.enter_context(Realm.from_config(config, clock=clock)) for clock in self.clocks]
        self.all = [AbsentCallers(one, Presence(self.seconds), RunningCalls(self.seconds)) for one in opened]
        self.sent = 0

    def send(self, operation: str, _: list[int]) -> dict[str, object] | None:
        """Take a renewal of the guard, as the operation does."""
        self.sent += 1
        one = self.all[next(self.order)]
        return {"elsewhere": one.renew(NAME[0], [NAME[1]], moves=operation == MOVE)}

    def guard(self, patch: pytest.MonkeyPatch, rounds: int) -> list[str]:
        """Renew the session by its guard every 5 s; return the ids of the proposals that ended."""
        patch.setattr("worldprotocol.agents.hooks.session_guard.time.monotonic", self.seconds)
        reached: float | None = None
        ended: list[str] = []
        for _ in range(rounds):
            reached = renew(self.send, 0, reached)
            ended += self.wait(5)
        return ended

    def wait(self, seconds: int) -> list[str]:
        """Let each look for silent sessions in each second; return the ids of the proposals that ended."""
        ended = []
        for _ in range(seconds):
            self.seconds.seconds += 1
            for clock in self.clocks:
                clock.advance(1_000)
            for one in self.all:
                for name in one.presence.silent():
                    ended += one.end_session(name, "renewal", of_holder=True)
                for name in one.running.silent():
                    one.end_run(name)
        return ended

    def ask(self, operation: str, _: list[int]) -> dict[str, object] | None:
        """Take the question of a run whether it continues, as the operation does."""
        self.sent += 1
        return {"elsewhere": not self.all[next(self.order)].hear_run(RUN, moves=operation == MOVE)}

    def work(self, patch: pytest.MonkeyPatch, rounds: int) -> None:
        """Ask for the run every 3 s, as it does."""
        patch.setattr("worldprotocol.agents.hooks.session_guard.time.monotonic", self.seconds)
        reached: float | None = self.seconds()
        for _ in range(rounds):
            self.wait(3)
            reached = renew(self.ask, -1, reached) or reached
