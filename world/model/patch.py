"""Patches, the only changes of the data, and the check of a patch against a scope.

A patch path is relative to the data (``todos.0.done``). A path never converts an array or a scalar into another type:
a segment at an array is an existing index (or, for ``set``, the index after the last element). Missing objects along
the path are created. ``unset`` of an array element removes it.

Scope patterns are defined in ``world.model.scope_patterns``. Sources: design section 4, INT-5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, Literal, cast

from msgspec import UNSET, structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import MAX_DEPTH, MAX_SAFE_INTEGER, FrozenDict, FrozenList, freeze
from world.model.paths import Segments, array_index, format_path, look_up, parse_path
from world.model.record import Record, Shown, freeze_member
from world.model.scope_patterns import SCOPE_RULES, Trie, compile_scope

__all__ = [
    "EMPTY",
    "Patch",
    "PatchOp",
    "Place",
    "allows",
    "apply_patch",
    "apply_patches",
    "format_path",
    "look_up",
    "merge",
    "parse_path",
    "scope_allows",
    "set_",
    "touched_paths",
    "unset",
]

PatchOp = Literal["set", "unset", "merge"]

EMPTY: Final[FrozenDict] = FrozenDict()
"""The empty object."""

_MANY: Final = 8  # above this number of members one new object is cheaper than a changed copy per member


class Patch(Record, frozen=True):
    """One change of the data; the value is frozen when the patch is created.

    Args:
        op: ``set`` replaces, ``unset`` removes, ``merge`` sets the members of an object (shallow).
        path: dotted, relative to the data; ``""`` is the data itself.
        value: for ``set`` and ``merge``.

    Raises:
        RefusedError: ``NOT_CANONICAL`` for a value that is not canonical JSON, ``INVALID_PATCH`` for a set or merge
            without a value and for an unset with one.
    """

    op: PatchOp
    path: str
    value: Any = UNSET
    SHOWN: ClassVar = {"value": Shown("op", "set", "merge")}

    def __post_init__(self) -> None:
        value = self.value
        if value is UNSET:
            if self.op != "unset":
                raise _without_value()
            structs.force_setattr(self, "value", None)
        elif value is not None:
            if self.op == "unset":
                raise _without_value()
            kind = type(value)
            is_ready = (kind is str and value.isascii()) or (
                kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER
            )
            if not is_ready:
                freeze_member(self, "value")

    @classmethod
    def from_wire(cls, wire: Any) -> Patch:
        """Read a patch.

        Raises:
            RefusedError: ``INVALID_PATCH`` for anything but ``{"op", "path", "value"}`` with a known op and a
                string path.
        """
        if not isinstance(wire, dict | Mapping) or wire.get("op") not in ("set", "unset", "merge"):
            raise RefusedError(
                ErrorCode.INVALID_PATCH, "A patch needs an op, one of set, unset and merge.", patch=repr(wire)[:200]
            )
        if not isinstance(wire.get("path"), str) or not wire.keys() <= {"op", "path", "value"}:
            raise RefusedError(ErrorCode.INVALID_PATCH, "A patch holds op, path (a text) and value, nothing else.")
        if (wire["op"] == "unset") is ("value" in wire):
            raise _without_value()
        return cls(cast(PatchOp, wire["op"]), wire["path"], wire.get("value"))


def _without_value() -> RefusedError:
    return RefusedError(ErrorCode.INVALID_PATCH, "A set or merge patch needs a value; an unset patch has none.")


def set_(path: str, value: Any) -> Patch:
    """Return the patch that sets the value at a path."""
    return Patch("set", path, value)


def unset(path: str) -> Patch:
    """Return the patch that removes the value at a path."""
    return Patch("unset", path)


def merge(path: str, members: Mapping[str, Any]) -> Patch:
    """Return the patch that sets some members of the object at a path and keeps its others."""
    return Patch("merge", path, dict(members))


def apply_patches(data: FrozenDict, patches: Iterable[Patch]) -> FrozenDict:
    """Return the data after the patches; unchanged parts are shared with the old data.

    Nothing is checked against a schema: replay applies recorded patches, which were checked when they were created.

    Raises:
        RefusedError: ``PATH_NOT_FOUND`` or ``TYPE_MISMATCH`` where a patch cannot be applied to the data.
    """
    for patch in patches:
        data = apply_patch(data, patch)
    return data


def apply_patch(data: FrozenDict, patch: Patch) -> FrozenDict:
    """Return the data after one patch; see ``apply_patches``."""
    segments = parse_path(patch.path)
    if len(segments) > MAX_DEPTH:
        raise _not_found(f"{patch.path[:80]}...", f"no data is deeper than {MAX_DEPTH} levels")
    if patch.op == "unset":
        if not segments:
            raise _mismatch(patch.path, "the data itself cannot be unset")
        return cast(FrozenDict, _unset(data, segments, patch.path))
    value = patch.value
    if patch.op == "merge":
        if value is None:
            return data
        value = _merged(look_up(data, segments), value, patch.path)
    if not segments:
        if not isinstance(value, FrozenDict):
            raise _mismatch("", "the data is an object and stays one")
        return value
    changed: FrozenDict = _set(data, segments, value, patch.path)
    return changed


def _merged(target: Any, members: Any, path: str) -> FrozenDict:
    whole: Any = EMPTY if target is None else target
    if not isinstance(members, FrozenDict) or not isinstance(whole, FrozenDict):
        raise _mismatch(path, "merge needs an object, and an object or nothing where it goes")
    if len(members) > _MANY:
        return FrozenDict({**whole, **members})
    merged: FrozenDict = whole
    for key, item in members.items():
        merged = merged.with_item(key, item)
    return merged


def _set(node: Any, segments: Segments, value: Any, path: str) -> Any:
    name, rest = segments[0], segments[1:]
    if type(node) is FrozenDict:
        return node.with_item(name, _set(node.get(name), rest, value, path) if rest else value)
    if isinstance(node, FrozenList):
        index = array_index(name)
        if index is not None and index < len(node):
            return node.with_item(index, _set(node[index], rest, value, path) if rest else value)
        if index == len(node) and not rest:
            return node.with_appended(value)
        raise _not_found(path, f"the array there has {len(node)} elements and none at {name!r}")
    if node is None:
        return EMPTY.with_item(name, _set(None, rest, value, path) if rest else value)
    raise _not_found(path, f"{name!r} would stand inside of a {type(node).__name__}")


def _unset(node: Any, segments: Segments, path: str) -> Any:
    name, rest = segments[0], segments[1:]
    if isinstance(node, FrozenDict):
        if name not in node:
            return node
        if not rest:
            return node.without(name)
        inner = _unset(node[name], rest, path)
        return node if inner is node[name] else node.with_item(name, inner)
    if isinstance(node, FrozenList):
        index = array_index(name)
        if index is None:
            raise _not_found(path, f"{name!r} is no index of the array there")
        if index >= len(node):
            return node
        if not rest:
            return freeze([*node[:index], *node[index + 1 :]])
        return node.with_item(index, _unset(node[index], rest, path))
    return node


def _not_found(path: str, why: str) -> RefusedError:
    return RefusedError(ErrorCode.PATH_NOT_FOUND, f"The patch of {path!r} does not fit the data: {why}.", path=path)


def _mismatch(path: str, why: str) -> RefusedError:
    return RefusedError(ErrorCode.TYPE_MISMATCH, f"The patch of {path!r} does not fit the data: {why}.", path=path)


Place = tuple[str | None, ...]
"""Segments of a place in the data; None means every name."""


def touched_paths(patch: Patch) -> tuple[Place, ...]:
    """Return the places that a patch changes: the members of a merge, otherwise its path.

    Removing an array element shifts all later elements; so an ``unset`` with an index touches every element.
    """
    at = parse_path(patch.path)
    if patch.op == "merge" and isinstance(patch.value, dict) and patch.value:
        return tuple((*at, key) for key in patch.value)
    if patch.op == "unset" and at and array_index(at[-1]) is not None:
        return ((*at[:-1], None),)
    return (at,)


def scope_allows(patterns: Iterable[str], patch: Patch, rules: int = SCOPE_RULES) -> bool:
    r"""Return whether one of the patterns covers every place that a patch touches (INT-5.3).

    Args:
        patterns: ``data.profile.*``, ``todos.*.done``; a literal ``*`` is written ``\*``.
        patch: the patch to check.
        rules: version of the scope rules; see ``world.model.scope_patterns``.
    """
    return allows(compile_scope(patterns, rules), patch)


def allows(scope: Trie, patch: Patch) -> bool:
    """Return whether a compiled scope covers every place that a patch touches."""
    return all(scope.covers(place) for place in touched_paths(patch))
