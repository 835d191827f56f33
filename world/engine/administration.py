"""Founding a realm and adopting what it runs under: domains, actors, bindings, policies, enforcement.

Sources: WP-bind, WP-schema, WP-world; INT-3.1, INT-13.5; design sections 4 to 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from world.core import ComputeContext, genesis
from world.core.schema import check_newest
from world.engine.domain_adoption import emit_domain
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import LINEAGE_STREAM, REALM_STREAM
from world.events.policy_events import PolicyAdopted, PolicyRetired
from world.events.realm_events import (
    ActorBound,
    ActorRegistered,
    BranchCreated,
    EnforcementChosen,
    LogFounded,
)
from world.model.actor import ActorRef
from world.model.decision import voters
from world.model.new_names import check_new_id
from world.model.short_repr import listed
from world.pipeline.leasing.klis_settings_in_force import configure_klis
from world.pipeline.seal import WorldContent, record_world
from world.pipeline.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from world.state.writer_epoch import WriterPlace

LOG_FORMAT = 1
"""Version of what the events of a log mean."""

MAIN = "main"
"""The branch that every realm begins with."""


def found(
    work: UnitOfWork,
    by: str,
    data: Mapping[str, Any] | None,
    *,
    place: WriterPlace | None,
    development: bool = False,
) -> str:
    """Found the realm: adopt the domain and seal genesis.

    Args:
        work: the unit of work.
        by: the founder, for the record.
        data: initial data that differs from the domain's defaults.
        place: where the log is written; None for a file.
        development: mark the realm as one in which ``worldctl dev`` may adopt changes.

    Raises:
        RefusedError: ``ALREADY_FOUNDED``, ``INVALID_DATA``; ``INVALID_SCHEMA`` for a domain that only earlier rules
            accept.
    """
    if work.realm.founded is not None:
        raise RefusedError(
            ErrorCode.ALREADY_FOUNDED, "This log has been founded; open it instead of founding it again."
        )
    check_newest(work.domain.schema)
    first = work.limits.in_time(lambda: genesis(work.domain, ComputeContext(now=work.at, random_seed=""), data))
    work.emit(
        REALM_STREAM,
        LogFounded(
            at=work.at,
            log_id=work.ids.new_id(),
            format=LOG_FORMAT,
            enforcement=work.executor.enforcement,
            development=development or None,
            system=None if place is None else place.system,
            timeline=None if place is None else place.timeline,
        ),
    )
    emit_domain(work, by)
    configure_klis(work, by)
    world = record_world(work, WorldContent(first.data, first.computed), MAIN, None)
    work.emit(LINEAGE_STREAM, BranchCreated(at=work.at, branch=MAIN, world_id=world, by=by))
    return world


def register(work: UnitOfWork, actor: ActorRef, by: str) -> None:
    """Register an actor, or change the name and meta of one.

    Raises:
        RefusedError: ``INVALID_ID`` for a new id outside the alphabet, ``ACTOR_MISMATCH`` where the kind would change.
    """
    known = work.realm.actors.get(actor.actor_id)
    if known is None:
        check_new_id("actor", actor.actor_id)
    if known is not None and known.kind != actor.kind:
        raise RefusedError(
            ErrorCode.ACTOR_MISMATCH,
            f"{actor.actor_id!r} is registered as {known.kind}; an actor's kind stays.",
            actor_id=actor.actor_id,
        )
    if known != actor:
        work.emit(REALM_STREAM, work.of_caller(ActorRegistered(at=work.at, actor=actor, by=by)))


def bind(work: UnitOfWork, actor_id: str, binding: Mapping[str, Any], by: str) -> None:
    """Bind an actor to an authority; raises ``RefusedError`` ``UNKNOWN_ACTOR``, ``POLICY_NOT_ADOPTED``."""
    work.require_actor(actor_id)
    full = dict(work.authority.check_binding(binding))
    for member in voters(full):
        work.require_actor(member)
    policy = full.get("policy")
    if policy is not None and policy not in work.realm.policies:
        raise RefusedError(
            ErrorCode.POLICY_NOT_ADOPTED,
            f"The policy {policy!r} is loaded but not in force: it was not adopted, or it was retired. Adopt it first "
            "(`worldctl policy adopt`).",
            policy=policy,
        )
    if work.realm.bindings.get(actor_id) != full:
        bound = ActorBound(at=work.at, actor_id=actor_id, binding=full, by=by)
        work.emit(REALM_STREAM, work.of_caller(bound))


def adopt_policy(work: UnitOfWork, name: str, by: str) -> bool:
    """Bring a loaded policy into force; False when it is already.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``; ``RULE_IMPURE`` and ``INVALID_POLICY`` as ``Authority.check_policy``.
    """
    described = dict(work.authority.describe_policy(name))
    known = work.realm.policies.get(name)
    if known is not None and known.policy_hash == described["hash"]:
        return False
    work.authority.check_policy(name, work.domain.schema.actions)
    adopted = PolicyAdopted(
        at=work.at,
        name=name,
        policy_hash=described["hash"],
        policy=described,
        by=by,
        previous=None if known is None else known.policy_hash,
    )
    work.emit(REALM_STREAM, work.of_caller(adopted))
    return True


def retire_policy(work: UnitOfWork, name: str, by: str, reason: str) -> str:
    """Take a policy out of force and return its hash.

    Raises:
        RefusedError: ``POLICY_NOT_ADOPTED``, ``POLICY_IN_USE``.
    """
    known = work.realm.policies.get(name)
    if known is None:
        in_force = sorted(work.realm.policies)
        raise RefusedError(
            ErrorCode.POLICY_NOT_ADOPTED,
            f"The policy {name!r} is not in force; in force is {', '.join(in_force) or 'none'} "
            "(`worldctl policy list --all`).",
            policy=name,
            known=in_force,
        )
    bound = sorted(actor_id for actor_id, binding in work.realm.bindings.items() if binding.get("policy") == name)
    if bound:
        some = listed(bound, 10)
        raise RefusedError(
            ErrorCode.POLICY_IN_USE,
            f"The policy {name!r} judges what {some} want{'s' if len(bound) == 1 else ''}; bind them otherwise first "
            "(`worldctl actor bind`).",
            policy=name,
            actors=bound,
        )
    retired = PolicyRetired(at=work.at, name=name, policy_hash=known.policy_hash, by=by, reason=reason)
    work.emit(REALM_STREAM, work.of_caller(retired))
    return known.policy_hash


def choose_enforcement(work: UnitOfWork, by: str) -> None:
    """Record the executor's enforcement mode, when it is another than before (INT-13.5)."""
    mode = work.executor.enforcement
    if work.realm.enforcement != mode:
        work.emit(REALM_STREAM, EnforcementChosen(at=work.at, enforcement=mode, by=by))
