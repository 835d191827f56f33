"""Binary search for the first world of a line of descent in which a condition holds.

The search assumes that the condition holds in all worlds from the first one on. If it starts to hold several times,
the search returns one of these worlds. It skips worlds that cannot be tested. Source: CARD-audit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from world.error_codes import ErrorCode
from world.errors import RefusedError

Test = Callable[[str], bool | None]
"""Returns whether the condition holds in a world; None where that cannot be tested."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Bisected:
    """Result of a search.

    Args:
        first: the candidates for the first world, oldest first; one world unless some could not be tested.
        before: the newest world before them in which the condition does not hold; None where genesis is the first.
        tested: number of tests, including those without a result.
        untestable: the worlds that could not be tested.
    """

    first: tuple[str, ...]
    before: str | None
    tested: int
    untestable: tuple[str, ...]


def bisect(
    line: Sequence[str], holds: Test, *, from_genesis: bool = True, progress: Progress | None = None
) -> Bisected:
    """Find the first world in which a condition holds, with about log2(len(line)) tests.

    Args:
        line: the ids of worlds, oldest first, each the parent of the next one.
        holds: the test of the condition.
        from_genesis: whether the oldest world is genesis.
        progress: called with the number of completed tests and their estimated total.

    Raises:
        RefusedError: ``NOT_BISECTABLE`` where the condition does not hold in the newest world, an end of the line
            cannot be tested, or the condition holds already in an oldest world that is not genesis.
    """
    search = _BisectState(line, holds, progress)
    newest = search.test(len(line) - 1)
    if not newest:
        why = "the condition does not hold" if newest is False else "the condition cannot be tested"
        raise _not_bisectable(f"The search ends at world {line[-1][:12]}, where {why}. Name another one with --bad.")
    oldest = newest if len(line) == 1 else search.test(0)
    if oldest is None:
        raise _not_bisectable(
            f"The search begins at world {line[0][:12]}, which cannot be tested. Name another one with --good."
        )
    if oldest and not from_genesis:
        raise _not_bisectable(
            f"The condition holds already in world {line[0][:12]}, where the search begins. Name an older one with "
            "--good."
        )
    if oldest:
        return Bisected((line[0],), None, search.tested, ())
    low, high = search.run(0, len(line) - 1)
    untestable = tuple(line[at] for at in sorted(search.untestable))
    return Bisected(tuple(line[low + 1 : high + 1]), line[low], search.tested, untestable)


class _BisectState:
    """State of one search."""

    def __init__(self, line: Sequence[str], holds: Test, progress: Progress | None) -> None:
        self._line = line
        self._holds = holds
        self._progress = progress
        self._expected = len(line).bit_length() + 2
        self.tested = 0
        self.untestable: set[int] = set()

    def test(self, at: int) -> bool | None:
        """Test the world at an index of the line."""
        answer = self._holds(self._line[at])
        self.tested += 1
        if answer is None:
            self.untestable.add(at)
        if self._progress is not None:
            self._progress(self.tested, max(self._expected, self.tested))
        return answer

    def run(self, low: int, high: int) -> tuple[int, int]:
        """Narrow an interval of the line and return its ends.

        Args:
            low: index of a world in which the condition does not hold.
            high: index of a later world in which it holds.
        """
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
    """Yield all integers of ``range(start, stop)``, the middle first, then the middles of ever smaller intervals.

    So the search needs few tests to leave a section of worlds that cannot be tested.
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
    return RefusedError(ErrorCode.NOT_BISECTABLE, why)
