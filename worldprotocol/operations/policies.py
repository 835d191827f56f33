"""Operations on policies: adoption and retirement of loaded ones, and evaluation in shadow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from msgspec import Meta, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation
from worldprotocol.operations.fields import HASH, Name, Reason


class AdoptPolicy(RequestForm, frozen=True, kw_only=True):
    """The name of a policy that the program of the realm has loaded."""

    name: Name


class AdoptedPolicy(AnswerForm, frozen=True, kw_only=True):
    """A policy in force; `adopted` is false where this version was in force already."""

    name: str
    policy_hash: str
    adopted: bool


def _in_force(call: OperationCall, name: str, *, adopted: bool) -> AdoptedPolicy:
    known = call.hosted.realm.realm().policies.get(name)
    if known is None:
        raise RefusedError(ErrorCode.POLICY_NOT_ADOPTED, f"The policy {name!r} was retired meanwhile.", policy=name)
    policy_hash = known.policy_hash
    return AdoptedPolicy(name=name, policy_hash=policy_hash, adopted=adopted)


@operation(
    "policies.adopt",
    "POST /policies",
    "operator",
    records="policy.adopted",
    again=lambda _, request, events: AdoptedPolicy(name=request.name, policy_hash=events[0].policy_hash, adopted=True),
    example=(AdoptPolicy(name="house"), AdoptedPolicy(name="house", policy_hash=HASH, adopted=True)),
)
def adopt_policy(call: OperationCall, request: AdoptPolicy) -> AdoptedPolicy:
    """Bring a policy into force that the program of the realm has loaded."""
    is_new = call.realm.adopt_policy(request.name, by=call.actor_id)
    return _in_force(call, request.name, adopted=is_new)


class RetirePolicy(RequestForm, frozen=True, kw_only=True):
    """A policy in force that no binding uses, and why it is retired."""

    name: Name
    reason: Reason


class RetiredPolicy(AnswerForm, frozen=True, kw_only=True):
    """The version that was in force."""

    name: str
    policy_hash: str


@operation(
    "policies.retire",
    "POST /policies/{name}:retire",
    "operator",
    records="policy.retired",
    again=lambda _, request, events: RetiredPolicy(name=request.name, policy_hash=events[0].policy_hash),
    example=(RetirePolicy(name="house", reason="replaced"), RetiredPolicy(name="house", policy_hash=HASH)),
)
def retire_policy(call: OperationCall, request: RetirePolicy) -> RetiredPolicy:
    """Take a policy out of force."""
    policy_hash = call.realm.retire_policy(request.name, by=call.actor_id, reason=request.reason)
    return RetiredPolicy(name=request.name, policy_hash=policy_hash)


class ShadowPolicy(RequestForm, frozen=True, kw_only=True):
    """A loaded policy to evaluate in shadow, for the record only, for these actors or for all; null ends it."""

    name: Name | None
    actors: Annotated[list[Name], Meta(max_length=1_000)] = field(default_factory=list)


class ShadowState(AnswerForm, frozen=True, kw_only=True):
    """The policy in shadow; null for none. `changed` is false where it was the same before."""

    name: str | None
    changed: bool


def _shadowed(_: OperationCall, request: ShadowPolicy, __: Sequence[Any]) -> ShadowState:
    return ShadowState(name=request.name, changed=True)


@operation(
    "policies.shadow",
    "POST /policies:shadow",
    "operator",
    records="shadow.configured",
    again=_shadowed,
    example=(ShadowPolicy(name="draft", actors=["bot"]), ShadowState(name="draft", changed=True)),
)
def shadow_policy(call: OperationCall, request: ShadowPolicy) -> ShadowState:
    """Evaluate a loaded policy in shadow, or end that."""
    is_new = call.realm.shadow(request.name, actors=request.actors, by=call.actor_id)
    return ShadowState(name=request.name, changed=is_new)
