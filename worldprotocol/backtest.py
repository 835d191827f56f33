"""Backtest: every recorded case of rules judged again by another policy, as of its own time (design section 6).

A case is made again from the log: the base world, the history before the ruling, the time of the submission. What the
other policy would have decided otherwise is a flip; what the log cannot tell, such as what people would have answered,
is said to be undecided and never guessed. What a flip would have changed for later cases is not followed: each is
judged on what was recorded. ``worldctl policy backtest`` imports this.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from authority import Policy, PolicyRegistry, StandardAuthority
from authority.policy import TIMED_OUT
from world.core import Domain
from world.decision import Ruling
from world.events import ProposalJudged, ProposalSubmitted, WorldSealed
from world.proposal import Proposal
from world.views.archive import Archive, decoded
from worldprotocol.asking import policy_named
from worldprotocol.assemble import load_any_domain, open_for_reading
from worldprotocol.cases import Cases

CHUNK: Final = 4_000
"""Most events that are judged at once, between two words about how far it came."""

MAX_PENDING: Final = 10_000
"""Submissions remembered until their ruling comes."""

MAX_LATER: Final = 20
"""Later worlds that a flip names; all of them are counted."""

EVERY: Final = 1 << 40

Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which cases are judged again.

    Args:
        since: only submissions at or after this time, ms since 1970.
        until: only submissions at or before it.
        branch: only those on this branch.
        of: only those judged by the policy of this name.
    """

    since: int | None = None
    until: int | None = None
    branch: str | None = None
    of: str | None = None

    def takes(self, told: ProposalSubmitted) -> bool:
        """Tell whether a submission is wanted."""
        return (
            (self.since is None or told.at >= self.since)
            and (self.until is None or told.at <= self.until)
            and self.branch in (None, told.branch)
        )


@dataclass(frozen=True, slots=True)
class Setup:
    """What a process needs to judge; it can be sent to another one.

    Args:
        address: the log.
        domain: a reference to the domain.
        policy: the other policy: a name at hand, a file or a reference.
        policies: what ``world.toml`` names.
        folder: where those references start.
        wanted: which cases.
    """

    address: str
    domain: str
    policy: str
    policies: tuple[str, ...] = ()
    folder: Path = Path()
    wanted: Wanted = field(default_factory=Wanted)

    def judge(self) -> Judge:
        """Open the log and load what judges.

        Raises:
            Refused: what cannot be opened or loaded.
        """
        policy = policy_named(self.policy, self.policies, self.folder)
        domain = load_any_domain(self.domain, base=self.folder)
        return Judge(Archive(open_for_reading(self.address)), domain, policy, self.wanted)


@dataclass(slots=True)
class Found:
    """What a stretch of the log came to.

    Args:
        lines: flips and undecided cases, as JSON, in the order of the log.
        counts: ``judged``, ``same``, ``flips``, ``undecided`` and ``otherBindings``.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class Judge:
    """Judges the cases of one log by one policy.

    Args:
        archive: of the log.
        domain: the domain at hand; cases under another schema are undecided.
        policy: the other policy.
        wanted: which cases.
    """

    def __init__(self, archive: Archive, domain: Domain, policy: Policy, wanted: Wanted) -> None:
        self.archive = archive
        self.policy = policy
        self._domain = domain
        self._wanted = wanted
        self._cases = Cases(archive, domain)
        self._authority = StandardAuthority(PolicyRegistry([policy]))

    def stretch(self, after: int, upto: int) -> Found:
        """Judge the cases whose first ruling stands between two positions.

        Raises:
            DamagedLog: where the log contradicts itself.
        """
        found = Found()
        pending: OrderedDict[str, ProposalSubmitted] = OrderedDict()
        topics = [ProposalSubmitted.TOPIC, ProposalJudged.TOPIC, WorldSealed.TOPIC]
        for logged in self.archive.log.read(after, upto, topics=topics):
            event = decoded(logged)
            if isinstance(event, ProposalSubmitted):
                pending[event.proposal_id] = event
                if len(pending) > MAX_PENDING:
                    pending.popitem(last=False)
            elif isinstance(event, WorldSealed):
                self._cases.follow(event)
            elif isinstance(event, ProposalJudged):
                told = pending.pop(event.proposal_id, None) or self._submitted(event.proposal_id, logged.position)
                if told is not None and self._wanted.takes(told):
                    self._take(found, told, event, logged.position)
        return found

    def _submitted(self, proposal_id: str, position: int) -> ProposalSubmitted | None:
        """Return the submission where a ruling is the first one; later ones come of people's answers."""
        first = None
        for logged in self.archive.log.stream(proposal_id):
            event = decoded(logged)
            if isinstance(event, ProposalSubmitted):
                first = event
            elif isinstance(event, ProposalJudged):
                return first if logged.position == position else None
        return None

    def _take(self, found: Found, told: ProposalSubmitted, event: ProposalJudged, position: int) -> None:
        bound_to = event.binding.get("policy")
        if event.binding.get("kind") != "policy_rules" or self._wanted.of not in (None, bound_to):
            found.counts["otherBindings"] += 1
            return
        found.counts["judged"] += 1
        line = self._compared(told, event, position)
        if line is None:
            found.counts["same"] += 1
            return
        found.counts["flips" if line["kind"] == "flip" else "undecided"] += 1
        about = {"position": position, "proposalId": told.proposal_id, "actor": told.actor["actorId"]}
        body = told.intent["body"]
        found.lines.append(
            {
                **about,
                "action": body["type"],
                "input": body.get("input"),
                "branch": told.branch,
                "submittedAt": told.at,
                **line,
            }
        )

    def _compared(self, told: ProposalSubmitted, event: ProposalJudged, position: int) -> dict[str, Any] | None:
        """Return the flip, or why nothing can be said; None where both say the same."""
        if told.schema_hash != self._domain.schema.hash:
            return _undecided("otherSchema", "it was judged under another schema than that of the domain at hand")
        then = Ruling.from_wire(event.ruling)
        case = self._cases.past(Proposal(told), {**event.binding, "policy": self.policy.name}, position)
        now = self._authority.judge(case)
        if _timed_out(now):
            return _undecided("timedOut", now.reason)
        if now.verdict == "wait":
            if then.verdict == "wait" and _question(then) == _question(now):
                return None
            return {**_undecided("asksPeople", now.reason), "from": _told(then), "to": _told(now)}
        if then.verdict == now.verdict and then.approved_scope == now.approved_scope:
            return None
        return self._flip(told.proposal_id, then, now)

    def _flip(self, proposal_id: str, then: Ruling, now: Ruling) -> dict[str, Any] | None:
        proposal = self.archive.proposal(proposal_id)
        record = proposal.decision_record
        if then.verdict == "wait":
            if record is None:
                return {**_undecided("neverDecided", "people never answered"), "from": _told(then), "to": _told(now)}
            then = replace(
                then,
                verdict="approve" if record.decision == "approved" else "reject",
                reason=record.reason,
                approved_scope=record.approved_scope,
                trace=record.trace,
            )
        elif record is not None and not then.trace:
            then = replace(then, trace=record.trace)
        if _timed_out(then):
            return _undecided("timedOut", then.reason)
        if then.verdict == now.verdict and then.approved_scope == now.approved_scope:
            return None
        return {
            "kind": "flip",
            "change": "scope" if then.verdict == now.verdict else "verdict",
            "from": _told(then),
            "to": _told(now),
            "worldId": proposal.world_id,
        }


