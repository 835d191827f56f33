"""Judging of recorded cases by another policy, compared with the recorded rulings.

A case is created from the log: the base world, the history before the ruling, the time of the submission. Results that
the log does not determine, such as human answers, are reported as undecided; so are cases that read computed values if
the loaded functions differ from those adopted then. ``worldprotocol.analysis.backtest`` does this for a whole log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from authority import Policy, PolicyRegistry, StandardAuthority
from authority.policies.policy import TIMED_OUT
from world.code.time_limit import TimeLimit
from world.core import Domain
from world.events.proposal_events import ProposalJudged, ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.model.decision import Ruling
from world.model.immutable_json import FrozenDict, freeze
from world.read_models.archive import Archive
from world.read_models.counting import Counts
from world.read_models.decoding import decoded, decoded_rows
from world.state.proposal import Proposal
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.code_fingerprints import CodeThen, watched
from worldprotocol.policy_tools.recorded_cases import Cases

__all__ = ["CaseRejudger", "CaseSelection", "RejudgedCases", "question_of"]

MAX_PENDING: Final = 10_000
"""Submissions kept until their rulings."""

MAX_BINDINGS: Final = 1_024
"""Cached bindings of actors."""


@dataclass(frozen=True, slots=True)
class CaseSelection:
    """Selection of the cases to judge.

    Args:
        since: only submissions at or after this time, ms since 1970.
        until: only submissions at or before it.
        branch: only submissions on this branch.
        of: only cases judged by the policy of this name.
    """

    since: int | None = None
    until: int | None = None
    branch: str | None = None
    of: str | None = None

    def takes(self, submitted: ProposalSubmitted) -> bool:
        """Return whether a submission is selected."""
        return (
            (self.since is None or submitted.at >= self.since)
            and (self.until is None or submitted.at <= self.until)
            and self.branch in (None, submitted.branch)
        )


@dataclass(slots=True)
class RejudgedCases:
    """Result for a partition of the log.

    Args:
        lines: flips and undecided cases, as JSON, in the order of the log.
        counts: ``judged``, ``same``, ``flips``, ``undecided`` and ``otherBindings``.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class CaseRejudger:
    """Judges the cases of one log by one policy.

    Args:
        archive: archive of the log.
        domain: the loaded domain; cases under another schema are undecided.
        policy: the other policy.
        wanted: selection of cases.
        time_limit: time limit of each rule.
        at_hand: use computed values of the loaded functions even if other functions were adopted then.
    """

    def __init__(
        self,
        archive: Archive,
        domain: Domain,
        policy: Policy,
        wanted: CaseSelection,
        *,
        time_limit: TimeLimit | None = None,
        at_hand: bool = False,
    ) -> None:
        self.archive = archive
        self.policy = policy
        self.domain = domain
        self._wanted = wanted
        self._cases = Cases(archive, domain, Counts(archive))
        self._bindings: dict[str, tuple[Mapping[str, Any], FrozenDict]] = {}
        self._authority = StandardAuthority(PolicyRegistry([policy]), time_limit=time_limit)
        self._code = None if at_hand else CodeThen(archive, domain)

    def stretch(self, after: int, upto: int) -> RejudgedCases:
        """Judge the cases with their first ruling between two positions.

        Raises:
            DamagedLogError: the log contradicts itself.
        """
        found = RejudgedCases()
        pending: OrderedDict[str, ProposalSubmitted] = OrderedDict()
        topics = [ProposalSubmitted.TOPIC, ProposalJudged.TOPIC, WorldSealed.TOPIC]
        read = self.archive.log.read_rows(after, upto, topics=topics)
        for position, event in chain.from_iterable(map(decoded_rows, read)):
            if isinstance(event, ProposalSubmitted):
                pending[event.proposal_id] = event
                if len(pending) > MAX_PENDING:
                    pending.popitem(last=False)
            elif isinstance(event, WorldSealed):
                self._cases.follow(event)
            elif isinstance(event, ProposalJudged):
                submitted = pending.pop(event.proposal_id, None) or self._submitted(event.proposal_id, position)
                if submitted is not None and self._wanted.takes(submitted):
                    self._take(found, submitted, event, position)
        return found

    def _submitted(self, proposal_id: str, position: int) -> ProposalSubmitted | None:
        """Return the submission of a proposal if the ruling is its first one."""
        first = None
        for logged in self.archive.log.stream(proposal_id):
            event = decoded(logged)
            if isinstance(event, ProposalSubmitted):
                first = event
            elif isinstance(event, ProposalJudged):
                return first if logged.position == position else None
        return None

    def _take(self, found: RejudgedCases, submitted: ProposalSubmitted, event: ProposalJudged, position: int) -> None:
        bound_to = event.binding.get("policy")
        if event.binding.get("kind") != "policy_rules" or self._wanted.of not in (None, bound_to):
            found.counts["otherBindings"] += 1
            return
        found.counts["judged"] += 1
        line = self._compared(submitted, event, position)
        if line is None:
            found.counts["same"] += 1
            return
        found.counts["flips" if line["kind"] == "flip" else "undecided"] += 1
        about = {"position": position, "proposalId": submitted.proposal_id, "actor": submitted.actor.actor_id}
        body = submitted.intent.body
        found.lines.append(
            {
                **about,
                "action": body.type,
                "input": body.input,
                "branch": submitted.branch,
                "submittedAt": submitted.at,
                **line,
            }
        )

    def _compared(self, submitted: ProposalSubmitted, event: ProposalJudged, position: int) -> dict[str, Any] | None:
        """Return the flip or the reason for being undecided; None for equal rulings."""
        if submitted.schema_hash != self.domain.schema.hash:
            return _undecided("otherSchema", "it was judged under another schema than that of the loaded domain")
        case = self._cases.past(Proposal(submitted), self._binding(submitted.actor.actor_id, event.binding), position)
        changed = () if self._code is None else self._code.changed(position)
        view = None
        if changed:
            case, view = watched(case)
        missed = self.archive.missed
        now = self._authority.judge(case)
        if self.archive.missed > missed:
            return _undecided("archived", "a rule reads the inputs of proposals that a cut removed from the log")
        if view is not None and view.was_read:
            names = ", ".join(changed)
            return _undecided("otherCode", f"computed values are read, and the loaded functions have changed: {names}")
        if _is_same(event.ruling, now):
            return None
        then = event.ruling
        if _timed_out(now):
            return _undecided("timedOut", now.reason)
        if now.verdict == "wait":
            if then.verdict == "wait" and question_of(then) == question_of(now):
                return None
            if then.verdict != "wait":  # the trace of an immediate ruling is in the decision
                then = as_ruled(then, self.archive.proposal(submitted.proposal_id).decision)
            return {**_undecided("asksPeople", now.reason), "from": _wire(then), "to": _wire(now)}
        if then.verdict == now.verdict and then.approved_scope == now.approved_scope:
            return None
        return self._flip(submitted.proposal_id, then, now)

    def _binding(self, actor_id: str, bound: Mapping[str, Any]) -> FrozenDict:
        """Return an actor's binding with the other policy in it."""
        known = self._bindings.get(actor_id)
        if known is None or known[0] != bound:
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.clear()
            known = self._bindings[actor_id] = bound, freeze({**bound, "policy": self.policy.name})
        return known[1]

    def _flip(self, proposal_id: str, then: Ruling, now: Ruling) -> dict[str, Any] | None:
        proposal = self.archive.proposal(proposal_id)
        if then.verdict == "wait":  # the last ruling follows from human answers
            then = proposal.last_ruling
            if then.verdict == "wait":
                undecided = _undecided("neverDecided", "no human answer is recorded")
                return {**undecided, "from": _wire(then), "to": _wire(now)}
        then = as_ruled(then, proposal.decision)

        if _timed_out(then):
            return _undecided("timedOut", then.reason)
        if then.verdict == now.verdict and then.approved_scope == now.approved_scope:
            return None
        return {
            "kind": "flip",
            "change": "scope" if then.verdict == now.verdict else "verdict",
            "from": _wire(then),
            "to": _wire(now),
            "worldId": proposal.world_id,
        }


