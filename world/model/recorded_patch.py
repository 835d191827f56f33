"""Patches as events record them, applied to data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_args

import msgspec

from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import Patch, PatchOp, apply_patch

__all__ = ["patched"]

_OPS: Final = get_args(PatchOp)


class _RecordedPatch(msgspec.Struct, gc=False):
    """A patch as it stands in an event; as good as a ``Patch`` to be applied, and much quicker to make."""

    op: PatchOp
    path: str
    value: Any = None


def patched(data: FrozenDict, patches: Sequence[Mapping[str, Any]]) -> FrozenDict:
    """Return the data after recorded patches in wire form.

    Raises:
        RefusedError: ``INVALID_PATCH`` for what is no patch, ``PATH_NOT_FOUND`` or ``TYPE_MISMATCH`` for one that does
            not fit the data.
    """
    for wire in patches:
        data = apply_patch(data, cast(Patch, _recorded(wire)))
    return data


def _recorded(wire: Mapping[str, Any]) -> _RecordedPatch:
    op: Any = wire.get("op")
    path: Any = wire.get("path")
    value = wire.get("value", _RecordedPatch)
    is_whole = value is not _RecordedPatch  # a class is no JSON value
    if op not in _OPS or type(path) is not str or len(wire) != 2 + is_whole:
        raise RefusedError(
            "INVALID_PATCH", "a recorded patch holds op, path and value with a known op and a text path."
        )
    if (op == "unset") is is_whole:
        raise RefusedError("INVALID_PATCH", "a set or merge patch needs a value, and an unset patch has none.")
    if type(value) in (dict, list):
        value = freeze(value)
    return _RecordedPatch(op, path, value)
