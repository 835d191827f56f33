"""``worldctl trace``: from a source event to its worlds, and from anything on the way back to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.golden.garden import record
from world.events.execution_events import EffectRequested
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProjectionRecorded, ProposalCompleted
from worldprotocol import Realm


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("garden")
    record(str(folder / "world.db")).close()
    return Inside(folder)


def walk(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield step
    for one in step["steps"]:
        yield from walk(one)


def kinds(step: dict[str, Any]) -> list[str]:
    return [one["kind"] for one in walk(step)]


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_a_world_leads_back_to_its_source_event_and_the_source_event_to_the_world(garden: Inside) -> None:
    with Realm.open_read_only(garden.folder / "world.db") as world:
        found = [(at, one) for at, one in world.events() if isinstance(one, ProjectionRecorded) and one.proposal_id]
    at, projected = found[0]
    event_id = projected.source.event_id
    down = garden("trace", event_id, "--json").json
    assert (down["kind"], down["id"], down["source"]) == ("source", event_id, projected.source.to_wire())
    [projection] = [one for one in walk(down) if one["kind"] == "projection"]
    assert (projection["id"], projection["position"]) == (projected.projection_id, at)
    ids = {one["kind"]: one["id"] for one in walk(down) if one["id"]}
    assert (ids["intent"], ids["proposal"]) == (projected.intent_id, projected.proposal_id)
    assert kinds(down)[:4] == ["source", "projection", "intent", "proposal"]
    for kind in ("intent", "proposal", "decision", "verdict", "world"):
        assert garden("trace", ids[kind], "--json").json == down
    for one in walk(down):
        if one["position"] is not None:
            assert garden("trace", str(one["position"]), "--json").json == down
    drawn = garden("trace", ids["world"][:16]).out
    assert drawn.startswith(f"source: {projected.source.kind} event {event_id}\n`- projection ")
    assert next(line for line in drawn.splitlines() if line.endswith("<--")).strip(" |`-").startswith("world ")


@pytest.mark.requirement("IC-audit")
def test_people_effects_and_later_worlds_are_part_of_the_way(garden: Inside) -> None:
    with Realm.open_read_only(garden.folder / "world.db") as world:
        events = list(world.events())
        asked = {event.proposal_id: event for _, event in events if isinstance(event, EffectRequested)}
        answered = [event.proposal_id for _, event in events if event.TOPIC == "human.answered"]
        proposal_id = next(name for name in answered if name in asked)
        effect_id = asked[proposal_id].requirement.id
        told = garden("trace", proposal_id, "--json").json
        assert {"ruling", "answer", "decision", "execution", "effect", "result", "world", "later"} <= set(kinds(told))
        [verdict] = [one for _, one in events if isinstance(one, VerdictGiven) and one.request_id == proposal_id]
        assert verdict.verdict_id in [one["id"] for one in walk(told)]
        execution = next(one for one in walk(told) if one["kind"] == "execution")
        assert [one["kind"] for one in execution["steps"]] == ["effect", "world"]
        assert garden("trace", effect_id[:20], "--json").json["steps"] == told["steps"]
        made = next(one for one in walk(told) if one["kind"] == "world")
        later = [
            row for row in world.worlds() if row.world_id != made["id"] and made["id"] in lineage(world, row.world_id)
        ]
        assert made["steps"][0]["count"] == len(later)


def lineage(world: Realm, world_id: str | None) -> list[str]:
    found = []
    while world_id is not None:
        found.append(world_id)
        world_id = world.sealed(world_id).parent
    return found


def test_every_proposal_of_the_log_can_be_traced_with_all_its_events(garden: Inside) -> None:
    with Realm.open_read_only(garden.folder / "world.db") as world:
        rows = [event for _, event in world.events() if event.TOPIC == "proposal.submitted"]
        ended = {
            event.proposal_id: event.world_id for _, event in world.events() if isinstance(event, ProposalCompleted)
        }
        for event in rows:
            told = garden("trace", event.proposal_id, "--json").json
            recorded = {one["position"] for one in walk(told)}
            for logged in world.log.stream(event.proposal_id):
                if logged.topic not in ("proposal.completed", "proposal.failed"):
                    assert logged.position in recorded
            if event.proposal_id in ended:
                assert ended[event.proposal_id] in [one["id"] for one in walk(told)]


def test_a_source_event_that_led_to_nothing_says_why(garden: Inside) -> None:
    with Realm.open_read_only(garden.folder / "world.db") as world:
        nothing = [
            (at, one) for at, one in world.events() if isinstance(one, ProjectionRecorded) and one.proposal_id is None
        ]
    assert nothing
    for at, projected in nothing:
        assert "nothing: " in garden("trace", str(at)).out
        assert projected.source.event_id in garden("trace", projected.source.event_id).out


def test_what_is_unknown_or_came_of_no_proposal_is_refused(garden: Inside) -> None:
    assert garden("trace", "nobody", "--json", code=1).json["error"]["code"] == "NOT_FOUND"
    assert garden("trace", "1", "--json", code=1).json["error"]["code"] == "NOT_FOUND"
    assert garden("trace", "0000", "--json", code=1).json["error"]["code"] == "AMBIGUOUS"
    assert garden("trace", "read", "--json", code=1).json["error"]["code"] == "AMBIGUOUS"
    with Realm.open_read_only(garden.folder / "world.db") as world:
        genesis = lineage(world, world.branch().head)[-1]
    assert "founded" in garden("trace", genesis).out
