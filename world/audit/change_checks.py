"""Checks of migrations (``world.model.adoption``), held proposals, and backups in the realm's workspace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalHeld, ProposalJudged, ProposalSubmitted
from world.events.realm_events import DomainAdopted
from world.klis.triple import CHANGES
from world.model.adoption import MIGRATE, MIGRATION_ACTOR, adoption_binding, migration_ruling
from world.state.proposal import Proposal
from world.state.realm_view import ReadableRealm

__all__ = ["faults_of_backup", "faults_of_hold", "faults_of_migration"]


def faults_of_migration(
    submitted: ProposalSubmitted, judged: ProposalJudged, adopted: DomainAdopted | None
) -> Iterator[str]:
    """Yield the faults of the ruling on a migration, as sentences.

    Args:
        submitted: the proposal.
        judged: its ruling.
        adopted: the domain in force; a migration is part of its adoption.
    """
    body, actor = submitted.intent.body, submitted.actor
    if (body.type, actor.actor_id, actor.kind) != (MIGRATE, MIGRATION_ACTOR, "system"):
        yield f"a migration is an intent {MIGRATE} of the system actor {MIGRATION_ACTOR!r}"
        return
    change = body.input if isinstance(body.input, Mapping) else {}
    before, after = change.get("from", {}), change.get("to", {})
    if adopted is None or (before.get("schemaHash"), after.get("schemaHash")) != (
        adopted.previous,
        adopted.schema_hash,
    ):
        yield "a migration leads from the schema that the domain in force replaced to that of the domain in force"
    elif (submitted.at, change.get("by")) != (adopted.at, adopted.by):
        yield "a migration is made with the adoption of its domain, at its time and by its operator"
    elif judged.binding != adoption_binding(adopted.by):
        yield "the binding is not that of the adoption"
    elif judged.ruling != migration_ruling(change):
        yield "the ruling does not follow from the migration"


def faults_of_backup(event: VerdictGiven, realm: ReadableRealm) -> Iterator[str]:
    """Yield what contradicts the backup that a verdict records, as sentences.

    From the registration of a workspace on, the backups of all leases to change files are in that workspace.

    Args:
        event: the verdict.
        realm: the state before it.
    """
    if event.workspace is not None and not event.backup:
        yield "it names a workspace and no backup"
    registered = realm.workspace
    if registered is None or event.status != "Granted":
        return
    if event.backup and event.workspace != registered.workspace_id:
        yield f"the backup is in workspace {event.workspace}, and the realm's is {registered.workspace_id}"
    changing = {one.value for one in CHANGES}
    claims = [one for one in event.leases if one.predicate in changing and one.resource.startswith("FILE:")]
    if claims and not event.backup:
        yield "leases to change files were granted without a backup"


def faults_of_hold(event: ProposalHeld, realm: ReadableRealm) -> Iterator[str]:
    """Yield what contradicts the record that a proposal is held, as sentences.

    Args:
        event: the record.
        realm: the state before it.
    """
    if event.cause in ("effect", "caller"):
        yield from _faults_of_wait(event, realm.proposals.get(event.proposal_id))
        return
    if event.cause == "code":
        known = {} if realm.domain is None else realm.domain.sources
        if not event.names:
            yield "it names no function that differs"
        elif (event.in_force, event.at_hand) != (None, None) or not known:
            yield "the domain in force has no functions that could differ"
        return
    if event.cause == "workspace":
        proposal = realm.proposals.get(event.proposal_id)
        if proposal is not None and not proposal.wants_leases:
            yield "it does not want leases, so that it needs no workspace"
        in_force: str | None = None if realm.workspace is None else realm.workspace.workspace_id
    elif event.cause == "schema":
        in_force = realm.schema_hash
    else:
        adopted = realm.policies.get(event.names[0]) if len(event.names) == 1 else None
        in_force = None if adopted is None else adopted.policy_hash
    if in_force is None or event.in_force != in_force:
        yield f"in force is {in_force}, not {event.in_force}"
    if event.at_hand == event.in_force:
        yield f"the {event.cause} of the program is the one in force, so that nothing is held"


def _faults_of_wait(event: ProposalHeld, proposal: Proposal | None) -> Iterator[str]:
    """Yield what contradicts the record that a proposal waits for a handler, or for its caller."""
    is_alone = (event.in_force, event.at_hand) == (None, None)
    if event.cause == "effect":
        if len(event.names) != 1 or not is_alone:
            yield "it waits for the handler of one type of effect"
        elif proposal is not None and (proposal.requested or proposal.in_doubt):
            yield "its effect is under way or in doubt"
    elif event.names or not is_alone:
        yield "it waits for its caller alone"
    elif proposal is not None and (proposal.submitted.attended is None or not proposal.wants_leases):
        yield "it is not an attended call that was approved"
