"""Recheck of migrations: the migration runs again where its code is loaded, and its result is checked in any case."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from world.core import Domain, unchecked_schema
from world.core.migrations import Migration, misfits
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.realm_events import WorldSealed
from world.model.adoption import UNKNOWN_CODE, migration_ruling
from world.model.decision import Ruling
from world.model.identity import state_hash
from world.model.patch import Patch, apply_patches
from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal

__all__ = ["recheck_migration", "recheck_migration_ruling"]


def recheck_migration_ruling(proposal: Proposal, recorded: Ruling) -> Iterator[DivergenceError]:
    """Yield the difference between the ruling on a migration and the one that follows from its input."""
    expected = migration_ruling(proposal.submitted.intent.body.input)
    if recorded != expected:
        yield DivergenceError(
            ErrorCode.RULING_DIVERGED,
            f"The ruling on the migration {proposal.proposal_id} is {recorded.verdict} by {recorded.authority} "
            f"({recorded.reason}); it follows from the adoption that it is {expected.verdict} by {expected.authority} "
            f"({expected.reason}).",
            proposal_id=proposal.proposal_id,
            authority=recorded.authority,
        )


def recheck_migration(
    work: UnitOfWork, domain: Domain, proposal: Proposal, sealed: WorldSealed
) -> Iterator[DivergenceError]:
    """Yield the differences between a migration's world and its data, its schema and its code.

    Args:
        work: the state before the end of the proposal.
        domain: the loaded domain.
        proposal: the proposal that migrates a branch.
        sealed: its world.
    """
    old = work.data(sealed.parent or "")
    patches = list(sealed.patches)
    new = apply_patches(old, patches)
    if state_hash(new) != sealed.snapshot_hash:
        yield _diverged(proposal, "the snapshotHash of its world", sealed.snapshot_hash, state_hash(new))
    adopted, is_loaded = work.realm.domain, domain.schema.hash == sealed.schema_hash
    places = (
        []
        if adopted is None
        else misfits(unchecked_schema(adopted.schema), new, domain.state_faults if is_loaded else None)
    )
    if places:
        now = "; ".join(f"{one.path} {one.message}" for one in places[:3])
        yield _diverged(proposal, "the new schema", "obeyed", now)
    version, recorded = proposal.submitted.intent.body.input["from"]["version"], proposal.submitted.migration
    loaded = domain.migration_from(version) if is_loaded else None
    identity = None if loaded is None else loaded.identity or UNKNOWN_CODE
    if loaded is not None and identity == recorded != UNKNOWN_CODE:
        yield from _repeated(loaded, proposal, patches, old)
    elif is_loaded:
        yield DivergenceError(
            ErrorCode.CODE_CHANGED,
            f"The migration from version {version} is not loaded as it was at the adoption; "
            "the worlds that it made are compared with their hashes and with the schema.",
            changed=[f"migration:{version}"],
            recorded=recorded,
            at_hand=identity,
        )


def _repeated(loaded: Migration, proposal: Proposal, patches: list[Patch], old: Any) -> Iterator[DivergenceError]:
    try:
        now = loaded.patches(old)
    except RefusedError as refused:
        yield _diverged(proposal, "its result", f"{len(patches)} patches", refused.message)
        return
    if list(now) != patches and apply_patches(old, now) != apply_patches(
        old, patches
    ):  # an equal result has many forms
        shown = [[one.to_wire() for one in some] for some in (patches, now)]
        yield _diverged(proposal, "its patches", shown[0], shown[1])


def _diverged(proposal: Proposal, what: str, recorded: Any, now: Any) -> DivergenceError:
    return DivergenceError(
        ErrorCode.EXECUTION_DIVERGED,
        f"The migration {proposal.proposal_id} gives another result than its record: {what} was {recorded!s:.200} and "
        f"is now {now!s:.200}.",
        proposal=proposal.proposal_id,
        what=what,
        recorded=recorded,
        computed=now,
    )
