"""Offered effects of a realm, for people and workers: which wait, which are claimed and by whom, which are in doubt."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from world.model.record import Record
from world.state.proposal import Proposal
from world.state.realm_view import ReadableRealm

__all__ = ["OfferedEffect", "offered_effects", "offered_of", "waits_for_workers"]


class OfferedEffect(Record, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """An effect that workers perform.

    Args:
        proposal_id: the execution that needs it.
        actor_id: the acting actor.
        action: the intent's type.
        requirement_id: the effect.
        effect: its type.
        params: its parameters.
        state: ``offered``: it waits for a worker; ``claimed``; ``in doubt``: it waits for a person.
        requested_at: when it was first requested, ms since 1970.
        since: when it was last offered, claimed or extended, ms since 1970.
        claimable_from: when a worker may claim it, ms since 1970: after a failure, the end of its backoff; 0 at once.
        idempotent: whether it is offered again where its worker does not report.
        workspace: id of the workspace that its worker must have; None for any.
        failures: number of its failures so far.
        worker: the worker that holds it; None where it is not claimed.
        token: the fencing token of the claim; None where it is not claimed.
        deadline: when the claim ends without a heartbeat or a result, ms since 1970; None where it is not claimed.
    """

    proposal_id: str
    actor_id: str
    action: str
    requirement_id: str
    effect: str
    params: Any
    state: Literal["offered", "claimed", "in doubt"]
    requested_at: int
    since: int
    idempotent: bool
    failures: int
    claimable_from: int = 0
    workspace: str | None = None
    worker: str | None = None
    token: int | None = None
    deadline: int | None = None


def offered_effects(realm: ReadableRealm) -> list[OfferedEffect]:
    """Return the offered effects of a realm, the first requested first."""
    found = [one for proposal in realm.proposals.values() for one in offered_of(proposal)]
    return sorted(found, key=lambda one: one.requested_at)


def offered_of(proposal: Proposal) -> Iterator[OfferedEffect]:
    """Yield the offered effects of a proposal."""
    submitted = proposal.submitted
    for name, asked in [*proposal.requested.items(), *proposal.in_doubt.items()]:
        if asked.offer is None:
            continue
        claim, failure = proposal.claims.get(name), proposal.failures.get(name)
        yield OfferedEffect(
            proposal_id=proposal.proposal_id,
            actor_id=submitted.actor.actor_id,
            action=submitted.intent.body.type,
            requirement_id=name,
            effect=asked.requirement.type,
            params=asked.requirement.params,
            state="in doubt" if name in proposal.in_doubt else "offered" if claim is None else "claimed",
            requested_at=proposal.requested_at.get(name, asked.at),
            since=asked.at if claim is None else claim.at,
            claimable_from=0 if failure is None else failure.due,
            idempotent=asked.idempotent,
            workspace=asked.offer.workspace,
            failures=0 if failure is None else failure.failures,
            worker=None if claim is None else claim.worker,
            token=None if claim is None else claim.token,
            deadline=None if claim is None else claim.deadline,
        )


def waits_for_workers(proposal: Proposal) -> bool:
    """Return whether all effects under way of a proposal are performed by workers."""
    return bool(proposal.requested) and all(asked.offer is not None for asked in proposal.requested.values())
