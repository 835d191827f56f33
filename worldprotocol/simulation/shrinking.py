"""Reduction of a failing script while the same requirement fails (delta debugging)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.simulation import Simulated, simulate
from worldprotocol.simulation.steps import SimulationStep

__all__ = ["RUNS", "shrink"]

RUNS: Final = 400
"""How many simulations a script is tried with at most."""


def shrink(
    seed: int,
    steps: Sequence[SimulationStep],
    scenario: Scenario,
    found: Simulated,
    *,
    runs: int = RUNS,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[list[SimulationStep], Simulated]:
    """Return the shortest failing script found, and its result.

    No single one of them can be left out any more, unless the runs were used up before.

    Args:
        seed: of the ids.
        steps: a script that fails.
        scenario: what is simulated.
        found: its result.
        runs: how many simulations to try at most.
        progress: called with runs done and runs at most.
    """
    assert found.violation is not None
    search = _ShrinkState(seed, scenario, found, runs, progress)
    kept = list(steps[: found.violation.step])
    again = search.attempt(kept)  # it may need the steps behind it: what is left over comes out at the end
    kept = kept if again else list(steps)
    size = max(1, len(kept) // 2)
    while search.left > 0:
        kept, has_shrunk = search.without_parts(kept, size)
        if size == 1 and not has_shrunk:
            break
        size = size if has_shrunk and size == 1 else max(1, size // 2)
    return kept, search.found


class _ShrinkState:
    def __init__(
        self,
        seed: int,
        scenario: Scenario,
        found: Simulated,
        runs: int,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        assert found.violation is not None
        self.found = found
        self.left = runs
        self._requirement = found.violation.requirement
        self._seed = seed
        self._scenario = scenario
        self._runs = runs
        self._progress = progress

    def attempt(self, steps: list[SimulationStep]) -> bool:
        """Return whether these steps break the same requirement."""
        self.left -= 1
        came = simulate(self._seed, steps, self._scenario)
        if self._progress is not None:
            self._progress(self._runs - self.left, self._runs)
        if came.violation is None or came.violation.requirement != self._requirement:
            return False
        self.found = came
        return True

    def without_parts(self, steps: list[SimulationStep], size: int) -> tuple[list[SimulationStep], bool]:
        """Leave out one part of ``size`` steps after the other, from the end."""
        before = len(steps)
        at = before
        while at > 0 and self.left > 0:
            at = max(0, at - size)
            shorter = steps[:at] + steps[at + size :]
            if shorter and self.attempt(shorter):
                steps = shorter
        return steps, len(steps) < before
