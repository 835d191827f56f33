"""From intents to worlds, on every backend."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from host import handler
from tests.pipeline.shop import Bank, house, open_shop, shop
from world.clock import ManualClock, SequentialIds
from world.core import Domain
from world.errors import RefusedError
from world.events.base import Event
from world.events.proposal_events import ProposalJudged
from world.events.realm_events import WorldSealed
from world.limits import Limits
from world.model.identity import content_id, snapshot_hash, world_id
from world.model.intent import IntentInstance
from world.sizes import MAX_SCOPE_PATTERNS
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.api.realm import Realm


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url) as opened:
        yield opened


def topics(world: Realm, proposal_id: str) -> list[str]:
    return [logged.topic for logged in world.log.stream(proposal_id)]


def refusal(code: str) -> Any:
    return pytest.raises(RefusedError, match="") if not code else _Refusal(code)


class _Refusal:
    def __init__(self, code: str) -> None:
        self.code = code

    def __enter__(self) -> _Refusal:
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        assert isinstance(error, RefusedError), f"expected {self.code}, got {error!r}"
        assert error.code == self.code, error
        self.error = error
        return True


@pytest.mark.requirement("INT-14.1", "INT-14.4", "WP-fsm", "WP-decision", "CARD-log")
def test_an_approved_intent_becomes_a_world(world: Realm) -> None:
    genesis = world.branch().head
    done = world.act("ann", "sell", {"item": "tea", "count": 4})
    assert done.status == "completed"
    assert done.submitted.base_world == genesis
    assert done.world_id == world.branch().head != genesis
    assert world.data() == {"stock": {"tea": 6, "cake": 3}, "sold": 4, "open": True, "receipts": []}
    assert world.snapshot().computed == {"computed.left": 9}
    assert topics(world, done.proposal_id) == [
        "proposal.submitted",
        "proposal.judged",
        "decision.made",
        "execution.started",
        "proposal.completed",
    ]
    sealed = world.sealed()
    assert sealed.created_by == done.proposal_id
    assert sealed.parent == genesis


@pytest.mark.requirement("WP-world", "WP-hash", "WP-lineage", "WP-restore", "WP-schema")
def test_a_world_s_ids_follow_from_its_restored_snapshot(world: Realm) -> None:
    for count in (1, 2, 1):
        world.act("ann", "sell", {"item": "tea", "count": count})
    seen = set()
    at: str | None = world.branch().head
    while at is not None:
        sealed = world.sealed(at)
        hashed = snapshot_hash(world.snapshot(at).to_wire())
        assert hashed == sealed.snapshot_hash
        assert sealed.content_id == content_id(sealed.schema_hash, hashed)
        assert sealed.world_id == world_id(sealed.schema_hash, hashed, sealed.parent) == at
        assert (sealed.created_by is None) == (sealed.parent is None)
        assert at not in seen
        seen.add(at)
        at = sealed.parent
    assert len(seen) == 4


@pytest.mark.requirement("WP-outcome", "WP-exec", "IC-validate")
def test_a_failed_execution_seals_a_world_with_its_parent_s_data(world: Realm) -> None:
    head = world.branch().head
    failed = world.act("ann", "sell", {"item": "cake", "count": 9})
    assert failed.status == "failed"
    assert failed.error is not None
    assert failed.error.code == "OUT_OF_STOCK"
    branch = world.branch()
    assert branch.head == head
    assert branch.tip == failed.world_id != head
    assert world.data(failed.world_id) == world.data(head)
    assert world.sealed(failed.world_id).outcome == "failed"


@pytest.mark.requirement("IC-validate")
def test_an_input_that_does_not_fit_is_refused_before_anybody_is_asked(world: Realm) -> None:
    size = world.log.head().size
    for value, paths in (
        ({"item": 7}, ["input.item"]),
        ({"count": 1.5, "x.y": 1}, ["input.item", "input.count", r"input.x\.y"]),
        (None, ["input"]),
    ):
        with pytest.raises(RefusedError) as caught:
            world.act("ann", "sell", value)
        assert caught.value.code == "INVALID_INPUT"
        assert [fault["path"] for fault in caught.value.details["faults"]] == paths
        assert all(path in caught.value.message for path in paths)
    assert world.log.head().size == size  # nothing was recorded, and no rule has seen it


@pytest.mark.requirement("IC-validate")
def test_a_realm_that_judges_invalid_inputs_records_them_and_fails_them() -> None:
    with open_shop("sqlite:///:memory:", limits=Limits(judge_invalid_input=True)) as world:
        wrong = world.act("ann", "sell", {"item": 7})
        assert wrong.decision is not None
        assert (wrong.status, wrong.decision.decision) == ("failed", "approved")
        assert wrong.error is not None
        assert wrong.error.code == "INVALID_INPUT"
        assert "input.item" in wrong.error.message
        assert recheck(world, every=True).ok


@pytest.mark.requirement("IC-available")
def test_an_unavailable_action_fails_and_does_not_run(world: Realm) -> None:
    world.act("ann", "close")
    failed = world.act("ann", "sell", {"item": "tea"})
    assert failed.error is not None
    assert failed.error.code == "ACTION_UNAVAILABLE"
    assert world.data()["sold"] == 0


@pytest.mark.requirement("INT-4.1", "WP-decision", "INT-13.3")
def test_a_rejected_proposal_is_never_executed_and_says_which_rule(world: Realm) -> None:
    rejected = world.act("bot", "close")
    assert rejected.status == "rejected"
    record = rejected.decision
    assert record is not None
    assert "stays open" in record.reason
    assert {outcome.rule: outcome.answer for outcome in record.trace}["nobody_closes"] == "reject"
    assert [outcome.rule for outcome in record.trace if outcome.decisive] == ["nobody_closes"]
    assert record.policy_hash == house.hash
    assert "approvedScope" not in record.to_wire()
    assert "execution.started" not in topics(world, rejected.proposal_id)
    unmatched = world.act("bot", "charge", {"amount": 1})
    assert unmatched.status == "rejected"


@pytest.mark.requirement("INT-13.1", "INT-13.3")
def test_scope_goes_from_the_proposal_to_the_decision(world: Realm) -> None:
    asked = {"allowedPaths": ["data.stock.*", "data.sold"], "note": "counter"}
    done = world.act("ann", "sell", {"item": "tea"}, scope=asked)
    assert "scopeProposal" not in done.to_wire()
    assert done.intent.body.to_wire()["scopeProposal"] == asked
    assert done.to_wire()["approvedScope"] == asked
    free = world.act("ann", "sell", {"item": "tea"})
    assert free.to_wire()["approvedScope"] is None
    narrowed = world.act("narrow", "sell", {"item": "tea"})
    assert narrowed.status == "completed"
    assert narrowed.to_wire()["approvedScope"]["allowedPaths"] == ["data.stock.*", "data.sold"]


@pytest.mark.requirement("INT-13.5")
def test_an_enforcing_host_refuses_patches_outside_the_scope_and_a_trusting_one_says_that_it_trusts(
    log_url: str, tmp_path: Path
) -> None:
    with open_shop(log_url) as world:
        outside = world.act("ann", "sell", {"item": "tea"}, scope=["data.sold"])
        assert outside.status == "failed"
        assert outside.error is not None
        assert outside.error.code == "SCOPE_VIOLATION"
        assert world.data()["stock"]["tea"] == 10
        assert world.realm().enforcement == "enforcing"
    with open_shop(f"sqlite:///{tmp_path / 'trusting.db'}", enforcement="trusting") as world:
        done = world.act("ann", "sell", {"item": "tea"}, scope=["data.sold"])
        assert done.status == "completed"
        assert done.started is not None
        assert done.started.enforcement == "trusting"
        assert world.realm().enforcement == "trusting"


@pytest.mark.requirement("INT-6.1.1", "INT-6.1.2", "INT-6.4", "INV-I4", "IC-reentry")
def test_an_intent_id_is_taken_once_and_the_same_meaning_again_is_a_new_attempt(world: Realm) -> None:
    first = world.issue("ann", "sell", {"item": "tea"})
    world.submit(first)
    size = world.log.head().size
    with refusal("INTENT_ALREADY_SUBMITTED"):
        world.submit(first)
    assert world.log.head().size == size
    again = world.issue("ann", "sell", {"item": "tea"})
    assert again.means_the_same_as(first)
    assert again != first
    assert world.submit(again).submitted.attempt == 2


@pytest.mark.requirement("INT-3.1", "WP-bind", "INT-7.4.4c")
def test_what_can_never_become_a_proposal_is_refused_and_leaves_no_trace(world: Realm) -> None:
    size = world.log.head().size
    good = world.issue("ann", "sell", {"item": "tea"})
    wire = good.to_wire()

    def changed(**changes: Any) -> IntentInstance:
        return IntentInstance.read({**wire, **changes})

    with refusal("UNKNOWN_ACTOR"):
        world.act("nobody", "sell", {"item": "tea"})
    with refusal("UNKNOWN_ACTION") as unknown:
        world.act("ann", "fly")
    assert "sell" in unknown.error.message
    with refusal("WRONG_SCHEMA"):
        world.submit(changed(intentKey="0" * 64))
    with refusal("INVALID_VALUE") as body_only:
        world.submit({"type": "sell"})
    assert "$.body" in body_only.error.message
    with refusal("SCOPE_TOO_LARGE"):
        world.act("ann", "sell", {"item": "tea"}, scope=["data"] * (MAX_SCOPE_PATTERNS + 1))
    with refusal("UNKNOWN_BRANCH"):
        world.submit(good, branch="nowhere")
    with refusal("UNKNOWN_WORLD"):
        world.submit(good, base_world="0" * 64)
    with refusal("INVALID_VALUE") as nan:
        world.act("ann", "sell", {"item": float("nan")})
    assert "$.input" in nan.error.message
    world_id_before = world.branch().head
    assert world.log.head().size == size
    world.register("unbound", "agent")
    with refusal("ACTOR_NOT_BOUND"):
        world.act("unbound", "sell", {"item": "tea"})
    with refusal("ACTOR_MISMATCH"):
        world.register("unbound", "human")
    assert world.branch().head == world_id_before


def test_limits_are_named_in_the_refusal(log_url: str) -> None:
    with open_shop(log_url, limits=Limits(max_intent_bytes=500)) as world:
        with refusal("INTENT_TOO_LARGE") as large:
            world.act("ann", "sell", {"item": "x" * 600})
        assert "max_intent_bytes" in large.error.message
        assert world.act("ann", "sell", {"item": "tea"}).status == "completed"


@pytest.mark.requirement("WP-exec")
def test_a_world_or_a_result_too_large_for_the_log_ends_its_proposal_failed(log_url: str) -> None:
    @handler("bank.charge", idempotent=True)
    def wordy(params: Any, call: Any) -> Any:
        return {"receipt": "x" * 5_000 * params["amount"]}

    with open_shop(log_url, limits=Limits(max_event_bytes=6_000), effects=[wordy]) as world:
        large = world.act("ann", "charge", {"amount": 1, "times": 2})
        assert large.status == "failed"
        assert large.error is not None
        assert large.error.code == "WORLD_TOO_LARGE"
        large = world.act("ann", "charge", {"amount": 2, "times": 1})
        assert large.error is not None
        assert large.error.code == "EFFECT_INVALID_RESULT"
        assert world.data()["receipts"] == []
        assert world.act("ann", "sell", {"item": "tea"}).status == "completed"


@pytest.mark.requirement("INT-8.1", "INT-8.2", "INV-SD1", "INV-SD2", "INV-SD3")
def test_a_system_actor_issues_direct_intents_and_nobody_else_can_claim_to(world: Realm) -> None:
    done = world.act("cron", "sell", {"item": "tea"})
    origin = done.intent.meta.origin
    assert origin.projection_id.startswith("system:")
    assert origin.source.kind == "system"
    assert done.intent.intent_key == done.intent.body.key(shop.schema.hash)
    wire = world.issue("ann", "sell", {"item": "tea"}).to_wire()
    wire["meta"]["origin"]["projectionId"] = "system:fake"
    with refusal("NOT_A_DIRECT_INTENT"):
        world.submit(IntentInstance.read(wire))


@pytest.mark.requirement("INT-8.2", "INV-SD1", "INV-SD2")
@pytest.mark.parametrize(
    ("projection_id", "source_kind", "actor"),
    [
        ("system:nightly", "ui", "cron"),
        ("system:nightly", "api", "cron"),
        ("system:nightly", "agent", "cron"),
        ("system:nightly", "system", "ann"),
        ("system:", "system", "cron"),
    ],
)
def test_submitting_holds_direct_intents_to_source_actor_and_name(
    world: Realm, projection_id: str, source_kind: str, actor: str
) -> None:
    wire = world.issue(actor, "sell", {"item": "tea"}).to_wire()
    wire["meta"]["origin"] |= {
        "projectionId": projection_id,
        "source": {"kind": source_kind, "eventId": "night-1"},
    }
    events = [logged.position for logged in world.log.read()]
    with refusal("NOT_A_DIRECT_INTENT"):
        world.submit(IntentInstance.read(wire))
    assert [logged.position for logged in world.log.read()] == events
    assert world.submit(world.issue("ann", "sell", {"item": "tea"})).status == "completed"


@pytest.mark.requirement("INV-SD3", "INV-I2", "INT-6.2.1")
def test_a_direct_intent_with_a_key_that_does_not_follow_from_it_is_refused(world: Realm) -> None:
    wire = world.issue("cron", "sell", {"item": "tea"}).to_wire()
    with refusal("WRONG_SCHEMA"):
        world.submit(IntentInstance.read({**wire, "intentKey": "ab" * 32}))
    assert world.submit(IntentInstance.read(wire)).status == "completed"


@pytest.mark.requirement("INT-4.1", "WP-bind")
@pytest.mark.parametrize("kind", ["human", "agent", "system"])
def test_what_the_authority_rejects_is_rejected_for_actors_of_every_kind(log_url: str, kind: str) -> None:
    with open_shop(log_url) as world:
        world.register(f"a-{kind}", kind, binding={"kind": "policy_rules", "policy": "house"})  # type: ignore[arg-type]
        refused = world.act(f"a-{kind}", "close")
        assert refused.status == "rejected"
        assert refused.decision is not None
        assert refused.decision.decision == "rejected"
        assert world.data()["open"] is True
        assert world.act(f"a-{kind}", "sell", {"item": "tea"}).status == "completed"


@pytest.mark.requirement("INT-14.4")
def test_the_wire_form_of_a_proposal_has_every_part_that_the_specification_names(log_url: str) -> None:
    with open_shop(log_url, clock=ManualClock(5_000)) as world:
        head = world.branch().head
        intent = world.issue("ann", "sell", {"item": "tea"})
        done = world.submit(intent, trace={"ticket": 7})
        wire = done.to_wire()
        expected = {
            "proposalId": done.proposal_id,
            "actor": done.submitted.actor.to_wire(),
            "intent": intent.to_wire(),
            "baseWorld": head,
            "trace": {"ticket": 7},
            "submittedAt": 5_000,
            "status": "completed",
            "approvedScope": None,
        }
        assert {name: wire[name] for name in expected} == expected
        assert wire["actor"]["actorId"] == "ann"
        assert "trace" not in world.act("ann", "sell", {"item": "tea"}).to_wire()


@pytest.mark.requirement("WP-bind", "WP-decision")
def test_people_answer_and_time_runs_out(log_url: str) -> None:
    clock = ManualClock(1_000)
    with open_shop(log_url, clock=clock) as world:
        large = world.act("bot", "sell", {"item": "tea", "count": 5})
        assert large.status == "evaluating"
        assert [waiting.proposal_id for waiting in world.inbox()] == [large.proposal_id]
        asked = world.decide(large.proposal_id, "ask", by="ann", reason="who is it for?")
        assert asked.status == "evaluating"
        done = world.decide(large.proposal_id, "approve", by="ann")
        assert done.status == "completed"
        assert done.decision is not None
        with refusal("NOT_WAITING"):
            world.decide(large.proposal_id, "reject", by="ann")
        late = world.act("kid", "sell", {"item": "cake"})
        assert late.deadline == clock.now_ms() + 1000
        clock.advance(1001)
        world.settle()
        late = world.proposal(late.proposal_id)
        assert late.status == "rejected"
        assert "human.timed_out" in topics(world, late.proposal_id)


@pytest.mark.requirement("WP-lineage", "WP-base", "WP-epoch")
def test_forks_branches_and_epochs(world: Realm) -> None:
    genesis = world.branch().head
    world.act("ann", "sell", {"item": "tea"})
    forked = world.act("ann", "sell", {"item": "cake"}, base_world=genesis)
    assert forked.branch.startswith("fork-")
    assert world.data(world.branch(forked.branch).head)["stock"] == {"tea": 10, "cake": 2}
    assert world.data(world.branch("main").head)["stock"] == {"tea": 9, "cake": 3}
    assert [row[0] for row in world.archive.rows("children", {"of_world": genesis})] == [
        world.branch("main").head,
        world.branch(forked.branch).head,
    ]
    with refusal("STALE_BASE"):
        world.submit(world.issue("ann", "sell", {"item": "tea"}), branch="main", base_world=genesis)
    broken = world.act("ann", "sell", {"item": "cake", "count": 99})
    with refusal("FAILED_BASE"):
        world.create_branch("on-failure", broken.world_id)
    world.create_branch("on-failure", broken.world_id, allow_failed=True)
    waiting = world.act("bot", "sell", {"item": "tea", "count": 5})
    world.switch_branch(forked.branch)
    assert world.realm().epoch == 1
    assert world.proposal(waiting.proposal_id).status == "superseded"
    with refusal("NOT_WAITING"):
        world.decide(waiting.proposal_id, "approve", by="ann")
    assert world.act("ann", "sell", {"item": "tea"}).branch == forked.branch


@pytest.mark.requirement("WP-world")
def test_the_same_content_on_the_same_parent_is_the_same_world(world: Realm) -> None:
    first = world.act("ann", "sell", {"item": "cake", "count": 99})
    second = world.act("ann", "sell", {"item": "cake", "count": 99})
    assert first.world_id == second.world_id
    assert first.proposal_id != second.proposal_id
    assert second.status == "failed"


@pytest.mark.requirement("IC-effects", "HC-journal", "INT-14.3", "INT-6.1.3", "INV-I5")
def test_effects_are_made_between_commits_and_journaled(log_url: str) -> None:
    bank = Bank()
    with open_shop(log_url, effects=[bank.handler()]) as world:
        done = world.act("ann", "charge", {"amount": 7, "times": 3})
        assert done.status == "completed"
        assert bank.charged == [7, 7, 7]
        assert len(set(bank.keys)) == 3
        assert all(done.intent.intent_id in key for key in bank.keys)
        assert world.data()["receipts"] == ["r1", "r2", "r3"]
        names = topics(world, done.proposal_id)
        assert names.count("effect.requested") == names.count("effect.fulfilled") == 3
        assert names.index("effect.requested") < names.index("effect.fulfilled")


@pytest.mark.requirement("INT-6.1.3", "INV-I5", "INT-14.3")
def test_every_effect_of_an_execution_is_made_under_the_submitted_intent_id(log_url: str) -> None:
    seen: list[tuple[str, str]] = []

    @handler("bank.charge", idempotent=True)
    def charge(params: Any, call: Any) -> Any:
        seen.append((call.intent_id, call.proposal_id))
        return {"receipt": f"r{len(seen)}"}

    with open_shop(log_url, effects=[charge]) as world:
        done = world.act("ann", "charge", {"amount": 7, "times": 3})
        assert done.status == "completed"
        assert seen == [(done.intent.intent_id, done.proposal_id)] * 3
        submitted = [event for event in world.log.stream(done.proposal_id) if event.topic == "proposal.submitted"]
        assert len(submitted) == 1


@pytest.mark.requirement("HC-handlers")
def test_a_broken_or_missing_handler_ends_the_proposal_failed(log_url: str) -> None:
    bank = Bank()
    bank.broken = True
    with open_shop(log_url, effects=[bank.handler()]) as world:
        failed = world.act("ann", "charge", {"amount": 7})
        assert failed.status == "failed"
        assert failed.error is not None
        assert failed.error.code == "BANK_CLOSED"
        assert world.act("ann", "sell", {"item": "tea"}).status == "completed"


@pytest.mark.requirement("WP-events")
def test_subscribers_hear_everything_in_order_and_cannot_change_the_world(world: Realm) -> None:
    heard: list[int] = []
    refused: list[str] = []
    reacted: list[str] = []

    def broken(position: int, event: Event, schedule: Any) -> None:
        raise RuntimeError("a handler's own mistake")

    def listener(position: int, event: Event, schedule: Any) -> None:
        heard.append(position)
        if isinstance(event, WorldSealed) and not refused:
            try:
                world.act("ann", "sell", {"item": "cake"})
            except RefusedError as error:
                refused.append(error.code)
            schedule(lambda: reacted.append(world.act("ann", "sell", {"item": "cake"}).status))

    world.subscribe(broken)
    unsubscribe = world.subscribe(listener)
    before = world.log.head().size
    world.act("ann", "sell", {"item": "tea"})
    assert heard == list(range(before + 1, world.log.head().size + 1))
    assert refused == ["CALL_FROM_HANDLER"]
    assert reacted == ["completed"]
    unsubscribe()
    world.act("ann", "sell", {"item": "tea"})
    assert heard[-1] < world.log.head().size


@pytest.mark.requirement("WP-exec")
def test_many_threads_lose_no_update(shared_log_url: str) -> None:
    with open_shop(shared_log_url, ids=SequentialIds()) as world:
        errors: list[BaseException] = []

        def sell() -> None:
            try:
                for _ in range(5):
                    assert world.act("ann", "charge", {"amount": 1, "times": 0}).status == "completed"
                    assert world.act("ann", "sell", {"item": "tea", "count": 0}).status == "completed"
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        threads = [threading.Thread(target=sell) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors
        assert world.sealed().height == 80


@pytest.mark.requirement("WP-schema")
def test_another_schema_is_refused_until_it_is_adopted(shared_log_url: str) -> None:
    with open_shop(shared_log_url) as world:
        world.act("ann", "sell", {"item": "tea"})
    changed = Domain("urn:test:shop", version="1.1.0", state=shop.schema.portable["state"])
    changed.flow("rest", {"kind": "seq", "steps": []})
    with refusal("SCHEMA_MISMATCH") as mismatch:
        Realm.open(shared_log_url, domain=changed)
    assert "adopt" in mismatch.error.message
    with Realm.open_to_adopt(shared_log_url, domain=changed) as world:
        assert world.realm().schema_hash == changed.schema.hash


@pytest.mark.requirement("CARD-policy")
def test_a_policy_that_is_not_the_adopted_one_decides_nothing(shared_log_url: str) -> None:
    from authority import Approve, Policy, rule

    @rule
    def anything_goes(case: Any) -> Any:
        return Approve("why not")

    with open_shop(shared_log_url):
        pass
    other = Policy("house", [anything_goes])
    with Realm.open(shared_log_url, domain=shop, policies=[other], effects=[Bank().handler()]) as world:
        held = world.act("bot", "sell", {"item": "tea"})
        assert (held.status, held.to_wire()["held"]) == ("submitted", "policy changed: house")
        assert world.adopt_policy("house")
        assert world.proposal(held.proposal_id).status == "completed"
        assert world.act("bot", "close").status == "completed"


@pytest.mark.requirement("INT-3.1", "WP-bind")
def test_rules_see_the_actor_as_registered_and_not_as_claimed(log_url: str) -> None:
    from authority import Approve, Policy, rule

    @rule
    def members_only(case: Any) -> Any:
        return Approve("a member") if (case.actor.meta or {}).get("role") == "member" else None

    with open_shop(log_url) as world:
        assert world.parts is not None
        world.parts.policies.add(Policy("club", [members_only]))
        world.adopt_policy("club")
        world.register("eve", "agent", binding={"kind": "policy_rules", "policy": "club"})
        wire = world.issue("eve", "sell", {"item": "tea"}).to_wire()
        wire["meta"]["origin"]["actor"]["meta"] = {"role": "member"}
        assert world.submit(IntentInstance.read(wire)).status == "rejected"
        world.register("eve", "agent", meta={"role": "member"})
        assert world.act("eve", "sell", {"item": "tea"}).status == "completed"


def test_the_binding_that_judged_is_recorded_with_the_ruling(world: Realm) -> None:
    done = world.act("bot", "sell", {"item": "tea"})
    judged = [event for _, event in world.events() if isinstance(event, ProposalJudged)]
    assert judged[-1].proposal_id == done.proposal_id
    assert judged[-1].binding["policy"] == "house"


@pytest.mark.requirement("WP-lineage")
def test_a_branch_has_a_name_of_at_most_200_printable_characters(world: Realm) -> None:
    world.create_branch("b" * 200)
    assert world.branch("b" * 200).head == world.branch().head
    for name in ("b" * 201, "", " b", "b\n"):
        with refusal("INVALID_NAME"):
            world.create_branch(name)
