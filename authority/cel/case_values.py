"""Values of a case at the paths that a condition reads.

``reader_of`` returns a function for one ``Read`` of a condition; ``value_at`` reads one path.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from authority.cel.condition_reader import Name, Read
from world.state.ports import Case

Getter = Callable[[Case], Any]
"""Function that reads one value of a case."""

MISSING: Final = object()
"""Result of a path without a value."""

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _scope(case: Case) -> Any:
    scope = case.intent.body.scope_proposal
    return None if scope is None else scope.to_wire()


def _computed(case: Case) -> Any:
    return {name.removeprefix("computed."): value for name, value in case.view.computed.items()}


def _manifest(case: Case) -> Any:
    return [] if case.manifest is None else case.manifest["scope"]


def moment(at_ms: int) -> datetime:
    """Return a time, ms since 1970, as CEL timestamp; ``OverflowError`` after 9999."""
    return EPOCH + timedelta(milliseconds=at_ms)


_FIELDS: Final[dict[tuple[str, str], Getter]] = {
    ("actor", "actorId"): lambda case: case.actor.actor_id,
    ("actor", "kind"): lambda case: case.actor.kind,
    ("actor", "name"): lambda case: case.actor.name,
    ("actor", "meta"): lambda case: case.actor.meta or {},
    ("intent", "type"): lambda case: case.intent.body.type,
    ("intent", "input"): lambda case: case.intent.body.input,
    ("intent", "key"): lambda case: case.intent.intent_key,
    ("intent", "scope"): _scope,
    ("base", "data"): lambda case: case.view.data,
    ("base", "computed"): _computed,
    ("base", "world"): lambda case: case.base_world,
    ("base", "branch"): lambda case: case.branch,
}
_VALUES: Final[dict[str, Getter]] = {
    "action": lambda case: case.action,
    "manifest": _manifest,
    "now": lambda case: moment(case.submitted_at),
    "nowMs": lambda case: case.submitted_at,
}


def getter_of(path: tuple[Name, ...]) -> tuple[Getter, tuple[Name, ...]]:
    """Return the getter of the first part of a path, and the remaining names."""
    if path[0] in _VALUES:
        return _VALUES[str(path[0])], path[1:]
    if path[:2] == ("base", "computed") and len(path) > 2 and isinstance(path[2], str):
        full = f"computed.{path[2]}"
        return lambda case: case.view.computed.get(full, MISSING), path[3:]
    return _FIELDS[str(path[0]), str(path[1])], path[2:]


def value_at(path: tuple[Name, ...], case: Case, missing: Any = None) -> Any:
    """Return the value at a path of a case, ``missing`` without a value."""
    get, below = getter_of(path)
    value = _walk(get(case), below, case)
    return missing if value is MISSING else value


def _walk(value: Any, below: Sequence[Name], case: Case) -> Any:
    for step in below:
        if type(step) is tuple:
            step = value_at(step, case, MISSING)
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step, MISSING)
        elif isinstance(value, list) and type(step) is int and 0 <= step < len(value):
            value = value[step]
        else:
            return MISSING
    return value


def reader_of(read: Read) -> Callable[[Case], Any]:
    """Return the getter of one ``Read``; ``MISSING`` fails the condition."""
    get, below = getter_of(read.path)
    if read.way == "value":
        if len(below) == 1 and isinstance(below[0], str):
            return _member_getter(get, below[0])
        return (lambda case: _walk(get(case), below, case)) if below else get
    if read.way == "has":
        return _presence_getter(read.path)
    return _size_getter(get, below) if read.way == "size" else _items_getter(get, below)


def _member_getter(get: Getter, name: str) -> Getter:
    def take(case: Case) -> Any:
        value = get(case)
        return value.get(name, MISSING) if isinstance(value, dict) else MISSING

    return take


def _presence_getter(path: tuple[Name, ...]) -> Getter:
    get, below = getter_of(path)
    if not below:
        return lambda case: get(case) is not MISSING
    *whole, last = below

    def take(case: Case) -> Any:
        value = _walk(get(case), whole, case) if whole else get(case)
        return last in value if isinstance(value, dict) else MISSING

    return take


def _size_getter(get: Getter, below: tuple[Name, ...]) -> Getter:
    def take(case: Case) -> Any:
        value = _walk(get(case), below, case)
        return len(value) if isinstance(value, (str, list, dict)) else MISSING

    return take


def _items_getter(get: Getter, below: tuple[Name, ...]) -> Getter:
    def take(case: Case) -> Any:
        value = _walk(get(case), below, case)
        if isinstance(value, dict):
            return sorted(value)
        return value if isinstance(value, list) else MISSING

    return take
