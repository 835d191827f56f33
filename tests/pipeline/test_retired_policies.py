"""Policies are adopted, replaced and retired by events; what is retired judges nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.till import BOUND, HOUSE, opened, parts, sound
from world.audit.verify import verify
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted, PolicyRetired
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol import Realm
from worldprotocol.policy_tools.history import changes_of

AUTO = {"kind": "auto_approve"}


def told(world: Realm) -> list[Any]:
    """Return the events that say which policies are in force."""
    return [event for _, event in world.events() if isinstance(event, PolicyAdopted | PolicyRetired)]


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_an_adoption_names_the_policy_that_it_replaces(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    opened(address, tmp_path).close()
    (tmp_path / "house.toml").write_text(HOUSE.replace("<= 20", "<= 30"), encoding="utf-8")
    with Realm.open(address, **parts(tmp_path)) as world:
        assert world.adopt_policy("house")
        first, second = told(world)
        assert first.previous is None
        assert second.previous == first.policy_hash != second.policy_hash
        assert [one.replaced for one in changes_of(world)] == [None, first.policy_hash]
    assert {one.difference.code for one in sound(address, tmp_path).divergences} <= {"POLICY_CHANGED"}


@pytest.mark.requirement("CARD-policy", "WP-bind")
def test_a_policy_is_retired_once_nobody_is_bound_by_it_and_binds_nobody_then(log_url: str, tmp_path: Path) -> None:
    with opened(log_url, tmp_path) as world:
        with pytest.raises(RefusedError, match="bot wants; bind them otherwise first") as refused:
            world.retire_policy("house")
        assert (refused.value.code, refused.value.details["actors"]) == ("POLICY_IN_USE", ["bot"])
        world.bind("bot", AUTO)
        adopted = world.realm().policies["house"].policy_hash
        assert world.retire_policy("house", by="ann", reason="a new one comes") == adopted
        retired = told(world)[-1]
        assert (retired.name, retired.policy_hash, retired.by, retired.reason) == (
            "house",
            adopted,
            "ann",
            "a new one comes",
        )
        assert world.realm().policies == {}
        for again in (lambda: world.retire_policy("house"), lambda: world.bind("bot", BOUND)):
            with pytest.raises(RefusedError) as refused:
                again()
            assert refused.value.code == "POLICY_NOT_ADOPTED"
        assert world.adopt_policy("house")  # it may come back
        world.bind("bot", BOUND)
        assert world.act("bot", "pay", {"amount": 5}).status == "completed"
        assert [one.replaced for one in changes_of(world)] == [None, None, None]
        assert verify(world.log).ok


@pytest.mark.requirement("CARD-policy", "WP-decision", "CARD-replay")
def test_what_waits_for_people_goes_on_after_the_policy_was_retired(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    with opened(address, tmp_path) as world:
        asked = world.act("bot", "pay", {"amount": 30})
        world.bind("bot", AUTO)
        world.retire_policy("house")
    with Realm.open(address, **parts(tmp_path), clock=ManualClock(1_700_001_000_000, 1)) as world:
        done = world.decide(asked.proposal_id, "approve", by="ann")
        assert (done.status, world.data()["balance"]) == ("completed", 70)
    assert sound(address, tmp_path).ok


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("forged", [{"name": "other"}, {"policyHash": "0" * 64}, {}])
def test_verification_finds_a_retirement_of_what_was_not_in_force_or_still_binds(
    tmp_path: Path, forged: dict[str, str]
) -> None:
    address = str(tmp_path / "world.db")
    with opened(address, tmp_path) as world:
        if forged:
            world.bind("bot", AUTO)
        state = {"at": 1_800_000_000_000, "by": "x", "name": "house", "reason": ""}
        state["policyHash"] = world.realm().policies["house"].policy_hash
        events = [(one.stream, one.topic, one.schema_version, one.state) for one in world.log.read()]
    events.append(("realm", PolicyRetired.TOPIC, 1, canonical_bytes({**state, **forged})))
    with open_log(str(tmp_path / "forged.db"), create=True) as log, log.write() as transaction:
        transaction.append(NewEvent(*one) for one in events)
    with Realm.open_read_only(tmp_path / "forged.db") as looked:
        assert [one.code for one in verify(looked.log).findings] == ["BAD_REFERENCE"]
