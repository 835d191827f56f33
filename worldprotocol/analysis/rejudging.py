"""Judging recorded cases again: by another policy, each as of its own time, and compared with what was ruled then.

A case is made again from the log: the base world, the history before the ruling, the time of the submission. What the
log cannot tell, such as what people would have answered, is said to be undecided and never guessed; so is what reads
computed values where the functions at hand are not those that were adopted then. ``worldprotocol.analysis.backtest``
does this over a whole log.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
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
from world.read_models.decoding import decoded
from world.state.proposal import Proposal
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.api.code_fingerprints import CodeThen, watched
from worldprotocol.policy_tools.recorded_cases import Cases

__all__ = ["CaseRejudger", "CaseSelection", "RejudgedCases", "question_of"]

MAX_PENDING: Final = 10_000
"""Submissions remembered until their ruling comes."""

MAX_BINDINGS: Final = 1_024
"""Bindings of actors kept ready."""


@dataclass(frozen=True, slots=True)
class CaseSelection:
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


@dataclass(slots=True)
class RejudgedCases:
    """What a stretch of the log came to.

    Args:
        lines: flips and undecided cases, as JSON, in the order of the log.
        counts: ``judged``, ``same``, ``flips``, ``undecided`` and ``otherBindings``.
    """

    lines: list[dict[str, Any]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


class CaseRejudger:
    """Judges the cases of one log by one policy.

    Args:
        archive: of the log.
        domain: the domain at hand; cases under another schema are undecided.
        policy: the other policy.
        wanted: which cases.
        time_limit: for each rule.
        at_hand: whether computed values are those of the functions at hand, even where others were adopted then.
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
        """Judge the cases whose first ruling stands between two positions.

        Raises:
            DamagedLogError: where the log contradicts itself.
        """
        found = RejudgedCases()
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

    def _take(self, found: RejudgedCases, told: ProposalSubmitted, event: ProposalJudged, position: int) -> None:
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
        if told.schema_hash != self.domain.schema.hash:
            return _undecided("otherSchema", "it was judged under another schema than that of the domain at hand")
        case = self._cases.past(Proposal(told), self._binding(told.actor["actorId"], event.binding), position)
        changed = () if self._code is None else self._code.changed(position)
        view = None
        if changed:
            case, view = watched(case)
        now = self._authority.judge(case)
        if view is not None and view.was_read:
            names = ", ".join(changed)
            return _undecided("otherCode", f"computed values are read, and the functions at hand are others: {names}")
        if _is_same(event.ruling, now):
            return None
        then = Ruling.from_wire(event.ruling)
        if _timed_out(now):
            return _undecided("timedOut", now.reason)
        if now.verdict == "wait":
            if then.verdict == "wait" and question_of(then) == question_of(now):
                return None
            if then.verdict != "wait":  # its trace is in the decision that was made at once
                then = as_ruled(then, self.archive.proposal(told.proposal_id).decision)
            return {**_undecided("asksPeople", now.reason), "from": _told(then), "to": _told(now)}
        if then.verdict == now.verdict and then.approved_scope == now.approved_scope:
            return None
        return self._flip(told.proposal_id, then, now)

    def _binding(self, actor_id: str, bound: Mapping[str, Any]) -> FrozenDict:
        """Return an actor's binding with the other policy in it; whom it asks is left as it was."""
        known = self._bindings.get(actor_id)
        if known is None or known[0] != bound:
            if len(self._bindings) >= MAX_BINDINGS:
                self._bindings.clear()
            known = self._bindings[actor_id] = bound, freeze({**bound, "policy": self.policy.name})
        return known[1]

    def _flip(self, proposal_id: str, then: Ruling, now: Ruling) -> dict[str, Any] | None:
        proposal = self.archive.proposal(proposal_id)
        if then.verdict == "wait":  # the last ruling is that of people, whatever became of its leases
            then = Ruling.from_wire(proposal.ruling or {})
            if then.verdict == "wait":
                return {**_undecided("neverDecided", "people never answered"), "from": _told(then), "to": _told(now)}
        then = as_ruled(then, proposal.decision)
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


def _undecided(why: str, words: str) -> dict[str, Any]:
    return {"kind": "undecided", "why": why, "message": words}


def _is_same(recorded: Mapping[str, Any], now: Ruling) -> bool:
    """Tell whether a ruling that waits for nobody is the recorded one, without reading that."""
    if now.verdict != recorded["verdict"] or now.verdict == "wait" or _timed_out(now):
        return False
    scope = now.approved_scope
    return bool(recorded.get("approvedScope") == (None if scope is None else scope.to_wire()))


def _timed_out(ruling: Ruling) -> bool:
    return any(one.answer == "error" and one.reason.startswith(TIMED_OUT) for one in ruling.trace)


def question_of(ruling: Ruling) -> tuple[Any, ...]:
    """Return all that decides what people were asked for."""
    asks = sorted((one.to, repr(one.quorum)) for one in ruling.trace if one.answer == "escalate")
    scopes = [one.scope for one in ruling.trace if one.scope is not None]
    return asks, scopes, ruling.timeout_ms, ruling.on_timeout


def _told(ruling: Ruling) -> dict[str, Any]:
    """Return what a ruling said, and what decided, by its marks."""
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
