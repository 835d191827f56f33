"""Case for a file, created from a recorded proposal and its ruling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Unpack

from authority import Policy
from world.core import Domain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.proposal_events import (
    DecisionMade,
    ProposalCompleted,
    ProposalFailed,
    ProposalJudged,
    ProposalSubmitted,
)
from world.model.decision import ENGINE, Ruling
from world.model.intent import IntentBody
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.ports import Case, Conditions, History
from world.state.proposal import Proposal
from worldprotocol.analysis.ruling_trace import as_ruled
from worldprotocol.policy_tools.cases import UNRESTRICTED
from worldprotocol.policy_tools.recorded_cases import Cases
from worldprotocol.testing.judging import CaseRuling, judged
from worldprotocol.testing.making import BRANCH

MAX_PAST: Final = 1_000
"""Maximum number of earlier proposals in a case."""

_WRITTEN_ELSEWHERE: Final = ("kind", "policy", "timeoutMs", "onTimeout")


@dataclass(frozen=True, slots=True)
class NotedHistory:
    """History that records its queries.

    Args:
        inner: that answers.
        asked: the conditions of every question so far.
    """

    inner: History
    asked: list[Conditions] = field(default_factory=list)

    def count(self, **conditions: Unpack[Conditions]) -> int:
        """Count, and record the conditions."""
        self.asked.append(conditions)
        return self.inner.count(**conditions)

    def sum(self, path: str, **conditions: Unpack[Conditions]) -> int | float:
        """Sum, and record the conditions."""
        self.asked.append(conditions)
        return self.inner.sum(path, **conditions)


def recorded_case(archive: Archive, proposal: Proposal, policy: Policy, domain: Domain | None) -> dict[str, Any]:
    """Return a case in wire form, with what was decided then as expected.

    Of the history it has those earlier proposals about which the policy asks.

    Args:
        archive: of the log.
        proposal: that rules judged.
        policy: whose case it is to be; only what it asks of the history counts.
        domain: as far as it is available.

    Raises:
        RefusedError: ``NOT_JUDGED_BY_RULES``; ``HISTORY_TOO_LONG`` where the policy asks about more than ``MAX_PAST``
            earlier proposals.
    """
    position, event, ruling = _judged_by_rules(archive, proposal)
    cases = Cases(archive, domain)
    case = cases.past(proposal, {**event.binding, "policy": policy.name}, position)
    noted = NotedHistory(case.history)
    judged(policy, replace(case, history=noted))
    then = CaseRuling(case, ruling, None)
    bound = {name: one for name, one in event.binding.items() if name not in _WRITTEN_ELSEWHERE}
    wire: dict[str, Any] = {
        "name": f"{case.intent.body.type} by {case.actor.actor_id}, {case.proposal_id}",
        "now": _time(case.submitted_at),
        "branch": None if case.branch == BRANCH else case.branch,
        "actor": _actor(case),
        "intent": _intent(case.intent.body),
        "base": {"data": case.view.data},
        "manifest": None if domain is not None or case.manifest is None else case.manifest["scope"],
        "binding": None if bound == {"ask": ["*"]} else bound,
        "expected": _expected(then),
        "history": _past(archive, noted.asked, case, position),
    }
    return {name: one for name, one in wire.items() if one not in (None, {}, [])}


def _judged_by_rules(archive: Archive, proposal: Proposal) -> tuple[int, ProposalJudged, Ruling]:
    for logged in archive.log.stream(proposal.proposal_id):
        event = decoded(logged)
        if isinstance(event, ProposalJudged) and event.ruling.policy_hash is not None:
            ruling = as_ruled(event.ruling, proposal.decision)
            if all(one.rule != ENGINE for one in ruling.trace):
                return logged.position, event, ruling
            break
    raise RefusedError(
        ErrorCode.NOT_JUDGED_BY_RULES,
        f"No policy in force judged proposal {proposal.proposal_id}, so there is no case of rules in it; take one of "
        "an actor that is bound by policy_rules.",
        proposal_id=proposal.proposal_id,
    )


def judging_policy(archive: Archive, proposal: Proposal) -> str:
    """Return the name of the policy that judged a proposal.

    Raises:
        RefusedError: ``NOT_JUDGED_BY_RULES``.
    """
    return str(_judged_by_rules(archive, proposal)[1].binding["policy"])


def _actor(case: Case) -> dict[str, Any]:
    rendered = {"id": case.actor.actor_id, "kind": case.actor.kind, "name": case.actor.name, "meta": case.actor.meta}
    return {name: one for name, one in rendered.items() if one is not None}


def _intent(body: IntentBody) -> dict[str, Any]:
    scope = body.scope_proposal
    paths = None if scope is None or scope.allowed_paths is None else list(scope.allowed_paths)
    wire = {"type": body.type, "input": body.input, "scope": paths}
    return {name: one for name, one in wire.items() if one is not None}


def _expected(then: CaseRuling) -> dict[str, Any]:
    wire: dict[str, Any] = {"decision": then.decision, "decidedBy": then.decided_by}
    if then.verdict == "approve":
        wire["scope"] = [UNRESTRICTED] if then.scope is None else then.scope
    if then.asks:
        wire["asks"] = then.asks
    return wire


def _past(archive: Archive, asked: Sequence[Mapping[str, Any]], case: Case, before: int) -> list[dict[str, Any]]:
    """Return the earlier proposals that a case's policy asks about, in the order of the log."""
    questions = [*asked, {"intent_key": case.intent.intent_key}]  # of earlierAttempts
    found: dict[int, str] = {}
    for question in questions:
        given = {name: one for name, one in question.items() if one is not None}
        earlier = archive.earlier(before, MAX_PAST + 1, other_than=case.proposal_id, **given)
        found.update({one.position: one.proposal_id for one in earlier})
        if len(found) > MAX_PAST:
            raise RefusedError(
                ErrorCode.HISTORY_TOO_LONG,
                f"The policy asks about more than {MAX_PAST} earlier proposals of this case; write the case by hand, "
                "where one entry of a history can represent many (times).",
                limit=MAX_PAST,
            )
    return [past_entry(archive, found[position], before, case.schema_hash) for position in sorted(found)]