@dataclass(slots=True)
class Backtest:
    """A backtest under way: ``lines`` yields what is found; ``counts`` is whole once it has ended."""

    setup: Setup
    jobs: int = 1
    progress: Progress = field(default=lambda done, total: None)
    counts: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield flips and undecided cases, in the order of the log.

        A flip that made a world has the worlds that were built on it: ``laterWorlds``, and the first of them.

        Raises:
            Refused: what cannot be opened or loaded.
            DamagedLog: where the log contradicts itself.
        """
        judge = self.setup.judge()
        with judge.archive.log as log:
            size = log.head().size
            share = CHUNK if size <= CHUNK else -(-size // (self.jobs * 4))  # a small log is worth no processes
            step = max(1, min(CHUNK, share))
            stretches = [(at, min(at + step, size)) for at in range(0, size, step)]
            lineage: Lineage | None = None
            for (_, upto), found in zip(stretches, self._found(judge, stretches), strict=True):
                self.counts.update(found.counts)
                for line in found.lines:
                    if line.get("worldId") is not None:
                        lineage = lineage or Lineage(judge.archive)
                        line |= lineage.later(line["worldId"])
                    yield line
                self.progress(upto, size)

    def _found(self, judge: Judge, stretches: Sequence[tuple[int, int]]) -> Iterator[Found]:
        if self.jobs == 1 or len(stretches) < 2:
            for stretch in stretches:
                yield judge.stretch(*stretch)
            return
        context = multiprocessing.get_context("spawn")
        pool = ProcessPoolExecutor(self.jobs, mp_context=context, initializer=_begin, initargs=(self.setup,))
        try:
            yield from pool.map(_stretch, stretches)
        finally:
            pool.shutdown(cancel_futures=True)


class Lineage:
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


_judges: list[Judge] = []
"""The one judge of a process of the pool."""


def _begin(setup: Setup) -> None:
    _judges.append(setup.judge())


def _stretch(stretch: tuple[int, int]) -> Found:
    return _judges[0].stretch(*stretch)


def _undecided(why: str, words: str) -> dict[str, Any]:
    return {"kind": "undecided", "why": why, "message": words}


def _timed_out(ruling: Ruling) -> bool:
    return any(one.answer == "error" and one.reason.startswith(TIMED_OUT) for one in ruling.trace)


def _question(ruling: Ruling) -> tuple[Any, ...]:
    """Return all that decides what people were asked for."""
    asks = sorted(one.to for one in ruling.trace if one.answer == "escalate")
    scopes = [one.scope for one in ruling.trace if one.scope is not None]
    return asks, scopes, ruling.timeout_ms, ruling.on_timeout


def _told(ruling: Ruling) -> dict[str, Any]:
    """Return what a ruling said, and the rules that decided."""
    decisive: list[Mapping[str, Any]] = [one.to_wire() for one in ruling.trace if one.decisive]
    scope = ruling.approved_scope
    return {
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "policyHash": ruling.policy_hash,
        "approvedScope": None if scope is None else scope.to_wire(),
        "decidedBy": [one["rule"] for one in decisive],
        "sources": [one["source"] for one in decisive],
    }
