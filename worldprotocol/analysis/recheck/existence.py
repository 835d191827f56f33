"""Recheck of the existence that DEPENDS_ON claims require (KM-3).

STATE is read again; FILE is taken from the record. Logs older than the check have no ``existence`` and are not checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.base import Event
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.proposal_events import DecisionMade
from world.events.realm_events import WorldSealed
from world.events.resource_values import ResourceExistence
from world.klis.resources.resource import Resource
from world.klis.triple import Triple, read_claim
from world.model.record import to_wire
from world.pipeline.arbitrate import refusal
from world.pipeline.execution_state import leased_by
from world.pipeline.leasing.existence import RESOURCE_ABSENT, Base, absent_in, absent_message, observe
from world.pipeline.leasing.proposal_manifest import manifest_of
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["recheck_absence", "recheck_decision", "recheck_grant", "recheck_start", "recheck_withdrawal"]


def recheck_grant(work: UnitOfWork, event: VerdictGiven) -> DivergenceError | None:
    """Recheck that the resources on which a grant depends existed.

    Args:
        work: the realm before the event.
        event: the recorded verdict.
    """
    if not event.existence:
        return None
    triples = [read_claim(lease) for lease in event.leases]
    proposal = work.realm.proposals.get(event.request_id)
    return _compared(work, event, triples, event.existence, _base(proposal), is_absent=False)


def recheck_withdrawal(work: UnitOfWork, event: RequestWithdrawn) -> DivergenceError | None:
    """Recheck the absence that withdrew a request; arguments as for ``recheck_grant``."""
    if event.existence is None:
        return None
    klis = work.realm.klis
    request = klis.requests.get(event.request_id) or klis.refused.get(event.request_id)
    triples = () if request is None else request.triples
    base = _base(work.realm.proposals.get(event.request_id))
    return _compared(work, event, triples, event.existence, base, is_absent=True)


def recheck_decision(work: UnitOfWork, event: DecisionMade) -> DivergenceError | None:
    """Recheck the absence that rejected a proposal; arguments as for ``recheck_grant``."""
    if event.existence is None:
        return None
    proposal = work.realm.proposals[event.proposal_id]
    if proposal.submitted.schema_hash != work.domain.schema.hash:
        return None  # the check of its ruling reports that it cannot be rechecked
    try:
        manifest = manifest_of(work, proposal, proposal.last_ruling.approved_scope)
    except RefusedError as refused:
        return _diverged(event, event.existence, refused.to_dict())
    triples = () if manifest is None else manifest.triples
    different = _compared(work, event, triples, event.existence, _base(proposal), is_absent=True)
    reason = refusal(RESOURCE_ABSENT, absent_message(event.existence))
    if different is None and event.decision.reason != reason:
        return _diverged(event, event.decision.reason, reason)
    return different


def recheck_start(work: UnitOfWork, event: ExecutionStarted) -> DivergenceError | None:
    """Recheck the existence on which an execution depends.

    A worker that takes over an execution repeats the observation of its first start.

    Args:
        work: the realm before the event.
        event: the recorded start.
    """
    proposal = work.realm.proposals[event.proposal_id]
    if proposal.started is not None:
        observed = proposal.started.existence
        return None if observed == event.existence else _diverged(event, event.existence, observed)
    if event.existence is None:
        return None
    base = Base(proposal.branch, event.on_world)
    return _compared(work, event, leased_by(work.realm, proposal), event.existence, base, is_absent=None)


def recheck_absence(proposal: Proposal, sealed: WorldSealed) -> DivergenceError | None:
    """Check that an execution failed because of an absent resource.

    Args:
        proposal: proposal of an execution that recorded an absent resource at its start.
        sealed: the world that it sealed.
    """
    assert proposal.started is not None
    assert proposal.started.existence is not None
    error = sealed.error
    code, message = (None, None) if error is None else (error.code, error.message)
    recorded = {"outcome": sealed.outcome, "code": code, "message": message}
    now = {"outcome": "failed", "code": RESOURCE_ABSENT, "message": absent_message(proposal.started.existence)}
    return None if recorded == now else _diverged(proposal.started, recorded, now)


def _base(proposal: Proposal | None) -> Base | None:
    return None if proposal is None else Base(proposal.branch, proposal.submitted.base_world)


def _compared(
    work: UnitOfWork,
    event: Event,
    triples: Iterable[Triple],
    recorded: Sequence[ResourceExistence],
    base: Base | None,
    *,
    is_absent: bool | None,
) -> DivergenceError | None:
    """Compare a recorded observation with a new one that reads FILE from the record.

    Args:
        work: the realm before the event.
        event: the event with the observation.
        triples: triples of the leases or of the request.
        recorded: the observation.
        base: the world in which STATE of one branch is read.
        is_absent: whether a resource must be absent (True) or none may be (False); None permits both.
    """
    seen = {one.resource: one.exists for one in recorded}

    def file_exists(resource: Resource) -> bool | None:
        return seen.get(resource.text)

    now = observe(triples, head_of=work.head_of, data_of=work.data, base=base, file_exists=file_exists)
    if list(recorded) != now or is_absent not in (None, bool(absent_in(now))):
        return _diverged(event, list(recorded), now)
    return None


def _diverged(event: Event, recorded: Any, now: Any) -> DivergenceError:
    return DivergenceError(
        ErrorCode.EXISTENCE_DIFFERS,
        f"{event.TOPIC} records the existence {recorded!r:.200}; the recheck computes {now!r:.200}.",
        recorded=to_wire(recorded),
        computed=to_wire(now),
    )
