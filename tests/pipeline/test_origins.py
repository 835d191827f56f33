"""Origins of intents that are submitted: a registered projection, the caller itself, or a system that says so."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from projections import Issuer, IssueRequest, NoIntent, projection
from tests.cli.realm import CliRealm, founded
from tests.pipeline.shop import open_shop
from world.clock import SystemIds
from world.core import ActionContext, Domain, set_
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance
from world.model.source import SourceEvent
from world.pipeline.submit import Submission
from worldprotocol import Realm

CLEANUP = IntentBody(type="maintenance.cleanup", input={"olderThanDays": 30})


@projection("till")
def till(request: Any) -> Any:
    return IntentBody(type="sell", input={"item": "tea"})


@projection("later", sources=["ui"])
def later(request: Any) -> Any:
    return NoIntent()


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url, projections=[till, later]) as opened:
        yield opened


def claimed(world: Realm, actor: str = "ann", **origin: Any) -> dict[str, Any]:
    """Return an issued intent in wire form with another origin."""
    wire = world.issue(actor, "sell", {"item": "tea"}).to_wire()
    wire["meta"]["origin"].update(origin)
    return wire


def refused(code: str, world: Realm, intent: Any, **wishes: Any) -> RefusedError:
    """Submit what is refused; nothing is appended then."""
    before = world.log.head().size
    with pytest.raises(RefusedError) as caught:
        world.submit(intent, **wishes)
    assert caught.value.code == code, caught.value
    assert world.log.head().size == before
    return caught.value


@pytest.mark.requirement("INT-5.2", "INT-7.2a")
@pytest.mark.parametrize("name", ["nobody", "Till", "till ", "router", "api", "api:other", "systems:till"])
def test_an_origin_that_names_no_registered_projection_is_refused_with_those_that_are(world: Realm, name: str) -> None:
    fault = refused("UNKNOWN_PROJECTION", world, claimed(world, projectionId=name))
    assert fault.details == {"projection": name, "known": ["later", "till"]}
    assert f"the projection {name!r}, which is not registered; registered: 'later', 'till'." in fault.message


def test_without_any_projection_the_refusal_says_none(log_url: str) -> None:
    with open_shop(log_url) as world:
        fault = refused("UNKNOWN_PROJECTION", world, claimed(world, projectionId="till"))
        assert "registered: none." in fault.message


@pytest.mark.requirement("INT-7.2a")
def test_origins_of_registered_projections_and_of_callers_go_on(world: Realm) -> None:
    source = {"kind": "ui", "eventId": "e1"}
    assert world.submit(claimed(world, projectionId="till", source=source)).status == "completed"
    assert world.submit(claimed(world)).status == "completed"
    assert world.act("ann", "sell", {"item": "tea"}).status == "completed"
    came = world.project({"kind": "system", "eventId": "e2"}, "cron")
    assert came.proposal is not None
    assert (came.proposal.status, came.proposal.intent.meta.origin.projection_id) == ("completed", "till")


@pytest.mark.requirement("INT-3.1", "INT-8.2")
@pytest.mark.parametrize(
    ("actor", "kind"), [("ann", "agent"), ("ann", "system"), ("narrow", "human"), ("cron", "agent")]
)
def test_an_actor_claims_no_other_kind_than_it_was_registered_with(world: Realm, actor: str, kind: str) -> None:
    intent = claimed(world, actor, projectionId="till")
    intent["meta"]["origin"]["actor"]["kind"] = kind
    registered = world.realm().actors[actor].kind
    message = refused("ACTOR_MISMATCH", world, intent).message
    assert (registered != kind, message) == (True, f"{actor!r} is registered as {registered}, the intent says {kind}.")


@pytest.mark.requirement("INT-8.2", "INV-SD2")
@pytest.mark.parametrize("kind", ["ui", "api", "agent"])
def test_sd_2_the_source_of_a_direct_intent_is_a_system(world: Realm, kind: str) -> None:
    wire = claimed(world, "cron", projectionId="system:scheduler", source={"kind": kind, "eventId": "e"})
    fault = refused("NOT_A_DIRECT_INTENT", world, wire)
    assert f"its source is {kind!r}" in fault.message


@pytest.mark.requirement("INT-8.2", "INV-SD2")
@pytest.mark.parametrize("actor", ["ann", "narrow"])
def test_people_and_agents_produce_no_direct_intent(world: Realm, actor: str) -> None:
    source = {"kind": "system", "eventId": "e"}
    fault = refused("NOT_A_DIRECT_INTENT", world, claimed(world, actor, projectionId="system:x", source=source))
    assert repr(actor) in fault.message


@pytest.mark.requirement("INT-8.2", "INV-SD1")
@pytest.mark.parametrize(
    ("projection_id", "kind"),
    [("system:", "system"), ("system: ", "system"), ("api:intent", "system"), ("api:intent", "api")],
)
def test_sd_1_what_a_system_produced_without_a_projection_says_so(world: Realm, projection_id: str, kind: str) -> None:
    wire = claimed(world, "cron", projectionId=projection_id, source={"kind": kind, "eventId": "e"})
    assert "system:scheduler" in refused("NOT_A_DIRECT_INTENT", world, wire).message


@pytest.mark.requirement("INT-8.2", "INV-SD3", "INV-I2")
def test_sd_4_a_direct_intent_keeps_the_invariants_of_every_intent(world: Realm) -> None:
    wire = claimed(world, "cron")
    refused("WRONG_SCHEMA", world, {**wire, "intentKey": "0" * 64})
    changed = {**wire, "body": {"type": "sell", "input": {"item": "cake"}}}
    refused("WRONG_SCHEMA", world, changed)
    assert world.submit(wire).status == "completed"
    refused("INTENT_ALREADY_SUBMITTED", world, wire)


@pytest.mark.requirement("INT-8.2", "INT-12.2")
def test_sd_5_no_projections_record_goes_with_a_direct_intent_or_with_another_intent(world: Realm) -> None:
    world.project({"kind": "ui", "eventId": "e1"}, "ann")
    record = next(event for _, event in world.events() if event.TOPIC == "projection.recorded")
    for wire in (claimed(world, "cron"), claimed(world, projectionId="till")):
        with pytest.raises(TypeError, match="record"):
            world.submit(wire, record=record)  # type: ignore[call-arg]
        with pytest.raises(RefusedError) as caught:
            world._acting.submit(Submission(IntentInstance.read(wire), record=record))
        assert caught.value.code == "INVALID_VALUE"


@pytest.mark.requirement("INT-8.2", "INV-SD1", "INV-SD2")
def test_the_protocol_refuses_false_direct_intents_also_where_no_facade_has_looked_at_them(world: Realm) -> None:
    for origin in (
        {"projectionId": "system:x", "source": {"kind": "ui", "eventId": "e"}},
        {"projectionId": "system: ", "source": {"kind": "system", "eventId": "e"}},
    ):
        intent = IntentInstance.read(claimed(world, "cron", **origin))
        with pytest.raises(RefusedError) as caught:
            world._acting.submit(Submission(intent))
        assert caught.value.code == "NOT_A_DIRECT_INTENT"


class Rooms(BaseModel):
    cleaned: int = 0


class Cleanup(BaseModel):
    olderThanDays: int  # noqa: N815  # the specification's word


def maintained() -> Domain:
    domain = Domain("urn:test:maintained", version="1.0.0", state=Rooms)

    @domain.action("maintenance.cleanup", version="1")
    def cleanup(ctx: ActionContext, input: Cleanup) -> Any:  # noqa: A002
        return [set_("cleaned", input.olderThanDays)]

    return domain


@pytest.mark.requirement("INT-8.1", "INT-8.2", "INV-SD1", "INV-SD2", "INV-SD3")
def test_the_specifications_example_of_a_direct_intent_is_carried_out(log_url: str) -> None:
    with Realm.create(log_url, domain=maintained()) as world:
        world.register("scheduler", "system", binding={"kind": "auto_approve"})
        given = {"actor": ActorRef(actor_id="scheduler", kind="system"), "body": CLEANUP}
        source = SourceEvent(kind="system", event_id="cron-daily-001", payload={})
        request = IssueRequest(world.realm().schema_hash, "system:scheduler", source=source, **given)  # type: ignore[arg-type]
        instance = Issuer(SystemIds()).issue(request)
        done = world.submit(instance)
        assert (done.status, world.data()["cleaned"]) == ("completed", 30)
        again = world.issue_direct(
            "scheduler", "maintenance.cleanup", {"olderThanDays": 30}, job="scheduler", event_id="cron-daily-001"
        )
        assert again.meta == instance.meta
        assert again.means_the_same_as(instance)
        assert again != instance
        assert world.submit(again.to_wire()).status == "completed"


@pytest.mark.requirement("INT-8.1", "INV-SD2")
def test_only_systems_issue_direct_intents_and_jobs_have_names(world: Realm) -> None:
    for actor, job in (("ann", "scheduler"), ("cron", ""), ("cron", "a b")):
        with pytest.raises(RefusedError) as caught:
            world.issue_direct(actor, "sell", {"item": "tea"}, job=job, event_id="e")
        assert caught.value.code == "NOT_A_DIRECT_INTENT"


@pytest.mark.slow
def test_the_command_line_holds_full_intents_to_their_origins(tmp_path: Path) -> None:
    realm: CliRealm = founded(tmp_path)
    realm("actor", "add", "cron", "--kind", "system", "--auto-approve")
    key = {"body": {"type": "sell", "input": {"item": "tea", "count": 1}}}
    lines = []
    for number, (projection_id, kind, actor) in enumerate(
        [
            ("nobody", "api", "ann"),
            ("api:intent", "api", "ann"),
            ("system:job", "system", "cron"),
            ("system:job", "ui", "cron"),
        ]
    ):
        actor_kind = "system" if actor == "cron" else "human"
        origin = {
            "projectionId": projection_id,
            "source": {"kind": kind, "eventId": f"e{number}"},
            "actor": {"actorId": actor, "kind": actor_kind},
        }
        lines.append(
            {**key, "intentId": f"i{number}", "intentKey": intent_key_in(realm, key), "meta": {"origin": origin}}
        )
    said = realm("submit", "--intents", "-", given="".join(json.dumps(line) + "\n" for line in lines), code=1)
    codes = [line.get("error", {}).get("code", line.get("status")) for line in said.lines]
    assert codes == ["UNKNOWN_PROJECTION", "completed", "completed", "NOT_A_DIRECT_INTENT"]


def intent_key_in(realm: CliRealm, given: dict[str, Any]) -> str:
    """Return the intentKey of a body under the schema in force."""
    with Realm.open_read_only(realm.folder / "world.db") as world:
        return IntentBody.read(given["body"]).key(world.realm().schema_hash)
