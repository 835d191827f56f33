"""Backtest: what another policy would have decided about every recorded case of rules (design section 6).

What it would have decided otherwise is a flip. What a flip would have changed for later cases is not followed: each is
judged on what was recorded, as ``worldprotocol.analysis.rejudging`` does. Here it is done for a whole log, by as many
processes as pay, with the worlds that were built on what flips. ``worldctl policy backtest`` imports this.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from world.code.time_limit import TimeLimit
from world.limits import Limits
from world.read_models.archive import Archive
from worldprotocol.analysis.log_partitions import Stretch, in_stretches
from worldprotocol.analysis.rejudging import CaseRejudger, CaseSelection, RejudgedCases
from worldprotocol.api.bootstrap import load_any_domain, open_for_reading
from worldprotocol.policy_tools.hypothetical import policy_named

__all__ = ["Backtest", "BacktestSetup", "CaseSelection", "WorldAncestry"]

MAX_LATER: Final = 20
"""Later worlds that a flip names; all of them are counted."""

EVERY: Final = 1 << 40

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BacktestSetup:
    """What a process needs to judge; it can be sent to another one.

    Args:
        address: the log.
        domain: a reference to the domain.
        policy: the other policy: a name at hand, a file or a reference.
        policies: what ``world.toml`` names.
        folder: where those references start.
        wanted: which cases.
        limits: how long a rule may take.
    """

    address: str
    domain: str
    policy: str
    policies: tuple[str, ...] = ()
    folder: Path = Path()
    wanted: CaseSelection = field(default_factory=CaseSelection)
    limits: Limits = field(default_factory=Limits)

    def stretches(self) -> Callable[[Stretch], RejudgedCases]:
        """Return what judges the cases between two positions.

        Raises:
            RefusedError: as ``judge``.
        """
        judge = self.judge()
        return lambda stretch: judge.stretch(*stretch)

    def judge(self) -> CaseRejudger:
        """Open the log and load what judges.

        Raises:
            RefusedError: what cannot be opened or loaded.
        """
        policy = policy_named(self.policy, self.policies, self.folder)
        domain = load_any_domain(self.domain, base=self.folder)
        archive = Archive(open_for_reading(self.address))
        return CaseRejudger(archive, domain, policy, self.wanted, time_limit=TimeLimit(self.limits.max_call_ms))


@dataclass(slots=True)
class Backtest:
    """A backtest under way: ``lines`` yields what is found; ``counts`` is whole once it has ended.

    Args:
        setup: what is judged, and by what.
        jobs: how many processes judge; None takes as many as pay, at most one for each core that is idle.
        progress: called now and then with events done and events in all.
        counts: see ``RejudgedCases``.
    """

    setup: BacktestSetup
    jobs: int | None = None
    progress: Progress = field(default=lambda done, total: None)
    counts: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield flips and undecided cases, in the order of the log.

        A flip that made a world has the worlds that were built on it: ``laterWorlds``, and the first of them.

        Raises:
            RefusedError: what cannot be opened or loaded; ``PROCESS_LOST`` when a process that judges ended by itself.
            DamagedLogError: where the log contradicts itself.
        """
        judge = self.setup.judge()
        with judge.archive.log as log:
            size = log.head().size
            lineage: WorldAncestry | None = None
            for upto, found in in_stretches(lambda one: judge.stretch(*one), self.setup.stretches, size, self.jobs):
                self.counts.update(found.counts)
                for line in found.lines:
                    if line.get("worldId") is not None:
                        lineage = lineage or WorldAncestry(judge.archive)
                        line |= lineage.later(line["worldId"])
                    yield line
                self.progress(upto, size)


class WorldAncestry:
    """Which worlds were built on which."""

    def __init__(self, archive: Archive) -> None:
        """Read the lineage once."""
        self._children: dict[str, list[str]] = {}
        for world_id, parent, *_ in reversed(archive.rows("worlds", most=EVERY)):
            self._children.setdefault(parent, []).append(world_id)

    def later(self, world_id: str) -> dict[str, Any]:
        """Return how many worlds were built on a world, and the nearest of them."""
        found: list[str] = []
        pending = deque([world_id])
        while pending:
            children = self._children.get(pending.popleft(), [])
            found += children
            pending.extend(children)
        return {"laterWorlds": len(found), "later": found[:MAX_LATER]}
