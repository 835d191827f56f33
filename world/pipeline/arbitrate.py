"""Arbitration: requesting the leases of a proposal that a ruling approves (design section 7; KP-5a).

A proposal's manifest is what its action declares to touch, and the state that it may write. Only Granted leads to the
decision, in the same commit as the leases. Wait keeps the proposal evaluating, in the queue, until a release causes
another evaluation. Die holds nothing; what the proposal died of wakes it when it is free, at the same priority
(``world.klis.lease_manager``), and as a fallback the leases are requested again after the time that the verdict names,
up to a limit. The leases end when the proposal is sealed.

Where the realm's workspace is in another process, leases to change files are left to that process
(``world.pipeline.leasing.realm_workspace``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from world.errors import RefusedError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.resource_values import ResourceExistence, read_existence
from world.klis.lease_manager import RequestOptions
from world.model.decision import Ruling
from world.model.overruling import overruled
from world.pipeline.leasing.existence import RESOURCE_ABSENT, absent_message
from world.pipeline.leasing.klis_settings_in_force import is_arbitrated
from world.pipeline.leasing.proposal_manifest import needs_of
from world.pipeline.leasing.realm_workspace import await_workspace, is_elsewhere, judge_left_requests, regained
from world.pipeline.steps import Approvable, Decidable, Step
from world.pipeline.unit_budget import DUE_AT_ONCE
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from world.state.proposal_queues import note_retry

__all__ = ["arbitrate", "follow_verdicts", "let_time_pass", "refusal"]

ENGINE: Final = {"kind": "engine"}
"""How a proposal's manifest is authenticated: the engine itself made it of what was judged."""


def arbitrate(work: UnitOfWork, approvable: Approvable) -> Iterable[Step]:
    """Request the leases of a proposal; the decision follows where the verdict is Granted.

    A manifest that is refused rejects the proposal, with the refusal as the reason.
    """
    proposal, ruling, manifest = approvable.proposal, approvable.ruling, approvable.needs.manifest
    if manifest is None:
        return (Decidable(proposal, ruling),)
    if (
        work.realm.workspace is not None
        and not isinstance(manifest, RefusedError)
        and is_elsewhere(work, manifest.triples)
    ):
        await_workspace(work, proposal)
        return ()
    try:
        if isinstance(manifest, RefusedError):
            raise manifest
        verdict = work.desk().request(
            manifest,
            work.klis_now,
            channel=ENGINE,
            options=RequestOptions(until_sealed=True, queue=True, request_id=proposal.proposal_id),
        )
    except RefusedError as refused:
        if refused.code == "QUEUE_FULL":
            note_retry(work.realm, proposal.proposal_id, work.klis_now + work.realm.klis.in_force.backoff_ms)
            return ()
        return (_rejected(proposal, ruling, refusal(refused.code, refused.message), read_existence(refused.details)),)
    return _follow(work, proposal, ruling, verdict)


def _follow(work: UnitOfWork, proposal: Proposal, ruling: Ruling, verdict: VerdictGiven) -> Iterable[Step]:
    """Return what follows from a verdict about a proposal; nothing does from Wait."""
    if verdict.status == "Granted":
        return (Decidable(proposal, ruling, granted=verdict),)
    ledger = work.realm.klis
    dies = ledger.dies(verdict.agent_id, verdict.session_id)
    if verdict.status == "Die" and dies > ledger.in_force.max_proposal_retries:
        reason = (
            f"What it needs was not free in {dies} attempts (max_proposal_retries); the last verdict is "
            f"{verdict.verdict_id}. Issue the intent again."
        )
        return (_rejected(proposal, ruling, reason),)
    return ()


def refusal(code: str, message: str) -> str:
    """Return the reason of a decision whose proposal's manifest was refused."""
    return f"Its manifest was refused ({code}): {message}"


def _rejected(
    proposal: Proposal, ruling: Ruling, reason: str, existence: list[ResourceExistence] | None = None
) -> Decidable:
    """Return the decision that rejects, for want of its leases, what a ruling approves."""
    return Decidable(proposal, overruled(ruling, "leases", reason), existence=existence)


def follow_verdicts(work: UnitOfWork) -> Iterator[Step]:
    """Continue the proposals whose requests waited or died and got a verdict: after a release, an expiry or a grant.

    The steps may release leases again; this is repeated until no verdict is left.
    """
    while work.verdicts:
        verdicts, work.verdicts = work.verdicts, []
        for verdict in verdicts:
            proposal = work.realm.proposals.get(verdict.request_id)
            if proposal is None or not proposal.wants_leases:
                continue
            ruling = proposal.last_ruling
            if isinstance(verdict, RequestWithdrawn):
                reason = f"Its request for leases was withdrawn ({verdict.reason})."
                if verdict.existence is not None:
                    reason = refusal(RESOURCE_ABSENT, absent_message(verdict.existence))
                yield _rejected(proposal, ruling, reason, verdict.existence)
            elif verdict.cause != "request":
                yield from _follow(work, proposal, ruling, verdict)


def let_time_pass(work: UnitOfWork) -> Iterator[Step]:
    """End leases and waiting whose time is over, and request leases again for proposals whose backoff is over."""
    if not is_arbitrated(work):
        return
    work.desk().advance(work.klis_now)
    if work.realm.workspace is not None:
        judge_left_requests(work)
    yield from follow_verdicts(work)
    for proposal in regained(work) if work.realm.held else ():
        yield Approvable(proposal, proposal.last_ruling, needs_of(work, proposal, proposal.last_ruling))
    due = work.realm.due_retries(work.klis_now)
    for proposal in due[DUE_AT_ONCE:]:
        note_retry(work.realm, proposal.proposal_id, work.klis_now)
        work.is_unfinished = True
    for proposal in due[:DUE_AT_ONCE]:
        if not work.realm.still_lacks_leases(proposal):
            continue  # a step of an earlier one may have continued it
        ruling = proposal.last_ruling
        yield Approvable(proposal, ruling, needs_of(work, proposal, ruling))
    yield from follow_verdicts(work)