def past_entry(archive: Archive, proposal_id: str, before: int, schema_hash: str) -> dict[str, Any]:
    """Return an earlier proposal as an entry of a history, as far as it had come before a position.

    Args:
        archive: of the log.
        proposal_id: the earlier proposal.
        before: the position.
        schema_hash: of the case; under another schema, intents have other keys.
    """
    wire: dict[str, Any] = {}
    for logged in archive.log.stream(proposal_id):
        if logged.position < before:
            wire |= _rendered(decoded(logged), schema_hash)
    return {name: one for name, one in wire.items() if one is not None}


def _rendered(event: Event, schema_hash: str) -> dict[str, Any]:
    if isinstance(event, ProposalSubmitted):
        body = _intent(event.intent.body)
        return {
            "actor": event.actor.actor_id,
            "action": body.pop("type"),
            **body,
            "intentKey": None if event.schema_hash == schema_hash else event.intent.intent_key,
            "at": _time(event.at),
        }
    if isinstance(event, DecisionMade):
        return {"decision": event.decision.decision}
    if isinstance(event, (ProposalCompleted, ProposalFailed)):
        return {"outcome": "completed" if isinstance(event, ProposalCompleted) else "failed"}
    return {}


def _time(at_ms: int) -> str | int:
    """Return a time as ISO 8601 to the millisecond, or as it is where no calendar has it."""
    try:
        return datetime.fromtimestamp(at_ms // 1_000, UTC).strftime(f"%Y-%m-%dT%H:%M:%S.{at_ms % 1_000:03}Z")
    except (OverflowError, ValueError, OSError):
        return at_ms
