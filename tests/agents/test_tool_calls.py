"""Calls of tools in a realm without a server: what was not reported in time is in doubt, for a person."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec import structs

from world.audit.sealing import last_commit
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.verification import Verification
from worldprotocol.agents.call_values import Allowed, Denied, StillWaiting, ToolCall
from worldprotocol.agents.tool_calls import TIME_LIMIT_MS, ToolCalls
from worldprotocol.api.callers.keyed import key_of
from worldprotocol.api.callers.sessions import Leaving, caller_left
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm
from worldprotocol.export.archive.cutting import CutPlan, cut
from worldprotocol.export.archive.manifest import ArchiveFolder

GRACE_MS = 5_000
FILE = {"path": "/src/app.py", "tool": "Edit", "guarded": False, "hidden": False}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_800_000_000_000)


@pytest.fixture
def realm(tmp_path: Path, clock: ManualClock) -> Iterator[Realm]:
    folder = tmp_path / "realm"
    shutil.copytree(str(files("worldprotocol") / "templates" / "coding-agents"), folder)
    with Realm.from_config(read_config(folder / "world.toml"), create=True, clock=clock) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        for name in ("one", "two"):
            binding = {"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]}
            opened.register(name, "agent", binding=binding)
        yield opened


def edit(key: str) -> ToolCall:
    return ToolCall(key, "file.edit", FILE)


def test_a_call_that_is_not_reported_is_in_doubt_until_a_person_resolves_it(realm: Realm, clock: ManualClock) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    begun = one.begin(edit("a"))
    assert isinstance(begun, Allowed)
    clock.advance(TIME_LIMIT_MS + GRACE_MS - 1)
    realm.settle()
    assert realm.host.stuck() == []
    clock.advance(2)
    realm.settle()
    [doubt] = realm.host.stuck()
    assert doubt["proposalId"] == begun.proposal.proposal_id
    again = one.begin(edit("a"))  # the same call is not made twice
    assert isinstance(again, Denied)
    assert again.code == "MADE_ALREADY"
    waiting = two.begin(edit("b"))
    assert isinstance(waiting, StillWaiting)
    assert waiting.waits_for.startswith("resources that others use: one holds MUTATES on /src/app.py since ")
    ended = realm.host.resolve(begun.proposal.proposal_id, "happened", by="ann", reason="I saw the change", value={})
    assert ended.status == "completed"
    assert realm.host.stuck() == []
    clock.advance(120_000)  # the second call is tried again
    realm.settle()
    assert isinstance(two.begin(edit("b")), Allowed)


def test_a_report_that_comes_too_late_does_not_end_the_doubt(realm: Realm, clock: ManualClock) -> None:
    calls = ToolCalls(realm, "one")
    assert isinstance(calls.begin(edit("a")), Allowed)
    clock.advance(TIME_LIMIT_MS + GRACE_MS + 1)
    assert calls.report("a", {"bytes": 1}) is None
    assert len(realm.host.stuck()) == 1
    assert calls.report("never begun", {"bytes": 1}) is None


def test_a_call_whose_proposal_an_equal_one_began_is_proposed_again(realm: Realm, clock: ManualClock) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(two.begin(edit("b")), Allowed)
    first, second = one.begin(edit("a")), one.begin(edit("c"))  # such as two subagents of one session
    assert isinstance(first, StillWaiting)
    assert first.proposal.proposal_id == second.proposal.proposal_id
    two.report("b", {})
    clock.advance(120_000)
    realm.settle()
    assert isinstance(one.begin(edit("c")), Allowed)
    assert one.look(edit("a"), first.proposal.proposal_id) is None
    again = one.begin(edit("a"))
    assert isinstance(again, StillWaiting)  # it was not made
    assert again.proposal.proposal_id != first.proposal.proposal_id
    one.report("c", {})
    assert one.look(edit("a"), first.proposal.proposal_id) is None
    clock.advance(120_000)
    realm.settle()
    begun = one.begin(edit("a"))
    assert isinstance(begun, Allowed)
    assert begun.proposal.proposal_id == again.proposal.proposal_id
    one.report("a", {})
    made = one.begin(edit("a"))
    assert isinstance(made, Denied)
    assert (made.code, made.proposal.proposal_id) == ("MADE_ALREADY", again.proposal.proposal_id)
    with pytest.raises(RefusedError, match="was used for another request"):
        one.begin(ToolCall("a", "file.edit", FILE | {"path": "/src/lib.py"}))


def test_a_call_that_continued_the_proposal_of_an_equal_one_is_made_once(realm: Realm, clock: ManualClock) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(two.begin(edit("b")), Allowed)
    first = one.begin(edit("a"))
    two.report("b", {})
    clock.advance(120_000)
    realm.settle()
    begun = one.begin(edit("c"))
    assert isinstance(begun, Allowed)
    assert begun.proposal.proposal_id == first.proposal.proposal_id
    one.report("c", {"bytes": 7})
    for _ in range(3):
        made = one.begin(edit("c"))
        assert isinstance(made, Denied)
        assert (made.code, made.proposal.proposal_id) == ("MADE_ALREADY", begun.proposal.proposal_id)
        assert made.result is not None
        other = two.begin(edit("c"))  # the same key, of another agent
        assert isinstance(other, Denied if other.proposal.is_terminal else Allowed)
        assert other.proposal.submitted.actor.actor_id == "two"
        two.report("c", {})


def test_a_call_in_doubt_that_continued_the_proposal_of_an_equal_one_is_made_once(
    realm: Realm, clock: ManualClock
) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(two.begin(edit("b")), Allowed)
    first = one.begin(edit("a"))
    two.report("b", {})
    clock.advance(120_000)
    realm.settle()
    begun = one.begin(edit("c"))
    assert isinstance(begun, Allowed)
    assert begun.proposal.proposal_id == first.proposal.proposal_id
    clock.advance(TIME_LIMIT_MS + GRACE_MS + 1)
    realm.settle()
    for value in (None, {"bytes": 7}):  # in doubt, and after a person has resolved it
        if value is not None:
            realm.host.resolve(first.proposal.proposal_id, "happened", by="ann", reason="I saw it", value=value)
        made = one.begin(edit("c"))
        assert isinstance(made, Denied)
        assert (made.code, made.proposal.proposal_id) == ("MADE_ALREADY", first.proposal.proposal_id)
        assert (None if made.result is None else made.result.value) == value


def test_a_call_is_made_whose_equals_are_archived(realm: Realm) -> None:
    calls = ToolCalls(realm, "one")
    for key in ("a", "b", "c"):
        assert isinstance(calls.begin(edit(key)), Allowed)
        calls.report(key, {})
    upto = last_commit(realm.log, realm.log.head().size - 1)
    archive = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
    assert cut(realm.log, CutPlan((archive,), upto, 0), by="operator", now_ms=0).removed
    assert isinstance(calls.begin(edit("d")), Allowed)
    calls.report("d", {})
    again = calls.begin(edit("d"))
    assert isinstance(again, Denied)
    assert again.code == "MADE_ALREADY"
    with pytest.raises(RefusedError, match="was removed from this log"):
        calls.begin(edit("a"))  # nobody can say what became of it, so it is not made


def test_a_call_is_given_up_whose_first_proposal_an_equal_one_began(realm: Realm, clock: ManualClock) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(two.begin(edit("b")), Allowed)
    assert isinstance(one.begin(edit("a")), StillWaiting)
    two.report("b", {})
    clock.advance(120_000)
    realm.settle()
    assert isinstance(one.begin(edit("c")), Allowed)
    again = one.begin(edit("a"))
    assert isinstance(again, StillWaiting)
    clock.advance(TIME_LIMIT_MS + GRACE_MS + 1)
    realm.settle()  # the equal call is in doubt
    assert len(realm.host.stuck()) == 1
    withdrawn = one.give_up("a", "The caller no longer waits.")
    assert withdrawn is not None
    assert withdrawn.proposal_id == again.proposal.proposal_id


def test_calls_whose_keys_begin_alike_are_different_ones(realm: Realm) -> None:
    calls = ToolCalls(realm, "one")
    first = calls.submit(ToolCall("a~b", "file.edit", FILE | {"path": "/src/lib.py"}))
    second = calls.submit(edit("a"))
    assert (key_of(first.submitted), key_of(second.submitted)) == ("a~b", "a")
    tried = ToolCall("c~d", "file.edit", FILE | {"path": "/src/main.py"}, attempt="once")
    assert isinstance(calls.begin(tried), Allowed)
    last = calls.submit(ToolCall("c", "file.edit", FILE | {"path": "/docs"}))
    assert key_of(last.submitted) == "c"


def test_a_call_outlives_the_session_whose_open_proposal_it_continued(realm: Realm) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(two.begin(edit("b")), Allowed)
    first = one.begin(ToolCall("a", "file.edit", FILE, trace={"session": "ends"}))
    second = one.begin(edit("c"))
    assert second.proposal.proposal_id == first.proposal.proposal_id
    left = Leaving("one", "claude-code", "process", session="ends")
    assert caller_left(realm, left) == [first.proposal.proposal_id]
    assert one.look(edit("c"), first.proposal.proposal_id) is None  # it is proposed again
    assert isinstance(one.begin(edit("c")), StillWaiting)
    ended = one.begin(ToolCall("a", "file.edit", FILE))
    assert isinstance(ended, StillWaiting)  # an equal call that is open is continued


@pytest.mark.requirement("LIVE-wake")
def test_a_call_that_gave_way_continues_when_the_file_is_free_and_says_so(realm: Realm, clock: ManualClock) -> None:
    one, two = ToolCalls(realm, "one"), ToolCalls(realm, "two")
    assert isinstance(one.begin(edit("a")), Allowed)
    waiting = two.begin(edit("b"))
    for _ in range(6):  # its timer comes again and again, at the latest after five seconds and half of that
        assert isinstance(waiting, StillWaiting)
        assert "one holds MUTATES on /src/app.py since 20" in waiting.waits_for
        assert "; it asks for them again when they are free, at the latest at 20" in waiting.waits_for
        again = realm.realm().klis.asks_again_at("two", waiting.proposal.proposal_id)
        assert clock.now_ms() < again <= clock.now_ms() + 7_500
        clock.advance(again - clock.now_ms())
        realm.settle()
        waiting = two.begin(edit("b"))
    one.report("a", {})
    assert isinstance(two.begin(edit("b")), Allowed)


@pytest.mark.parametrize("is_verified", [False, True])
def test_a_call_that_an_earlier_release_recorded_is_not_made_again(realm: Realm, is_verified: bool) -> None:
    calls, call = ToolCalls(realm, "one"), edit("a")
    realm.access.grant("one", "actor", by="operator")
    issued = realm.issue("one", call.action, dict(call.input))
    earlier = Verification(method="peer", actor_id="one", uid=1)
    acting = realm.as_caller(earlier) if is_verified else realm
    first = acting.submit(structs.replace(issued, intent_id="a"))  # the intentId was the key
    assert isinstance(calls.begin(call), Allowed)
    calls.report("a", {})
    made = calls.begin(call)
    assert isinstance(made, Denied)
    assert (made.code, made.proposal.proposal_id) == ("MADE_ALREADY", first.proposal_id)
    with pytest.raises(RefusedError) as refused:
        calls.submit(ToolCall("a", "file.edit", FILE | {"path": "/docs"}))
    assert refused.value.code == "IDEMPOTENCY_CONFLICT"
    other = ToolCalls(realm, "two").submit(edit("a"))  # the key of another agent
    assert other.proposal_id != first.proposal_id
