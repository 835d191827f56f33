"""Shadowing: a second policy judges beside the one in force, and what it says is recorded and does nothing.

It is asked about every new proposal, in the same commit, on the same case, and before the ruling of the policy in force
is recorded, so that no history differs. Whatever goes wrong with it is in its ruling. Source: design section 6;
CARD-policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import REALM_STREAM
from world.events.policy_events import ProposalShadowed, ShadowConfigured
from world.model.decision import Ruling
from world.model.immutable_json import freeze
from world.model.short_repr import listed
from world.pipeline.unit_of_work import UnitOfWork
from world.state.ports import Case

_ASKING: Final = ("ask", "timeoutMs", "onTimeout", "then")


def configure_shadow(work: UnitOfWork, name: str | None, actors: Sequence[str], by: str) -> bool:
    """Make a loaded policy shadow the one in force, or none; returns False where that is so already.

    Args:
        work: the unit of work.
        name: of the policy; None ends the shadowing.
        actors: ids of those whose proposals it judges; none for all.
        by: whom the record names.

    Raises:
        RefusedError: ``UNKNOWN_POLICY``, ``UNKNOWN_ACTOR``, and why the policy cannot be loaded; ``POLICY_IN_USE``
            where all that it would judge beside is itself.
    """
    wanted = sorted(set(actors)) if name is not None else []
    for actor_id in wanted:
        work.require_actor(actor_id)
    policy = None if name is None else dict(work.authority.describe_policy(name))
    policy_hash = None if policy is None else policy["hash"]
    known = work.realm.shadow
    if (known, name, wanted) == (None, None, []):
        return False
    if known is not None and (known.name, known.policy_hash, known.actors) == (name, policy_hash, wanted):
        return False
    if name is not None:
        _check_is_another(work, name, wanted)
    configured = ShadowConfigured(at=work.at, actors=wanted, by=by, name=name, policy_hash=policy_hash, policy=policy)
    work.emit(REALM_STREAM, work.of_caller(configured))
    return True


def _check_is_another(work: UnitOfWork, name: str, actors: Sequence[str]) -> None:
    """Check that a policy does not only judge beside itself: it would always agree with itself."""
    bindings = work.realm.bindings
    bound = {one: bindings[one].get("policy") for one in actors or bindings if one in bindings}
    by_rules = {one: policy for one, policy in bound.items() if policy is not None}
    if set(by_rules.values()) == {name}:
        some = listed(sorted(by_rules), 10)
        raise RefusedError(
            ErrorCode.POLICY_IN_USE,
            f"The policy {name!r} judges what {some} propose{'s' if len(by_rules) == 1 else ''} already, and would "
            "only agree with itself; name another one, for instance a changed copy under another name.",
            policy=name,
            actors=sorted(by_rules),
        )


def shadow(work: UnitOfWork, case: Case, ready: Ruling | None = None) -> None:
    """Judge a new proposal by the shadowing policy and record its ruling, where there is one for this actor.

    Args:
        work: the unit of work.
        case: the case of the proposal.
        ready: the ruling, where it was prepared.
    """
    name = shadowed_by(work.realm.shadow, case.actor.actor_id)
    if name is None:
        return
    ruling = shadow_ruling(work.authority.judge, case, name) if ready is None else ready
    try:
        _record(work, case.proposal_id, name, ruling)
    except RefusedError:  # what it says cannot be recorded: then only what it comes to
        reason = "what the policy says is too large to be recorded, or no canonical JSON"
        _record(work, case.proposal_id, name, structs.replace(ruling, reason=reason, trace=(), approved_scope=None))


def _record(work: UnitOfWork, proposal_id: str, name: str, ruling: Ruling) -> None:
    work.emit(
        proposal_id,
        ProposalShadowed(
            at=work.at,
            proposal_id=proposal_id,
            name=name,
            ruling=ruling,
            policy_hash=ruling.policy_hash,
        ),
    )


def shadowed_by(configured: ShadowConfigured | None, actor_id: str) -> str | None:
    """Return the policy that shadows what an actor proposes, None where none does."""
    if configured is None or (configured.actors and actor_id not in configured.actors):
        return None
    return configured.name


def shadow_ruling(judge: Callable[[Case], Ruling], case: Case, name: str) -> Ruling:
    """Return what a policy says to a case, asking the people that the actor's binding names."""
    try:
        return judge(replace(case, binding=bound_to(case.binding, name)))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong, the proposal is judged as without a shadow policy
        return Ruling("reject", f"policy_rules:{name}", f"it could not be judged: {type(error).__name__}")


def bound_to(binding: Mapping[str, Any], policy: str) -> Mapping[str, Any]:
    """Return the binding of an actor as it would be by another policy: whom it asks stays, also as a tribunal."""
    kept = {part: binding[part] for part in _ASKING if part in binding}
    if "members" in binding:
        kept["ask"] = binding["members"]
    bound: Mapping[str, Any] = freeze({**kept, "kind": "policy_rules", "policy": policy})
    return bound
