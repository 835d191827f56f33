"""Calls live as long as their callers: each row of the table of states, in a realm without a server."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from world.audit.verify import verify
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.base import Event
from world.events.caller_events import Attended, CallerLeft, SessionBegun
from world.events.proposal_events import ProposalHeld, ProposalSuperseded
from world.events.verification import Verification
from world.state.proposal import HELD_FOR_CALLER_MS
from worldprotocol.agents.call_values import Allowed, Denied, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import ToolCalls
from worldprotocol.analysis.counterfactual import WhatIf, what_if
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.callers.sessions import (
    Leaving,
    caller_left,
    caller_returned,
    held_session,
    hold_session,
)
from worldprotocol.api.config import read_config
from worldprotocol.api.proposal_summary import calls_left, left_entry
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.requirement("LIVE-caller")

FILE = {"path": "/src/app.py", "tool": "Edit", "guarded": False, "hidden": False}
HIDDEN = FILE | {"hidden": True}
"""An edit about which a person is asked."""

SESSION = {"session": "s", "client": "claude-code"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def folder(tmp_path: Path, shared_log_url: str) -> Path:
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), tmp_path / "realm")
    config = tmp_path / "realm" / "world.toml"
    text = config.read_text().replace('log = "world.db"', f"log = {json.dumps(shared_log_url)}")
    config.write_text(text.replace("[klis]\n", "[klis]\nmax_clock_ahead_ms = 100000000000\n"))
    return tmp_path / "realm"


@pytest.fixture
def realm(folder: Path, clock: ManualClock) -> Iterator[Realm]:
    with Realm.from_config(read_config(folder / "world.toml"), create=True, clock=clock) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        for name in ("one", "two"):
            binding = {"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]}
            opened.register(name, "agent", binding=binding)
        yield opened
        assert verify(opened.log).findings == ()


def call(key: str, given: object = FILE, *, limit_ms: int | None = None) -> ToolCall:
    attended = Attended(by="hook", limit_ms=limit_ms)
    return ToolCall(key, "file.edit", given, trace=SESSION, attended=attended)  # type: ignore[arg-type]


def left(noticed_by: str = "process", **more: object) -> Leaving:
    return Leaving("one", "claude-code", noticed_by, session="s", **more)  # type: ignore[arg-type]


def asked(realm: Realm, key: str = "a") -> str:
    """Propose a call about which ann is asked; return its proposal."""
    waiting = ToolCalls(realm, "one").begin(call(key, HIDDEN))
    assert isinstance(waiting, StillWaiting)
    assert waiting.proposal.asked is not None
    return waiting.proposal.proposal_id


def events(realm: Realm, after: int = 0) -> list[Event]:
    return [one for _, one in realm.events(after=after)]


def leases(realm: Realm) -> int:
    return len(realm.realm().klis.leases)


# Undecided


def test_an_undecided_call_is_superseded_when_its_caller_left(realm: Realm) -> None:
    name, before = asked(realm), realm.log.head().size
    assert caller_left(realm, left("connection", calls=[name])) == [name]
    gone, ended = events(realm, before)
    assert isinstance(gone, CallerLeft)
    assert (gone.client, gone.session, gone.actor_id, gone.calls) == ("claude-code", "s", "one", [name])
    assert (gone.noticed_by, gone.verified) == ("connection", None)
    assert isinstance(ended, ProposalSuperseded)
    assert (ended.proposal_id, ended.reason, ended.by) == (name, "caller left", None)
    with pytest.raises(RefusedError) as refused:
        realm.decide(name, "approve", by="ann", reason="late")
    assert refused.value.code == "NOT_WAITING"
    assert leases(realm) == 0


def test_a_call_that_waits_for_leases_leaves_the_queue_with_its_caller(realm: Realm, clock: ManualClock) -> None:
    other = ToolCalls(realm, "two").begin(ToolCall("b", "file.edit", FILE))
    assert isinstance(other, Allowed)
    waiting = ToolCalls(realm, "one").begin(call("a"))
    assert isinstance(waiting, StillWaiting)
    assert caller_left(realm, left()) == [waiting.proposal.proposal_id]
    ToolCalls(realm, "two").report("b", {})
    clock.advance(120_000)
    realm.settle()
    assert leases(realm) == 0
    assert not realm.realm().proposals
    assert not realm.realm().klis.requests


def test_the_inbox_lists_calls_whose_callers_left_apart_from_others(realm: Realm) -> None:
    first = asked(realm, "k1")
    caller_left(realm, left())
    cancelled = asked(realm, "k2")
    realm.host.cancel(cancelled, by="ann", reason="caller left")
    second = asked(realm, "k3")
    caller_left(realm, left())
    waiting = asked(realm, "k4")
    view = realm.realm()
    found = calls_left(realm.archive, view.active, view.position)
    assert [one.proposal_id for one, _ in found] == [second, first]
    assert [one.proposal_id for one in realm.inbox()] == [waiting]
    entry = left_entry(*found[0])
    assert (entry["endedReason"], entry["trace"]) == ("caller left", SESSION)
    assert calls_left(realm.archive, view.active, 0) == []


# The session lives, and no call waits


def test_a_late_approval_takes_no_leases_before_the_call_is_repeated(realm: Realm) -> None:
    name = asked(realm)
    before = realm.log.head().size
    approved = realm.decide(name, "approve", by="ann", reason="it may")
    assert (approved.status, leases(realm)) == ("evaluating", 0)
    held = events(realm, before)[-1]
    assert isinstance(held, ProposalHeld)
    assert (held.cause, held.names) == ("caller", [])
    realm.settle()  # nor does time, nor another process
    assert leases(realm) == 0
    again = ToolCalls(realm, "one").begin(call("again", HIDDEN))
    assert isinstance(again, Allowed)
    assert (again.proposal.proposal_id, leases(realm)) == (name, 1)


def test_a_late_approval_is_held_by_a_process_that_reads_it_from_storage(
    realm: Realm, folder: Path, clock: ManualClock
) -> None:
    name = asked(realm)
    realm.decide(name, "approve", by="ann", reason="it may")
    with Realm.from_config(read_config(folder / "world.toml"), clock=clock) as second:
        clock.advance(3_600_000)
        second.settle()
        assert leases(second) == 0
        again = ToolCalls(second, "one").begin(call("again", HIDDEN))
        assert isinstance(again, Allowed)


def test_an_approved_call_waits_for_leases_once_it_is_repeated(realm: Realm, clock: ManualClock) -> None:
    other = ToolCalls(realm, "two").begin(ToolCall("b", "file.edit", FILE))
    assert isinstance(other, Allowed)
    name = asked(realm)
    realm.decide(name, "approve", by="ann", reason="it may")
    again = ToolCalls(realm, "one").begin(call("again", HIDDEN))
    assert isinstance(again, StillWaiting)
    assert "two" in again.waits_for
    ToolCalls(realm, "two").report("b", {})
    clock.advance(120_000)
    realm.settle()
    assert isinstance(ToolCalls(realm, "one").begin(call("again", HIDDEN)), Allowed)


def test_an_approved_call_ends_with_its_session(realm: Realm) -> None:
    name = asked(realm)
    realm.decide(name, "approve", by="ann", reason="it may")
    assert caller_left(realm, left("renewal")) == [name]
    assert realm.proposal(name).status == "superseded"


def test_an_approved_call_that_is_not_repeated_ends_after_a_day(realm: Realm, clock: ManualClock) -> None:
    name = asked(realm)
    realm.decide(name, "approve", by="ann", reason="it may")
    clock.advance(HELD_FOR_CALLER_MS)
    realm.settle()
    assert realm.proposal(name).status == "evaluating"
    clock.advance(1)
    due = realm.realm().due
    assert due is not None
    assert due <= clock.now_ms()
    realm.settle()
    assert realm.proposal(name).status == "superseded"
    assert [one.reason for one in events(realm) if isinstance(one, ProposalSuperseded)] == ["not asked again"]


def test_a_call_that_waited_for_a_policy_waits_for_its_caller_then(
    realm: Realm, folder: Path, clock: ManualClock
) -> None:
    config = folder / "policy.toml"
    text = config.read_text()
    config.write_text(
        text + "\n# another text\n" + text[text.rindex("[[rules]]") :].replace('id = "', 'id = "more_', 1)
    )
    with Realm.from_config(read_config(folder / "world.toml"), clock=clock) as changed:
        held = ToolCalls(changed, "one").begin(call("a"))
        assert isinstance(held, StillWaiting)
        assert held.proposal.held is not None
        assert held.proposal.held.cause == "policy"
    config.write_text(text)
    realm.settle()
    released = realm.proposal(held.proposal.proposal_id)
    assert released.held is not None
    assert (released.held.cause, leases(realm)) == ("caller", 0)
    assert isinstance(ToolCalls(realm, "one").begin(call("a")), Allowed)


def test_a_call_of_a_framework_is_approved_as_before(realm: Realm) -> None:
    waiting = ToolCalls(realm, "one").begin(ToolCall("a", "file.edit", HIDDEN))
    assert isinstance(waiting, StillWaiting)
    done = realm.decide(waiting.proposal.proposal_id, "approve", by="ann", reason="it may")
    assert (done.status, leases(realm)) == ("executing", 1)
    [offered] = done.requested.values()
    assert offered.offer is not None
    assert offered.offer.attended is None


# Allowed


def test_an_allowed_call_that_was_not_begun_fails_as_not_called(realm: Realm) -> None:
    calls = ToolCalls(realm, "one")
    allowed = calls.submit(call("a"))
    [offered] = allowed.requested.values()
    assert offered.offer is not None
    assert (offered.offer.attended, leases(realm)) == ("hook", 1)
    before = realm.log.head().size
    assert caller_left(realm, left()) == [allowed.proposal_id]
    ended = realm.proposal(allowed.proposal_id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, leases(realm)) == ("failed", "TOOL_NOT_CALLED", 0)
    topics = [one.TOPIC for one in events(realm, before)]
    assert topics[:2] == ["caller.left", "effect.fulfilled"]
    assert topics[-1] == "lease.released"  # in one unit


def test_the_outcome_of_a_begun_call_is_unknown(realm: Realm) -> None:
    calls = ToolCalls(realm, "one")
    begun = calls.begin(call("a"))
    assert isinstance(begun, Allowed)
    assert caller_left(realm, left()) == [begun.proposal.proposal_id]
    ended = realm.proposal(begun.proposal.proposal_id)
    assert ended.error is not None
    assert (ended.status, ended.error.code, leases(realm)) == ("failed", "TOOL_OUTCOME_UNKNOWN", 0)
    assert calls.report("a", {}) is None
    assert realm.host.stuck() == []


def test_a_claimed_call_whose_answer_was_not_sent_fails_as_not_called(realm: Realm) -> None:
    begun = ToolCalls(realm, "one").begin(call("a"))
    assert isinstance(begun, Allowed)
    name = begun.proposal.proposal_id
    caller_left(realm, left("connection", calls=[name], not_made=[name]))
    ended = realm.proposal(name)
    assert ended.error is not None
    assert (ended.error.code, leases(realm)) == ("TOOL_NOT_CALLED", 0)


def test_all_calls_of_a_session_end_in_one_record_and_those_of_others_stay(realm: Realm) -> None:
    calls = ToolCalls(realm, "one")
    begun = calls.begin(call("a"))
    waiting = calls.begin(call("b", FILE | {"path": "/src/lib.py", "hidden": True}))
    blocked = calls.begin(call("c"))  # it waits for the leases of the first
    other = ToolCalls(realm, "two").begin(ToolCall("d", "file.edit", FILE | {"path": "/x.py"}, trace=SESSION))
    assert isinstance(other, Allowed)
    ended = caller_left(realm, left())
    mine = {one.proposal.proposal_id for one in (begun, waiting, blocked)}
    assert set(ended) == mine
    assert [one.calls for one in events(realm) if isinstance(one, CallerLeft)] == [ended]
    assert list(realm.realm().proposals) == [other.proposal.proposal_id]
    assert leases(realm) == 1


def test_nothing_is_recorded_of_a_caller_without_calls(realm: Realm) -> None:
    before = realm.log.head().size
    assert caller_left(realm, left()) == []
    assert realm.log.head().size == before


def test_a_call_in_doubt_stays_with_its_person(realm: Realm, clock: ManualClock) -> None:
    doubtful = ToolCall("a", "file.edit", FILE, trace=SESSION, attended=Attended(by="proxy"))
    assert isinstance(ToolCalls(realm, "one").begin(doubtful), Allowed)
    clock.advance(3_700_000)
    realm.settle()
    assert len(realm.host.stuck()) == 1
    assert caller_left(realm, left()) == []


# Limits


def test_a_call_of_a_hook_ends_at_its_limit_and_is_not_in_doubt(realm: Realm, clock: ManualClock) -> None:
    begun = ToolCalls(realm, "one").begin(call("a", limit_ms=60_000))
    assert isinstance(begun, Allowed)
    assert begun.claim.time_limit_ms == 60_000
    clock.advance(65_000)
    realm.settle()
    assert leases(realm) == 1
    clock.advance(1)
    realm.settle()
    ended = realm.proposal(begun.proposal.proposal_id)
    assert ended.error is not None
    assert (ended.error.code, leases(realm)) == ("TOOL_OUTCOME_UNKNOWN", 0)
    assert realm.host.stuck() == []


@pytest.mark.parametrize("attended", [Attended(by="hook"), None])
def test_a_cancelled_call_is_freed_soon_though_nobody_reports_it(
    realm: Realm, clock: ManualClock, attended: Attended | None
) -> None:
    begun = ToolCalls(realm, "one").begin(ToolCall("a", "file.edit", FILE, attended=attended))
    assert isinstance(begun, Allowed)
    name = begun.proposal.proposal_id
    realm.host.cancel(name, by="ann", reason="it hangs")
    clock.advance(15_000)
    realm.settle()
    assert realm.proposal(name).status == "executing"
    clock.advance(1)
    realm.settle()
    ended = realm.proposal(name)
    assert ended.error is not None
    assert (ended.status, ended.error.code, leases(realm)) == ("failed", "CANCELLED", 0)


def test_a_caller_reports_a_cancelled_call_in_time(realm: Realm, clock: ManualClock) -> None:
    calls = ToolCalls(realm, "one")
    begun = calls.begin(call("a"))
    assert isinstance(begun, Allowed)
    realm.host.cancel(begun.proposal.proposal_id, by="ann", reason="it hangs")
    clock.advance(15_000)
    assert calls.report("a", {}) is not None
    assert leases(realm) == 0


def test_a_cancelled_waiting_call_is_withdrawn(realm: Realm) -> None:
    name = asked(realm)
    assert realm.host.cancel(name, by="ann", reason="not now").status == "superseded"
    denied = ToolCalls(realm, "one").begin(call("a", HIDDEN))
    assert isinstance(denied, Denied)


def test_an_operator_frees_what_a_call_holds_without_being_an_administrator_of_leases(realm: Realm) -> None:
    begun = ToolCalls(realm, "one").begin(call("a"))
    assert isinstance(begun, Allowed)
    realm.register("bob", "human", binding={"kind": "auto_approve"})
    realm.register("eve", "human", binding={"kind": "auto_approve"})
    realm.access.grant("bob", "operator", by="operator")
    own = realm.leases.acquire(agent="two", resource="FILE:/docs/plan")
    [of_call] = [name for name, one in realm.realm().klis.leases.items() if one.session.agent_id == "one"]
    for by, lease in (("eve", of_call), ("bob", own.lease_ids[0])):
        with pytest.raises(RefusedError) as refused:
            realm.leases.desk.revoke([lease], by=by, reason="it hangs")
        assert refused.value.code == "NOT_AN_ADMINISTRATOR"
    assert realm.leases.desk.revoke([of_call], by="bob", reason="it hangs") == {of_call: "Revoked"}
    own.release()


def test_an_actor_ends_its_own_sessions_and_an_operator_any(realm: Realm) -> None:
    realm.register("bob", "human", binding={"kind": "auto_approve"})
    realm.access.grant("bob", "operator", by="operator")
    for actor in ("one", "two"):
        realm.access.grant(actor, "actor", by="operator")
    begun = ToolCalls(realm, "one").begin(call("a"))
    assert isinstance(begun, Allowed)
    with pytest.raises(RefusedError) as refused:
        caller_left(realm.as_caller(Verification(method="peer", actor_id="two")), left())
    assert (refused.value.code, leases(realm)) == ("RIGHT_MISSING", 1)
    caller_left(realm.as_caller(Verification(method="peer", actor_id="bob")), left("operator"))
    assert leases(realm) == 0
    assert isinstance(ToolCalls(realm, "one").begin(call("b")), Allowed)
    caller_left(realm.as_caller(Verification(method="peer", actor_id="one")), left())
    said = [one.verified.actor_id for one in events(realm) if isinstance(one, CallerLeft) and one.verified is not None]
    assert (said, leases(realm)) == (["bob", "one"], 0)


# Sessions


def test_a_held_call_stays_held_when_its_caller_returns_to_another_server(realm: Realm, folder: Path) -> None:
    name = asked(realm)
    realm.decide(name, "approve", by="ann", reason="it may")
    before, held = realm.log.head().size, realm.proposal(name).held
    assert held is not None
    with Realm.from_config(read_config(folder / "world.toml"), clock=ManualClock(1_800_000_000_000)) as second:
        caller_returned(second, name)
        caller_returned(second, name)
        assert realm.proposal(name).held == held
        assert realm.proposal(name).caller_at == second._acting.worker
    [returned] = realm.log.read(before)
    assert (returned.topic, returned.stream) == ("caller.returned", name)
    assert isinstance(ToolCalls(realm, "one").begin(call("again", HIDDEN)), Allowed)


def test_of_a_call_that_ended_or_is_not_attended_no_return_is_recorded(realm: Realm) -> None:
    ended, resumed = asked(realm), ToolCalls(realm, "two").submit(ToolCall("b", "file.edit", FILE)).proposal_id
    caller_left(realm, left())
    before = realm.log.head().size
    for name in (ended, resumed):
        caller_returned(realm, name)
    assert realm.log.head().size == before


def test_a_session_is_held_by_one_server_until_it_has_ended(realm: Realm, folder: Path, clock: ManualClock) -> None:
    me = realm._acting.worker
    before = realm.log.head().size
    for _ in range(2):
        hold_session(realm, "one", "s", "claude-code", "2.1.330")
    [begun] = events(realm, before)
    assert isinstance(begun, SessionBegun)
    assert (begun.TOPIC, begun.session, begun.client, begun.version, begun.actor_id, begun.server) == (
        "session.begun",
        "s",
        "claude-code",
        "2.1.330",
        "one",
        me,
    )
    with Realm.from_config(read_config(folder / "world.toml"), clock=clock) as second:
        hold_session(second, "one", "s", "claude-code")
        held = held_session(second, "one", "s")
        assert held is not None
        assert (held.client, held.server, held.version) == ("claude-code", second._acting.worker, "2.1.330")
        assert caller_left(realm, left("renewal"), of_holder=True) == []
        assert held_session(realm, "one", "s") is not None
        caller_left(second, left("renewal"), of_holder=True)
        assert held_session(realm, "one", "s") is None
    assert [one.TOPIC for one in events(realm, before)] == ["session.begun", "session.moved", "caller.left"]
    hold_session(realm, "one", "s", "claude-code")
    held = held_session(realm, "one", "s")
    assert held is not None
    assert (held.client, held.server) == ("claude-code", me)


def test_what_ended_with_its_caller_rechecks_and_is_the_same_without_a_change(
    realm: Realm, folder: Path, clock: ManualClock, tmp_path: Path
) -> None:
    calls, start = ToolCalls(realm, "one"), realm.log.head().size
    asked(realm, "w")
    name = asked(realm, "x")
    realm.decide(name, "approve", by="ann", reason="it may")
    calls.begin(call("a", FILE | {"path": "/a.py"}))
    caller_left(realm, left())
    name = asked(realm, "y")
    realm.decide(name, "approve", by="ann", reason="it may")
    clock.advance(1_000)
    again = calls.begin(call("y", HIDDEN))
    assert isinstance(again, Allowed)
    calls.report("y", {})
    config = read_config(folder / "world.toml")
    address, domain, policies = str(config.log), folder / "domain.yaml", config.policies
    with open_to_recheck(address, domain=domain, folder=folder, policies=policies) as checked:
        assert recheck(checked, every=True).divergences == []
    at_hand = [str(folder / one) for one in policies]
    report = what_if(WhatIf(address, str(domain), start, at_hand=at_hand, scratch=tmp_path / "scratch.db"))
    assert (report.proposals, report.questions, report.unasked, report.stopped) == ([], [], [], None)
    assert dict(report.counts) == {}
