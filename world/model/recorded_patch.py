"""Application of the patches that events record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_args

import msgspec

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import Patch, PatchOp, apply_patch

__all__ = ["patched"]

_OPS: Final = get_args(PatchOp)


class _RecordedPatch(msgspec.Struct, gc=False):
    """A recorded patch; has the attributes of ``Patch`` and is faster to construct."""

    op: PatchOp
    path: str
    value: Any = None


def patched(data: FrozenDict, patches: Sequence[Mapping[str, Any]]) -> FrozenDict:
    """Return the data after recorded patches in wire form.

    Raises:
        RefusedError: ``INVALID_PATCH`` for a malformed patch, ``PATH_NOT_FOUND`` or ``TYPE_MISMATCH`` for one that
            cannot be applied to the data.
    """
    for wire in patches:
        data = apply_patch(data, cast(Patch, _recorded(wire)))
    return data


def _recorded(wire: Mapping[str, Any]) -> _RecordedPatch:
    op: Any = wire.get("op")
    path: Any = wire.get("path")
    value = wire.get("value", _RecordedPatch)
    has_value = value is not _RecordedPatch  # the class marks an absent value; JSON has no such value
    if op not in _OPS or type(path) is not str or len(wire) != 2 + has_value:
        raise RefusedError(
            ErrorCode.INVALID_PATCH, "A recorded patch has op, path and value, with a known op and a string path."
        )
    if (op == "unset") is has_value:
        raise RefusedError(ErrorCode.INVALID_PATCH, "A set or merge patch needs a value; an unset patch has none.")
    if type(value) in (dict, list):
        value = freeze(value)
    return _RecordedPatch(op, path, value)
