"""Arbitration: from an approving ruling, by way of leases, to the decision (design section 7; KP-5a, WP-decision).

A proposal's manifest is what its action declares to touch, and the state that it may write. Only Granted crosses the
commitment boundary: the decision and the leases are one commit. Wait keeps the proposal evaluating, in the queue, and
whoever releases what it waits for takes it further; Die holds nothing and is asked again after the time that the
verdict names, at the same priority, up to a limit. The leases end when the proposal is sealed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from world.errors import RefusedError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalSuperseded
from world.klis.kernel import judge
from world.klis.manifest import Manifest
from world.klis.session import Session
from world.model.decision import DecisionRecord, Ruling
from world.model.overruling import overruled
from world.pipeline.execute import start_next
from world.pipeline.existence import RESOURCE_ABSENT, absent_message
from world.pipeline.klis_settings_in_force import know_types
from world.pipeline.proposal_manifest import manifest_of
from world.pipeline.unit_budget import DUE_AT_ONCE
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = [
    "arbitrate",
    "carry_on",
    "decide",
    "is_arbitrated",
    "let_time_pass",
    "refusal",
    "supersede",
    "wanted_by",
]

ENGINE: Final = {"kind": "engine"}
"""How a proposal's manifest is authenticated: the engine itself made it of what was judged."""


def is_arbitrated(work: UnitOfWork) -> bool:
    """Tell whether proposals need leases in this log; logs from before KLIS was configured go on without."""
    return work.realm.klis.settings is not None


@dataclass(frozen=True, slots=True)
class ProposalNeeds:
    """What a proposal needs before it can be decided.

    Args:
        manifest: its manifest; None where it touches nothing, or why there is none.
        is_free: whether it will be decided at once: granted, or rejected for its manifest.
    """

    manifest: Manifest | RefusedError | None
    is_free: bool


def wanted_by(work: UnitOfWork, proposal: Proposal, ruling: Ruling) -> ProposalNeeds:
    """Return what an approved proposal needs, and whether it is free at this moment."""
    know_types(work, proposal.submitted.actor["actorId"])
    try:
        manifest = manifest_of(work, proposal, ruling.approved_scope)
    except RefusedError as refused:
        return ProposalNeeds(refused, is_free=True)
    if manifest is None:
        return ProposalNeeds(None, is_free=True)
    ledger, agent = work.realm.klis, manifest.agent_id
    rank = ledger.agents.get(agent, (work.klis_now, agent))  # what its first manifest will give it
    session = ledger.sessions.get((agent, manifest.session_id)) or Session(agent, manifest.session_id, rank)
    return ProposalNeeds(manifest, judge(ledger, session, manifest.triples) == "Granted")


def arbitrate(work: UnitOfWork, proposal: Proposal, ruling: Ruling, wanted: ProposalNeeds) -> None:
    """Ask for the leases of an approved proposal, and decide where the verdict is Granted.

    A manifest that is refused rejects the proposal, with the refusal as the reason.
    """
    if wanted.manifest is None:
        decide(work, proposal, ruling)
        return
    try:
        if isinstance(wanted.manifest, RefusedError):
            raise wanted.manifest
        verdict = work.desk().request(
            wanted.manifest,
            work.klis_now,
            channel=ENGINE,
            until_sealed=True,
            queue=True,
            request_id=proposal.proposal_id,
        )
    except RefusedError as refused:
        if refused.code == "QUEUE_FULL":
            work.realm.ask_again(proposal.proposal_id, work.klis_now + work.realm.klis.in_force.backoff_ms)
            return
        _reject(work, proposal, ruling, refusal(refused.code, refused.message), refused.details.get("existence"))
        return
    _follow(work, proposal, ruling, verdict)


def _follow(work: UnitOfWork, proposal: Proposal, ruling: Ruling, verdict: VerdictGiven) -> None:
    """Do what a verdict about a proposal asks for; Wait asks for nothing."""
    if verdict.status == "Granted":
        decide(work, proposal, ruling, granted=verdict)
        return
    ledger = work.realm.klis
    dies = ledger.session(verdict.agent_id, verdict.session_id).dies
    if verdict.status == "Die" and dies > ledger.in_force.max_proposal_retries:
        reason = (
            f"What it needs was not free in {dies} attempts (max_proposal_retries); the last verdict is "
            f"{verdict.verdict_id}. Issue the intent again."
        )
        _reject(work, proposal, ruling, reason)


