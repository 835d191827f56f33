"""Every recorded step is performed again; what differs is named with its event, and other code is called that."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest
from msgspec import structs

from authority import Approve, Policy, Reject, rule
from projections import projection
from tests.golden.garden import FOLDER, Garden, buy, garden, record, rules, sensor
from world.core import ActionContext, Domain, effect, set_
from world.errors import RefusedError
from world.events.lease_events import AgentRegistered, KeyRegistered, KeyRevoked, KlisConfigured, VerdictGiven
from world.events.resource_values import GrantedLease
from world.klis.identity.signature import public_key, sign
from world.klis.kernel import arbitrate
from world.klis.ledger import Ledger
from world.klis.manifest import read_manifest
from world.klis.settings import KlisSettings
from world.log import open_log
from worldprotocol.analysis.recheck.leases import recheck_verdict
from worldprotocol.analysis.recheck.recheck import Rechecked, open_to_recheck, recheck
from worldprotocol.api.realm import Realm


@pytest.fixture
def address(shared_log_url: str) -> str:
    record(shared_log_url).close()
    return shared_log_url


def rechecked(address: str, *, every: bool = True, upto: int | None = None, **parts: Any) -> Rechecked:
    given: dict[str, Any] = {"domain": garden, "policies": [rules], "projections": [sensor]} | parts
    with open_to_recheck(address, **given) as world:
        return recheck(world, every=every, upto=upto)


def codes(done: Rechecked) -> set[str]:
    return {one.difference.code for one in done.divergences}


@pytest.mark.requirement("CARD-replay", "CARD-tests", "INT-12.2", "WP-decision", "HC-journal", "HC-context")
def test_everything_comes_out_again_as_it_was_recorded(log_url: str) -> None:
    with record(log_url) as world:
        steps: list[tuple[int, int]] = []
        done = recheck(world, every=True, progress=lambda at, of: steps.append((at, of)))
        size = world.log.head().size
    assert done.ok, done.to_wire()
    assert done.position == size
    assert steps[-1] == (size, size)
    assert dict(done.steps) == {"projections": 2, "rulings": 24, "verdicts": 16, "executions": 16}


@pytest.mark.requirement("HC-journal")
def test_no_effect_is_made_and_no_byte_is_written(address: str) -> None:
    with open_log(address, read_only=True) as log:
        before = log.head()
    assert rechecked(address).ok  # no handler is at hand at all
    with open_log(address, read_only=True) as log:
        assert log.head() == before


def other_garden(**actions: Any) -> Domain:
    """The garden under the same schema, with other code."""
    domain = Domain("urn:golden:garden", version="1.0.0", state=Garden)
    domain._portable, domain._computed = garden._portable, garden._computed
    domain._actions = garden._actions | {name: (code, garden._actions[name][1]) for name, code in actions.items()}
    assert domain.schema.hash == garden.schema.hash
    return domain


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_an_action_that_computes_something_else_is_named_at_its_first_execution(address: str) -> None:
    def plant(ctx: ActionContext, wanted: Any) -> Any:
        return [set_(f"beds.{wanted.bed}", {"what": wanted.what.upper()})]

    done = rechecked(address, domain=other_garden(plant=plant), every=False)
    drift, found = done.divergences
    assert (drift.difference.code, drift.is_drift) == ("CODE_CHANGED", True)
    assert drift.difference.details["changed"] == ["action:plant"]
    assert (found.difference.code, found.topic) == ("EXECUTION_DIVERGED", "proposal.completed")
    with Realm.open_read_only(address) as world:
        assert found.position == next(e.position for e in world.log.read(topics=["proposal.completed"]))
    assert len(rechecked(address, domain=other_garden(plant=plant)).divergences) > 2


@pytest.mark.requirement("IC-reqid", "HC-journal")
def test_an_action_that_would_make_other_effects_is_named(address: str) -> None:
    def order(ctx: ActionContext, wanted: Any) -> Any:
        yield effect("seeds.steal", seed=wanted.seeds[0])
        return []

    done = rechecked(address, domain=other_garden(order=order))
    assert "EXECUTION_DIVERGED" in codes(done)


def test_another_schema_is_reported_once_and_nothing_is_guessed(address: str) -> None:
    done = rechecked(address, domain=FOLDER / "ledger.yaml")
    assert codes(done) == {"CANNOT_RECHECK"}
    assert len(done.divergences) == 1
    assert done.steps["notRechecked"] > 20
    assert done.divergences[0].is_drift


@rule
def anything_goes(case: Any) -> Any:
    return Approve("why not")


@rule
def nothing_goes(case: Any) -> Any:
    return Reject("no")


@pytest.mark.requirement("CARD-replay", "WP-decision")
def test_rulings_of_a_policy_whose_code_is_another_one_by_now_are_not_rechecked_and_nothing_is_guessed(
    address: str,
) -> None:
    for other in (anything_goes, nothing_goes):
        done = rechecked(address, policies=[Policy("garden", [other])])
        assert [one.difference.code for one in done.divergences] == ["POLICY_CHANGED"]
        assert done.divergences[0].topic == "policy.adopted"
        assert done.divergences[0].is_drift
        assert (done.steps["rulings"] + done.steps["notRechecked"], done.steps["rulings"] > 0) == (24, True)


def test_a_policy_that_is_not_at_hand_is_reported_once(address: str) -> None:
    done = rechecked(address, policies=[])
    assert [one.difference.code for one in done.divergences] == ["POLICY_NOT_AT_HAND"]
    assert done.steps["notRechecked"] > 0


@projection("sensor")
def thirsty(request: Any) -> Any:
    return {"kind": "intent", "body": {"type": "pour", "input": {"bed": "north", "litres": 500}}}


@pytest.mark.requirement("CARD-replay", "INT-12.2")
def test_a_projection_that_selects_something_else_or_is_missing_is_named(address: str) -> None:
    assert codes(rechecked(address, projections=[thirsty])) == {"PROJECTION_DIVERGED"}
    assert codes(rechecked(address, projections=[])) == {"CANNOT_RECHECK"}


@pytest.mark.requirement("CARD-audit")
def test_a_recheck_may_stop_at_a_position(address: str) -> None:
    done = rechecked(address, upto=40)
    assert done.ok
    assert done.position == 40


def test_a_realm_open_for_looking_only_has_nothing_to_recheck_with(address: str) -> None:
    with Realm.open_read_only(address) as world, pytest.raises(RefusedError) as refused:
        recheck(world)
    assert refused.value.code == "LOG_READ_ONLY"


@pytest.mark.requirement("WP-decision")
def test_history_is_as_it_was_then(shared_log_url: str) -> None:
    @rule
    def first_time_only(case: Any) -> Any:
        earlier = case.history.count(actor_id=case.actor.actor_id, outcome="completed")
        return Approve("welcome") if earlier == 0 else Reject(f"{earlier} times already")

    policy = Policy("garden", [first_time_only])
    with Realm.create(shared_log_url, domain=garden, policies=[policy], effects=[buy]) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "garden"})
        first = world.act("bot", "plant", {"bed": "a", "what": "b"})
        second = world.act("bot", "plant", {"bed": "c", "what": "d"})
        assert (first.status, second.status) == ("completed", "rejected")
    assert rechecked(shared_log_url, policies=[policy]).ok


@pytest.mark.parametrize(("confidence", "is_same"), [(1, True), (True, False)])
def test_a_manifest_that_equals_the_one_made_again_is_read_where_it_has_a_confidence(
    confidence: Any, is_same: bool
) -> None:
    ledger = Ledger()
    ledger.fold(KlisConfigured(at=0, settings={}, by="x"))
    ledger.fold(AgentRegistered(at=0, agent_id="ann", priority=0, by="x"))

    def manifest(given: Any) -> dict[str, Any]:
        item = {"predicate": "MUTATES", "resource": "STATE:/main/todos/*", "confidence": given}
        return {"ver": "1.0", "session_id": "p", "agent_id": "ann", "scope": [item]}

    event = VerdictGiven(
        at=1,
        verdict_id="v",
        request_id="p",
        agent_id="ann",
        session_id="p",
        status="Granted",
        cause="request",
        manifest=manifest(confidence),
        channel={"kind": "engine"},
        leases=[
            GrantedLease(predicate="MUTATES", resource="STATE:/main/todos/*", lease_id="l", token=1),
        ],
    )
    made = read_manifest(manifest(1), settings=KlisSettings())
    assert made.to_wire() == event.manifest
    assert (recheck_verdict(ledger, event, made) is None) == is_same


def recorded_verdict(manifest: dict[str, Any], kind: str, **more: Any) -> VerdictGiven:
    """A verdict that Granted what a manifest asks for, as the log holds it."""
    granted = [
        GrantedLease(predicate=one["predicate"], resource=one["resource"], lease_id=f"l{at}", token=at)
        for at, one in enumerate(manifest["scope"], 1)
    ]
    given = {"status": "Granted", "leases": granted} | more
    return VerdictGiven(
        at=1,
        verdict_id="v",
        request_id="r",
        agent_id=manifest["agent_id"],
        session_id=manifest["session_id"],
        cause="request",
        manifest=manifest,
        channel={"kind": kind},
        **given,
    )


def ledger_of(*agents: str) -> Ledger:
    ledger = Ledger()
    ledger.fold(KlisConfigured(at=0, settings={}, by="x"))
    for priority, agent in enumerate(agents):
        ledger.fold(AgentRegistered(at=0, agent_id=agent, priority=priority, by="x"))
    return ledger


def manifest_on(agent: str, resource: str) -> dict[str, Any]:
    scope = [{"predicate": "MUTATES", "resource": resource}]
    return {"ver": "1.0", "session_id": f"of {agent}", "agent_id": agent, "scope": scope}


@pytest.mark.requirement("CARD-replay", "KM-7.1")
def test_a_recorded_signature_is_verified_again_with_the_keys_of_its_agent() -> None:
    ledger, key = ledger_of("ann"), bytes(range(32))
    public = b64encode(public_key(key)).decode()
    signed = sign(manifest_on("ann", "FILE:/a") | {"issued_at": 1, "nonce": "n"}, key)
    assert recheck_verdict(ledger, recorded_verdict(signed, "signed")) is not None  # she has no key yet
    ledger.fold(KeyRegistered(at=0, key_id="k", agent_id="ann", public_key=public, by="x"))
    assert recheck_verdict(ledger, recorded_verdict(signed, "signed")) is None
    altered = {**signed, "scope": [{"predicate": "MUTATES", "resource": "FILE:/b"}]}
    found = recheck_verdict(ledger, recorded_verdict(altered, "signed"))
    assert found is not None
    assert found.details["differences"][0]["now"]["code"] == "UNAUTHENTICATED"
    ledger.fold(KeyRevoked(at=0, key_id="k", by="x", reason="lost"))
    assert recheck_verdict(ledger, recorded_verdict(signed, "signed")) is not None


@pytest.mark.requirement("CARD-replay", "KP-5a")
def test_the_recorded_conflicts_of_a_verdict_are_computed_again() -> None:
    ledger = ledger_of("ann", "bob")
    ledger.fold(recorded_verdict(manifest_on("ann", "FILE:/a"), "local"))
    asked = manifest_on("bob", "FILE:/a")
    given = arbitrate(ledger, ledger.session("bob", "of bob"), read_manifest(asked, settings=KlisSettings()).triples, 1)
    conflicts = [conflict.named() for conflict in given.conflicts]
    event = recorded_verdict(
        asked, "local", status="Die", leases=[], conflicts=conflicts, retry_after_ms=given.retry_after_ms
    )
    assert recheck_verdict(ledger, event) is None
    for others in ([], [structs.replace(conflicts[0], holder="eve")]):
        found = recheck_verdict(ledger, structs.replace(event, conflicts=others))
        assert found is not None
        assert [one["at"] for one in found.details["differences"]] == ["conflicts"]
