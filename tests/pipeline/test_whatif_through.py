"""What if goes on through what comes into force on its way, and takes over what is under way; it leaves no rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from authority import Approve, Escalate, Policy, rule
from projections import projection
from tests.pipeline.shop import Bank, Sale, Shop, charge, close, house, left, open_shop, sell, shop
from tests.pipeline.test_whatif import ask, by_id, sealed
from tests.support.engines import engine_of
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.core import Domain, set_
from world.errors import RefusedError
from world.limits import Limits
from world.log import open_log
from world.pipeline import judge
from world.read_models.archive import Archive
from worldprotocol.analysis.counterfactual import Insertion, WhatIf, cut_of, what_if
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "world.db"


@pytest.fixture
def opened(file: Path) -> Iterator[Realm]:
    with open_shop(str(file)) as world:
        yield world


# Domains

ORDER = {"kind": "patch", "op": "set", "path": "sold", "value": {"kind": "get", "path": "input.count"}}
NUMBER = {"type": "object", "fields": {"count": {"type": "number", "required": True}}}


def counter(version: str, **fields: Any) -> Domain:
    """Return a domain that is all portable data."""
    domain = Domain(
        "urn:test:counter", version=version, state={"fields": {"sold": {"type": "number", "default": 0}, **fields}}
    )
    domain.flow("count", ORDER, input=NUMBER)
    domain.flow(f"count{version[0]}", ORDER, input=NUMBER)
    return domain


def counted(file: Path, versions: list[Domain]) -> tuple[str, list[str]]:
    """Count on under one domain after the other; returns the first world, and the proposals."""
    clock, ids, names, start = ManualClock(1_000, 1), SequentialIds(), [], ""
    for number, domain in enumerate(versions):
        if number == 0:
            world = Realm.create(file, domain=domain, clock=clock, ids=ids)
            world.register("ann", "human", binding={"kind": "auto_approve"})
            start = world.branch().head
        else:
            world = Realm.open_to_adopt(file, domain=domain, clock=clock, ids=ids)
        with world:
            names += [world.act("ann", "count", {"count": 10 * number + at}).proposal_id for at in (1, 2)]
    return start, names


@pytest.mark.requirement("WP-schema", "CARD-replay", "CARD-audit")
def test_it_goes_on_through_domains_that_the_log_holds_as_data(file: Path, tmp_path: Path) -> None:
    versions = [counter(f"{number}.0.0") for number in (1, 2, 3)]
    start, names = counted(file, versions)
    scratch = tmp_path / "scratch.db"
    report = ask(file, world=start, domain=versions[2], at_hand=[], scratch=scratch)
    assert (report.changed, report.stopped, report.code) == (False, None, [])
    assert sealed(scratch) == sealed(file)
    report = ask(file, drop=[names[1]], domain=versions[0], at_hand=[])
    assert [line["change"] for line in report.proposals] == ["dropped"]
    assert report.heads == []
    more = Insertion("ann", {"type": "count3", "input": {"count": 9}}, at=1 << 41)
    assert (
        ask(file, world=start, domain=versions[0], at_hand=[], insert=[more]).inserted[0]["to"]["status"] == "completed"
    )


@pytest.mark.requirement("WP-schema", "CARD-audit")
def test_a_domain_that_does_not_fit_here_does_not_come_into_force_and_what_needs_it_is_impossible(file: Path) -> None:
    first = counter("1.0.0", extra={"type": "number"})
    first.flow("fill", {"kind": "patch", "op": "set", "path": "extra", "value": {"kind": "lit", "value": 1}})
    second = counter("2.0.0", extra={"type": "number", "required": True, "default": 0})
    clock, ids = ManualClock(1_000, 1), SequentialIds()
    with Realm.create(file, domain=first, clock=clock, ids=ids) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        filled = world.act("ann", "fill")
    with Realm.open_to_adopt(file, domain=second, clock=clock, ids=ids) as world:
        later = world.act("ann", "count", {"count": 1})
        assert later.status == "completed"
    report = ask(file, drop=[filled.proposal_id], domain=first, at_hand=[])
    (line,) = report.domains
    assert line["code"] == "DATA_DOES_NOT_FIT"
    told = by_id(report)[later.proposal_id]
    assert (told["change"], told["to"]["status"], told["to"]["code"]) == ("impossible", "refused", "WRONG_SCHEMA")
    assert list(report.lines())[-1]["notAdopted"] == 1


def another_shop() -> Domain:
    """Return the shop in a second version, in Python."""
    other = Domain("urn:test:shop", version="2.0.0", state=Shop)
    other.computed("left", deps=["stock"])(left)
    other.action("sell", version="2")(sell)
    other.action("close", version="2")(close)
    other.action("charge", version="2")(charge)
    return other


@pytest.mark.requirement("WP-schema")
def test_it_ends_where_python_is_not_at_hand_and_goes_on_where_it_is_named(file: Path) -> None:
    with open_shop(str(file)) as world:
        start = world.branch().head
        first = world.act("ann", "sell", {"item": "cake", "count": 3})
    other = another_shop()
    with Realm.open_to_adopt(str(file), domain=other, policies=[house], clock=ManualClock(9_000, 1)) as world:
        late = world.act("ann", "sell", {"item": "cake"})
        assert late.status == "failed"
    report = ask(file, world=start)
    assert not report.changed
    assert "not loaded" in (report.stopped or "")
    assert set(by_id(ask(file, drop=[first.proposal_id]))) == {first.proposal_id}
    report = ask(file, drop=[first.proposal_id], domains=[other])
    assert by_id(report)[late.proposal_id]["change"] == "possible"
    assert report.stopped is None
    with pytest.raises(RefusedError) as refused:
        ask(file, world=start, domain=other)
    assert refused.value.code == "SCHEMA_MISMATCH"


@pytest.mark.requirement("INT-13.5", "CARD-audit")
def test_it_goes_on_through_another_enforcement(file: Path, tmp_path: Path) -> None:
    scope = ["data.sold"]
    with open_shop(str(file)) as world:
        start = world.branch().head
        strict = world.act("ann", "sell", {"item": "tea", "count": 1}, scope=scope)
    parts: dict[str, Any] = {"domain": shop, "policies": [house], "clock": ManualClock(9_000, 1)}
    with Realm.open(str(file), enforcement="trusting", **parts) as world:
        loose = world.act("ann", "sell", {"item": "tea", "count": 2}, scope=scope)
    with Realm.open(str(file), **parts) as world:
        again = world.act("ann", "sell", {"item": "tea", "count": 1}, scope=scope)
    assert [one.status for one in (strict, loose, again)] == ["failed", "completed", "failed"]
    scratch = tmp_path / "scratch.db"
    report = ask(file, world=start, scratch=scratch)
    assert (report.changed, report.stopped) == (False, None)
    assert sealed(scratch) == sealed(file)


@pytest.mark.requirement("CARD-audit")
def test_functions_at_hand_that_are_others_than_then_are_named(file: Path) -> None:
    with open_shop(str(file)) as world:
        start = world.branch().head
    changed = Domain("urn:test:shop", version="1.0.0", state=Shop)
    changed.computed("left", deps=["stock"])(left)
    changed.action("close", version="1")(close)
    changed.action("charge", version="1")(charge)

    def dearer(ctx: Any, input: Sale) -> Any:  # noqa: A002
        return [set_("sold", 0)]

    changed.action("sell", version="1", available={"kind": "get", "path": "open"})(dearer)
    assert ask(file, world=start, domain=changed).code == ["action:sell"]


# Policies


@rule
def approves(case: Any) -> Any:
    return Approve("fine")


@pytest.mark.requirement("CARD-policy")
def test_a_policy_whose_code_is_lost_is_missed_where_it_judges_and_not_before(file: Path, opened: Realm) -> None:
    start = opened.branch().head
    opened.act("ann", "sell", {"item": "tea"})
    by_bot = opened.act("bot", "sell", {"item": "tea"})
    opened.close()
    with open_log(str(file), read_only=True) as log:
        before = cut_of(Archive(log), drop=[by_bot.proposal_id])
    with pytest.raises(RefusedError) as refused:
        ask(file, world=start, at_hand=[])
    assert refused.value.code == "POLICY_NOT_AT_HAND"
    question = WhatIf(str(file), shop, before, drop=[by_bot.proposal_id], at_hand=[])
    assert [line["change"] for line in what_if(question).proposals] == ["dropped"]
    others = [Policy("one", [approves]), Policy("two", [approves])]
    with pytest.raises(RefusedError) as refused:
        ask(file, world=start, policies=others)
    assert refused.value.code == "INVALID_VALUE"


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_what_a_policy_said_that_was_not_adopted_counts_as_little_as_it_did(
    file: Path, opened: Realm, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = opened.branch().head
    opened.close()
    parts: dict[str, Any] = {"domain": shop, "clock": ManualClock(9_000, 1)}
    with (
        Realm.open(str(file), policies=[Policy("house", [approves])], **parts) as world,
        monkeypatch.context() as patch,
    ):
        patch.setattr(judge, "hold", lambda *_: False)  # earlier releases rejected what is held today
        refused = world.act("bot", "sell", {"item": "tea"})
        assert refused.status == "rejected"
    report = ask(file, world=start)
    assert not report.changed
    assert report.counts == {"broken off then, and so here": 1}
    told = by_id(ask(file, world=start, policies=[Policy("house", [approves])]))
    assert told[refused.proposal_id]["change"] == "possible"


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_what_was_broken_off_then_is_broken_off_here(file: Path) -> None:
    slow = [True]

    @rule
    def dawdles(case: Any) -> Any:
        while slow[0] and case.intent.body.type == "note":
            pass
        return Approve("at last")

    domain = Domain("urn:test:slow", version="1.0.0", state=Shop)

    @domain.action("note", version="1")
    def noting(ctx: Any) -> Any:
        return [set_("sold", 1)]

    @domain.action("count", version="1")
    def counting(ctx: Any) -> Any:
        while slow[0]:
            pass
        return [set_("sold", 2)]

    policy = Policy("slow", [dawdles])
    parts: dict[str, Any] = {"clock": ManualClock(1_000, 1), "policies": [policy], "limits": Limits(max_call_ms=100)}
    with Realm.create(file, domain=domain, **parts) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "slow"})
        world.register("ann", "human", binding={"kind": "auto_approve"})  # no rule is called, which could be late
        start = world.branch().head
        ended = [world.act("bot", "note"), world.act("ann", "count")]
    assert [one.status for one in ended] == ["rejected", "failed"]
    slow[0] = False
    report = ask(file, world=start, domain=domain, at_hand=[policy])
    assert not report.changed, list(report.lines())
    assert report.counts == {"broken off then, and so here": 2}
    report = ask(file, world=start, domain=domain, policies=[Policy("slow", [approves])], at_hand=[])
    assert by_id(report)[ended[0].proposal_id]["change"] == "possible"


# Branches


@pytest.mark.requirement("WP-lineage", "CARD-audit")
def test_a_dropped_fork_takes_its_branch_along(file: Path, opened: Realm) -> None:
    base = opened.act("ann", "sell", {"item": "tea"}).world_id
    forked = opened.act("ann", "sell", {"item": "cake"}, base_world=base, fork_name="side")
    there = opened.act("ann", "sell", {"item": "cake"}, branch="side")
    opened.close()
    report = ask(file, drop=[forked.proposal_id])
    told = by_id(report)
    assert told[there.proposal_id]["to"]["code"] == "UNKNOWN_BRANCH"
    assert report.heads == [{"kind": "head", "branch": "side", "change": "gone"}]


@pytest.mark.requirement("WP-lineage", "CARD-audit")
def test_a_branch_begins_where_things_stand_and_it_is_told_where_that_is_elsewhere(
    file: Path, opened: Realm, tmp_path: Path
) -> None:
    start = opened.branch().head
    first = opened.act("ann", "sell", {"item": "tea", "count": 2})
    opened.create_branch("side", first.world_id)
    late = opened.act("ann", "sell", {"item": "cake"}, branch="side")
    opened.close()
    report = ask(file, drop=[first.proposal_id])
    (line,) = report.elsewhere
    assert (line["branch"], line["from"], line["to"]) == ("side", first.world_id, start)
    assert by_id(report)[late.proposal_id]["change"] == "world"
    scratch = tmp_path / "scratch.db"
    more = Insertion("ann", {"type": "sell", "input": {"item": "cake", "count": 2}})
    report = ask(file, drop=[first.proposal_id], insert=[more], scratch=scratch)
    (side,) = [line for line in report.heads if line["branch"] == "side"]
    assert {one["path"]: one["after"] for one in side["changes"]} == {"stock.cake": 0, "stock.tea": 10}


@projection("till", sources=["ui"])
def till(request: Any) -> Any:
    given = {"item": "tea", "count": request.snapshot.data["stock"]["cake"]}
    return {"kind": "intent", "body": {"type": "sell", "input": given}}


@pytest.mark.requirement("INT-12.2", "CARD-replay")
def test_a_projection_looked_at_the_head_and_so_it_does_here(file: Path, tmp_path: Path) -> None:
    with open_shop(str(file), projections=[till]) as world:
        start = world.branch().head
        source = {"kind": "ui", "eventId": "e1", "payload": {}}
        received = world.project(source, "ann")
    assert received.proposal is not None
    scratch = tmp_path / "scratch.db"
    more = Insertion("ann", {"type": "sell", "input": {"item": "cake", "count": 1}})
    ask(file, world=start, insert=[more], scratch=scratch)
    with open_log(str(scratch), read_only=True) as log:
        assert verify(log).ok, verify(log)
    ask(file, drop=[received.proposal.proposal_id])


# Under way where it begins


class Mortal:
    """A worker whose end the next one sees."""

    def __init__(self, me: str) -> None:
        self.me = me

    def is_gone(self, worker: str) -> bool:
        return worker != self.me

    def close(self) -> None:
        """There is nothing to leave."""


@pytest.mark.requirement("HC-journal", "CARD-replay")
def test_an_effect_in_doubt_where_the_branch_begins_gets_what_a_person_said_of_it(file: Path, tmp_path: Path) -> None:

    ids = SequentialIds()
    world = open_shop(str(file), ids=ids, workers=Mortal("first"))
    protocol = engine_of(world)
    protocol.make = _raising  # type: ignore[method-assign]
    with pytest.raises(RuntimeError):
        world.act("ann", "charge", {"amount": 5})
    world.close()
    parts: dict[str, Any] = {"domain": shop, "policies": [house], "effects": [Bank().handler()], "ids": ids}
    with Realm.open(str(file), clock=ManualClock(90_000, 1), workers=Mortal("second"), **parts) as world:
        (stuck,) = world.realm().proposals.values()
        assert stuck.in_doubt
        position = world.log.head().size
        world.act("ann", "sell", {"item": "tea"}, scope=["data.stock.*", "data.sold"])
        world._acting.resolve(stuck.proposal_id, None, "happened", by="ann", reason="seen", value={"receipt": "r1"})
        assert world.proposal(stuck.proposal_id).status == "completed"
    scratch = tmp_path / "scratch.db"
    report = what_if(WhatIf(str(file), shop, position, at_hand=[house], scratch=scratch))
    assert not report.changed, list(report.lines())
    assert sealed(scratch) == sealed(file)


def _raising(task: Any) -> Any:
    raise RuntimeError("the process ends")


# The file that stays


@pytest.mark.requirement("CARD-audit")
def test_a_scratch_file_comes_to_be_when_all_is_done_and_not_before(file: Path, opened: Realm, tmp_path: Path) -> None:
    start = opened.branch().head
    opened.act("bot", "sell", {"item": "tea"})
    opened.close()
    kept = tmp_path / "kept"
    kept.mkdir()

    def ask_it(progress: Any, **more: Any) -> None:
        with open_log(str(file), read_only=True) as log:
            position = cut_of(Archive(log), world=start)
        what_if(WhatIf(str(file), shop, position, scratch=kept / "other.db", **more), progress)

    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ask_it(interrupted, at_hand=[house])
    assert list(kept.iterdir()) == []
    with pytest.raises(RefusedError):
        ask_it(lambda done, total: None, at_hand=[])
    assert list(kept.iterdir()) == []
    told: list[tuple[int, int]] = []
    ask_it(lambda done, total: told.append((done, total)), at_hand=[house])
    assert [one.name for one in kept.iterdir()] == ["other.db"]
    assert told[-1][0] == told[-1][1]
    with pytest.raises(RefusedError) as refused:
        ask_it(interrupted, at_hand=[house])
    assert refused.value.code == "FILE_EXISTS"
    with pytest.raises(RefusedError) as refused:
        what_if(WhatIf(str(file), shop, 20, scratch=tmp_path / "nowhere" / "other.db"))
    assert refused.value.code == "INVALID_TARGET"


@rule
def asks(case: Any) -> Any:
    return Escalate("ann", "who knows")


@pytest.mark.requirement("CARD-audit")
def test_a_question_that_nobody_was_asked_waits_until_its_time_is_over(file: Path) -> None:
    clock = ManualClock(1_000, 1)
    with open_shop(str(file), clock=clock) as world:
        world.bind("bot", {"kind": "policy_rules", "policy": "house", "timeoutMs": 100})
        start = world.branch().head
        sold = world.act("bot", "sell", {"item": "tea"})
    report = ask(file, world=start, policies=[Policy("house", [asks])])
    assert by_id(report)[sold.proposal_id]["to"]["status"] == "evaluating"
    clock.advance(500)
    with Realm.open(str(file), domain=shop, policies=[house], clock=clock) as world:
        world.act("ann", "sell", {"item": "tea"})
    report = ask(file, world=start, policies=[Policy("house", [asks])])
    assert by_id(report)[sold.proposal_id]["to"]["status"] == "rejected"
    assert [line["proposalId"] for line in report.questions] == [sold.proposal_id]
