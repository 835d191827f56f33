"""The end of an agent's process that a server hears of late: what was begun afterwards stays."""

from __future__ import annotations

import json
import os
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from tests.agents.called import FILE, NAME, RUN, Monotonic, Servers, allowed_run, renewed, run
from world.clock import ManualClock
from world.events.caller_events import Attended, CallerLeft, SessionBegun
from worldprotocol.agents.call_values import Allowed, StillWaiting, ToolCall
from worldprotocol.agents.hooks import http_client, local_sockets, session_guard
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import held_session
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.heard_callers import SILENT_S

pytestmark = pytest.mark.requirement("LIVE-caller")

START = 1_800_000_000_000


@pytest.fixture
def time(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    """Return the clock of the realm."""
    clock = ManualClock(START)
    monkeypatch.setattr(realm._acting, "_clock", clock)
    return clock


@pytest.fixture
def absent(absent: AbsentCallers) -> AbsentCallers:
    """Return a server that holds the session."""
    absent.presence.meet(NAME, "codex", "0.171.0")
    assert renewed(absent)
    return absent


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


START_S = 1_000.0


@pytest.mark.parametrize(
    ("is_renewed", "ended_s", "sent_ends"), [(True, 7.0, [START + 7_000]), (False, 7.0, [None]), (False, 2.0, [])]
)
def test_a_guard_says_when_the_agent_ended_by_the_clock_of_the_server(
    monkeypatch: pytest.MonkeyPatch, is_renewed: bool, ended_s: float, sent_ends: list[int | None]
) -> None:
    sent: list[dict[str, Any]] = []
    seconds = Monotonic()

    def answered(_server: str, _path: str, _fields: Any, body: bytes, *_: object) -> bytes:
        sent.append(json.loads(body))
        return json.dumps({"renewed": 1, "elsewhere": [], "now": START}).encode()

    def look_after(_agent: int, _notice: object, send: Any, _: object) -> float:
        if is_renewed:
            send(session_guard.RENEW, [])
        seconds.seconds += 7
        return START_S + ended_s  # earlier than now where the guard was stopped

    monkeypatch.setattr(http_client, "sent", answered)
    monkeypatch.setattr(session_guard, "look_after", look_after)
    monkeypatch.setattr("worldprotocol.agents.hooks.session_guard.time.monotonic", seconds)
    options = {"--session": "s", "--agent": "0", "--server": "unix:/x", "--realm": "main"}
    with socket.socket(socket.AF_UNIX) as notice:
        options["--socket"] = str(os.dup(notice.fileno()))
        session_guard.run(http_client, local_sockets, options, [f"\0{uuid4()}"])
    assert [one.get("endedAt") for one in sent if "noticedBy" in one] == sent_ends


@pytest.fixture
def asked(realm: Realm, absent: AbsentCallers) -> tuple[str, ToolCall]:
    """Propose a call about which ann is asked, by a process of the session; return its proposal, and an equal call."""
    realm.bind("bot", {"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]}, by="ann")
    trace, attended = {"client": "codex", "session": "s"}, Attended(by="hook", server=realm._acting.worker)
    first, again = (
        ToolCall(key, "file.edit", {**FILE, "hidden": True}, trace=trace, attended=attended) for key in "ab"
    )
    waiting = ToolCalls(realm, "bot").begin(first)
    assert isinstance(waiting, StillWaiting)
    name = waiting.proposal.proposal_id
    absent.presence.ask(name, realm._acting.now_ms())
    return name, again


def test_a_late_end_leaves_an_undecided_call_that_a_later_process_asked_again(
    realm: Realm, time: ManualClock, absent: AbsentCallers, asked: tuple[str, ToolCall]
) -> None:
    name, again = asked
    ended_at = time.now_ms()
    time.advance(1)
    assert ToolCalls(realm, "bot").submit(again).proposal_id == name
    absent.presence.ask(name, time.now_ms())
    assert absent.end_session(NAME, "process", until=ended_at, is_late=True) == []
    assert realm.proposal(name).status == "evaluating"
    assert records(realm) == ["session.begun"]
    assert absent.end_session(NAME, "process", until=time.now_ms(), is_late=True) == [name]
    assert realm.proposal(name).status == "superseded"


def test_a_late_end_at_another_server_leaves_an_undecided_call_to_the_renewals_of_its_session(
    realm: Realm, folder: Path, asked: tuple[str, ToolCall], absent: AbsentCallers
) -> None:
    name, _ = asked
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        until = realm._acting.now_ms() + 1
        assert servers.all[0].end_session(NAME, "process", until=until, is_late=True) == []
        assert realm.proposal(name).status == "evaluating"  # the server that was asked may hear of a later process
    cast("Monotonic", absent.presence.clock).seconds += SILENT_S + 1
    assert absent.end_session(NAME, "renewal", of_holder=True) == [name]


def test_the_end_that_an_agent_or_an_operator_says_leaves_no_undecided_call(
    realm: Realm, folder: Path, asked: tuple[str, ToolCall]
) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        assert servers.all[0].end_session(NAME, "process", until=realm._acting.now_ms()) == [asked[0]]
