"""A writer that skips proposals of others that have begun and ended comes to the state of all events."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from tests.world.test_golden_logs import SOUND, imported
from world.errors import DamagedLogError
from world.events.base import Event
from world.events.realm_events import WorldSealed
from world.klis.ledger_codec import ledger_to_wire
from world.log import LoggedEvent, open_log
from world.model.canonical_json import canonical_text
from world.read_models.decoding import known
from world.state.catch_up import apply_others
from world.state.realm_state import RealmState, apply_event
from world.state.recent_commits import KEPT_WORLDS, RecentWorlds

HINTS = {
    "deadlines",
    "retries",
    "effects",
    "claim_deadlines",
}  # heaps that may name ended proposals, which are dropped when they are due


def logged(name: str, tmp_path: Path) -> list[LoggedEvent]:
    with open_log(imported(name, str(tmp_path / "world.db")), read_only=True) as log:
        return list(log.read())


def content(realm: RealmState) -> dict[str, Any]:
    found = {part.name: getattr(realm, part.name) for part in fields(realm) if part.name not in HINTS}
    return found | {"klis": canonical_text(ledger_to_wire(found["klis"])), "due": sorted_due(realm)}


def sorted_due(realm: RealmState) -> list[tuple[int, str]]:
    effects = [(at, name) for at, name, _ in realm.effects]
    claims = {
        (at, name)
        for at, name, requirement in realm.claim_deadlines
        if name in realm.proposals and at == getattr(realm.proposals[name].claims.get(requirement), "deadline", None)
    }
    others = [one for one in [*realm.deadlines, *realm.retries, *effects] if one[1] in realm.proposals]
    return sorted([*others, *claims])


@pytest.mark.requirement("WP-lineage")
@pytest.mark.parametrize("step", [1, 2, 5, 17, 100_000])
@pytest.mark.parametrize("name", SOUND)
def test_events_taken_in_portions_give_the_state_of_all_events(name: str, step: int, tmp_path: Path) -> None:
    events = logged(name, tmp_path)
    whole, portions = RealmState(), RealmState()
    for start in range(0, len(events), step):
        portion = events[start : start + step]
        for one in portion:
            apply_event(whole, known(one), one.position)
        applied = apply_others(portions, portion, known)
        assert applied[-1].at == known(portion[-1]).at
        assert content(portions) == content(whole), portion[-1].position


def test_what_passed_by_is_not_decoded(tmp_path: Path) -> None:
    events = logged("garden-leased", tmp_path)
    decoded: list[str] = []

    def decode(one: LoggedEvent) -> Event:
        decoded.append(one.topic)
        return known(one)

    apply_others(RealmState(), events, decode)
    moves = {"proposal.completed", "proposal.failed"}
    ended = {one.stream for one in events if one.topic in moves | {"proposal.superseded"}}
    passing = [one for one in events[:-1] if one.stream in ended and one.topic not in moves]
    assert len(passing) > 20
    for topic in ("proposal.submitted", "proposal.judged", "decision.made", "execution.started", "world.sealed"):
        recorded = sum(one.topic == topic for one in events)
        assert decoded.count(topic) == recorded - sum(one.topic == topic for one in passing), topic
    assert "projection.recorded" in {one.topic for one in events[:-1]}
    assert "projection.recorded" not in decoded[:-1]  # the last event of a portion tells the time


def test_an_end_on_another_head_is_damage(tmp_path: Path) -> None:
    events = logged("garden-leased", tmp_path)
    first = next(at for at, one in enumerate(events) if one.topic == "proposal.completed")
    without = [one for one in events if one is not events[first]]
    with pytest.raises(DamagedLogError, match="not the head"):
        apply_others(RealmState(), without, known)


def test_recent_worlds_know_the_children_that_were_sealed(tmp_path: Path) -> None:
    sealed = [one for one in map(known, logged("garden-leased", tmp_path)) if isinstance(one, WorldSealed)]
    recent = RecentWorlds()
    for event in sealed:
        assert event.parent is None or recent.is_new(event.world_id, event.parent)
        recent.add(event)
        assert recent.sealed(event.world_id) is event
        assert recent.outcome(event.world_id) == (event.outcome, event.height)
        if event.parent is not None:
            assert not recent.is_new(event.world_id, event.parent)
            assert recent.is_new("0" * 64, event.parent)
    assert not recent.is_new("0" * 64, "1" * 64)  # nothing is known of the children of an unknown world
    recent.clear()
    assert recent.outcome(sealed[-1].world_id) is None


def world(number: int, parent: str | None) -> WorldSealed:
    return WorldSealed(
        at=1,
        world_id=f"{number:064x}",
        content_id="c",
        schema_hash="s",
        snapshot_hash="h",
        parent=parent,
        created_by="p",
        branch="main",
        outcome="completed",
        height=number,
        error=None,
    )


def test_recent_worlds_are_bounded_and_forget_the_oldest() -> None:
    recent = RecentWorlds()
    for number in range(KEPT_WORLDS + 10):
        recent.add(world(number, f"{number - 1:064x}" if number else None))
    assert recent.outcome(f"{9:064x}") is None
    assert recent.outcome(f"{10:064x}") == ("completed", 10)
    assert not recent.is_new("0" * 64, f"{9:064x}")