def _undecided(why: str, words: str) -> dict[str, Any]:
    return {"kind": "undecided", "why": why, "message": words}


def _is_same(recorded: Ruling, now: Ruling) -> bool:
    """Return whether an immediate ruling equals the recorded one."""
    if now.verdict != recorded.verdict or now.verdict == "wait" or _timed_out(now):
        return False
    return recorded.approved_scope == now.approved_scope


def _timed_out(ruling: Ruling) -> bool:
    return any(one.answer == "error" and one.reason.startswith(TIMED_OUT) for one in ruling.trace)


def question_of(ruling: Ruling) -> tuple[Any, ...]:
    """Return the content of a question to human actors."""
    asks = sorted((one.to, repr(one.quorum)) for one in ruling.trace if one.answer == "escalate")
    scopes = [one.scope for one in ruling.trace if one.scope is not None]
    return asks, scopes, ruling.timeout_ms, ruling.on_timeout


def _wire(ruling: Ruling) -> dict[str, Any]:
    """Return a ruling and its decisive rules, as JSON."""
    decisive = [one for one in ruling.trace if one.decisive]
    scope = ruling.approved_scope
    return {
        "verdict": ruling.verdict,
        "reason": ruling.reason,
        "policyHash": ruling.policy_hash,
        "approvedScope": None if scope is None else scope.to_wire(),
        "decidedBy": [one.rule for one in decisive],
        "sources": [one.source for one in decisive],
    }
