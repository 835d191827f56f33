"""What a server does about callers that are gone, by clocks of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from itertools import chain, cycle, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.agents.called import FILE, NAME, Monotonic, Servers, allowed_run, begun, renewed, run
from world.clock import ManualClock
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.caller_events import Attended, CallerLeft, CallerReturned, SessionMoved
from world.log.log import EventLog
from world.log.values import LoggedEvent
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.files.calls import FileCalls
from worldprotocol.agents.files.uses import FileUse
from worldprotocol.agents.hooks.session_guard import ATTEMPTS
from worldprotocol.agents.project import Project
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import caller_returned, held_session, hold_session
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.server.call import Call
from worldprotocol.server.governed.absent_callers import MISSES_S, AbsentCallers
from worldprotocol.server.governed.caller_watch import CallerWatch
from worldprotocol.server.governed.heard_callers import SILENT_S
from worldprotocol.server.governed.presence import MAX_SESSIONS_OF_ACTOR
from worldprotocol.server.operations.hooks import _checked
from worldprotocol.server.threads import Threads

pytestmark = pytest.mark.requirement("LIVE-caller")


def test_a_cancelled_call_of_a_caller_without_a_sign_is_freed_at_once(
    realm: Realm, absent: AbsentCallers, clock: Monotonic
) -> None:
    name = begun(realm)
    hold_session(realm, *NAME, "codex")
    absent.presence.hear(NAME)
    realm.host.cancel(name, by="ann", reason="it hangs")
    absent.end_cancelled(realm.proposal(name))
    assert realm.proposal(name).status == "executing"  # it is there, and has 15 s
    clock.seconds += MISSES_S + 1
    absent.end_cancelled(realm.proposal(name))
    ended = realm.proposal(name)
    assert (ended.status, len(realm.realm().klis.leases)) == ("failed", 0)
    [left] = [one for _, one in realm.events() if isinstance(one, CallerLeft)]
    assert (left.noticed_by, left.calls, left.client, left.session) == ("operator", [name], "codex", "s")


def test_only_the_server_that_holds_a_session_takes_its_silence_for_the_end_of_a_cancelled_call(
    realm: Realm, folder: Path
) -> None:
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        clock = cast("Monotonic", first.presence.clock)
        name = begun(first.realm)
        first.presence.meet(NAME, "codex")
        for one in (first, second):
            renewed(one)
        realm.host.cancel(name, by="ann", reason="it hangs")
        clock.seconds += MISSES_S + 1
        first.presence.hear(NAME)
        for one in (second, first):  # the renewals of the guard reach the first one
            one.end_cancelled(realm.proposal(name))
        assert realm.proposal(name).status == "executing"
        clock.seconds += MISSES_S + 1
        first.end_cancelled(realm.proposal(name))
    assert realm.proposal(name).status == "failed"


def test_a_session_is_silent_after_its_time_and_not_for_the_time_of_a_stopped_server(
    absent: AbsentCallers, clock: Monotonic
) -> None:
    presence = absent.presence
    presence.meet(("bot", "http"), "codex")
    presence.hear(NAME)
    clock.seconds += SILENT_S
    assert presence.silent() == []
    clock.seconds += 1
    assert presence.silent() == [NAME]  # and never one that was not renewed
    presence.shift(5.0)
    assert presence.silent() == []


def test_a_session_with_a_guard_is_silent_where_no_renewal_follows(absent: AbsentCallers, clock: Monotonic) -> None:
    presence = absent.presence
    presence.expect(NAME)
    clock.seconds += SILENT_S - 1
    presence.expect(NAME)  # another call is no sign of the guard
    clock.seconds += 2
    assert presence.silent() == [NAME]
    presence.renew("other", [("other", f"s{number}") for number in range(MAX_SESSIONS_OF_ACTOR)])
    presence.expect(("other", "more"))
    assert not presence.is_heard(("other", "more"))


def test_the_sessions_of_a_server_that_ended_are_taken_over(
    realm: Realm, folder: Path, absent: AbsentCallers, clock: Monotonic
) -> None:
    with Realm.from_config(read_config(folder / "world.toml"), clock=ManualClock(1_800_000_000_000)) as first:
        name = begun(first)
        hold_session(first, *NAME, "codex")
        absent.take_over()  # it is there
        assert not absent.presence.is_heard(NAME)
    absent.take_over()
    absent.take_over()
    assert len([one for _, one in realm.events() if isinstance(one, SessionMoved)]) == 1
    clock.seconds += SILENT_S + 1
    assert absent.presence.silent() == [NAME]
    assert absent.end_session(NAME, "renewal", of_holder=True) == [name]
    assert not absent.presence.is_heard(NAME)


def test_a_session_that_another_server_hears_goes_on_where_its_renewals_were_expected(
    realm: Realm, folder: Path
) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        first, second, *_ = servers.all
        renewed(first)  # no call of it reached this one, so nothing is recorded
        servers.wait(4)
        second.presence.meet(NAME, "codex")
        second.presence.expect(NAME)  # its call is answered at once
        servers.wait(1)
        for _ in range(2):
            renewed(first)
            servers.wait(5)
        renewed(first)
        servers.wait(1)
        name = begun(second.realm)
        second.presence.expect(NAME)
        assert servers.wait(4) == []  # 15 s after the first call
        renewed(first)
        held = held_session(realm, *NAME)
        assert held is not None
        assert held.server == first.realm._acting.worker
        servers.wait(5)
        assert not second.presence.is_heard(NAME)
        assert realm.proposal(name).status == "executing"


def test_a_cancelled_call_of_a_session_that_another_server_may_hear_has_its_time(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        first, *_ = servers.all
        first.presence.expect(NAME)
        servers.wait(int(MISSES_S) + 1)
        name = begun(first.realm)
        first.realm.host.cancel(name, by="ann", reason="it hangs")
        first.end_cancelled(first.realm.proposal(name))
        assert realm.proposal(name).status == "executing"  # the renewal that records it is due
        assert servers.wait(int(MISSES_S) + 1) == []
        first.end_cancelled(first.realm.proposal(name))
        assert realm.proposal(name).status == "failed"


def test_a_call_of_a_session_that_no_server_hears_ends_after_its_own_time(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        first, *_ = servers.all
        first.presence.meet(NAME, "codex")
        first.presence.expect(NAME)
        servers.wait(12)
        name = begun(first.realm)
        first.presence.expect(NAME)
        assert servers.wait(14) == []
        assert servers.wait(2) == [name]
        servers.wait(1)
        assert not first.presence.silent()


def test_equal_calls_of_two_sessions_end_each_with_its_own(realm: Realm, absent: AbsentCallers) -> None:
    calls, attended = ToolCalls(realm, "bot"), Attended(by="hook")
    other, one, two, third = (
        ToolCall(key, "file.edit", FILE, trace={"client": "codex", "session": session}, attended=attended)
        for key, session in (("k0", "s0"), ("k1", "s1"), ("k2", "s2"), ("k3", "s2"))
    )
    assert isinstance(calls.begin(other), Allowed)  # the others wait for it
    names = [calls.submit(call).proposal_id for call in (one, two, third)]
    assert names[0] != names[1] == names[2]  # two subagents of a session have one
    assert absent.end_session(("bot", "s1"), "process") == [names[0]]
    assert len(absent.end_session(("bot", "s0"), "process")) == 1
    assert isinstance(calls.look(two, names[1]), Allowed)
    assert absent.end_session(("bot", "s2"), "process") == [names[1]]
    assert len(realm.realm().klis.leases) == 0


@pytest.mark.parametrize("error", [RefusedError(ErrorCode.INVALID_VALUE, "odd"), ValueError("odd")])
def test_an_allowed_call_whose_files_cannot_be_compared_ends(
    realm: Realm, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = ToolCalls(realm, "bot")
    found = calls.begin(ToolCall("a", "file.edit", FILE, attended=Attended(by="hook")))
    assert isinstance(found, Allowed)
    opened = FileCalls(Project("."))
    monkeypatch.setattr(FileCalls, "begin", raises(error))
    agents = SimpleNamespace(files=opened)
    call = cast("Call", SimpleNamespace(hosted=SimpleNamespace(name="main", agents=agents), realm=realm))
    with pytest.raises(type(error), match="odd"):
        _checked(call, calls, found, ("a", FileUse()))
    ended = realm.proposal(found.proposal.proposal_id)
    assert ended.error is not None
    assert (ended.error.code, len(realm.realm().klis.leases)) == ("TOOL_NOT_CALLED", 0)


def moves(realm: Realm) -> int:
    """Return how often a session moved."""
    return len([one for _, one in realm.events() if isinstance(one, SessionMoved)])


@pytest.mark.parametrize("order", [[0], [0, 1], [0, 1, 2, 3], [0, 0, 1, 1, 1, 2, 3, 3], [0, 1, 1, 1, 1, 1, 1, 1]])
def test_a_session_whose_renewals_reach_several_servers_never_moves_and_lives_until_they_stop(
    realm: Realm, folder: Path, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    with ExitStack() as stack:
        servers = Servers(folder, stack, cycle(order))
        servers.all[0].presence.meet(NAME, "codex")  # its calls reached that server alone
        assert servers.guard(monkeypatch, 30) == []
        assert moves(realm) == 0
        assert servers.wait(int(SILENT_S) + 1) == [name]
        assert [one.presence.silent() for one in servers.all] == [[] for _ in servers.all]
    assert realm.proposal(name).status == "failed"


def test_a_session_moves_once_where_renewals_do_not_reach_its_server_any_more(
    realm: Realm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    with ExitStack() as stack:
        servers = Servers(folder, stack, chain([0, 1, 0], repeat(3)))
        servers.all[0].presence.meet(NAME, "codex")
        assert servers.guard(monkeypatch, 2) == []
        assert servers.guard(monkeypatch, 20) == []
        assert moves(realm) == 1
        held = held_session(realm, *NAME)
        assert held is not None
        assert held[:2] == ("codex", servers.all[3].realm._acting.worker)
        assert servers.sent < 3 + 2 * (ATTEMPTS + 1) + 20
        assert servers.wait(int(SILENT_S) + 1) == [name]


def test_a_session_whose_server_vanished_elsewhere_is_taken_over_with_the_first_renewals_of_another_guard(
    realm: Realm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    hold_session(realm, *NAME, "codex")
    with ExitStack() as stack:
        servers = Servers(folder, stack, repeat(0))  # which heard of no call of the session
        assert servers.guard(monkeypatch, 3) == []
        held = held_session(realm, *NAME)
        assert held is not None
        assert held[:2] == ("codex", servers.all[0].realm._acting.worker)
        assert servers.sent == ATTEMPTS + 3
        assert servers.wait(int(SILENT_S) + 1) == [name]


def test_a_session_of_a_server_that_ended_is_held_by_the_next_one_that_it_reaches(
    realm: Realm, folder: Path, absent: AbsentCallers
) -> None:
    with Realm.from_config(read_config(folder / "world.toml"), clock=ManualClock(1_800_000_000_000)) as first:
        hold_session(first, *NAME, "codex")
        assert not renewed(absent)
    assert renewed(absent)
    assert moves(realm) == 1


@pytest.mark.parametrize("length", [3, 150])
def test_a_renewal_reads_no_event_of_its_session_again(
    realm: Realm, absent: AbsentCallers, length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    presence = absent.presence
    presence.meet(NAME, "codex")
    for number in range(length):
        absent.end_call(begun(realm, f"k{number}"), "connection", lambda *_: False)
    rows: list[int] = []
    real = EventLog.stream

    def stream(self: EventLog, *arguments: Any, **named: Any) -> list[LoggedEvent]:
        found = real(self, *arguments, **named)
        rows.append(len(found))
        return found

    monkeypatch.setattr(EventLog, "stream", stream)
    monkeypatch.setattr(EventLog, "read", raises(AssertionError("it reads from the beginning")))
    assert renewed(absent)
    assert sum(rows) <= 2 * (length + 1)  # where the session begins is not known
    rows.clear()
    for number in range(40):
        renewed(absent)
        assert sum(rows) == 1, number  # the event that the first renewal recorded
    rows.clear()
    renewed(absent)
    assert rows == [0]


def test_an_actor_has_no_more_sessions_at_a_server_than_it_may(absent: AbsentCallers, clock: Monotonic) -> None:
    presence, names = absent.presence, [f"s{number}" for number in range(MAX_SESSIONS_OF_ACTOR)]
    assert absent.renew("bot", names, moves=False) == []
    absent.renew("bot", ["s0"], moves=False)
    absent.renew("other", ["s0", "more"], moves=False)
    clock.seconds += 1
    with pytest.raises(RefusedError, match="an actor of their own") as refused:
        absent.renew("bot", ["s1", "more"], moves=False)
    assert refused.value.code == "TOO_MANY_OPEN"
    assert not presence.is_heard(("bot", "more"))
    clock.seconds += SILENT_S
    assert ("bot", "s1") not in presence.silent()  # one that is there is not refused for the sake of another
    for name in presence.silent():
        absent.end_session(name, "renewal", of_holder=True)
    absent.renew("bot", ["more"], moves=False)


def test_sessions_that_another_server_holds_are_not_counted(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        here, there = ([f"{place}{number}" for number in range(MAX_SESSIONS_OF_ACTOR)] for place in ("a", "b"))
        for server, names in ((first, here), (second, there)):
            for name in names:
                server.presence.meet(("bot", name), "codex")
            assert server.renew("bot", names, moves=False) == []
        assert first.renew("bot", [*there, *here], moves=False) == there
        with pytest.raises(RefusedError):
            first.renew("bot", there[:1], moves=True)


def test_a_refused_session_is_told_until_a_server_holds_it(
    realm: Realm, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        first.renew("bot", [f"a{number}" for number in range(MAX_SESSIONS_OF_ACTOR)], moves=False)
        for _ in range(3):
            with pytest.raises(RefusedError):
                first.renew("bot", ["s"], moves=False)
        told = [one.getMessage() for one in caplog.records if "is not renewed" in one.getMessage()]
        assert len(told) == 1
        assert "Give the agents of each machine an actor of their own" in told[0]
        assert first.is_refused(NAME)
        second.presence.meet(NAME, "codex")
        assert renewed(second)
        assert not first.is_refused(NAME)


def test_a_caller_that_returned_to_another_server_ends_with_its_connection_there(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        name = begun(first.realm)
        first.presence.depart(name, "a")
        caller_returned(second.realm, name)
        before = realm.log.head().size
        caller_returned(second.realm, name)
        assert realm.log.head().size == before
        first.end_departed(name)  # it cannot hear the other server
        assert (realm.proposal(name).status, first.presence.departed()) == ("executing", {})
        second.presence.depart(name, "a")
        caller_returned(first.realm, name)  # and back again
        second.end_departed(name)
        assert realm.proposal(name).status == "executing"
        first.presence.depart(name, "a")
        first.end_departed(name)
    assert realm.proposal(name).status == "failed"
    returned = [one.server for _, one in realm.events() if isinstance(one, CallerReturned)]
    assert returned == [one.realm._acting.worker for one in (second, first)]


def test_a_renewal_just_before_the_end_of_its_session_keeps_it(
    realm: Realm, absent: AbsentCallers, clock: Monotonic
) -> None:
    name = begun(realm)
    absent.presence.hear(NAME)
    renewed(absent)
    clock.seconds += SILENT_S + 1
    absent.presence.hear(NAME)
    assert absent.end_session(NAME, "renewal", of_holder=True) == []
    assert realm.proposal(name).status == "executing"
    clock.seconds += SILENT_S + 1
    assert absent.presence.silent() == [NAME]


def test_no_renewal_is_in_the_future(absent: AbsentCallers, clock: Monotonic) -> None:
    absent.presence.hear(NAME)
    absent.running.hear(("bot", "r"))
    absent.presence.shift(3_600.0)  # they arrived first after the process went on
    absent.running.shift(3_600.0)
    clock.seconds += SILENT_S + 1
    assert (absent.presence.silent(), absent.running.silent()) == ([NAME], [("bot", "r")])


def raises(error: Exception) -> Callable[..., Any]:
    """Return a function that raises an error."""

    def raising(*_: object, **__: object) -> None:
        raise error

    return raising


def test_a_call_whose_end_could_not_be_recorded_ends_later(
    realm: Realm, absent: AbsentCallers, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    absent.presence.depart(name, "a")
    with monkeypatch.context() as broken:
        broken.setattr(AbsentCallers, "end_call", raises(OSError("no disk")))
        asyncio.run(looks(absent, 1))
        assert list(absent.presence.departed()) == [name]
    asyncio.run(looks(absent, 1))
    assert realm.proposal(name).status == "failed"
    assert absent.presence.departed() == {}


async def looks(absent: AbsentCallers, count: int, clock: Monotonic | None = None) -> None:
    """Look for callers that are gone, at intervals of a second where there is a clock."""
    threads = Threads(1)
    watch = CallerWatch(absent, threads)
    for _ in range(count):
        await watch.look()
        if clock is not None:
            clock.seconds += 1
    await threads.close()


def test_the_time_in_which_the_log_is_not_read_is_no_silence(
    realm: Realm, absent: AbsentCallers, clock: Monotonic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    absent.presence.hear(NAME)
    renewed(absent)
    unreadable, real = range(3, 63), Realm.realm
    start = clock.seconds

    def view(self: Realm) -> Any:
        if int(clock.seconds - start) in unreadable:
            raise WorldProtocolError(ErrorCode.LOG_UNAVAILABLE, "The database is away.")
        return real(self)

    monkeypatch.setattr(Realm, "realm", view)
    asyncio.run(looks(absent, 70, clock))  # its next renewal came after that time
    assert realm.proposal(name).status == "executing"
    asyncio.run(looks(absent, int(SILENT_S), clock))
    assert realm.proposal(name).status == "failed"


def test_an_end_that_fails_hinders_no_other(
    realm: Realm, absent: AbsentCallers, clock: Monotonic, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = begun(realm)
    hold_session(realm, *NAME, "codex")
    for session in (("bot", "broken"), NAME):
        absent.presence.hear(session)
    real = AbsentCallers.end_session

    def end(self: AbsentCallers, session: tuple[str, str], *args: Any, **options: Any) -> list[str]:
        return real(self, session, *args, **options) if session == NAME else raises(ValueError("odd"))()

    monkeypatch.setattr(AbsentCallers, "end_session", end)
    clock.seconds += SILENT_S + 1
    asyncio.run(looks(absent, 1))
    assert (realm.proposal(name).status, absent.presence.silent()) == ("failed", [("bot", "broken")])


def test_a_call_whose_caller_returned_before_its_end_was_recorded_goes_on(realm: Realm, absent: AbsentCallers) -> None:
    name = begun(realm)
    absent.presence.depart(name, "a")
    with absent.presence.waiting(name):
        absent.end_departed(name)
    absent.presence.depart(name)  # an equal call, which claimed nothing: "a" makes it
    absent.end_departed(name)
    assert (realm.proposal(name).status, absent.presence.departed()) == ("executing", {})
    absent.presence.depart(name, "a")
    absent.end_departed(name)
    assert realm.proposal(name).status == "failed"


def test_a_request_is_the_last_one_where_no_other_is_here_or_was_answered_since(absent: AbsentCallers) -> None:
    presence = absent.presence
    with presence.waiting("p") as first:
        with presence.waiting("p") as second:  # it arrived before the end of the first was noticed
            first.leave()
            assert not first.is_last
        assert not first.is_last  # the second was answered
        assert second.is_here
    with presence.waiting("p") as first, presence.waiting("p") as second:
        second.leave()
        assert not second.is_last
        first.leave()
        assert first.is_last
    with presence.waiting("p") as again:
        again.leave()
        assert again.is_last


def test_a_session_and_a_call_move_between_running_servers_so_often_at_most(
    realm: Realm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worldprotocol.server.governed.absent_callers.MOST_MOVES", 4)
    monkeypatch.setattr("world.pipeline.callers.MOST_RETURNS", 4)
    name = begun(realm)
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        first.presence.meet(NAME, "codex")
        renewed(first)
        found = []
        for _ in range(5):
            for one in (second, first):
                found.append(one.renew(NAME[0], [NAME[1]], moves=True) == [])
                caller_returned(one.realm, name)
    assert found == [True] * 4 + [False, True] * 3
    assert moves(realm) == 4
    assert len([one for _, one in realm.events() if isinstance(one, CallerReturned)]) == 4


def test_a_session_that_ended_for_want_of_renewals_begins_again_with_the_next_one(
    realm: Realm, absent: AbsentCallers, clock: Monotonic
) -> None:
    absent.presence.meet(NAME, "codex")
    renewed(absent)
    name = begun(realm)
    clock.seconds += SILENT_S + 1
    assert absent.end_session(NAME, "renewal", of_holder=True) == [name]
    assert held_session(realm, *NAME) is None
    assert renewed(absent)  # the guard was stopped, and goes on
    held = held_session(realm, *NAME)
    assert held is not None
    assert held.client == "codex"
    absent.end_session(NAME, "process")
    assert renewed(absent)  # of a program that ended nothing is known
    assert held_session(realm, *NAME) is None


def test_a_run_that_began_moves_with_no_further_attempt_to_begin_it(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        first, second, *_ = Servers(folder, stack, ()).all
        allowed_run(realm)
        run(first.realm, first)
        before = realm.log.head().size
        for one in (second, first, second):
            with pytest.raises(RefusedError):
                run(one.realm, one)
        assert realm.log.head().size == before
