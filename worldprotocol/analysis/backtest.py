"""Backtest: evaluation of another policy on every recorded case of rules (design section 6).

A different decision is a flip. Effects of a flip on later cases are not simulated: each case is judged on the recorded
input, as in ``worldprotocol.analysis.rejudging``. A backtest covers a whole log, in several processes for a long log,
and lists the worlds that depend on each flip. ``worldctl policy backtest`` imports this.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import ProposalJudged
from world.limits import Limits
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from worldprotocol.analysis.log_partitions import Stretch, in_stretches
from worldprotocol.analysis.rejudging import CaseRejudger, CaseSelection, RejudgedCases
from worldprotocol.api.bootstrap import EventLog, load_any_domain, take_adopted_form
from worldprotocol.api.read_only import RealmReader, open_for_reading
from worldprotocol.policy_tools.hypothetical import policy_named

__all__ = ["COUNTED", "Backtest", "BacktestSetup", "CaseSelection", "WorldAncestry", "check_judged"]

COUNTED: Final = ("judged", "same", "flips", "undecided", "otherBindings")

WINDOW: Final = 2_000
"""Events that are searched for the newest rulings at once."""

MAX_LATER: Final = 20
"""Maximum number of later worlds listed with a flip; all are counted."""

EVERY: Final = 1 << 40

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class BacktestSetup:
    """Serialisable input of a process that judges cases.

    Args:
        address: the log.
        domain: a reference to the domain.
        policy: the other policy: the name of a loaded one, a file or a reference.
        policies: policies named in ``world.toml``.
        folder: start of relative references.
        wanted: selection of cases.
        limits: time limits of rules.
        last: number of the newest rulings to which the backtest is limited; None is all.
    """

    address: str
    domain: str
    policy: str
    policies: tuple[str, ...] = ()
    folder: Path = Path()
    wanted: CaseSelection = field(default_factory=CaseSelection)
    limits: Limits = field(default_factory=Limits)
    last: int | None = None

    def stretches(self) -> Callable[[Stretch], RejudgedCases]:
        """Return the function that judges the cases between two positions.

        Raises:
            RefusedError: as ``judge``.
        """
        judge = self.judge()
        return lambda stretch: judge.stretch(*stretch)

    def judge(self) -> CaseRejudger:
        """Open the log and load the domain and the policy.

        Raises:
            RefusedError: the log cannot be opened, or a reference cannot be loaded.
        """
        policy = policy_named(self.policy, self.policies, self.folder)
        domain = load_any_domain(self.domain, base=self.folder).copied()
        log = open_for_reading(self.address)
        take_adopted_form(domain, log)
        archive = Archive(log)
        return CaseRejudger(archive, domain, policy, self.wanted, time_limit=TimeLimit(self.limits.max_call_ms))


@dataclass(slots=True)
class Backtest:
    """Running backtest: ``lines`` yields findings; ``counts`` is complete at its end.

    Args:
        setup: the log, the code and the selection of cases.
        jobs: number of processes; None chooses it by the length of the log, at most one for each idle core.
        progress: called at intervals with the number of events done and of all events.
        counts: see ``RejudgedCases``.
        after: position before the first event that is covered.
        upto: position of the last one.
    """

    setup: BacktestSetup
    jobs: int | None = None
    progress: Progress = field(default=lambda done, total: None)
    counts: Counter[str] = field(default_factory=Counter)
    after: int = 0
    upto: int = 0

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield flips and undecided cases, in the order of the log.

        A flip that produced a world has the number of its descendants (``laterWorlds``), and the first of them.

        Raises:
            RefusedError: as ``BacktestSetup.judge``; ``PROCESS_LOST`` if a worker process ended unexpectedly.
            DamagedLogError: the log contradicts itself.
        """
        judge = self.setup.judge()
        with judge.archive.log as log:
            size = self.upto = log.head().size
            if self.setup.last is not None:
                self.after = _before_newest(log, size, self.setup.last)
            lineage: WorldAncestry | None = None
            for upto, rejudged in in_stretches(
                lambda one: judge.stretch(*one), self.setup.stretches, size, self.jobs, after=self.after
            ):
                self.counts.update(rejudged.counts)
                for line in rejudged.lines:
                    if line.get("worldId") is not None:
                        lineage = lineage or WorldAncestry(judge.archive)
                        line |= lineage.later(line["worldId"])
                    yield line
                self.progress(upto - self.after, size - self.after)

    def summary(self) -> dict[str, Any]:
        """Return the counts and the stretch that is covered, as JSON; complete after ``lines``."""
        counts = {name: self.counts[name] for name in COUNTED}
        return {"kind": "summary", **counts, "after": self.after, "upto": self.upto}


def _before_newest(log: EventLog, size: int, most: int) -> int:
    """Return the position before the newest rulings; 0 if there are not more of them."""
    upto, left = size, most
    while upto > 0:
        after = max(0, upto - WINDOW)
        rulings = [event.position for event in log.read(after, upto, topics=[ProposalJudged.TOPIC])]
        if len(rulings) >= left:
            return rulings[-left] - 1
        upto, left = after, left - len(rulings)
    return 0


class WorldAncestry:
    """Descendants of worlds."""

    def __init__(self, archive: Archive) -> None:
        """Read the lineage once."""
        self._children: dict[str, list[str]] = {}
        for world_id, parent, *_ in reversed(archive.rows("worlds", {"most": EVERY})):
            self._children.setdefault(parent, []).append(world_id)

    def later(self, world_id: str) -> dict[str, Any]:
        """Return the number of descendants of a world, and the nearest of them."""
        descendants: list[str] = []
        pending = deque([world_id])
        while pending:
            children = self._children.get(pending.popleft(), [])
            descendants += children
            pending.extend(children)
        return {"laterWorlds": len(descendants), "later": descendants[:MAX_LATER]}


def check_judged(realm: RealmReader, name: str) -> None:
    """Refuse a policy that cannot have judged anything: it was never adopted, and no actor is bound by it.

    Args:
        realm: an open realm.
        name: name of the policy.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``.
    """
    adoptions = (decoded(logged) for logged in realm.log.read(topics=[PolicyAdopted.TOPIC]))
    known = {event.name for event in adoptions if isinstance(event, PolicyAdopted)}
    known |= {str(bound["policy"]) for bound in realm.realm().bindings.values() if "policy" in bound}
    if name not in known:
        rendered = ", ".join(sorted(known)) or "none at all"
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"No policy {name!r} was ever adopted in this log, so it judged nothing; there are: {rendered}.",
            known=sorted(known),
        )
