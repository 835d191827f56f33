"""Replay rebuilds everything from the events alone, at any position."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.golden.garden import record
from world.audit.replay import branch_points, replay, revisited_worlds
from world.errors import DamagedLogError, RefusedError
from world.events.codec import TOPICS, decode_event
from world.events.realm_events import WorldSealed
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import freeze
from world.model.patch import Patch, apply_patches
from world.model.snapshot import error_state_hash
from world.state.realm_view import view_of
from worldprotocol.api.realm import Realm


@pytest.fixture
def world(log_url: str) -> Iterator[Realm]:
    with record(log_url) as recorded:
        yield recorded


@pytest.mark.requirement("CARD-log", "CARD-replay")
def test_replay_gives_the_state_that_the_engine_has(world: Realm) -> None:
    done = replay(world.log)
    live = world.realm()
    for part in ("domain", "actors", "bindings", "policies", "branches", "active", "epoch", "proposals", "queues"):
        assert getattr(done.realm, part) == getattr(live, part), part
    assert {name: world.data(branch.head) for name, branch in live.branches.items()} == dict(done.data)
    assert (done.position, done.head) == (world.log.head().size, world.log.head())
    assert done.sealed == len(list(world.worlds(1_000)))
    ended = world.archive.rows("ended_counts", {"upto": done.position})
    assert Counter(dict(ended)) + Counter(one.status for one in live.proposals.values()) == Counter(done.statuses)
    assert sum(done.topics.values()) == done.position


@pytest.mark.requirement("CARD-audit", "WP-restore", "WP-hash")
def test_any_past_world_is_restored_and_gives_its_hash_again(world: Realm) -> None:
    sealed = [event for _, event in world.events() if isinstance(event, WorldSealed)]
    done = replay(world.log, keep=[event.world_id for event in sealed])
    for event in sealed:
        data = done.worlds[event.world_id]
        assert error_state_hash(data, event.error) == event.snapshot_hash
        assert data == world.data(event.world_id)


@pytest.mark.requirement("CARD-audit", "CARD-replay")
def test_replay_up_to_a_position_is_the_state_as_it_was(world: Realm) -> None:
    whole = list(world.log.read())
    for upto in range(0, len(whole) + 1, 7):
        done = replay(world.log, upto=upto)
        assert done.position == upto
        assert done.head == world.log.root_at(upto)
        assert view_of(done.realm) == world.archive.fold_realm(upto)
        assert set(done.data) == set(done.realm.branches)


def test_replay_beyond_the_log_is_refused(world: Realm) -> None:
    with pytest.raises(RefusedError) as refused:
        replay(world.log, upto=world.log.head().size + 1)
    assert refused.value.code == "NO_SUCH_EVENT"


@pytest.mark.requirement("WP-lineage")
def test_a_branch_that_goes_along_a_line_again_is_replayed(world: Realm) -> None:
    assert revisited_worlds(world.log)
    assert len(branch_points(world.log)) == 3
    done = replay(world.log)
    assert done.data["spare"] == world.data(world.branch("spare").head)


def test_progress_ends_with_all_events(world: Realm) -> None:
    steps: list[tuple[int, int]] = []
    replay(world.log, progress=lambda done, of: steps.append((done, of)))
    size = world.log.head().size
    assert steps[-1] == (size, size)
    assert [done for done, _ in steps] == sorted(done for done, _ in steps)


@pytest.mark.parametrize(
    ("topic", "state", "code"),
    [
        ("nobody.knows", b'{"at":1}', "UNKNOWN_EVENT"),
        ("branch.created", b'{"at":1}', "BAD_EVENT"),
        ("branch.created", b'{"at":1,"branch":"b","by":"x","worldId":"none"}', "UNKNOWN_WORLD"),
        ("actor.registered", b'{"actor":{},"at":1,"by":"x"}', "BAD_EVENT"),
        ("decision.made", b'{"at":1,"decision":{"decision":"approved"},"proposalId":"p"}', "BAD_EVENT"),
        (
            "decision.made",
            b'{"at":1,"decision":{"authority":"a","decidedAt":1,"decision":"rejected","decisionId":"d",'  # noqa: ISC004
            b'"proposalId":"p","reason":"r"},"proposalId":"p"}',
            "UNKNOWN_PROPOSAL",
        ),
        ("branch.switched", b'{"at":1,"branch":"main","by":"x","epoch":9}', "BAD_EPOCH"),
    ],
)
@pytest.mark.slow
def test_the_first_event_that_cannot_be_is_named(shared_log_url: str, topic: str, state: bytes, code: str) -> None:
    record(shared_log_url).close()
    with open_log(shared_log_url) as log:
        size = log.head().size
        with log.write() as transaction:
            version = TOPICS[topic].VERSION if topic in TOPICS else 1
            transaction.append([NewEvent("forged", topic, version, state)])
        with pytest.raises(DamagedLogError) as damaged:
            replay(log)
        assert damaged.value.code == code
        assert damaged.value.details["position"] == size + 1
        assert replay(log, upto=size).position == size


def test_recorded_patches_are_applied_as_the_engine_applies_them() -> None:
    data = freeze({"a": {"b": [1, 2]}, "c": 1})
    told: list[dict[str, Any]] = [
        {"op": "set", "path": "a.b.2", "value": {"x": None}},
        {"op": "merge", "path": "a", "value": {"d": 1.0}},
        {"op": "unset", "path": "c"},
        {"op": "set", "path": "e", "value": None},
    ]
    assert apply_patches(data, [Patch.from_wire(one) for one in told]) == {
        "a": {"b": [1, 2, {"x": None}], "d": 1},
        "e": None,
    }
    assert data == {"a": {"b": [1, 2]}, "c": 1}


@pytest.mark.parametrize(
    "wrong",
    [{}, {"op": "set", "path": "a"}, {"op": "unset", "path": "a", "value": 1}, {"op": "move", "path": "a", "value": 1},
     {"op": "set", "path": 1, "value": 1}, {"op": "set", "path": "a", "value": 1, "more": 1}],
)  # fmt: skip
def test_what_is_no_patch_is_refused(wrong: dict[str, Any]) -> None:
    sealed = {"at": 1, "worldId": "w", "contentId": "c", "schemaHash": "s", "snapshotHash": "h", "parent": "p"}
    sealed |= {"createdBy": "q", "branch": "main", "outcome": "completed", "height": 2, "patches": [wrong]}
    with pytest.raises(DamagedLogError) as damaged:
        decode_event("world.sealed", 1, canonical_bytes(sealed), 7)
    assert damaged.value.code == "BAD_EVENT"
    with pytest.raises(RefusedError) as refused:
        Patch.from_wire(wrong)
    assert refused.value.code == "INVALID_PATCH"


@pytest.mark.requirement("CARD-replay")
def test_replay_needs_the_floor_alone() -> None:
    code = (
        "import sys, world.audit.replay; rooms = {'host', 'authority', 'projections', 'worldprotocol'}; "
        "sys.exit(bool(rooms & {name.partition('.')[0] for name in sys.modules}))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
