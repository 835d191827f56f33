"""Validation of inputs and patches; faults are returned, never raised.

Source: IC-validate, HC-flow; design section 4 (enums and nested fields are checked, in inputs as in the
    state).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from world.core.fields import FieldSpec, InvalidValue, check_value
from world.core.state_limits import MAX_STATE_DEPTH, growth_fault
from world.model.immutable_json import FrozenDict, FrozenList
from world.model.patch import Patch
from world.model.paths import look_up, parse_path

if TYPE_CHECKING:
    from world.core.schema import DomainSchema

__all__ = ["MAX_FAULTS", "PatchFault", "check_input", "check_patch"]

MAX_FAULTS: Final = 20
"""Maximum number of faults in one error value."""


class PatchFault(NamedTuple):
    """Fault of a patch."""

    code: str
    message: str


def check_input(spec: FieldSpec | None, value: Any) -> list[InvalidValue]:
    """Return the faults of an intent's input, at most ``MAX_FAULTS`` (IC-validate).

    Args:
        spec: the action's input spec; None accepts anything.
        value: the input; None is an absent one.
    """
    if spec is None or (value is None and not spec.required):
        return []
    return list(islice(check_value(spec, value, state=False, path="input"), MAX_FAULTS))


def check_patch(schema: DomainSchema, data: FrozenDict, patch: Patch) -> PatchFault | None:
    """Return the fault of a patch against the state's spec, or None; checks only changed
    at.

    Args:
        schema: the schema with the state spec.
        data: the data before the patch, which obeys the spec.
        patch: the change.
    """
    if len(parse_path(patch.path)) > MAX_STATE_DEPTH:
        return PatchFault("LIMIT_EXCEEDED", f"A path leads through at most {MAX_STATE_DEPTH} levels.")
    place = schema.place(patch.path)
    if place is None:
        return PatchFault("PATH_NOT_FOUND", f"The state has no place {patch.path!r}.")
    if patch.op == "unset":
        return None
    return _merge_fault(place, data, patch) if patch.op == "merge" else _set_fault(place, data, patch)


def _mismatch(path: str, fault: InvalidValue) -> PatchFault:
    return PatchFault("TYPE_MISMATCH", f"The patch of {path!r} does not fit: {fault.path or 'it'} {fault.message}.")


def _set_fault(place: FieldSpec, data: FrozenDict, patch: Patch) -> PatchFault | None:
    value, before = patch.value, None
    if type(value) is FrozenList or type(value) is FrozenDict:
        segments = parse_path(patch.path)
        before = look_up(data, segments)
        grown = growth_fault(value, before, len(segments))
        if grown:
            return PatchFault("LIMIT_EXCEEDED", f"The patch of {patch.path!r} {grown}.")
    fault = next(check_value(place, value, state=True, before=before), None)
    return None if fault is None else _mismatch(patch.path, fault)


def _merge_fault(place: FieldSpec, data: FrozenDict, patch: Patch) -> PatchFault | None:
    if place.type not in ("object", "any"):
        return _mismatch(patch.path, InvalidValue("", "is no object, and only an object can be merged into"))
    if patch.value is None:
        return None
    if not isinstance(patch.value, dict):
        return _mismatch(patch.path, InvalidValue("", "must be merged with an object"))
    segments = parse_path(patch.path)
    grown = growth_fault(patch.value, look_up(data, segments), len(segments))
    if grown:
        return PatchFault("LIMIT_EXCEEDED", f"The patch of {patch.path!r} {grown}.")
    for name, item in patch.value.items():
        if place.fields is not None:
            fault: InvalidValue | None = InvalidValue(f".{name}", "is not a known field")
            if name in place.fields:
                fault = next(check_value(place.fields[name], item, state=True, path=f".{name}"), None)
            if fault:
                return _mismatch(patch.path, fault)
    return None
