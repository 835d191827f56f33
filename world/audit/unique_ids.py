"""Ids that must not come twice in a log, found with a few bytes for each.

Of every id 64 bits are kept. When all events were seen, equal ones are candidates, and the log is asked which of
them are really equal. The attempts at one meaning (intentKey) must count up from 1.
"""

from __future__ import annotations

import itertools
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import DecisionMade, HumanAnswered, ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import WorldSealed

_KINDS: Final[frozenset[type[Event]]] = frozenset(
    {ProjectionRecorded, ProposalSubmitted, HumanAnswered, DecisionMade, VerdictGiven, WorldSealed}
)
NAMING: Final = tuple(sorted(kind.TOPIC for kind in _KINDS))
"""Topics of the events that bring in an id that must not come twice."""

_PART: Final = 1 << 16
"""About so many keys are compared at a time, so that comparing needs little memory."""


def _short(text: str) -> int:
    """Return 64 bits of an id; they are other ones in every process, so that nobody can make ids that share them."""
    return hash(text) & 0xFFFF_FFFF_FFFF_FFFF


def _named(event: Event) -> tuple[tuple[str, str], ...]:
    """Return the ids that an event brings in, each with what it is the id of."""
    if isinstance(event, ProposalSubmitted):
        return ("proposal", event.proposal_id), ("intent", event.intent["intentId"])
    if isinstance(event, WorldSealed):
        return (("world", event.world_id),)
    if isinstance(event, DecisionMade):
        return (("decision", event.decision["decisionId"]),)
    if isinstance(event, VerdictGiven):
        return ("verdict", event.verdict_id), *(("lease", str(lease.get("leaseId"))) for lease in event.leases)
    if isinstance(event, HumanAnswered):
        return (("answer", event.answer["answerId"]),)
    if isinstance(event, ProjectionRecorded):
        return (("record", event.record_id),)
    return ()


class Repeats:
    """Collects the ids of what is recorded but once, from proposals to leases, and the attempts at every meaning."""

    def __init__(self, *, is_whole: bool = True) -> None:
        """Begin with nothing.

        Args:
            is_whole: False where events are hidden; of the attempts at a meaning some may be missing then.
        """
        self._is_whole = is_whole
        self._ids = defaultdict[str, "array[int]"](lambda: array("Q"))
        self._keys = array("Q")
        self._attempts = array("L")

    def take(self, event: Event) -> None:
        """Take an event in."""
        if type(event) not in _KINDS:
            return
        for what, name in _named(event):
            self._ids[what].append(_short(name))
        if isinstance(event, ProposalSubmitted):
            self._keys.append(_short(event.intent["intentKey"]))
            self._attempts.append(min(max(event.attempt, 0), 2**32 - 1))

    def found(self, again: Callable[[], Iterable[tuple[int, Event]]]) -> Iterator[tuple[int, str]]:
        """Yield the position and a sentence for each repeated id, in order of position.

        Args:
            again: gives the events of the topics in ``NAMING`` once more, with their positions; only asked when there
                are suspects.
        """
        suspects = self._miscounted().union(*map(_twice, self._ids.values()))
        if not suspects:
            return
        seen: set[tuple[str, str]] = set()
        attempts: dict[str, int] = {}
        for position, event in again():
            if isinstance(event, ProposalSubmitted) and _short(key := event.intent["intentKey"]) in suspects:
                expected = attempts.get(key, 0) + 1
                if not self._follows(event.attempt, expected):
                    yield position, f"it is attempt {expected} at its meaning, not {event.attempt}"
                attempts[key] = expected if self._is_whole else max(expected, event.attempt)
            for what, name in _named(event):
                if _short(name) in suspects:
                    if (what, name) in seen:
                        yield position, f"the {what} {name} has been there before"
                    seen.add((what, name))

    def _follows(self, attempt: int, expected: int) -> bool:
        return attempt == expected or (attempt > expected and not self._is_whole)

    def _miscounted(self) -> set[int]:
        """Return the meanings whose attempts do not count up from 1."""
        wrong: set[int] = set()
        parts = 1 + len(self._keys) // _PART
        for part in range(parts):
            pairs = zip(self._keys, self._attempts, strict=True)
            mine = [(key, attempt) for key, attempt in pairs if key % parts == part]
            mine.sort(key=lambda pair: pair[0])  # stable: attempts stay in the order of the log
            last, expected = -1, 0
            for key, attempt in mine:
                expected = expected + 1 if key == last else 1
                last = key
                if not self._follows(attempt, expected):
                    wrong.add(key)
                elif not self._is_whole:
                    expected = attempt
        return wrong


def _twice(ids: array[int]) -> set[int]:
    """Return the numbers that come more than once."""
    twice: set[int] = set()
    parts = 1 + len(ids) // _PART
    for part in range(parts):
        mine = [number for number in ids if number % parts == part] if parts > 1 else ids
        if len(set(mine)) < len(mine):
            twice.update(one for one, other in itertools.pairwise(sorted(mine)) if one == other)
    return twice
