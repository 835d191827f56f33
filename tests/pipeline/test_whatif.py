"""What if: a branch that never was comes to what the record says where nothing is otherwise, and tells what changes."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Approve, Policy, Reject, rule
from tests.golden import garden as golden
from tests.pipeline.shop import Bank, house, open_shop, shop
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.realm_events import WorldSealed
from world.log import open_log
from world.model.immutable_json import freeze
from world.model.snapshot import Requirement
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from worldprotocol.analysis.counterfactual import Insertion, WhatIf, WhatIfReport, cut_of, what_if
from worldprotocol.analysis.counterfactual.effects import recorded_effects, result_for
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm


def ask(
    file: Path, *, world: str | None = None, drop: list[str] | None = None, domain: Any = shop, **otherwise: Any
) -> WhatIfReport:
    """Ask about a log, which stays as it is, byte by byte."""
    dropped = drop or []
    before = hashlib.sha256(file.read_bytes()).hexdigest()
    with open_for_reading(str(file)) as log:
        start = cut_of(Archive(log), world=world, drop=dropped)
    at_hand = otherwise.pop("at_hand", [house])
    report = what_if(WhatIf(str(file), domain, start, drop=dropped, at_hand=at_hand, **otherwise))
    assert hashlib.sha256(file.read_bytes()).hexdigest() == before
    return report


def sealed(file: Path) -> list[str]:
    with open_log(str(file), read_only=True) as log:
        events = [decoded(logged) for logged in log.read(topics=[WorldSealed.TOPIC])]
    return [event.world_id for event in events if isinstance(event, WorldSealed)]


def by_id(report: WhatIfReport) -> dict[str, dict[str, Any]]:
    return {line["proposalId"]: line for line in report.proposals}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "world.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Realm]:
    with open_shop(str(file)) as world:
        yield world


@pytest.mark.requirement("CARD-replay", "CARD-audit", "CARD-tests")
def test_nothing_otherwise_comes_to_the_same_worlds_from_wherever_it_begins(file: Path, tmp_path: Path) -> None:
    golden.record(str(file)).close()
    worlds = sealed(file)
    for number, world in enumerate(worlds[::3]):
        scratch = tmp_path / f"scratch-{number}.db"
        report = ask(file, world=world, scratch=scratch, domain=golden.garden, at_hand=[golden.rules])
        assert not report.changed, list(report.lines())
        assert (report.worlds["changed"], report.worlds["gone"], report.worlds["new"]) == (0, 0, 0)
        assert report.counts == {}
        assert sealed(scratch) == worlds


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("sell"), st.sampled_from(["ann", "bot", "kid", "narrow"]), st.integers(1, 4)),
        st.tuples(st.just("charge"), st.just("ann"), st.integers(1, 2)),
        st.tuples(st.just("answer"), st.sampled_from(["approve", "reject", "ask"]), st.integers(0, 3)),
        st.tuples(st.just("fork"), st.just("ann"), st.integers(0, 9)),
        st.tuples(st.just("switch"), st.just(""), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.just(""), st.integers(1, 3_000)),
        st.tuples(st.just("lease"), st.just("ann"), st.integers(0, 2)),
    ),
    min_size=3,
    max_size=14,
)


def play(world: Realm, clock: ManualClock, steps: list[tuple[str, str, int]]) -> None:
    held: list[LeaseHandle] = []
    for kind, who, number in steps:
        try:
            if kind == "sell":
                world.act(who, "sell", {"item": "tea", "count": number})
            elif kind == "charge":
                world.act(who, "charge", {"amount": 5, "times": number})
            elif kind == "answer":
                waiting = world.inbox()
                if waiting:
                    world.decide(waiting[number % len(waiting)].proposal_id, who, by="ann")  # type: ignore[arg-type]
            elif kind == "fork":
                rows = [row for row in world.worlds() if row.outcome == "completed"]
                world.act(who, "sell", {"item": "cake"}, base_world=rows[number % len(rows)].world_id)
            elif kind == "switch":
                names = [branch.name for branch in world.branches()]
                world.switch_branch(names[number % len(names)])
            elif kind == "lease":
                tea, session = "STATE:/stock/tea", f"s{number}"
                ttl_ms = 200 * (number + 1)
                held.append(world.leases.acquire(agent="ann", session=session, resource=tea, ttl_ms=ttl_ms, timeout=0))
                if number == 2:
                    held.pop(0).release()
            else:
                clock.advance(number)
        except RefusedError:
            continue
    world.settle()


@pytest.mark.requirement("CARD-replay", "CARD-audit")
@settings(max_examples=6)
@given(steps=STEPS, at=st.integers(0, 100))
def test_nothing_otherwise_comes_to_the_same_in_any_history(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str, int]], at: int
) -> None:
    folder = tmp_path_factory.mktemp("any")
    file, scratch, clock = folder / "world.db", folder / "scratch.db", ManualClock(1_000, 1)
    with open_shop(str(file), clock=clock) as world:
        play(world, clock, steps)
    worlds = sealed(file)
    report = ask(file, world=worlds[at % len(worlds)], scratch=scratch)
    assert not report.changed, list(report.lines())
    assert sealed(scratch) == worlds


@pytest.mark.requirement("CARD-audit")
def test_a_dropped_proposal_changes_what_was_built_on_it_and_lets_others_happen(file: Path, opened: Realm) -> None:
    first = opened.act("ann", "sell", {"item": "cake", "count": 3})
    other = opened.act("ann", "sell", {"item": "tea", "count": 1})
    late = opened.act("ann", "sell", {"item": "cake", "count": 1})
    assert late.status == "failed"
    opened.close()
    report = ask(file, drop=[first.proposal_id])
    told = by_id(report)
    assert {name: line["change"] for name, line in told.items()} == {
        first.proposal_id: "dropped",
        other.proposal_id: "world",
        late.proposal_id: "possible",
    }
    assert told[late.proposal_id]["from"]["code"] == "OUT_OF_STOCK"
    assert report.worlds == {"gone": 1, "changed": 2}
    (head,) = report.heads
    assert {one["path"]: one["after"] for one in head["changes"]} == {"sold": 2, "stock.cake": 2}
    assert list(report.lines())[-1]["heads"] == 1


@pytest.mark.requirement("CARD-audit")
def test_a_dropped_proposal_makes_others_impossible_and_says_why(file: Path, opened: Realm) -> None:
    opened.act("ann", "sell", {"item": "tea", "count": 1})
    shut = opened.act("ann", "close")
    refused = opened.act("ann", "sell", {"item": "tea", "count": 1})
    assert refused.status == "failed"
    forked = opened.act(
        "ann", "sell", {"item": "cake"}, base_world=shut.world_id, fork_name="side", allow_failed_base=True
    )
    opened.close()
    report = ask(file, drop=[shut.proposal_id])
    assert by_id(report)[refused.proposal_id]["change"] == "possible"
    assert by_id(report)[forked.proposal_id]["to"]["status"] == "completed"


@rule
def all_may(case: Any) -> Any:
    return Approve("whatever it is")


@rule
def none_may(case: Any) -> Any:
    return Reject("closed today")


@pytest.mark.requirement("CARD-audit", "CARD-policy")
def test_another_policy_flips_decisions_and_what_follows_from_them(file: Path, opened: Realm) -> None:
    start = opened.branch().head
    sold = opened.act("bot", "sell", {"item": "tea", "count": 2})
    by_ann = opened.act("ann", "sell", {"item": "tea", "count": 1})
    shut = opened.act("bot", "close")
    assert shut.status == "rejected"
    opened.close()
    told = by_id(ask(file, world=start, policies=[Policy("house", [none_may])]))
    assert told[sold.proposal_id]["change"] == "impossible"
    assert told[sold.proposal_id]["flip"]
    assert told[sold.proposal_id]["to"]["message"] == "none_may: closed today"
    assert told[by_ann.proposal_id]["change"] == "world"
    assert shut.proposal_id not in told
    told = by_id(ask(file, world=start, policies=[Policy("lax", [all_may])]))
    assert {name: (line["change"], line["flip"]) for name, line in told.items()} == {
        shut.proposal_id: ("possible", True)
    }
    assert not ask(file, world=start, policies=[house]).changed


@pytest.mark.requirement("CARD-audit", "HC-journal")
def test_recorded_results_are_used_and_new_effects_are_needed_and_never_made(file: Path) -> None:
    bank = Bank()
    with open_shop(str(file), effects=[bank.handler()]) as world:
        start = world.branch().head
        first = world.act("ann", "sell", {"item": "tea", "count": 1})
        paid = world.act("ann", "charge", {"amount": 5, "times": 2})
        refused = world.act("bot", "charge", {"amount": 7})
        assert (paid.status, refused.status) == ("completed", "rejected")
        after = world.act("ann", "sell", {"item": "tea", "count": 1})
    charged = list(bank.charged)
    report = ask(file, drop=[first.proposal_id])
    told = by_id(report)
    assert told[paid.proposal_id]["change"] == "world"  # with the receipts of then
    assert report.needed == []
    report = ask(file, world=start, policies=[Policy("house", [all_may])])
    told = by_id(report)
    assert told[refused.proposal_id]["change"] == "ends otherwise"
    assert told[refused.proposal_id]["to"]["status"] == "effectNeeded"
    (needed,) = report.needed
    assert (needed["effect"], needed["args"]) == ("bank.charge", {"amount": 7, "number": 0})
    assert after.proposal_id not in told
    assert bank.charged == charged


@pytest.mark.requirement("CARD-audit")
def test_people_answer_where_they_are_asked_the_same_and_nothing_is_guessed_where_not(
    file: Path, opened: Realm
) -> None:
    start = opened.branch().head
    asked = opened.act("bot", "sell", {"item": "tea", "count": 3})
    opened.decide(asked.proposal_id, "approve", by="ann")
    plain = opened.act("bot", "sell", {"item": "tea", "count": 1})
    opened.close()

    @rule
    def everything_asks(case: Any) -> Any:
        from authority import Escalate

        return Escalate("ann", "a large sale")

    report = ask(file, world=start, policies=[Policy("house", [all_may])])
    assert report.proposals == []
    assert report.counts == {"answers to no question": 1}
    report = ask(file, world=start, policies=[Policy("house", [everything_asks])])
    assert by_id(report)[plain.proposal_id]["to"]["status"] == "evaluating"
    assert plain.proposal_id in [line["proposalId"] for line in report.questions]


@pytest.mark.requirement("CARD-audit")
def test_an_inserted_intent_is_judged_and_moves_what_comes_later(file: Path, opened: Realm) -> None:
    start = opened.branch().head
    opened.act("ann", "sell", {"item": "tea", "count": 1})
    cake = opened.act("ann", "sell", {"item": "cake", "count": 2})
    opened.close()
    more = Insertion("ann", {"type": "sell", "input": {"item": "cake", "count": 2}})
    report = ask(file, world=start, insert=[more])
    assert [line["to"]["status"] for line in report.inserted] == ["completed"]
    assert by_id(report)[cake.proposal_id]["change"] == "impossible"
    assert by_id(report)[cake.proposal_id]["to"]["code"] == "OUT_OF_STOCK"
    last = Insertion("ann", {"type": "sell", "input": {"item": "cake", "count": 1}}, at=1 << 41)
    report = ask(file, world=start, insert=[last])
    assert (report.proposals, report.inserted[0]["to"]["status"]) == ([], "completed")
    with pytest.raises(RefusedError) as refused:
        ask(file, world=start, insert=[Insertion("zoe", {"type": "sell"})])
    assert refused.value.code == "UNKNOWN_ACTOR"


def test_what_cannot_be_asked_is_refused(file: Path, opened: Realm, tmp_path: Path) -> None:
    sold = opened.act("ann", "sell", {"item": "tea", "count": 1})
    opened.act("bot", "sell", {"item": "tea", "count": 1})
    opened.close()
    for code, otherwise in (
        ("NOT_AFTER_START", {"world": sold.world_id, "drop": [sold.proposal_id]}),
        ("UNKNOWN_PROPOSAL", {"drop": ["nobody"]}),
        ("INVALID_VALUE", {}),
        ("UNKNOWN_WORLD", {"world": "nothing"}),
        ("POLICY_NOT_AT_HAND", {"world": sold.world_id, "at_hand": []}),
        ("SCHEMA_MISMATCH", {"world": sold.world_id, "domain": golden.garden}),
        ("FILE_EXISTS", {"world": sold.world_id, "scratch": file}),
    ):
        with pytest.raises(RefusedError) as refused:
            ask(file, **otherwise)
        assert refused.value.code == code, otherwise


@pytest.mark.requirement("CARD-replay", "HC-journal")
def test_a_result_comes_in_where_the_record_has_it_and_others_were_sealed_meanwhile(file: Path, tmp_path: Path) -> None:
    bank = Bank()
    bank.release.clear()
    with open_shop(str(file), effects=[bank.handler()]) as world:
        start = world.branch().head
        wanted = {"scope": ["data.receipts"]}
        charging = threading.Thread(target=world.act, args=("ann", "charge", {"amount": 5}), kwargs=wanted)
        charging.start()
        assert bank.started.wait(PATIENCE_S)
        meanwhile = world.act("ann", "sell", {"item": "tea", "count": 1}, scope=["data.stock.*", "data.sold"])
        bank.release.set()
        charging.join()
        charged = next(world.worlds())
        assert charged.parent == meanwhile.world_id
    worlds = sealed(file)
    for number, begin in enumerate((start, meanwhile.world_id)):  # in the latter it is under way already
        scratch = tmp_path / f"scratch-{number}.db"
        report = ask(file, world=begin, scratch=scratch)
        assert (report.changed, sealed(scratch)) == (False, worlds)
    told = by_id(ask(file, drop=[meanwhile.proposal_id]))
    assert [line["change"] for line in told.values()] == ["world", "dropped"]
    assert bank.charged == [5]


@pytest.mark.requirement("IC-reqid", "HC-journal")
def test_a_recorded_result_applies_to_the_same_effect_at_another_place_once(file: Path) -> None:
    with open_shop(str(file)) as world:
        paid = world.act("ann", "charge", {"amount": 5, "times": 2})
    with open_for_reading(str(file)) as log:
        recorded = recorded_effects(log, paid.proposal_id)
    first, second = ({"amount": 5, "number": number} for number in (0, 1))
    known = next(one for one in recorded if one.call == recorded[0].call)

    def look(name: str, args: dict[str, int], used: dict[str, str]) -> str | None:
        found = result_for(recorded, Requirement(name, "bank.charge", freeze(args), "charge", "elsewhere"), used)
        return None if found is None else found.name

    assert look(known.name, first, {known.name: known.name}) == known.name  # it is the very same one
    assert look("another", first, {}) == known.name
    assert look("another", first, {known.name: "another"}) == known.name  # and is asked for once more
    assert look("another", first, {known.name: "a third"}) is None
    assert look(known.name, first, {known.name: "another"}) is None
    assert look("another", second, {known.name: known.name}) == recorded[1].name
    assert look("another", {"amount": 6, "number": 0}, {}) is None
