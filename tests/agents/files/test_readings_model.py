"""What sessions know, against a simple model: it says of each call whether it may be made, and that no line is lost."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.agents.files.fleet import Call, code_of, fleet, session_of
from tests.plugins.forms import scaled
from world.audit.verify import verify
from world.clock import ManualClock
from worldprotocol.agents.files.history import Reader
from worldprotocol.agents.tool_calls import ToolCalls

pytestmark = pytest.mark.slow

READERS = [session_of("one"), session_of("two"), session_of("one", "t"), session_of("one", "s", "helper")]
NAMES = ["a.txt", "b.txt"]
readers, names = st.sampled_from(READERS), st.sampled_from(NAMES)


@dataclass
class Flight:
    """A call that was begun.

    Args:
        call: the call.
        name: its file.
        kind: ``read``, ``part``, ``write`` or ``edit``.
        before: what the file held when it began.
        text: what it writes.
        is_forgotten: whether the server was restarted meanwhile.
    """

    call: Call
    name: str
    kind: str
    before: str | None
    text: str = ""
    is_forgotten: bool = False


class Readings(RuleBasedStateMachine):
    """Sessions that read and write two files, with calls that overlap, fail, and outlive the server."""

    def __init__(self) -> None:
        super().__init__()
        self._open = ExitStack()
        self.known: dict[tuple[Reader, str], str] = {}
        self.believed: dict[tuple[Reader, str], str] = {}
        self.flights: list[Flight] = []
        self.lines: dict[str, set[str]] = {name: set() for name in NAMES}
        self.number = 0

    @initialize(there=st.booleans())
    def begin(self, there: bool) -> None:
        folder = Path(self._open.enter_context(tempfile.TemporaryDirectory()))
        self.fleet = self._open.enter_context(fleet(folder, ManualClock(1_800_000_000_000)))
        if there:
            self.fleet.path(NAMES[0]).write_text("first\n")
            self.lines[NAMES[0]].add("first")

    def teardown(self) -> None:
        if hasattr(self, "fleet"):
            assert verify(self.fleet.realm.log).ok
        self._open.close()

    def now(self, name: str) -> str | None:
        path = self.fleet.path(name)
        return path.read_text() if path.exists() else None

    def line(self) -> str:
        self.number += 1
        return f"line {self.number}"

    def written(self, name: str, text: str) -> None:
        """Write a file, and check that it has all lines that were ever written."""
        self.fleet.path(name).write_text(text)
        self.lines[name] |= set(text.splitlines())
        assert set(text.splitlines()) == self.lines[name], "a change was lost"

    def is_written(self, name: str) -> bool:
        return any(one.name == name and one.kind in ("write", "edit") for one in self.flights)

    @rule(reader=readers, name=names, is_whole=st.booleans())
    def read(self, reader: Reader, name: str, is_whole: bool) -> None:
        call = self.fleet.ask(reader, self.fleet.reading(name, is_whole=is_whole))
        assert code_of(call) == "allowed", "a read waits for nothing"
        self.flights.append(Flight(call, name, "read" if is_whole else "part", self.now(name)))

    @rule(reader=readers, name=names, is_whole=st.booleans())
    def write(self, reader: Reader, name: str, is_whole: bool) -> None:
        now, key = self.now(name), (reader, name)
        if not is_whole and now is None:
            return  # there is no text to replace
        text = (self.believed.get(key, "") if is_whole else now or "") + self.line() + "\n"
        call = self.fleet.ask(reader, self.fleet.writing(name, is_whole=is_whole))
        expected = "allowed"
        if is_whole and now is not None and key not in self.known:
            expected = "NOT_READ"  # at once
        elif self.is_written(name):
            expected = "waiting"
        elif is_whole and now is not None and self.known[key] != now:
            expected = "STALE_READ"
        assert code_of(call) == expected, call.answer
        if expected == "allowed":
            kind = "write" if is_whole else "edit"
            self.flights.append(
                Flight(call, name, kind, now, text if now is not None else text.splitlines()[-1] + "\n")
            )
        elif expected == "waiting":
            ToolCalls(self.fleet.realm, reader.actor_id, reader.client).give_up(call.key, "It does something else.")

    @precondition(lambda self: self.flights)
    @rule(data=st.data(), fails=st.booleans())
    def end(self, data: Any, fails: bool) -> None:
        flight = self.flights.pop(data.draw(st.integers(0, len(self.flights) - 1)))
        key, now = (flight.call.reader, flight.name), self.now(flight.name)
        if fails or (now is None and flight.kind in ("read", "part")):
            self.fleet.fail(flight.call)
            return
        if flight.kind in ("write", "edit"):
            self.written(flight.name, flight.text)
            self.believed[key] = flight.text if flight.kind == "write" else self.believed.get(key, "")
        elif flight.kind == "read":
            self.believed[key] = now or ""
        self.fleet.end(flight.call)
        if flight.is_forgotten:
            return
        knew_it = flight.kind == "edit" and self.known.get(key) == flight.before
        if flight.kind == "write" or knew_it:
            self.known[key] = flight.text
            self.believed[key] = flight.text
        elif flight.kind == "read" and flight.before == now:
            self.known[key] = now or ""

    @rule(name=names)
    def change_outside(self, name: str) -> None:
        if not self.is_written(name):  # what changes between the look and the write of a tool is not held
            self.written(name, (self.now(name) or "") + self.line() + "\n")

    @rule()
    def restart(self) -> None:
        self.fleet.restart()
        for one in self.flights:
            one.is_forgotten = True


TestReadings = Readings.TestCase
TestReadings.settings = settings(max_examples=scaled(200, ci=6), stateful_step_count=scaled(60, ci=40), deadline=None)
