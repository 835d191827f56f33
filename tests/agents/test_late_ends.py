"""The end of an agent's process that a server hears of late: what was begun afterwards stays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.called import FILE, NAME, RUN, Monotonic, allowed_run, copied, founded, renewed, run
from world.audit.verify import verify
from world.clock import ManualClock
from world.events.caller_events import Attended, CallerLeft, SessionBegun
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.hooks import http_client, session_guard
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import held_session
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls

pytestmark = pytest.mark.requirement("LIVE-caller")

START = 1_800_000_000_000


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    with founded(copied(tmp_path)) as opened:
        yield opened
        found = verify(opened.log)
        assert found.ok, found.findings


@pytest.fixture
def time(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Return the clock of the realm."""
    clock = ManualClock(START)
    monkeypatch.setattr(realm._acting, "_clock", clock)
    return clock


@pytest.fixture
def absent(realm: Realm) -> AbsentCallers:
    clock = Monotonic()
    found = AbsentCallers(realm, Presence(clock), RunningCalls(clock))
    found.presence.meet(NAME, "codex", "0.171.0")
    assert renewed(found)
    return found


def called(realm: Realm, key: str, path: str) -> str:
    """Begin a call of the session, and return its proposal."""
    trace = {"client": "codex", "session": "s"}
    call = ToolCall(key, "file.edit", {**FILE, "path": path}, trace=trace, attended=Attended(by="hook"))
    found = ToolCalls(realm, "bot").begin(call)
    assert isinstance(found, Allowed)
    return found.proposal.proposal_id


def records(realm: Realm) -> list[str]:
    """Return the kinds of the records of sessions, in order."""
    return [one.TOPIC for _, one in realm.events() if isinstance(one, SessionBegun | CallerLeft)]


def test_a_late_end_leaves_the_calls_of_a_process_that_continues_the_session(
    realm: Realm, time: ManualClock, absent: AbsentCallers
) -> None:
    earlier = called(realm, "a", "/a.py")
    time.advance(1_000)
    ended_at = time.now_ms()
    time.advance(1_000)
    later = called(realm, "b", "/b.py")
    assert absent.end_session(NAME, "process", until=ended_at) == [earlier]
    assert (realm.proposal(earlier).status, realm.proposal(later).status) == ("failed", "executing")
    assert records(realm) == ["session.begun", "caller.left", "session.begun"]
    held = held_session(realm, *NAME)
    assert held is not None
    assert (held.client, held.server, held.version) == ("codex", realm._acting.worker, "0.171.0")
    assert absent.presence.is_heard(NAME)
    assert absent.end_session(NAME, "process", until=ended_at) == []  # its answer was lost
    assert len(records(realm)) == 3
    assert absent.end_session(NAME, "process") == [later]


def test_a_late_end_leaves_a_run_that_began_afterwards(realm: Realm, time: ManualClock, absent: AbsentCallers) -> None:
    ended_at = time.now_ms()
    time.advance(1)
    name = allowed_run(realm)
    run(realm, absent)
    assert absent.end_session(NAME, "process", until=ended_at) == []
    assert (realm.proposal(name).cancelled, absent.running.is_heard(RUN)) == (None, True)
    assert records(realm) == ["session.begun"]
    absent.end_session(NAME, "process")
    assert realm.proposal(name).cancelled is not None


def test_a_call_that_a_later_process_claimed_is_its_own(realm: Realm, time: ManualClock, absent: AbsentCallers) -> None:
    trace, attended = {"client": "codex", "session": "s"}, Attended(by="hook")
    calls = ToolCalls(realm, "bot")
    first, again = (ToolCall(key, "file.edit", FILE, trace=trace, attended=attended) for key in "ab")
    name = calls.submit(first).proposal_id
    ended_at = time.now_ms()
    time.advance(1)
    assert calls.submit(again).proposal_id == name
    assert isinstance(calls.look(again, name), Allowed)
    assert absent.end_session(NAME, "process", until=ended_at) == []


def test_a_late_end_leaves_a_session_that_began_again(realm: Realm, time: ManualClock, absent: AbsentCallers) -> None:
    ended_at = time.now_ms()
    time.advance(1)
    absent.end_session(NAME, "process", until=ended_at)
    absent.presence.meet(NAME, "codex")
    assert renewed(absent)
    absent.end_session(NAME, "process", until=ended_at)
    assert records(realm) == ["session.begun", "caller.left", "session.begun"]
    assert absent.presence.is_heard(NAME)


def test_a_guard_says_when_the_agent_ended_by_the_clock_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[dict[str, Any]] = []
    seconds = Monotonic()

    def answered(_server: str, _path: str, _fields: Any, body: bytes, *_: object) -> bytes:
        sent.append(json.loads(body))
        seconds.seconds += 1
        return json.dumps({"renewed": 1, "elsewhere": [], "now": START}).encode()

    def look_after(_agent: int, _name: int, send: Any) -> None:
        send(session_guard.RENEW, [])
        seconds.seconds += 7
        for _ in range(2):
            send(session_guard.END, [])

    monkeypatch.setattr(http_client, "sent", answered)
    monkeypatch.setattr(session_guard, "look_after", look_after)
    monkeypatch.setattr("worldprotocol.agents.hooks.session_guard.time.monotonic", seconds)
    words = ["--session", "s", "--agent", "0", "--socket", "0", "--server", "unix:/x", "--realm", "main"]
    session_guard.run(http_client, words)
    end = {"session": "s", "noticedBy": "process", "endedAt": START + 7_000}
    assert sent == [{"sessions": ["s"]}, end, end]
