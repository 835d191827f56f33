"""What a server does about callers that are gone, by clocks of the test."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from importlib.resources import files
from itertools import chain, cycle, repeat
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from world.clock import ManualClock
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.caller_events import Attended, CallerLeft, CallerReturned, SessionMoved
from world.log.log import EventLog
from world.log.values import LoggedEvent
from worldprotocol.agents.call_values import Allowed, ToolCall
from worldprotocol.agents.command_runs import CommandRuns, RunRequest
from worldprotocol.agents.files.uses import FileUse
from worldprotocol.agents.hooks.session_guard import ATTEMPTS, MOVE, renew
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.api.callers.sessions import caller_returned, held_session, hold_session
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.server.call import Call
from worldprotocol.server.governed.absent_callers import MISSES_S, AbsentCallers, CallerWatch
from worldprotocol.server.governed.heard_callers import SILENT_S
from worldprotocol.server.governed.presence import MAX_SESSIONS_OF_ACTOR, Presence
from worldprotocol.server.governed.running_calls import RunningCalls
from worldprotocol.server.operations.hooks import _checked
from worldprotocol.server.threads import Threads

pytestmark = pytest.mark.requirement("LIVE-caller")

FILE = {"path": "/src/app.py", "tool": "Edit", "guarded": False, "hidden": False}
NAME = ("bot", "s")


class Monotonic:
    """A monotonic clock that stands still."""

    seconds = 1_000.0

    def __call__(self) -> float:
        """Return the seconds."""
        return self.seconds


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), tmp_path / "realm")
    return tmp_path / "realm"


@pytest.fixture
def realm(folder: Path) -> Iterator[Realm]:
    config = read_config(folder / "world.toml")
    with Realm.from_config(config, create=True, clock=ManualClock(1_800_000_000_000)) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        opened.register("bot", "agent", binding={"kind": "auto_approve"})
        yield opened


@pytest.fixture
def clock() -> Monotonic:
    return Monotonic()


@pytest.fixture
def absent(realm: Realm, clock: Monotonic) -> AbsentCallers:
    return AbsentCallers(realm, Presence(clock), RunningCalls(clock))


def begun(realm: Realm, key: str = "a") -> str:
    attended = Attended(by="hook")
    trace = {"client": "codex", "session": "s"}
    found = ToolCalls(realm, "bot").begin(ToolCall(key, "file.edit", FILE, trace=trace, attended=attended))
    assert isinstance(found, Allowed)
    return found.proposal.proposal_id


def test_a_cancelled_call_of_a_caller_without_a_sign_is_freed_at_once(
    realm: Realm, absent: AbsentCallers, clock: Monotonic
) -> None:
    name = begun(realm)
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
            one.presence.hear(NAME)
            one.hold_renewed(NAME, moves=False)
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
    presence.renew("other", (f"s{number}" for number in range(MAX_SESSIONS_OF_ACTOR)))
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
def test_an_allowed_call_whose_files_cannot_be_compared_ends(realm: Realm, error: Exception) -> None:
    calls = ToolCalls(realm, "bot")
    found = calls.begin(ToolCall("a", "file.edit", FILE, attended=Attended(by="hook")))
    assert isinstance(found, Allowed)
    agents = SimpleNamespace(files=SimpleNamespace(begin=raises(error)))
    call = cast("Call", SimpleNamespace(hosted=SimpleNamespace(agents=agents), realm=realm))
    with pytest.raises(type(error), match="odd"):
        _checked(call, calls, found, ("a", FileUse()))
    ended = realm.proposal(found.proposal.proposal_id)
    assert ended.error is not None
    assert (ended.error.code, len(realm.realm().klis.leases)) == ("TOOL_NOT_CALLED", 0)


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
        one.presence.renew(NAME[0], [NAME[1]])
        return {"elsewhere": [] if one.hold_renewed(NAME, moves=operation == MOVE) else [NAME[1]]}

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
        return ended


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
        assert held == ("codex", servers.all[3].realm._acting.worker)
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
        assert held_session(realm, *NAME) == ("codex", servers.all[0].realm._acting.worker)
        assert servers.sent == ATTEMPTS + 3
        assert servers.wait(int(SILENT_S) + 1) == [name]


def test_a_session_of_a_server_that_ended_is_held_by_the_next_one_that_it_reaches(
    realm: Realm, folder: Path, absent: AbsentCallers
) -> None:
    with Realm.from_config(read_config(folder / "world.toml"), clock=ManualClock(1_800_000_000_000)) as first:
        hold_session(first, *NAME, "codex")
        assert not absent.hold_renewed(NAME, moves=False)
    assert absent.hold_renewed(NAME, moves=False)
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
    [name] = presence.renew(NAME[0], [NAME[1]])
    assert absent.hold_renewed(name, moves=False)
    assert sum(rows) <= 2 * (length + 1)  # where the session begins is not known
    rows.clear()
    for number in range(40):
        absent.hold_renewed(name, moves=False)
        assert sum(rows) == 1, number  # the event that the first renewal recorded
    rows.clear()
    absent.hold_renewed(name, moves=False)
    assert rows == [0]


def test_an_actor_renews_no_more_sessions_than_it_may_have(absent: AbsentCallers, clock: Monotonic) -> None:
    presence = absent.presence
    assert len(presence.renew("bot", (f"s{number}" for number in range(MAX_SESSIONS_OF_ACTOR)))) == (
        MAX_SESSIONS_OF_ACTOR
    )
    presence.renew("bot", ["s0"])
    presence.renew("other", ["s0", "more"])
    with pytest.raises(RefusedError, match="Renew only those whose program is there") as refused:
        presence.renew("bot", ["s1", "more"])
    assert refused.value.code == "TOO_MANY_OPEN"
    assert not presence.is_heard(("bot", "more"))
    clock.seconds += SILENT_S + 1
    for name in presence.silent():
        absent.end_session(name, "renewal", of_holder=True)
    presence.renew("bot", ["more"])


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
    absent.hold_renewed(NAME, moves=False)
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
    absent.hold_renewed(NAME, moves=False)
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


def allowed_run(realm: Realm) -> str:
    """Begin the call of a shell command that `worldctl run --call` makes; return its proposal."""
    trace, attended = {"client": "codex", "session": "s", "isRun": True}, Attended(by="run")
    found = ToolCalls(realm, "bot").begin(ToolCall("r", "command.run", COMMAND, trace=trace, attended=attended))
    assert isinstance(found, Allowed)
    return found.proposal.proposal_id


def run(realm: Realm, absent: AbsentCallers) -> None:
    """Begin the run of the command."""
    CommandRuns(realm, "bot").begin(RunRequest("r", "make", "namespaces", False), "namespaces")
    absent.running.hear(("bot", "r"))


def test_a_run_that_began_is_not_begun_again(realm: Realm, absent: AbsentCallers) -> None:
    allowed_run(realm)
    run(realm, absent)
    with pytest.raises(RefusedError, match="its run began before") as refused:
        run(realm, absent)
    assert refused.value.code == "CALL_NOT_OPEN"


@pytest.mark.parametrize(("is_begun", "code"), [(True, "TOOL_OUTCOME_UNKNOWN"), (False, "TOOL_NOT_CALLED")])
def test_a_silent_run_ends_by_what_is_known_of_it(
    realm: Realm, absent: AbsentCallers, clock: Monotonic, *, is_begun: bool, code: str
) -> None:
    name = allowed_run(realm)
    if is_begun:
        run(realm, absent)
    else:
        absent.running.expect(("bot", "r"))
    clock.seconds += SILENT_S + 1
    [silent] = absent.running.silent()
    absent.end_run(silent)
    ended = realm.proposal(name)
    assert ended.error is not None
    assert (ended.error.code, len(realm.realm().klis.leases), absent.running.silent()) == (code, 0, [])


def test_a_run_outlives_its_session_until_it_has_reported(realm: Realm, absent: AbsentCallers) -> None:
    name = allowed_run(realm)
    run(realm, absent)
    assert absent.end_session(NAME, "process") == []
    assert len(realm.realm().klis.leases) == 1  # its processes may still write
    assert absent.running.is_dismissed(("bot", "r"))  # which it is told with its next request
    assert realm.proposal(name).status == "executing"


def test_an_allowed_run_that_did_not_begin_ends_with_its_session(realm: Realm, absent: AbsentCallers) -> None:
    name = allowed_run(realm)
    assert absent.end_session(NAME, "process") == [name]
    ended = realm.proposal(name)
    assert ended.error is not None
    assert (ended.error.code, len(realm.realm().klis.leases)) == ("TOOL_NOT_CALLED", 0)
