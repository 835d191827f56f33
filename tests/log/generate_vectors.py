"""Writes the vectors for other implementations: ``python -m tests.log.generate_vectors``, to ``tests/vectors/log``.

The engine computes them; that a second implementation agrees is what makes them worth something.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from world.audit.replay import replay
from world.audit.verify import verify
from world.errors import DamagedLogError, RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import event_leaf, open_log
from world.log.merkle import tree_root
from world.model.canonical_json import canonical_bytes, canonical_text, read_json
from world.model.identity import content_id, state_hash, world_id
from world.model.immutable_json import freeze
from world.model.patch import Patch, apply_patches
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log, read_heads

TESTS = Path(__file__).resolve().parent.parent
FOLDER = TESTS / "vectors" / "log"

Vector = dict[str, Any]

TEXTS = [
    '{"b":1,"a":[true,false,null]}', '{"\\ud83d\\ude00":1,"\\uff61":2,"":3}', '"\\u000f\\n\\t\\"\\\\\\/\\u007f\\u2028"',
    "1e21", "1E20", "0.000001", "1e-7", "-0", "-0.0", "5e-324", "1.7976931348623157e308", "333333333.33333329",
    "9007199254740991", "9007199254740992", "9007199254740993", "123456789012345680000", "1e400", "NaN", "[1,]",
    '{"a":1,"a":2}', '"\\ud800"', '"caf\\u00e9"', "[[[[]]]]", "4.50", "2e-3", "1e23", "0.1", "-1.5e300",
]  # fmt: skip
EVENTS = [
    ("realm", 1, "log.founded", 1, {"at": 0, "enforcement": "enforcing", "format": 1, "logId": "x", "logic": []}),
    ('s"\\\u00e9\u0001', 2, "a.b", 3, {"\U0001f600": 1, "\uff61": [0.5, 1e21, -1e-7]}),
    ("projection:p", 2**31 - 1, "t", 1, {}),
]
PATCHES: list[tuple[Any, list[Vector]]] = [
    ({}, [{"op": "set", "path": "a.b.c", "value": 1}]),
    ({"a": [1, 2, 3]}, [{"op": "unset", "path": "a.0"}, {"op": "set", "path": "a.2", "value": 4}]),
    ({"a": [1]}, [{"op": "set", "path": "a.2", "value": 4}]),
    ({"a": [{"b": 1}]}, [{"op": "merge", "path": "a.0", "value": {"c": 2}}]),
    ({"a": [1]}, [{"op": "set", "path": "a.x", "value": 4}]),
    ({"a": [1]}, [{"op": "unset", "path": "a.x"}]),
    ({"a": [1]}, [{"op": "unset", "path": "a.7"}]),
    ({"a": [[1]]}, [{"op": "set", "path": "a.0.1", "value": 2}]),
    ({"a": [1]}, [{"op": "set", "path": "a.1.b", "value": 2}]),
    ({"a": 5}, [{"op": "set", "path": "a.b", "value": 1}]),
    ({"a": 5}, [{"op": "unset", "path": "a.b"}]),
    ({"a": None}, [{"op": "set", "path": "a.b", "value": 1}]),
    ({"a": None}, [{"op": "merge", "path": "a", "value": {"b": 1}}]),
    ({"a": 5}, [{"op": "merge", "path": "a", "value": {"b": 1}}]),
    ({"a": {"b": 1}}, [{"op": "merge", "path": "a", "value": None}]),
    ({"a": {"b": {"c": 1}}}, [{"op": "merge", "path": "a", "value": {"b": {"d": 1}}}]),
    ({"a": 1}, [{"op": "set", "path": "", "value": {"b": 2}}]),
    ({"a": 1}, [{"op": "set", "path": "", "value": [2]}]),
    ({"a": 1}, [{"op": "unset", "path": ""}]),
    ({"a": 1}, [{"op": "merge", "path": "", "value": {"b": 2}}]),
    ({}, [{"op": "set", "path": "a\\.b.c\\\\d\\e", "value": 1}]),
    ({"a": {"": 1, "b": 2}}, [{"op": "unset", "path": "a."}]),
    ({"a": [1, 2]}, [{"op": "set", "path": "a.00", "value": 4}]),
    ({"a": {"0": 1}}, [{"op": "set", "path": "a.0", "value": 4}]),
    ({"a": {"b": 1}}, [{"op": "unset", "path": "a.b.c"}]),
]
WORLDS: list[tuple[Any, Vector | None, str | None]] = [
    ({}, None, None),
    ({"a": 1, "$tool": {"x": 1}}, None, "00"),
    (
        {"a": "\U0001f600"},
        {
            "code": "E",
            "message": "m",
            "source": {"actionId": "x", "nodePath": "0"},
            "timestamp": 7,
            "context": {"k": 1},
        },
        "ab",
    ),
    ({"n": 1e21}, {"code": "E", "message": "m", "timestamp": 7}, "ab"),
]
LOGS = [
    "access",
    "clocks",
    "couriers",
    "garden",
    "garden-leased",
    "garden-forged",
    "gate",
    "harbour",
    "ledger",
    "ledger-leased",
    "orchard",
    "signed",
    "cellar",
    "wakes",
    "callers",
    "guards",
    "moves",
    "repeats",
]


def canonical() -> Iterator[Vector]:
    """Texts and their canonical form."""
    for text in TEXTS:
        try:
            yield {"text": text, "canonical": canonical_text(read_json(text))}
        except RefusedError:
            yield {"text": text, "refused": True}


def leaves() -> Iterator[Vector]:
    """Events and their leaf hashes."""
    for stream, version, topic, schema_version, state in EVENTS:
        leaf = event_leaf(stream, version, topic, schema_version, canonical_bytes(state)).hex()
        yield {
            "stream": stream, "version": version, "topic": topic, "schemaVersion": schema_version, "state": state,
            "leaf": leaf,
        }  # fmt: skip


def trees() -> Iterator[Vector]:
    """Leaves of trees and their roots."""
    some = [event_leaf("s", n + 1, "t", 1, b"{}") for n in range(20)]
    for size in (0, 1, 2, 3, 4, 5, 7, 8, 13, 20):
        yield {"leaves": [leaf.hex() for leaf in some[:size]], "root": tree_root(some[:size]).hex()}


def patches() -> Iterator[Vector]:
    """Data, patches and what comes of them."""
    for data, wire in PATCHES:
        try:
            result = apply_patches(freeze(data), [Patch.from_wire(one) for one in wire])
            yield {"data": data, "patches": wire, "result": result}
        except RefusedError:
            yield {"data": data, "patches": wire, "refused": True}


def worlds() -> Iterator[Vector]:
    """Contents of worlds and their ids."""
    for data, error, parent in WORLDS:
        found = state_hash(data, errors=() if error is None else (error,), last_error=error)
        yield {
            "schemaHash": "5c", "data": data, "error": error, "parent": parent, "snapshotHash": found,
            "contentId": content_id("5c", found), "worldId": world_id("5c", found, parent),
        }  # fmt: skip


def logs() -> Iterator[Vector]:
    """Exported logs and what they come to."""
    for name in LOGS:
        path = TESTS / "golden" / f"{name}.jsonl"
        told: Vector = {"log": f"golden/{name}.jsonl"}
        with TemporaryDirectory() as place, path.open("rb") as lines:
            address = f"{place}/log.db"
            import_log(lines, address)
            lines.seek(0)
            told["heads"] = [[head.size, head.root_hex] for head in read_heads(lines)]
            try:
                yield told | {"sound": True} | _replayed(address)
            except DamagedLogError as damage:
                yield {"log": told["log"], "sound": False, "firstBad": damage.details["position"]}


def _replayed(address: str) -> Vector:
    with Realm.open_read_only(address) as world:
        found = verify(world.log)
        if not found.ok:
            raise DamagedLogError("BAD_EVENT", "It is not sound.", position=found.findings[0].position)
        events = [event for _, event in world.events()]
    with open_log(address, read_only=True) as log:
        done = replay(log)
    opened = {event.proposal_id for event in events if isinstance(event, ProposalSubmitted)} & set(done.realm.proposals)
    ended = {status: count for status, count in done.statuses.items() if status in _ENDS}
    assert sum(ended.values()) + len(opened) == sum(isinstance(event, ProposalSubmitted) for event in events)
    return {
        "worlds": [event.world_id for event in events if isinstance(event, WorldSealed)],
        "branches": {
            name: {"head": branch.head, "tip": branch.tip, "data": done.data[name]}
            for name, branch in done.realm.branches.items()
        },
        "active": done.realm.active,
        "epoch": done.realm.epoch,
        "statuses": dict(sorted(ended.items())),
    }


_ENDS = ("completed", "failed", "rejected", "superseded")

FILES = {
    "canonical": canonical,
    "leaves": leaves,
    "trees": trees,
    "patches": patches,
    "worlds": worlds,
    "logs": logs,
}
"""The files, without their ending, and what makes the lines of each."""


def text_of(name: str) -> bytes:
    """Return what belongs into a file."""
    return b"".join(canonical_bytes(vector) + b"\n" for vector in FILES[name]())


def vectors(name: str) -> list[Vector]:
    """Return the lines of a file as it is kept."""
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_bytes().splitlines()]


if __name__ == "__main__":
    for file in FILES:
        (FOLDER / f"{file}.jsonl").write_bytes(text_of(file))
