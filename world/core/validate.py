"""Validation of inputs, patches and states; faults are returned, never raised.

A state in the dialect of ``world.core.state_model`` is checked twice: the value of each patch when it is made, and the
touched places with what is above them when the action has ended, for what no patch shows alone (a required field, the
number of elements, alternatives).

The growth of a state by one patch is limited. A frozen tree shares its nodes, so a few patches could make a tree with
an unbounded text: each one that puts a value into itself twice doubles it. Nesting adds up over many intents, too. Both
are bounded where a value enters the state; the previous value of the place is not counted again.

Source: IC-validate, HC-flow; design section 4 (enums and nested fields are checked, in inputs as in the
    state).
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct, field

from world.core.domain_rules import OWN_NAMES_RULES, written_own_name
from world.core.fields import FieldSpec, InvalidValue, check_value
from world.core.state_model.checking import NEW, Checker, ModelFault, Touched
from world.model.immutable_json import FrozenDict, FrozenList
from world.model.patch import Patch
from world.model.paths import Segments, format_path, look_up, parse_path

if TYPE_CHECKING:
    from world.core.schema import DomainSchema

__all__ = [
    "MAX_FAULTS",
    "MAX_NEW_NODES",
    "MAX_STATE_DEPTH",
    "Change",
    "PatchFault",
    "StateFault",
    "check_input",
    "check_patch",
    "check_state",
    "growth_fault",
    "told_faults",
]

MAX_STATE_DEPTH: Final = 128
"""Maximum depth of a state, below the limits of the serializers."""

MAX_NEW_NODES: Final = 1_000_000
"""Maximum number of values, and kilobytes of text, that one patch may add."""

MAX_FAULTS: Final = 20
"""Maximum number of faults in one error value."""


class PatchFault(NamedTuple):
    """Fault of a patch."""

    code: str
    message: str
    context: FrozenDict | None = None


class Change(Struct, frozen=True):
    """What an execution changes.

    Args:
        base: the data before it, which fits the state's model; ``NEW`` for none.
        touched: the places that its patches touched.
    """

    base: Any
    touched: Touched = field(default_factory=Touched)


class StateFault(NamedTuple):
    """Fault of a state: a path of the data and half a sentence."""

    path: str
    message: str


def check_input(spec: FieldSpec | None, value: Any) -> list[InvalidValue]:
    """Return the faults of an intent's input, at most ``MAX_FAULTS`` (IC-validate).

    Args:
        spec: the action's input spec; None accepts anything.
        value: the input; None is an absent one.
    """
    global _passed  # noqa: PLW0603 - the newest check; another thread's replaces it as a whole
    if spec is None or (value is None and not spec.required):
        return []
    if type(value) is FrozenDict and _passed[1] is value and _passed[0] is spec:
        return []  # an input is checked before its preparation, in its computation, and when it is submitted
    faults = _input_faults(spec, value)
    if not faults:
        _passed = spec, value
    return faults


_passed: tuple[FieldSpec | None, Any] = None, None
"""Spec and input of the newest check that found no fault; both are immutable."""


def _input_faults(spec: FieldSpec, value: Any) -> list[InvalidValue]:
    if spec.model is not None:
        found = islice(Checker().faults(spec.model, value), MAX_FAULTS)
        return [InvalidValue(f"input{fault.shown}", fault.message) for fault in found]
    return list(islice(check_value(spec, value, state=False, path="input"), MAX_FAULTS))


def told_faults(faults: Iterable[StateFault]) -> FrozenDict:
    """Return faults as the context of an error value."""
    return FrozenDict({"faults": [{"path": fault.path, "message": fault.message} for fault in faults]})


def check_state(schema: DomainSchema, data: FrozenDict, change: Change | None = None) -> list[StateFault]:
    """Return the faults of data against a state in the dialect, at most ``MAX_FAULTS``; none for field specs.

    Args:
        schema: the schema with the state.
        data: the data.
        change: the data before, and the places that were touched since; None checks everything.
    """
    if schema.state.model is None:
        return []
    check, model = schema.checker.faults, schema.state.model
    found = check(model, data) if change is None else check(model, data, change.base, change.touched)
    return [StateFault(format_path(fault.segments), fault.message) for fault in islice(found, MAX_FAULTS)]


def check_patch(
    schema: DomainSchema, data: FrozenDict, patch: Patch, change: Change | None = None
) -> PatchFault | None:
    """Return the fault of a patch against the state's spec, or None; checks only what it changes.

    Args:
        schema: the schema with the state spec.
        data: the data before the patch, which obeys the spec.
        patch: the change.
        change: gets the touched places, for a state in the dialect; None does not keep them.
    """
    if len(parse_path(patch.path)) > MAX_STATE_DEPTH:
        return PatchFault("LIMIT_EXCEEDED", f"A path leads through at most {MAX_STATE_DEPTH} levels.")
    may_own = not patch.path or patch.path[0] == "$"
    own = written_own_name(data, patch) if may_own and schema.rules >= OWN_NAMES_RULES else None
    if own is not None:
        return PatchFault(
            "PATH_NOT_FOUND",
            f"The state has no place {patch.path or own!r}: names that begin with $ belong to the engine.",
        )
    if schema.state.model is not None:
        return _model_patch_fault(schema, data, patch, change)
    place = schema.place(patch.path)
    if place is None:
        return PatchFault("PATH_NOT_FOUND", f"The state has no place {patch.path!r}.")
    if patch.op == "unset":
        return None
    return _merge_fault(place, data, patch) if patch.op == "merge" else _set_fault(place, data, patch)


def _model_patch_fault(
    schema: DomainSchema, data: FrozenDict, patch: Patch, change: Change | None
) -> PatchFault | None:
    """Return the fault of a patch of a state in the dialect, or None."""
    at = parse_path(patch.path)
    if not schema.model_places(patch.path):
        return PatchFault("PATH_NOT_FOUND", f"The state has no place {patch.path!r}.")
    if patch.op == "merge" and patch.value is not None and not isinstance(patch.value, dict):
        return _mismatch(patch.path, InvalidValue("", "must be merged with an object"))
    before = look_up(data, at) if isinstance(patch.value, (FrozenDict, FrozenList)) else None
    grown = growth_fault(patch.value, before, len(at))
    if grown:
        return PatchFault("LIMIT_EXCEEDED", f"The patch of {patch.path!r} {grown}.")
    if change is not None:
        change.touched.note(patch)
    if patch.op == "set":
        return _member_fault(schema, patch, (patch.path, at), patch.value, change)
    if patch.op == "merge":
        for name, item in (patch.value or {}).items():
            fault = _member_fault(schema, patch, (format_path((*at, name)), (*at, name)), item, change)
            if fault:
                return fault
    return None


def _member_fault(
    schema: DomainSchema, patch: Patch, place: tuple[str, Segments], value: Any, change: Change | None
) -> PatchFault | None:
    """Return the fault of a value that a patch sets at a place, a path and its segments, or None."""
    path, at = place
    places = schema.model_places(path)
    found: list[ModelFault] = []
    is_certain = change is not None and len(places) == 1
    before = look_up(change.base, at) if change is not None and is_certain else None
    for node in places:
        fault = next(schema.checker.faults(node, value, NEW if before is None else before), None)
        if fault is None:
            if change is not None and is_certain:
                change.touched.note_checked(at, node, value)
            return None
        found.append(fault)
    if not found:
        return _mismatch(patch.path, InvalidValue(f".{at[-1]}", "is not a known field"))
    path = format_path((*at, *found[0].segments))
    if any(fault.is_shape for fault in found):
        inside = path.removeprefix(f"{patch.path}.") if path != patch.path else ""
        return _mismatch(patch.path, InvalidValue(inside, found[0].message))
    context = told_faults([StateFault(path, found[0].message)])
    return PatchFault("INVALID_STATE", f"The state does not fit its model: {path} {found[0].message}.", context)


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


def growth_fault(value: Any, before: Any, depth: int) -> str | None:
    """Return the reason why a value is too large, None where it is not.

    Args:
        value: frozen, about to be put there.
        before: the current value; its members are not counted again.
        depth: levels above the place.
    """
    if value is before or not isinstance(value, (FrozenDict, FrozenList)):
        return None
    waiting: list[tuple[list[Any], int]] = [(_new_members(value, before), depth)]
    count = 0
    while waiting:
        members, level = waiting.pop()
        count += len(members)
        if level >= MAX_STATE_DEPTH:
            return f"would nest the state deeper than {MAX_STATE_DEPTH} levels"
        count += sum(len(member) >> 10 for member in members if type(member) is str)
        if count > MAX_NEW_NODES:
            return f"brings more than {MAX_NEW_NODES} values into the state at once"
        waiting += [(_members(member), level + 1) for member in members if isinstance(member, (FrozenDict, FrozenList))]
    return None


def _new_members(value: FrozenDict | FrozenList, before: Any) -> list[Any]:
    """Return the new members, or all of them where one is repeated."""
    members = _members(value)
    if isinstance(before, (FrozenDict, FrozenList)) and len(set(map(id, members))) == len(members):
        known = set(map(id, _members(before)))  # they live as long as ``before`` does, so their ids are theirs
        return [member for member in members if id(member) not in known]
    return members


def _members(node: FrozenDict | FrozenList) -> list[Any]:
    return list(node.values()) if isinstance(node, FrozenDict) else node
