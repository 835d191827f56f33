"""Detection of repeated ids in a log, with a few bytes of memory per id.

Python's hash of 64 bits is stored per id; it is salted per process, so that collisions cannot be prepared. After all
events, ids with equal hashes are candidates, and a second pass over the log compares their texts. The attempts with one
intentKey must be numbered from 1.
"""

from __future__ import annotations

import itertools
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from world.events.access_events import TokenCreated
from world.events.base import Event
from world.events.claim_events import EffectClaimed
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade, HumanAnswered, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import WorldSealed

_IDS: Final[Mapping[type[Event], Callable[[Any], tuple[tuple[str, str], ...]]]] = {
    ProposalSubmitted: lambda event: (("proposal", event.proposal_id), ("intent", event.intent.intent_id)),
    WorldSealed: lambda event: (("world", event.world_id),),
    DecisionMade: lambda event: (("decision", event.decision.decision_id),),
    VerdictGiven: lambda event: (
        ("verdict", event.verdict_id),
        *[("lease", lease.lease_id) for lease in event.leases],
    ),
    HumanAnswered: lambda event: (("answer", event.answer.answer_id),),
    ProjectionRecorded: lambda event: (("record", event.record_id),),
    EffectClaimed: lambda event: (("claim", event.claim_id),),
    TokenCreated: lambda event: (("token", event.token_id),),
}
"""The ids that an event introduces, each with the kind of entity, by type of event."""

NAMING_TYPES: Final = frozenset(_IDS)
NAMING: Final = tuple(sorted(kind.TOPIC for kind in _IDS))
"""Topics of the events that introduce an id that must be unique."""

_MOST: Final = 2**32 - 1
"""Largest number of an attempt that is kept."""

_PART: Final = 1 << 16
"""Approximate number of keys that are compared at a time, which limits memory use."""


def _named(event: Event) -> tuple[tuple[str, str], ...]:
    """Return the ids that an event introduces, each with the kind of entity."""
    ids = _IDS.get(type(event))
    return () if ids is None else ids(event)


class Repeats:
    """Collector of unique ids, from proposals to leases, and of the attempts per intentKey."""

    def __init__(self, *, is_whole: bool = True) -> None:
        """Create an empty collector.

        Args:
            is_whole: False where events are hidden, so that attempts may be missing.
        """
        self._is_whole = is_whole
        self._ids = defaultdict[str, "array[int]"](lambda: array("q"))
        self._keys = array("q")
        self._attempts = array("L")

    def take(self, event: Event) -> None:
        """Add the ids of an event."""
        named = _IDS.get(type(event))
        if named is None:
            return
        ids = self._ids
        for what, name in named(event):
            ids[what].append(hash(name))
        if type(event) is ProposalSubmitted:
            self._keys.append(hash(event.intent.intent_key))
            attempt = event.attempt
            self._attempts.append(attempt if 0 <= attempt <= _MOST else max(0, min(attempt, _MOST)))

    def found(self, again: Callable[[], Iterable[tuple[int, Event]]]) -> Iterator[tuple[int, str]]:
        """Yield the position and a sentence for each repeated id, in order of position.

        Args:
            again: yields the events of the topics in ``NAMING`` again, with their positions; called only if there are
                candidates.
        """
        suspects = self._miscounted().union(*map(_repeated, self._ids.values()))
        if not suspects:
            return
        seen: set[tuple[str, str]] = set()
        attempts: dict[str, int] = {}
        for position, event in again():
            if isinstance(event, ProposalSubmitted) and hash(key := event.intent.intent_key) in suspects:
                expected = attempts.get(key, 0) + 1
                if not self._follows(event.attempt, expected):
                    yield position, f"it is attempt {expected} with its intentKey, not {event.attempt}"
                attempts[key] = expected if self._is_whole else max(expected, event.attempt)
            for what, name in _named(event):
                if hash(name) in suspects:
                    if (what, name) in seen:
                        yield position, f"the {what} {name} was recorded before"
                    seen.add((what, name))

    def _follows(self, attempt: int, expected: int) -> bool:
        return attempt == expected or (attempt > expected and not self._is_whole)

    def _miscounted(self) -> set[int]:
        """Return the hashes of the intentKeys whose attempts are not numbered from 1."""
        wrong: set[int] = set()
        parts = 1 + len(self._keys) // _PART
        for part in range(parts):
            pairs = zip(self._keys, self._attempts, strict=True)
            mine = [(key, attempt) for key, attempt in pairs if key % parts == part]
            mine.sort(key=lambda pair: pair[0])  # a stable sort keeps attempts in the order of the log
            last: int | None = None
            expected = 0
            for key, attempt in mine:
                expected = expected + 1 if key == last else 1
                last = key
                if not self._follows(attempt, expected):
                    wrong.add(key)
                elif not self._is_whole:
                    expected = attempt
        return wrong


def _repeated(ids: array[int]) -> set[int]:
    """Return the numbers that occur more than once."""
    repeated: set[int] = set()
    parts = 1 + len(ids) // _PART
    for part in range(parts):
        mine = [number for number in ids if number % parts == part] if parts > 1 else ids
        if len(set(mine)) < len(mine):
            repeated.update(one for one, other in itertools.pairwise(sorted(mine)) if one == other)
    return repeated
