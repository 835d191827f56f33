"""What servers do about runs of shell commands, which are callers of their own, by clocks of the test."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain, cycle, repeat
from pathlib import Path
from typing import Any

import pytest

from tests.agents.called import NAME, RUN, Monotonic, Servers, allowed_run, run
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.caller_events import CallerLeft, CallerReturned
from worldprotocol.agents.command_runs import CommandRuns
from worldprotocol.agents.hooks.session_guard import ATTEMPTS
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.runs.called import CalledCommand, _CalledRun
from worldprotocol.server.governed.absent_callers import MISSES_S, AbsentCallers
from worldprotocol.server.governed.heard_callers import SILENT_S
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls

pytestmark = pytest.mark.requirement("LIVE-caller")


def is_wanted(realm: Realm) -> bool:
    """Return whether the run continues, as a server answers that."""
    return CommandRuns(realm, "bot").is_wanted("r", realm._acting.now_ms())


def holders(realm: Realm) -> list[str]:
    """Return the servers to which the caller of the call came, in order."""
    return [one.server for _, one in realm.events() if isinstance(one, CallerReturned)]


def code_of(realm: Realm, name: str) -> str:
    """Return the code with which a call failed."""
    ended = realm.proposal(name)
    assert ended.error is not None
    return ended.error.code


@pytest.mark.parametrize("order", [[0], [0, 1], [0, 1, 2, 3], [0, 0, 1, 1, 1, 2, 3, 3], [0, 1, 1, 1, 1, 1, 1, 1]])
def test_a_run_whose_questions_reach_several_servers_is_held_by_one_until_they_stop(
    realm: Realm, folder: Path, order: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, cycle(order))
        first = servers.all[0]
        name = allowed_run(first.realm)
        run(first.realm, first)
        servers.work(monkeypatch, 20)
        assert (realm.proposal(name).status, holders(realm)) == ("executing", [])
        servers.wait(int(SILENT_S) + 1)
        assert [one.running.silent() for one in servers.all] == [[] for _ in servers.all]
    assert code_of(realm, name) == "TOOL_OUTCOME_UNKNOWN"


def test_a_run_is_held_by_the_server_at_which_it_began(
    realm: Realm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, cycle([0, 2]))
        name = allowed_run(servers.all[0].realm)
        run(servers.all[2].realm, servers.all[2])
        servers.work(monkeypatch, 20)
        assert (realm.proposal(name).status, holders(realm)) == ("executing", [servers.all[2].realm._acting.worker])
        servers.wait(int(SILENT_S) + 1)


def test_a_run_moves_once_where_its_questions_do_not_reach_its_server_any_more(
    realm: Realm, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, chain([0, 1, 0], repeat(3)))
        name = allowed_run(servers.all[0].realm)
        run(servers.all[0].realm, servers.all[0])
        servers.work(monkeypatch, 30)
        assert (realm.proposal(name).status, holders(realm)) == ("executing", [servers.all[3].realm._acting.worker])
        assert servers.sent < 3 + 4 * (ATTEMPTS + 1) + 30
        servers.wait(int(SILENT_S) + 1)
    assert realm.proposal(name).status == "failed"


def test_a_run_is_held_by_the_next_server_after_the_end_of_its_own(
    realm: Realm, folder: Path, absent: AbsentCallers, clock: Monotonic
) -> None:
    with Realm.from_config(read_config(folder / "world.toml"), clock=ManualClock(1_800_000_000_000)) as first:
        name = allowed_run(first)
        run(first, AbsentCallers(first, Presence(clock), RunningCalls(clock)))
        assert not absent.hear_run(RUN, moves=False)
        absent.take_over()
        assert not absent.running.is_heard(RUN)
    absent.take_over()
    assert absent.running.is_heard(RUN)
    assert absent.hear_run(RUN, moves=False)
    assert holders(realm) == [realm._acting.worker]
    clock.seconds += SILENT_S + 1
    absent.end_run(RUN)
    assert realm.proposal(name).status == "failed"


def test_the_end_of_a_session_at_another_server_ends_its_run_and_not_its_call(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        first, second, third, _ = servers.all
        name = allowed_run(first.realm)
        run(first.realm, first)
        for _ in range(2):
            assert second.end_session(NAME, "process") == []
        assert len([one for _, one in realm.events() if isinstance(one, CallerLeft)]) == 1
        assert [is_wanted(one.realm) for one in servers.all] == [False] * 4
        servers.seconds.seconds += MISSES_S - 1
        first.running.hear(RUN)
        servers.seconds.seconds += MISSES_S - 1
        for one in servers.all:
            one.end_cancelled(realm.proposal(name))
        assert realm.proposal(name).status == "executing"  # it ends its processes
        servers.seconds.seconds += 2
        for one in (second, third):
            one.end_cancelled(realm.proposal(name))
        assert realm.proposal(name).status == "executing"
        first.end_cancelled(realm.proposal(name))
    assert (code_of(realm, name), len(realm.realm().klis.leases)) == ("CANCELLED", 0)


def test_the_call_of_a_run_whose_server_vanished_ends_soon_after_its_session(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        name = allowed_run(servers.all[0].realm)
        run(servers.all[0].realm, servers.all[0])
        servers.all[1].end_session(NAME, "process")
        servers.clocks[1].advance(15_001)
        servers.all[1].realm.settle()
    assert (code_of(realm, name), len(realm.realm().klis.leases)) == ("CANCELLED", 0)


def test_what_the_agent_says_at_another_server_ends_no_run_that_began(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        first, second, *_ = servers.all
        name = allowed_run(first.realm)
        second.expect_run(RUN)
        assert holders(realm) == [second.realm._acting.worker]
        run(first.realm, first)
        second.expect_run(RUN)
        servers.wait(10)
        first.running.hear(RUN)
        servers.wait(10)
        assert realm.proposal(name).status == "executing"
        servers.wait(10)
    assert code_of(realm, name) == "TOOL_OUTCOME_UNKNOWN"


def test_an_allowed_run_that_never_begins_ends_after_what_the_agent_said(realm: Realm, folder: Path) -> None:
    with ExitStack() as stack:
        servers = Servers(folder, stack, ())
        name = allowed_run(servers.all[0].realm)
        servers.all[1].expect_run(RUN)
        servers.wait(int(SILENT_S) + 1)
    assert code_of(realm, name) == "TOOL_NOT_CALLED"


class Ended(threading.Event):
    """The end of a run; it counts how often it is waited for, and waits for nothing."""

    rounds = 0

    def wait(self, timeout: float | None = None) -> bool:
        """Return whether the run has ended."""
        self.rounds += 1
        return self.is_set()


def test_a_run_asks_again_until_it_reaches_its_server_and_ends_once_it_is_not_wanted() -> None:
    sent: list[dict[str, Any]] = []

    class Balanced:
        def send(self, _: str, body: Mapping[str, Any]) -> dict[str, Any]:
            sent.append(dict(body))
            return {"goesOn": len(sent) < 6, "elsewhere": len(sent) % 3 != 0}

    terms = {"ignoresCase": False, "ignoresNormalForm": False, "scope": [], "proposalId": "p", "agentId": "bot"}
    called, ended = _CalledRun(Balanced(), CalledCommand("r", ["sh", "-c", "make"]), terms), Ended()
    stopped: list[str] = []
    called._ended, called._stop = ended, stopped.append
    called._look_after()
    assert (sent, ended.rounds, stopped) == ([{"key": "r"}] * 6, 2, [called.lost])


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
        absent.running.expect(RUN)
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
    assert not is_wanted(realm)  # which is the answer to its next question
    assert realm.proposal(name).status == "executing"


def test_an_allowed_run_that_did_not_begin_ends_with_its_session(realm: Realm, absent: AbsentCallers) -> None:
    name = allowed_run(realm)
    assert absent.end_session(NAME, "process") == [name]
    ended = realm.proposal(name)
    assert ended.error is not None
    assert (ended.error.code, len(realm.realm().klis.leases)) == ("TOOL_NOT_CALLED", 0)
