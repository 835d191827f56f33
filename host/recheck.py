"""Recheck of executions from their record.

No effect is repeated: results come from the journal. Compared, and reported in this order: the schema, the ids of the
requests, the outcome, the error's signature, the patches one by one (or what they make of each member, where another
proposal made the same world), the hash of the state, and the ids of the world.
Source: design section 1 (recheck); WP-hash, WP-world, IC-reqid.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from host.executor import STATE_CONFLICT, Host
from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.realm_events import WorldSealed
from world.model.canonical_json import canonical_bytes
from world.model.identity import content_id, requirement_id, signature, snapshot_hash, world_id
from world.model.immutable_json import FrozenDict
from world.model.patch import EMPTY, Patch, apply_patches
from world.model.record import to_wire
from world.model.snapshot import ErrorValue, Requirement
from world.state.ports import Enforcement, ExecutionOrder, StepOutcome

__all__ = ["recheck_execution"]


def recheck_execution(
    host: Host,
    order: ExecutionOrder,
    recorded: WorldSealed,
    *,
    enforcement: Enforcement,
    requested: Iterable[Requirement] = (),
) -> DivergenceError | None:
    """Repeat an execution and compare the result with the sealed world.

    Args:
        host: provides the domain; its own enforcement and its handlers are not used.
        order: the execution as recorded: the snapshot of the world it was sealed on, ``now``, ``seed``, the
            approved scope and the whole journal (``host.journal``).
        recorded: the sealed world.
        enforcement: the enforcement mode as recorded.
        requested: the requested effects as recorded.

    Returns:
        None if everything agrees; otherwise the first difference, with ``what``, ``recorded`` and
        ``computed`` in its details. ``CANNOT_RECHECK`` where the loaded domain is a different one,
        ``EXECUTION_DIVERGED`` for the rest.
    """
    loaded = host.domain.schema.hash
    if loaded != recorded.schema_hash:
        return DivergenceError(
            ErrorCode.CANNOT_RECHECK,
            f"The execution of proposal {order.proposal_id} cannot be rechecked: it was made under schema "
            f"{recorded.schema_hash}, and the available domain has {loaded}. Give the domain as it was recorded.",
            proposal=order.proposal_id,
            what="schemaHash",
            recorded=recorded.schema_hash,
            computed=loaded,
        )
    again = Host(host.domain, host.effects, enforcement=enforcement)
    outcome = again.step(order)
    if outcome.status == "pending" and recorded.error is not None and recorded.error.code == STATE_CONFLICT:
        # The effects were made on an earlier head; that more would be requirement for on this one is the conflict.
        outcome = again.conflict(order)
    for what, recorded_part, now in _comparisons(order, recorded, outcome, tuple(requested)):
        if not _same(recorded_part, now):
            return _diverged(order, what, recorded_part, now)
    return None


Comparison = tuple[str, Any, Any]
"""What is compared, what was recorded, and what was computed now."""


def _comparisons(
    order: ExecutionOrder, recorded: WorldSealed, outcome: StepOutcome, requested: tuple[Requirement, ...]
) -> Iterable[Comparison]:
    for requirement in requested:
        yield "the id of a request", requirement.id, _derived_id(order, recorded.schema_hash, requirement)
    yield "the outcome", recorded.outcome, _ending(outcome)
    yield "the error", _signed(recorded.error), _signed(outcome.error)
    then, now = to_wire(recorded.patches), to_wire(outcome.patches)
    if recorded.created_by == order.proposal_id or then == now:
        for index in range(max(len(then), len(now))):
            yield f"patch {index}", _at(then, index), _at(now, index)
    else:
        yield from _shared(order, recorded, outcome)
    state = snapshot_hash(outcome.snapshot.to_wire())
    yield "the snapshotHash", recorded.snapshot_hash, state
    yield "the contentId", recorded.content_id, content_id(recorded.schema_hash, state)
    yield "the worldId", recorded.world_id, world_id(recorded.schema_hash, state, recorded.parent)


def _shared(order: ExecutionOrder, recorded: WorldSealed, outcome: StepOutcome) -> Iterable[Comparison]:
    """Compare what the patches make of each member, since another proposal reached the recorded state in its own way.

    The marks of once guards below ``$mel``, which older logs have in the state, name the intent and differ always.
    """
    then, now = (_after(order, patches) for patches in (recorded.patches, outcome.patches))
    for name in sorted((then.keys() | now.keys()) - {"$mel"}):
        yield f"what the patches make of {name!r}", then.get(name), now.get(name)
        yield f"whether the patches leave {name!r}", name in then, name in now


def _after(order: ExecutionOrder, patches: Iterable[Patch]) -> FrozenDict:
    try:
        return apply_patches(order.snapshot.data, patches)
    except RefusedError:  # the record is damaged: verification names it, and its hash differs
        return EMPTY


def _derived_id(order: ExecutionOrder, schema_hash: str, requirement: Requirement) -> str:
    return requirement_id(
        schema_hash,
        order.intent.intent_id,
        requirement.action_id,
        requirement.node_path,
        requirement.type,
        requirement.params,
    )


def _ending(outcome: StepOutcome) -> str:
    if outcome.status != "pending":
        return outcome.status
    requirement = ", ".join(f"{requirement.type} ({requirement.id})" for requirement in outcome.requirements)
    return f"pending on {requirement}, of which the record has no result"


def _signed(error: ErrorValue | None) -> Any:
    """Return the compared members of an error."""
    return None if error is None else signature(error.to_wire())


def _at(patches: list[Any], index: int) -> Any:
    return patches[index] if index < len(patches) else None


def _same(recorded_part: Any, now: Any) -> bool:
    if type(recorded_part) is str and type(now) is str and recorded_part.isascii():
        return recorded_part == now
    try:
        return canonical_bytes(recorded_part) == canonical_bytes(now)
    except RefusedError:  # what cannot be written canonically was never computed
        return False


def _diverged(order: ExecutionOrder, what: str, recorded_part: Any, now: Any) -> DivergenceError:
    return DivergenceError(
        ErrorCode.EXECUTION_DIVERGED,
        f"The execution of proposal {order.proposal_id} gives another result than its record: {what} was "
        f"{_rendered(recorded_part)} and is now {_rendered(now)}.",
        proposal=order.proposal_id,
        what=what,
        recorded=recorded_part,
        computed=now,
    )


def _rendered(value: Any) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return value
    try:
        text = canonical_bytes(value).decode()
    except RefusedError:
        text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."
