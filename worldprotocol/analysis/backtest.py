"""Backtest: evaluation of another policy on every recorded case of rules (design section 6).

A different decision is a flip. Effects of a flip on later cases are not simulated: each case is judged on the recorded
input, as in ``worldprotocol.analysis.rejudging``. A backtest covers a whole log, in several processes for a long log,
and lists the worlds that depend on each flip. ``worldctl policy backtest`` imports this.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import ProposalJudged
from world.limits import Limits
from world.read_models.archive import Archive
from world.read_models.decoding import decoded, registry_events
from world.read_models.live.sealed_snapshot import archived_upto
from worldprotocol.analysis.rejudging import CaseRejudger, CaseSelection, RejudgedCases
from worldprotocol.analysis.work.code_identities import CodeIdentities, check_same_code, identities_of
from worldprotocol.analysis.work.stretches import LogWork, Progress, Stretch, audit_logs, check_same_log
from worldprotocol.analysis.work.workers import Workers
from worldprotocol.api.bootstrap import EventLog, TreeHead, load_any_domain, take_adopted_form
from worldprotocol.api.read_only import RealmReader, open_for_reading
from worldprotocol.policy_tools.hypothetical import policy_named

__all__ = ["COUNTED", "Backtest", "BacktestSetup", "CaseSelection", "WorldAncestry", "backtest_logs", "check_judged"]

COUNTED: Final = ("judged", "same", "flips", "undecided", "otherBindings")

WINDOW: Final = 2_000
"""Events that are searched for the newest rulings at once."""

MAX_LATER: Final = 20
"""Maximum number of later worlds listed with a flip; all are counted."""

EVERY: Final = 1 << 40


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
        expected: a tree head of the log, which another process compares with what it opens; None compares nothing.
        code: identities of the code, which another process compares with what it loads; None compares nothing.
    """

    address: str = field(repr=False)
    domain: str
    policy: str
    policies: tuple[str, ...] = ()
    folder: Path = Path()
    wanted: CaseSelection = field(default_factory=CaseSelection)
    limits: Limits = field(default_factory=Limits)
    last: int | None = None
    expected: TreeHead | None = None
    code: CodeIdentities | None = None

    @contextmanager
    def stretches(self) -> Iterator[Callable[[Stretch], RejudgedCases]]:
        """Open the log, and give the function that judges the cases between two positions; it closes the log.

        Raises:
            RefusedError: as ``judge``; ``CLUSTER_UNFIT`` for other code or another log than the expected one.
        """
        judge = self.judge()
        with judge.archive.log as log:
            if self.code is not None:
                check_same_code(_code_of(judge), self.code)
            check_same_log(log, self.expected)
            yield lambda stretch: judge.stretch(*stretch)

    def judge(self) -> CaseRejudger:
        """Open the log and load the domain and the policy.

        Raises:
            RefusedError: the log cannot be opened, or a reference cannot be loaded.
        """
        policy = policy_named(self.policy, self.policies, self.folder)
        domain = load_any_domain(self.domain, base=self.folder, oldest_rules=1).copied()
        log = open_for_reading(self.address)
        take_adopted_form(domain, log)
        archive = Archive(log)
        return CaseRejudger(archive, domain, policy, self.wanted, time_limit=TimeLimit(self.limits.max_call_ms))


@dataclass(slots=True)
class Backtest:
    """Backtest of one log: ``lines`` yields findings; ``counts`` is complete at its end.

    Args:
        setup: the log, the code and the selection of cases.
        workers: the processes; None chooses them by the length of the log, at most one for each idle core.
        progress: called at intervals with the number of events done and of all events.
        counts: see ``RejudgedCases``.
        after: position before the first event that is covered.
        upto: position of the last one.
        archived_upto: up to where the events of a cut log are left out; 0 for others.
        error: why there is no backtest of this log, or why it ended early.
    """

    setup: BacktestSetup
    workers: Workers | None = None
    progress: Progress = field(default=lambda done, total: None)
    counts: Counter[str] = field(default_factory=Counter)
    after: int = 0
    upto: int = 0
    archived_upto: int = 0
    error: WorldProtocolError | None = None
    _lineage: WorldAncestry | None = None

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield flips and undecided cases, in the order of the log.

        A flip that produced a world has the number of its descendants (``laterWorlds``), and the first of them.

        Raises:
            RefusedError: as ``BacktestSetup.judge``; ``PROCESS_LOST`` if processes ended unexpectedly; the codes of
                ``Workers.crew``.
            DamagedLogError: the log contradicts itself.
        """
        for _, line in backtest_logs([self], workers=self.workers, progress=self.progress):
            yield line
        if self.error is not None:
            raise self.error

    def work(self) -> LogWork[RejudgedCases]:
        """Return the work on this log.

        Raises:
            RefusedError: as ``BacktestSetup.judge``.
        """
        judge = self.setup.judge()
        with judge.archive.log as log:
            head = log.head()
            self.upto = head.size
            self.after = self.archived_upto = archived_upto(log)
            if self.setup.last is not None:
                self.after = _before_newest(log, self.after, self.upto, self.setup.last)
            setup = replace(self.setup, expected=head, code=_code_of(judge))
        return LogWork(self.setup.address, setup.stretches, self.after, self.upto)

    @property
    def is_settled(self) -> bool:
        """False: the whole log is covered."""
        return False

    def take(self, result: RejudgedCases) -> Iterator[dict[str, Any]]:
        """Add the result of the next stretch, and yield its findings.

        Raises:
            DamagedLogError: the log contradicts itself.
        """
        self.counts.update(result.counts)
        for line in result.lines:
            if line.get("worldId") is not None:
                if self._lineage is None:
                    with open_for_reading(self.setup.address) as log:
                        self._lineage = WorldAncestry(Archive(log))
                line |= self._lineage.later(line["worldId"])
            yield line

    def summary(self) -> dict[str, Any]:
        """Return the counts and the stretch that is covered, as JSON; complete after ``lines``."""
        counts = {name: self.counts[name] for name in COUNTED}
        archived = {"archivedUpto": self.archived_upto} if self.archived_upto else {}
        return {"kind": "summary", **counts, "after": self.after, "upto": self.upto, **archived}


def _code_of(judge: CaseRejudger) -> CodeIdentities:
    return identities_of(judge.domain, policies=[judge.policy])


def backtest_logs(
    asked: Sequence[Backtest], *, workers: Workers | None = None, progress: Progress | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Backtest several logs; see ``audit_logs`` for arguments, errors and what is yielded."""
    return audit_logs(asked, workers=workers, progress=progress)


def _before_newest(log: EventLog, first: int, size: int, most: int) -> int:
    """Return the position before the newest rulings; ``first`` if there are not more of them after that position."""
    upto, left = size, most
    while upto > first:
        after = max(first, upto - WINDOW)
        rulings = [event.position for event in log.read(after, upto, topics=[ProposalJudged.TOPIC])]
        if len(rulings) >= left:
            return rulings[-left] - 1
        upto, left = after, left - len(rulings)
    return first


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
    adoptions = (decoded(logged) for logged in registry_events(realm.log, PolicyAdopted))
    known = {event.name for event in adoptions if isinstance(event, PolicyAdopted)}
    known |= {str(bound["policy"]) for bound in realm.realm().bindings.values() if "policy" in bound}
    if name not in known:
        rendered = ", ".join(sorted(known)) or "none at all"
        raise RefusedError(
            ErrorCode.UNKNOWN_POLICY,
            f"No policy {name!r} was ever adopted in this log, so it judged nothing; there are: {rendered}.",
            known=sorted(known),
        )
