"""Compute and apply: pure functions from one snapshot to the next.

``compute`` returns a value for every content of an intent or a state and never raises for
them. Every call is complete: it starts from the base snapshot and runs the whole action, and earlier
effects are answered from the journal (HC-compute, IC-reentry).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast

from msgspec import Struct, structs

from world.core.availability import AvailabilityContext, actor_fields, read_answer
from world.core.derive import recompute
from world.core.domain_rules import PORTABLE_NAMES, STRICT_RULES
from world.core.execution import ComputeContext, EffectAnswer, Execution, Invocation, Program, StopError
from world.core.expressions.scope import Scope
from world.core.validate import Change, check_input, check_patch, check_state, told_faults
from world.core.values import ExpressionError
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import EMPTY, Patch, apply_patch
from world.model.snapshot import ErrorValue, Meta, Requirement, Snapshot, SnapshotView, System

__all__ = ["Computation", "ComputeStatus", "apply", "availability", "compute", "genesis"]

ComputeStatus = Literal["complete", "halted", "pending", "error"]
Journal = Mapping[str, EffectAnswer]
_NOTHING: Final[Journal] = {}


class Computation(Struct, frozen=True):
    """Result of a computation.

    Args:
        status: ``complete`` and ``halted`` are successful; ``pending`` waits for the requirements.
        patches: all changes of the data in order, those of effects included; empty after an
            error.
        snapshot: the state that results; after an error its data is the base's.
        requirements: the effects that a pending computation waits for.
        error: the error value, or None.
        answered: ids of the effects that the journal answered, in order.
    """

    status: ComputeStatus
    patches: tuple[Patch, ...]
    snapshot: Snapshot
    requirements: tuple[Requirement, ...] = ()
    error: ErrorValue | None = None
    answered: tuple[str, ...] = ()


def compute(
    program: Program,
    snapshot: Snapshot,
    intent: Invocation,
    context: ComputeContext,
    journal: Journal = _NOTHING,
) -> Computation:
    """Compute an intent on a snapshot.

    Args:
        program: the domain.
        snapshot: the base; every re-entry of one attempt gives the same one.
        intent: action, input and intentId.
        context: time and seed, the same at every re-entry.
        journal: results of the effects made so far, by requirement id; empty at the first invocation.

    Returns:
        The computation; equal arguments give an equal one.
    """
    try:
        frozen = freeze(intent.input)
        intent = intent if frozen is intent.input else replace(intent, input=frozen)
    except RefusedError as refused:
        return _refused(program, snapshot, replace(intent, input=None), context, refused)
    execution = Execution(program, snapshot, intent, context, journal)
    return perform(execution, snapshot, lambda: run(execution, snapshot, first=not journal))


def perform(execution: Execution, snapshot: Snapshot, steps: Callable[[], None]) -> Computation:
    """Run steps of an execution and return the computation.

    Args:
        execution: the working state.
        snapshot: the base that the execution started from.
        steps: ``run`` from the start, or the continuation after an effect.
    """
    status, error, requirement = "complete", None, None
    try:
        try:
            steps()
        except StopError as stop:
            if stop.status != "halted":
                raise
            status = stop.status
        execution.check_end()
    except StopError as stop:
        status, error, requirement = stop.status, stop.error, stop.requirement
    except RecursionError:
        error = _error(execution, "LIMIT_EXCEEDED", "The computation is nested too deep.")
    except RefusedError as refused:
        error = _error(execution, refused.code, refused.message)
    return _ended(execution, snapshot, "error" if error else status, error, requirement)


def _refused(
    program: Program, snapshot: Snapshot, intent: Invocation, context: ComputeContext, refused: RefusedError
) -> Computation:
    execution = Execution(program, snapshot, intent, context, _NOTHING)
    return _ended(execution, snapshot, "error", _error(execution, "INVALID_INPUT", refused.message), None)


def _error(execution: Execution, code: str, message: str) -> ErrorValue:
    return ErrorValue.at(code, message, execution.action_id, "", execution.context.now)


def run(execution: Execution, snapshot: Snapshot, *, first: bool) -> None:
    """Run an execution's action from its start.

    Args:
        execution: the working state, at its start.
        snapshot: the base.
        first: whether no effect result exists yet; only then are input and availability checked.

    Raises:
        StopError: where the execution stops before the end of the action.
    """
    intent = execution.invocation
    action = execution.schema.actions.get(intent.type)
    if action is None:
        execution.fail("UNKNOWN_ACTION", f"The domain has no action {intent.type!r}.", "")
    if not intent.intent_id:
        execution.fail("INVALID_INPUT", "An intent needs an intentId.", "")
    if first:  # IC-available: on re-entry the action's own effects may have changed what made it available
        _admit(execution, snapshot)
    if action.flow is not None:
        action.flow(execution, "")
    else:
        execution.program.run_action(execution)


def _admit(execution: Execution, snapshot: Snapshot) -> None:
    """Check availability and input before the flow (IC-validate, IC-available)."""
    intent = execution.invocation
    action = execution.schema.actions[intent.type]
    view = SnapshotView(snapshot.data, execution.computed)
    answer = availability(execution.program, view, intent.type, intent.actor)
    if not answer:
        words = f"The action {intent.type!r} is not available in this state"
        if answer is None and execution.schema.rules >= STRICT_RULES:
            words += ": its availability is neither true nor false"
        execution.fail("ACTION_UNAVAILABLE", f"{words}.", "")
    faults = check_input(action.input, intent.input)
    if faults:
        shown = "; ".join(f"{fault.path} {fault.message}" for fault in faults)
        rendered = {"faults": [{"path": fault.path, "message": fault.message} for fault in faults]}
        execution.fail("INVALID_INPUT", f"The input of {intent.type!r} does not fit: {shown}.", "", freeze(rendered))


def _ended(
    execution: Execution,
    base: Snapshot,
    status: str,
    error: ErrorValue | None,
    requirement: Requirement | None,
) -> Computation:
    """Return the resulting snapshot; an error leaves the base's data (design section
    4).
    """
    requirements = () if requirement is None else (requirement,)
    if error is not None:
        data, computed = base.data, recompute(execution.program, base.data, base.data, base.computed)
        system = System("error", error, (error,))
    else:
        data, computed = execution.data, execution.computed
        waiting = execution.action_id if requirements else None
        system = System("pending" if requirements else "idle", None, (), requirements, waiting)
    meta = _next_meta(execution.program, base, execution.context)
    return Computation(
        status=cast(ComputeStatus, status),
        patches=() if error is not None else tuple(execution.patches),
        snapshot=Snapshot(data, computed, system, execution.invocation.input, meta),
        requirements=requirements,
        error=error,
        answered=tuple(execution.answered),
    )


def _next_meta(program: Program, base: Snapshot, context: ComputeContext) -> Meta:
    return Meta(base.meta.version + 1, context.now, context.random_seed, program.schema.hash)


def availability(program: Program, view: SnapshotView, action: str, actor: ActorRef | None = None) -> bool | None:
    """Return whether an action is available in a state (IC-available, INT-3.4a).

    An action that a catalog reports as unknown is decided here: absent values count as null (INT-7.4.5).

    Args:
        program: the domain.
        view: data and computed values; missing computed values are computed.
        action: the action's name; an unknown one is not available.
        actor: the acting actor; None without one.

    Returns:
        True or false; None where the predicate cannot be evaluated or its value is neither.
    """
    spec = program.schema.actions.get(action)
    if spec is None:
        return False
    local = program.local_predicate(action)
    if spec.is_available is None and local is None:
        return True
    computed = recompute(program, view.data, view.data, view.computed)
    if local is not None:
        context = AvailabilityContext.of(SnapshotView(view.data, computed), actor)
        return local.decide(context, strict=program.schema.rules >= STRICT_RULES)
    assert spec.is_available is not None
    try:
        answer = spec.is_available(Scope(view.data, computed=computed, meta=actor_fields(actor)))
        return read_answer(answer, strict=program.schema.rules >= STRICT_RULES)
    except (ExpressionError, RecursionError):
        return None


def apply(program: Program, snapshot: Snapshot, patches: Iterable[Patch], context: ComputeContext) -> Snapshot:
    """Apply patches to a snapshot, all of them or none.

    Args:
        program: the domain, with the state spec and the computed values.
        snapshot: the state before.
        patches: the changes, in order. Patches of ``meta``, which belongs to the engine, are ignored. Of the top-level
            names that begin with ``$``, ``$host`` and ``$mel`` may be written, and hold objects.
        context: time and seed of the new snapshot.

    Returns:
        The state after; where a patch is invalid, the state before with the error value.
    """
    data, change = snapshot.data, Change(snapshot.data)
    for patch in patches:
        if patch.path == "meta" or patch.path.startswith("meta."):
            continue
        is_own = patch.path.partition(".")[0] in PORTABLE_NAMES
        fault = None if is_own else check_patch(program.schema, data, patch, change)
        code, message = (fault.code, fault.message) if fault else ("", "")
        if not fault:
            try:
                data = apply_patch(data, patch)
            except RefusedError as refused:
                code, message = refused.code, refused.message
        wrong = next(
            (name for name in PORTABLE_NAMES if is_own and not isinstance(data.get(name, EMPTY), FrozenDict)), ""
        )
        if wrong:
            code, message = "TYPE_MISMATCH", f"The patch of {patch.path!r} does not fit: {wrong} holds an object."
        if code:
            return _unapplied(program, snapshot, ErrorValue.at(code, message, "", patch.path, context.now), context)
    is_changed = data is not snapshot.data
    faults = (check_state(program.schema, data, change) or program.state_faults(data)) if is_changed else []
    if faults:
        message = f"The state does not fit its model: {faults[0].path} {faults[0].message}."
        error = ErrorValue.at("INVALID_STATE", message, "", faults[0].path, context.now, told_faults(faults))
        return _unapplied(program, snapshot, error, context)
    status = "idle" if snapshot.system.status == "error" else snapshot.system.status
    return Snapshot(
        data=data,
        computed=recompute(program, data, snapshot.data, snapshot.computed),
        system=structs.replace(snapshot.system, status=status, last_error=None, errors=()),
        input=snapshot.input,
        meta=_next_meta(program, snapshot, context),
    )


def _unapplied(program: Program, snapshot: Snapshot, error: ErrorValue, context: ComputeContext) -> Snapshot:
    return structs.replace(
        snapshot,
        computed=recompute(program, snapshot.data, snapshot.data, snapshot.computed),
        system=structs.replace(snapshot.system, status="error", last_error=error, errors=(error,)),
        meta=_next_meta(program, snapshot, context),
    )


def genesis(program: Program, context: ComputeContext, data: Mapping[str, Any] | None = None) -> Snapshot:
    """Return a domain's first snapshot: the defaults of its state and given fields.

    Args:
        program: the domain.
        context: time and seed of the snapshot.
        data: initial values of top-level fields, for other values than the defaults.

    Raises:
        RefusedError: ``INVALID_DATA`` for given fields that do not obey the state's spec, and for required
            fields that have neither a default nor a value; ``details["faults"]`` names each.
    """
    fields = program.schema.state.fields or {}
    start: FrozenDict = EMPTY
    for name, spec in fields.items():
        if spec.has_default:
            start = start.with_item(name, spec.default)
    faults: list[str] = []
    for name, value in freeze(dict(data or {})).items():
        patch = Patch("set", _escaped(name), value)
        fault = check_patch(program.schema, start, patch)
        if fault:
            faults.append(fault.message)
        else:
            start = start.with_item(name, value)
    if program.schema.state.model is None:
        missing = [name for name, spec in fields.items() if spec.required and name not in start]
        faults += [f"The field {name!r} is required." for name in missing]
    elif not faults:
        found = check_state(program.schema, start) or program.state_faults(start)
        faults += [f"{fault.path or 'It'} {fault.message}." for fault in found]
    if faults:
        raise RefusedError(
            ErrorCode.INVALID_DATA, "The data cannot start like this: " + " ".join(faults), faults=faults
        )
    meta = Meta(0, context.now, context.random_seed, program.schema.hash)
    return Snapshot(start, recompute(program, start), System(), None, meta)


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace(".", "\\.")
