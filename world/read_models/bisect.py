"""Finding the first world of a line of descent in which something holds, by halving the line.

It is taken to hold in all worlds from the first one on. Where it holds, ceases to hold and holds again, one of the
worlds is found in which it begins to. Worlds that cannot be tested are stepped around. Source: CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from world.errors import RefusedError

Test = Callable[[str], bool | None]
"""Tells of a world whether it holds there; None where that cannot be tested."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Bisected:
    """What the search found.

    Args:
        first: the worlds of which one is the first, oldest first; a single one unless some could not be tested.
        before: the newest world before them in which it does not hold; None where genesis is the first.
        tested: how many worlds were tested, those included that could not be.
        untestable: those that could not be.
    """

    first: tuple[str, ...]
    before: str | None
    tested: int
    untestable: tuple[str, ...]


def bisect(
    line: Sequence[str], holds: Test, *, from_genesis: bool = True, progress: Progress | None = None
) -> Bisected:
    """Find the first world in which something holds, with about log2 of their number of tests.

    Args:
        line: the ids of worlds, oldest first, each the parent of the next one.
        holds: the test.
        from_genesis: whether there is nothing before the oldest world.
        progress: called with tests done and about how many there will be.

    Raises:
        RefusedError: ``NOT_BISECTABLE`` where it does not hold in the newest world, an end of the line cannot be
            tested, or it holds in the oldest one already and others came before that.
    """
    search = _BisectState(line, holds, progress)
    newest = search.test(len(line) - 1)
    if not newest:
        why = "it does not hold there" if newest is False else "that world cannot be tested"
        raise _not_bisectable(f"The search ends at world {line[-1][:12]}, and {why}. Name another one with --bad.")
    oldest = newest if len(line) == 1 else search.test(0)
    if oldest is None:
        told = f"The search begins at world {line[0][:12]}, which cannot be tested. Name another one with --good."
        raise _not_bisectable(told)
    if oldest and not from_genesis:
        told = f"It holds already at world {line[0][:12]}, where the search begins. Name an older one with --good."
        raise _not_bisectable(told)
    if oldest:
        return Bisected((line[0],), None, search.tested, ())
    low, high = search.run(0, len(line) - 1)
    untestable = tuple(line[at] for at in sorted(search.untestable))
    return Bisected(tuple(line[low + 1 : high + 1]), line[low], search.tested, untestable)


class _BisectState:
    """The state of one search."""

    def __init__(self, line: Sequence[str], holds: Test, progress: Progress | None) -> None:
        self._line = line
        self._holds = holds
        self._progress = progress
        self._expected = len(line).bit_length() + 2
        self.tested = 0
        self.untestable: set[int] = set()

    def test(self, at: int) -> bool | None:
        """Test one world."""
        answer = self._holds(self._line[at])
        self.tested += 1
        if answer is None:
            self.untestable.add(at)
        if self._progress is not None:
            self._progress(self.tested, max(self._expected, self.tested))
        return answer

    def run(self, low: int, high: int) -> tuple[int, int]:
        """Narrow the line down: it does not hold at ``low`` and holds at ``high``; return the same of the narrowest."""
        while high - low > 1:
            for at in spread(low + 1, high):
                if at in self.untestable:
                    continue
                answer = self.test(at)
                if answer is not None:
                    low, high = (low, at) if answer else (at, high)
                    break
            else:
                return low, high
        return low, high


def spread(start: int, stop: int) -> Iterator[int]:
    """Yield every whole number from ``start`` to before ``stop``: the middle first, then those in ever smaller gaps.

    So a stretch that cannot be tested is left quickly.
    """
    seen: set[int] = set()
    width, parts = stop - start, 2
    while len(seen) < width:
        for part in range(1, parts, 2):
            at = start + width * part // parts
            if at not in seen:
                seen.add(at)
                yield at
        if parts > width:
            yield from (at for at in range(start, stop) if at not in seen)
            return
        parts *= 2


def _not_bisectable(why: str) -> RefusedError:
    return RefusedError("NOT_BISECTABLE", why)