def refusal(code: str, message: str) -> str:
    """Return the reason of a decision whose proposal's manifest was refused."""
    return f"Its manifest was refused ({code}): {message}"


def _reject(
    work: UnitOfWork, proposal: Proposal, ruling: Ruling, reason: str, existence: list[dict[str, Any]] | None = None
) -> None:
    """Reject what was judged well, for want of its leases."""
    decide(work, proposal, overruled(ruling, "leases", reason), existence=existence)


def carry_on(work: UnitOfWork) -> None:
    """Take the proposals further that verdicts were given about: when something was released, expired or granted.

    Executions that begin here may end and release again; this goes on until nothing moves, without recursion.
    """
    while work.verdicts:
        verdicts, work.verdicts = work.verdicts, []
        for verdict in verdicts:
            proposal = work.realm.proposals.get(verdict.request_id)
            if proposal is None or not proposal.wants_leases:
                continue
            ruling = Ruling.from_wire(proposal.ruling or {})
            if isinstance(verdict, RequestWithdrawn):
                reason = f"Its request for leases was withdrawn ({verdict.reason})."
                if verdict.existence is not None:
                    reason = refusal(RESOURCE_ABSENT, absent_message(verdict.existence))
                _reject(work, proposal, ruling, reason, verdict.existence)
            elif verdict.cause == "queue":
                _follow(work, proposal, ruling, verdict)


def let_time_pass(work: UnitOfWork) -> None:
    """Let leases expire and waiting end by the clock, and ask again for proposals whose backoff is over."""
    if not is_arbitrated(work):
        return
    work.desk().advance(work.klis_now)
    carry_on(work)
    due = work.realm.due_retries(work.klis_now)
    for proposal in due[DUE_AT_ONCE:]:
        work.realm.ask_again(proposal.proposal_id, work.klis_now)
        work.is_unfinished = True
    for proposal in due[:DUE_AT_ONCE]:
        if not work.realm.still_lacks_leases(proposal):
            continue  # one before it may have let it go on
        ruling = Ruling.from_wire(proposal.ruling or {})
        arbitrate(work, proposal, ruling, wanted_by(work, proposal, ruling))
    carry_on(work)


def supersede(work: UnitOfWork, proposal: Proposal) -> None:
    """End a proposal that is not decided yet (WP-epoch); it leaves the queue."""
    work.emit(
        proposal.proposal_id,
        ProposalSuperseded(at=work.at, proposal_id=proposal.proposal_id, epoch=work.realm.epoch),
    )
    if proposal.proposal_id in work.realm.klis.requests:
        work.desk().withdraw(proposal.proposal_id, work.klis_now, reason="superseded")
    # An earlier one that left the queue may have let it in just now.
    work.desk().release_session(proposal.submitted.actor["actorId"], proposal.proposal_id, work.klis_now)


def decide(
    work: UnitOfWork,
    proposal: Proposal,
    ruling: Ruling,
    *,
    granted: VerdictGiven | None = None,
    existence: list[dict[str, Any]] | None = None,
) -> None:
    """Record the one decision about a proposal; an approved one starts when its turn is."""
    record = DecisionRecord(
        decision_id=work.ids.new_id(),
        proposal_id=proposal.proposal_id,
        authority=ruling.authority,
        decision="approved" if ruling.verdict == "approve" else "rejected",
        reason=ruling.reason,
        decided_at=work.at,
        approved_scope=ruling.approved_scope,
        policy_hash=ruling.policy_hash,
        trace=ruling.trace,
    )
    work.emit(
        proposal.proposal_id,
        DecisionMade(
            at=work.at,
            proposal_id=proposal.proposal_id,
            decision=record.to_wire(),
            verdict_id=None if granted is None else granted.verdict_id,
            backup=None if granted is None else granted.backup,
            existence=existence,
        ),
    )
    if ruling.verdict == "approve":
        start_next(work, proposal.submitted.execution_key)
