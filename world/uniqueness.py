"""Ids that must not come twice in a log, found with a few bytes for each.

Of every id 64 bits are kept. When all events were seen, equal ones are candidates, and the log is asked which of
them are really equal. The attempts at one meaning (intentKey) must count up from 1.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from hashlib import blake2b
from typing import Final

from world.events import Event, ProposalSubmitted, WorldSealed

_PARTS: Final = 16
"""Keys are sorted in so many parts, so that sorting needs little memory."""


def _short(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


class Repeats:
    """Collects the ids of intents and worlds, and the attempts at every meaning."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._intents = array("Q")
        self._worlds = array("Q")
        self._keys = array("Q")
        self._attempts = array("L")

    def take(self, event: Event) -> None:
        """Take an event in."""
        if isinstance(event, ProposalSubmitted):
            self._intents.append(_short(event.intent["intentId"]))
            self._keys.append(_short(event.intent["intentKey"]))
            self._attempts.append(min(max(event.attempt, 0), 2**32 - 1))
        elif isinstance(event, WorldSealed):
            self._worlds.append(_short(event.world_id))

    def found(self, again: Callable[[], Iterable[tuple[int, Event]]]) -> Iterator[tuple[int, str]]:
        """Yield the position and a sentence for each repeated id, in order of position.

        Args:
            again: gives the events of submissions and worlds once more, with their positions; only asked when there
                are suspects.
        """
        suspects = _twice(self._intents) | _twice(self._worlds) | self._miscounted()
        if not suspects:
            return
        seen: set[str] = set()
        attempts: dict[str, int] = {}
        for position, event in again():
            if isinstance(event, WorldSealed):
                name, what = event.world_id, "world"
            elif isinstance(event, ProposalSubmitted):
                name, what = event.intent["intentId"], "intent"
                key = event.intent["intentKey"]
                if _short(key) in suspects:
                    attempts[key] = attempts.get(key, 0) + 1
                    if event.attempt != attempts[key]:
                        yield position, f"it is attempt {attempts[key]} at its meaning, not {event.attempt}"
            else:
                continue
            if _short(name) in suspects:
                if name in seen:
                    yield position, f"the {what} {name} has been there before"
                seen.add(name)

    def _miscounted(self) -> set[int]:
        """Return the meanings whose attempts do not count up from 1."""
        wrong = set()
        for part in range(_PARTS):
            pairs = zip(self._keys, self._attempts, strict=True)
            mine = [(key, attempt) for key, attempt in pairs if key % _PARTS == part]
            mine.sort(key=lambda pair: pair[0])  # stable: attempts stay in the order of the log
            last, expected = -1, 0
            for key, attempt in mine:
                expected = expected + 1 if key == last else 1
                last = key
                if attempt != expected:
                    wrong.add(key)
        return wrong


def _twice(ids: array[int]) -> set[int]:
    """Return the numbers that come more than once."""
    twice: set[int] = set()
    for part in range(_PARTS):
        mine = sorted(number for number in ids if number % _PARTS == part)
        twice.update(one for one, other in itertools.pairwise(mine) if one == other)
    return twice
