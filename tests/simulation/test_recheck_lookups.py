"""Look-ups that a recheck answers from the events it has read equal those of the archive, on simulated logs."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from world.code.time_limit import unlimited
from world.events.proposal_events import ProposalJudged, ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.realm_state import RealmState, apply_event
from worldprotocol.analysis.recheck import past
from worldprotocol.analysis.recheck.past import PastLookup
from worldprotocol.simulation import Simulation, draw_steps
from worldprotocol.simulation.depot import scenario


@pytest.mark.parametrize("seed", [3, 8])
@pytest.mark.parametrize("kept", [2, past.MAX_WORLDS])
def test_look_ups_from_the_events_equal_those_of_the_archive(
    seed: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "MAX_WORLDS", kept)  # few, so that some are read through the archive
    simulation = Simulation(seed, scenario)
    try:
        unlimited(lambda: [simulation.do(step) for step in draw_steps(seed, 240, scenario)])
        log = simulation.workers[0].log
        archive, realm = Archive(log), RealmState()
        lookup = PastLookup(archive, realm)
        worlds: list[str] = []
        judged = 0
        for logged in log.read():
            event = decoded(logged)
            if isinstance(event, ProposalJudged):
                judged += 1
                own = realm.proposals[event.proposal_id].submitted
                for asked in _conditions(own):
                    told = {**asked, "other_than": event.proposal_id}
                    assert lookup.count(logged.position, **told) == archive.count(logged.position, **told), asked
            apply_event(realm, event, logged.position)
            if isinstance(event, WorldSealed):
                lookup.follow(event)
                if event.patches:
                    tampered = PastLookup(archive, realm)
                    tampered._worlds.update(lookup._worlds)
                    tampered.follow(structs.replace(event, patches=[]))
                    assert tampered.checked_state(event.world_id) == archive.checked_state(event.world_id)
                worlds.append(event.world_id)
                for world_id in worlds[-4:]:
                    row = archive.world(world_id)
                    assert lookup.world_outcome(world_id) == (row.outcome, row.height)
                    assert lookup.checked_state(world_id) == archive.checked_state(world_id)
    finally:
        simulation.close()
    assert judged > 10
    assert len(worlds) > 10


def _conditions(own: ProposalSubmitted) -> list[dict[str, Any]]:
    actor, action = own.actor.actor_id, own.intent.body.type
    return [
        {},
        {"actor_id": actor},
        {"actor_id": actor, "since_ms": own.at - 5_000},
        {"action": action, "decision": "approved"},
        {"action": action, "outcome": "completed", "since_ms": own.at - 60_000},
        {"intent_key": own.intent.intent_key},
        {"decision": "rejected"},
    ]
