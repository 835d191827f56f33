"""Of logs that were forged so that all hashes fit, the engine and the second implementation find the same ones.

Each is a sound log with one change: an event dropped, moved, doubled or exchanged, or one value of its state. What only
one of the two finds stands in docs/reference/log-format.md and not in the code, or the other way round.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests import second_implementation as second
from tests.golden.garden import FOLDER
from world.audit.verify import verify
from world.errors import DamagedLogError
from world.events.codec import decode_event
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes

Events = list[dict[str, Any]]
CHANGES = 40
"""Forged logs that are compared."""


def events_of(path: Path) -> Events:
    lines = (json.loads(line) for line in path.read_bytes().splitlines())
    return [line for line in lines if "leaf" in line]


@cache
def leased() -> Events:
    return events_of(FOLDER / "garden-leased.jsonl")


def found_by_engine(events: Events) -> int | None:
    """Return the position of the first finding of the engine, 0 where it is about the whole log."""
    for one in events:
        try:
            decode_event(one["topic"], one["schemaVersion"], canonical_bytes(one["state"]), one["position"])
        except DamagedLogError:
            return int(one["position"])
    with open_log("sqlite:///:memory:", create=True) as log:
        with log.write() as transaction:
            transaction.append(
                NewEvent(one["stream"], one["topic"], one["schemaVersion"], canonical_bytes(one["state"]))
                for one in events
            )
        findings = verify(log).findings
    return findings[0].position if findings else None


def found_by_second(events: Events) -> int | None:
    """Return the same of the second implementation."""
    replay = second.Replay()
    try:
        for one in events:
            replay.take(one)
        replay.end()
    except second.REFUSALS:
        return replay.size
    return None


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, one in inner:
        yield (*path, name)
        yield from places(one, (*path, name))


def forged(events: Events, texts: list[str], chance: random.Random) -> tuple[Events, str]:
    """Return a log with one change, and what that is."""
    at = chance.randrange(len(events))
    told = [*events]
    event = told[at] = json.loads(json.dumps(events[at]))
    what = chance.choice(["drop", "double", "exchange", "move", "add", "remove", *["change"] * 6])
    where: tuple[Any, ...] = ()
    if what == "drop":
        del told[at]
    elif what in ("double", "move"):
        told.insert(chance.randrange(len(events)), told[at] if what == "double" else told.pop(at))
    elif what == "exchange":
        other = min(at + 1, len(events) - 1)
        told[at], told[other] = told[other], told[at]
    else:
        where = chance.choice(list(places(event["state"])))
        alter(event["state"], where, what, texts, chance)
    versions: Counter[str] = Counter()
    for position, one in enumerate(told, 1):
        versions[one["stream"]] += 1
        told[position - 1] = {**one, "position": position, "version": versions[one["stream"]]}
    return told, f"{what} {at + 1} {event['topic']} {'.'.join(map(str, where))}"


def alter(state: Any, where: tuple[Any, ...], what: str, texts: list[str], chance: random.Random) -> None:
    for name in where[:-1]:
        state = state[name]
    name, old = where[-1], state[where[-1]]
    if what == "remove":
        del state[name]
    elif what == "add":
        state.append(old) if isinstance(state, list) else state.update(more=chance.choice([1, None, "x", {}]))
    elif isinstance(old, bool):
        state[name] = not old
    elif isinstance(old, int):
        state[name] = chance.choice([old + 1, old - 1, 0, -1, "1", 1.5])
    elif isinstance(old, str):
        state[name] = chance.choice(["x", "", None, old + "x", chance.choice(texts)])
    else:
        state[name] = chance.choice([None, [], {}, "x"])


def differences(events: Events, number: int, chance: random.Random) -> tuple[list[str], int]:
    """Return what only one of both finds, and how many forged logs both found."""
    texts = sorted({one for event in events for one in texts_in(event["state"])})
    told, both = [], 0
    for _ in range(number):
        log, what = forged(events, texts, chance)
        engine, other = found_by_engine(log), found_by_second(log)
        both += engine is not None and other is not None
        if (engine is None) is not (other is None):
            told.append(f"{what}: the engine {engine}, the second {other}")
    return told, both


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for one in value.values() if isinstance(value, dict) else value:
            yield from texts_in(one)


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.slow
def test_both_implementations_find_the_same_forged_logs() -> None:
    told, both = differences(leased(), CHANGES, random.Random(7))
    assert told == []
    assert both > CHANGES / 2
