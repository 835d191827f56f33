"""Plan of the adoption of a domain: what the new schema refuses, and what the migration makes of it.

A plan changes nothing and needs no lock of the log. The adoption (``world.engine.domain_adoption``) makes one first;
``worldctl adopt --dry-run`` shows it. Sources: WP-schema; design section 4.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from world.core import Domain, recompute
from world.core.migrations import Migration, Misfit, migrated_patches, misfits
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.realm_events import DomainAdopted
from world.model.adoption import UNKNOWN_CODE
from world.model.immutable_json import FrozenDict
from world.model.patch import Patch, apply_patches
from world.model.record import Record
from world.state.proposal import INGRESS
from world.state.realm_view import ReadableRealm

__all__ = ["AdoptionPlan", "BranchPlan", "domain_in_force", "plan_adoption", "refuse_impossible"]

SHOWN: Final = 10
"""Maximum number of places or proposals in one error text."""


class BranchPlan(Record, frozen=True, omit_defaults=True):
    """What an adoption makes of the head of one branch.

    Args:
        branch: its name.
        head: id of its head.
        places: the places of the head's data that the new schema refuses.
        patches: what the migration changes; None where no migration starts from the version in force.
        left: the places of the result that the new schema refuses; without a migration equal to ``places``.
        failure: why the migration failed, None where it did not.
        computed: the computed values of the result; None where the branch does not fit.
    """

    branch: str
    head: str
    places: tuple[Misfit, ...]
    patches: tuple[Patch, ...] | None
    left: tuple[Misfit, ...]
    failure: str | None = None
    computed: FrozenDict | None = None
    WIRE: ClassVar = "branch head fits=is_fit places patches left failure"

    @property
    def is_fit(self) -> bool:
        """Whether the branch can be continued under the new schema."""
        return not self.left and self.failure is None


class AdoptionPlan(Record, frozen=True, omit_defaults=True):
    """What the adoption of a domain would do.

    Args:
        previous: version and hash of the schema in force.
        adopted: version and hash of the domain's schema.
        code: names of functions whose code differs from the record.
        migration: identity of the migration from the version in force, None without one.
        branches: what becomes of each branch's head; empty where the schema stays.
        ends: ids of undecided proposals that the adoption ends.
        blocking: ids of approved proposals that must end before the schema can change.
    """

    previous: Mapping[str, str]
    adopted: Mapping[str, str]
    code: tuple[str, ...]
    migration: str | None
    branches: tuple[BranchPlan, ...]
    ends: tuple[str, ...]
    blocking: tuple[str, ...]
    WIRE: ClassVar = "possible=is_possible from=previous to=adopted code migration branches ends blocking"

    @property
    def is_possible(self) -> bool:
        """Whether the adoption would be made."""
        return not self.blocking and all(one.is_fit for one in self.branches)


def plan_adoption(
    realm: ReadableRealm,
    domain: Domain,
    data_of: Callable[[str], FrozenDict],
    in_time: Callable[[Callable[[], Any]], Any],
    planned: Mapping[tuple[str, str, str], BranchPlan] | None = None,
) -> AdoptionPlan:
    """Return what the adoption of a domain would do; nothing is changed.

    Args:
        realm: the state of the realm.
        domain: the domain to adopt.
        data_of: returns the data of a world by its id.
        in_time: calls a migration within the time limit of user code.
        planned: plans of branches that this domain made before, by the schema in force, the branch and its head.

    Raises:
        RefusedError: ``NOT_FOUNDED``; what ``data_of`` refuses.
    """
    in_force = domain_in_force(realm)
    schema = domain.schema
    versions = {"version": str(in_force.schema["version"]), "schemaHash": in_force.schema_hash}
    adopted = {"version": schema.version, "schemaHash": schema.hash}
    changed = tuple(domain.changed(in_force.sources))
    if in_force.schema_hash == schema.hash:
        return AdoptionPlan(versions, adopted, changed, None, (), (), ())
    migration = domain.migration_from(versions["version"])
    open_ones = realm.proposals.values()
    return AdoptionPlan(
        versions,
        adopted,
        changed,
        None if migration is None else migration.identity or UNKNOWN_CODE,
        tuple(
            (planned or {}).get((in_force.schema_hash, name, branch.head))
            or _plan_branch(name, branch.head, domain, migration, data_of(branch.head), in_time)
            for name, branch in realm.branches.items()
        ),
        tuple(one.proposal_id for one in open_ones if one.status in INGRESS),
        tuple(one.proposal_id for one in open_ones if one.status not in INGRESS),
    )


def _plan_branch(
    name: str,
    head: str,
    domain: Domain,
    migration: Migration | None,
    data: FrozenDict,
    in_time: Callable[[Callable[[], Any]], Any],
) -> BranchPlan:
    places = tuple(in_time(lambda: misfits(domain.schema, data, domain.state_faults)))
    patches: tuple[Patch, ...] | None = None
    left: Sequence[Misfit] = places
    if migration is not None:
        try:
            patches, left = in_time(lambda: migrated_patches(migration, domain.schema, data, domain.state_faults))
        except RefusedError as refused:
            late = refused.code == ErrorCode.COMPUTED_TIMED_OUT
            failure = _too_slow(migration, refused) if late else refused.message
            return BranchPlan(name, head, places, (), (), failure)
    if left:
        return BranchPlan(name, head, places, patches, tuple(left))
    computed = in_time(lambda: recompute(domain, apply_patches(data, patches or ())))
    return BranchPlan(name, head, places, patches, (), computed=computed)


def _too_slow(migration: Migration, late: RefusedError) -> str:
    return (
        f"The migration from version {migration.version} took longer than {late.details['limit_ms']} ms; correct the "
        "function, or raise the limit max_call_ms."
    )


def domain_in_force(realm: ReadableRealm) -> DomainAdopted:
    """Return the adoption in force; raises ``RefusedError`` ``NOT_FOUNDED``."""
    if realm.domain is None:
        raise RefusedError(ErrorCode.NOT_FOUNDED, "This log has not been founded; `worldctl init` founds it.")
    return realm.domain


def refuse_impossible(plan: AdoptionPlan) -> None:
    """Refuse a plan that is not possible.

    Raises:
        RefusedError: ``OPEN_PROPOSALS``, ``MIGRATION_FAILED``, ``DATA_DOES_NOT_FIT``.
    """
    if plan.blocking:
        raise RefusedError(
            ErrorCode.OPEN_PROPOSALS,
            f"{len(plan.blocking)} approved proposals have not ended under the schema in force; open the realm with "
            "its domain and settle them first (`worldctl settle`).",
            proposals=list(plan.blocking[:SHOWN]),
        )
    branches = [one.to_wire() for one in plan.branches if not one.is_fit]
    for one in plan.branches:
        if one.failure is not None:
            raise RefusedError(
                ErrorCode.MIGRATION_FAILED,
                f"Branch {one.branch!r}: {one.failure}",
                branch=one.branch,
                branches=branches,
            )
    for one in plan.branches:
        if not one.is_fit:
            shown = "; ".join(f"{place.path} {place.message}" for place in one.left[:SHOWN])
            more = f" (and {len(one.left) - SHOWN} more)" if len(one.left) > SHOWN else ""
            whose = "What the migration makes of the head" if one.patches is not None else "The head"
            raise RefusedError(
                ErrorCode.DATA_DOES_NOT_FIT,
                f"{whose} of {one.branch!r} does not obey the new schema: {shown}{more}. Declare a migration "
                f"from version {plan.previous['version']} (`@domain.migration`), change the data with an action of the "
                "old domain first, or make new fields optional; `worldctl adopt --dry-run` lists every place.",
                branch=one.branch,
                places=[place.to_wire() for place in one.left],
                branches=branches,
            )
