"""The fixture `given`: what a realm does when somebody wants something, told event by event."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pytest

from host import EffectFailure, EffectResult
from tests.golden import garden as golden
from tests.golden.garden import garden, rules, sensor
from world.core import set_
from world.errors import RefusedError
from world.model.intent import IntentBody
from worldprotocol.api.realm import Realm
from worldprotocol.testing.scenarios import Given, event, intent, leaves, passes, registered, result

BEDS = {"north": {"what": "beans", "since": 0, "litres": 0}}


@pytest.fixture
def given(given: Given) -> Given:
    return given.of(domain=garden, policies=[rules], projections=[sensor])


@pytest.mark.requirement("CARD-tests")
def test_what_happens_is_told_by_events_in_order(given: Given) -> None:
    happened = given(data={"beds": BEDS}).when("pour", {"bed": "north", "litres": 5}, actor="bot")
    happened.then(
        "proposal.submitted",
        event("decision.made", decision={"decision": "approved", "reason": "watering_passes: watering is routine"}),
        event("world.sealed", outcome="completed", patches=[ANY, {"op": "set", "path": "water", "value": 95}]),
        event("proposal.completed", branch="main"),
    ).then_data(water=95, beds={"north": {"litres": 5}})
    assert happened.proposal is not None
    assert happened.proposal.status == "completed"


@pytest.mark.requirement("CARD-tests")
def test_every_scene_is_the_same_whenever_it_is_played(given: Given) -> None:
    one, other = (given(data={"beds": BEDS}).when("pour", {"bed": "north", "litres": 5}) for _ in range(2))
    assert one == other


@pytest.mark.requirement("CARD-tests", "CARD-policy")
def test_refusals_rejections_and_failures_are_told_by_their_codes(given: Given) -> None:
    given().when("dance", actor="bot").then_refused("UNKNOWN_ACTION").then_nothing()
    given().when("plant", {"bed": "a", "what": "dandelion"}, actor="bot").then_refused("no_weeds", because="weeds")
    given(registered("ann")).when("pour", {"bed": "a", "litres": 1}, actor="ann").then_refused("NO_SUCH_BED")
    strict = given(intent("plant", {"bed": "a", "what": "leeks"}, actor="ann"), registered("ann"))
    with pytest.raises(RefusedError, match="ann"):
        strict.when("pour", {"bed": "a", "litres": 1})


@pytest.mark.requirement("CARD-tests")
def test_a_caller_leaves_and_its_undecided_calls_end(given: Given) -> None:
    kid = registered("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
    planted = intent("plant", {"bed": "a", "what": "leeks"}, actor="ann")
    call = intent("pour", {"bed": "a", "litres": 1}, actor="kid", attended="hook", trace={"session": "s"})
    asked = given(registered("ann", "human"), kid, planted, call)
    asked.when(leaves("kid", session="other")).then_nothing()
    ended = asked.when(leaves("kid", session="s", noticed_by="renewal"))
    ended.then(event("caller.left", noticed_by="renewal"), event("proposal.superseded", reason="caller left"))

    def approved(world: Realm) -> object:
        [waiting] = world.inbox()
        return world.decide(waiting.proposal_id, "approve", by="ann", reason="it may")

    asked.when(approved).then(event("proposal.held", cause="caller"))
    given(*asked.steps, approved).when(leaves("kid", session="s")).then("proposal.superseded")


@pytest.mark.requirement("CARD-tests")
def test_steps_come_before_and_time_passes_only_when_told(given: Given) -> None:
    kid = registered("kid", "human", binding={"kind": "hitl", "ask": ["ann"], "timeoutMs": 1_000})
    before = given(registered("ann", "human"), kid, intent("plant", {"bed": "a", "what": "leeks"}, actor="ann"))
    before.when("pour", {"bed": "a", "litres": 1}, actor="kid").then("proposal.judged").then_waits("ann")
    asked = given(*before.steps, intent("pour", {"bed": "a", "litres": 1}, actor="kid"))
    asked.when(passes(999)).then_nothing()
    asked.when(passes(1_001)).then("human.timed_out", event("decision.made", decision={"decision": "rejected"}))
    asked.when(lambda world: world.decide(world.inbox()[0].proposal_id, "approve", by="ann")).then(
        event("human.answered", answer={"choice": "approve"}), "proposal.completed"
    )


@pytest.mark.requirement("CARD-tests", "HC-journal")
def test_effects_give_back_what_the_test_says(given: Given) -> None:
    results = [
        result("seeds.buy", {"seed": "kale"}, gives={"paid": 4}),
        result("seeds.buy", fails="SOLD_OUT"),
    ]
    ann = registered("ann")
    given(ann, results=results).when("order", {"seeds": ["kale", "mint"], "patient": True}, actor="ann").then_data(
        notes=["4 for kale", "no mint: SOLD_OUT"]
    )
    given(ann, results=results).when("order", {"seeds": ["mint"]}, actor="ann").then_refused("SOLD_OUT")
    with pytest.raises(AssertionError, match=r'seeds.buy with \{"seed":"kale"\} has no recorded result.*results=\['):
        given(ann).when("order", {"seeds": ["kale"], "patient": True}, actor="ann")
    assert result("a", gives=EffectResult(patches=(set_("b", 1),))).answer == EffectResult(patches=(set_("b", 1),))
    assert result("a", fails=EffectFailure("X", "y", {"z": 1})).answer == EffectFailure("X", "y", {"z": 1})


@pytest.mark.requirement("CARD-tests", "INT-12.2")
def test_projections_and_intents_in_wire_form_can_be_tried(given: Given) -> None:
    scene = given(data={"beds": BEDS})
    source = {"kind": "api", "eventId": "r", "payload": {"bed": "north", "dry": True}}
    scene.when(source=source, actor="bot").then(event("projection.recorded", result={"kind": "intent"})).then_data(
        water=95
    )
    body = {"type": "pour", "input": {"bed": "north", "litres": 5}, "scopeProposal": {"allowedPaths": ["data.beds.*"]}}
    for what in (body, IntentBody.read(body)):
        scene.when(what, actor="bot").then_refused("SCOPE_VIOLATION")


@pytest.mark.requirement("CARD-tests", "CARD-replay")
def test_a_recorded_log_is_a_beginning(given: Given, tmp_path: Path) -> None:
    log = tmp_path / "garden.jsonl"  # a copy, since those beside the original are used by tests of other kinds
    log.write_bytes((golden.FOLDER / "garden-leased.jsonl").read_bytes())
    given(log).when("plant", {"bed": "north", "what": "peas"}, actor="ann").then_refused("BED_TAKEN")
    with pytest.raises(RefusedError, match="which has its own data"):
        given(log, data={}).when("plant", {"bed": "north", "what": "peas"}, actor="ann")


def differs(call: object, *lines: str) -> None:
    with pytest.raises(AssertionError) as failed:
        call()  # type: ignore[operator]
    text = str(failed.value).splitlines()
    for line in lines:
        assert line in text, failed.value


@pytest.mark.requirement("CARD-tests")
def test_what_is_not_as_expected_is_shown(given: Given) -> None:
    poured = given(data={"beds": BEDS}).when("pour", {"bed": "north", "litres": 5}, actor="bot")
    differs(
        lambda: poured.then("decision.made", event("world.sealed", outcome="failed"), "proposal.completed"),
        "  found   decision.made",
        "  MISSING world.sealed outcome='failed'",
        "          proposal.completed",
        "  proposal.completed branch='main'",
        "  outcome: expected 'failed', was 'completed'",
    )
    differs(lambda: poured.then("proposal.completed", "decision.made"), "decision.made is earlier than expected.")
    differs(lambda: poured.then("policy.retired"), "  MISSING policy.retired")
    differs(
        lambda: poured.then_data(water=0, moon=1), "  water: expected 0, was 95", "  moon: expected 1, was not there"
    )
    differs(lambda: poured.then_refused("X"), "It was to be refused: X; it was not refused")
    differs(poured.then_nothing, "Nothing was to happen, but:", "  execution.started")
    differs(poured.then_waits, "It was to wait for people, but:")
    weeds = given().when("plant", {"bed": "a", "what": "dandelion"}, actor="bot")
    words = "It was to be refused: X; it was no_weeds or REJECTED: no_weeds: weeds are not planted"
    differs(lambda: weeds.then_refused("X"), words)
    differs(
        lambda: weeds.then_refused("no_weeds", because="rain"),
        "no_weeds was to be because of 'rain'; it was: no_weeds: weeds are not planted",
    )
    danced = given().when("dance")
    differs(lambda: danced.then("proposal.completed"), f"It was refused: UNKNOWN_ACTION: {danced.refused}")
    asked = given(registered("ann", "human")).when("order", {"seeds": ["mint"]}, actor="bot").then_waits("ann")
    differs(lambda: asked.then_waits("bob"), "It was to wait for bob, but: ann")


def test_what_makes_no_sense_is_refused(given: Given, tmp_path: Path) -> None:
    with pytest.raises(RefusedError, match=r"There is no event 'x'; the topics are .*world\.sealed"):
        event("x")
    with pytest.raises(RefusedError, match=r"proposal\.failed has no field 'colour'; its fields are at, branch, error"):
        event("proposal.failed", colour="red")
    with pytest.raises(RefusedError, match="has no 'colour'; it has domain"):
        given(colour="red")  # type: ignore[call-arg]
    with pytest.raises(RefusedError, match=r"Give the test a domain, or put a world\.toml beside it \(searched: "):
        Given((tmp_path,))()
    with pytest.raises(RefusedError, match="The step is not given"):
        given().when()
    with pytest.raises(pytest.fail.Exception, match="is no step"):
        given(registered("ann"), "later.jsonl").when("pour")
    with pytest.raises(RefusedError, match=r"There is no recorded log none\.jsonl in ") as refused:
        given("none.jsonl")
    assert refused.value.code == "FILE_UNREADABLE"


@pytest.mark.requirement("CARD-tests")
def test_true_is_not_one_and_what_is_within_lists_counts_too(given: Given) -> None:
    poured = given(data={"beds": BEDS, "harvest": 1}).when("pour", {"bed": "north", "litres": 1}, actor="bot")
    poured.then_data(harvest=1.0, beds={"north": {"litres": 1}}).then_data(harvest=ANY)
    patch = {"op": "set", "path": "beds.north.litres", "value": 1}
    poured.then(event("world.sealed", patches=[patch, ANY]))
    for wrong in (True, "1"):
        with pytest.raises(AssertionError, match="harvest: expected"):
            poured.then_data(harvest=wrong)
        with pytest.raises(AssertionError, match="differs"):
            poured.then(event("world.sealed", patches=[patch | {"value": wrong}, ANY]))


@pytest.mark.requirement("CARD-tests")
def test_a_world_toml_beside_the_test_is_the_realm(pytester: pytest.Pytester) -> None:
    (pytester.path / "world.toml").write_text('domain = "ledger.yaml"\n')
    (pytester.path / "ledger.yaml").write_bytes((golden.FOLDER / "ledger.yaml").read_bytes())
    pytester.makepyfile(
        """
        def test_deposits(given):
            given().when("deposit", {"amount": 5}).then("proposal.completed")

        def test_it_fails_where_the_reader_looks(given):
            given().when("deposit", {"amount": 5}).then("proposal.failed")
        """
    )
    ran = pytester.runpytest("-p", "no:cacheprovider", "-W", "error")
    ran.assert_outcomes(passed=1, failed=1)
    ran.stdout.fnmatch_lines(
        ['>*given().when("deposit", {"amount": 5}).then("proposal.failed")', "E *  MISSING proposal.failed"]
    )
    assert "scenarios.py" not in ran.stdout.str()
