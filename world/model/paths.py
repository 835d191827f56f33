r"""Paths into JSON trees: dotted names, ``\.`` for a dot inside a name.

A backslash in a name is written ``\\``; before any other character a backslash is literal. The empty path is the
root. A segment at an array is an index: digits without a leading zero. Source: design section 4.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = [
    "Segments",
    "array_index",
    "format_name",
    "format_path",
    "is_present",
    "look_up",
    "parse_path",
    "written_segments",
]

Segments = tuple[str, ...]

_PIECE: Final = re.compile(r"\\[\\.]|\.|[^\\.]+|\\")
_ESCAPE: Final = re.compile(r"\\([\\.])")
_INDEX: Final = re.compile(r"0|[1-9][0-9]{0,8}")


@lru_cache(maxsize=16_384)
def parse_path(path: str) -> Segments:
    """Split a path into its names.

    Args:
        path: such as ``todos.0.title``; ``""`` is the root, which has no names.
    """
    if not path:
        return ()
    if "\\" not in path:
        return tuple(path.split("."))
    return tuple(_ESCAPE.sub(r"\1", written) for written in written_segments(path))


def written_segments(path: str) -> list[str]:
    """Split a path into its segments, which keep their escapes.

    Args:
        path: not empty.
    """
    segments = [""]
    for piece in _PIECE.findall(path):
        if piece == ".":
            segments.append("")
        else:
            segments[-1] += piece
    return segments


def format_path(segments: Segments) -> str:
    """Join names into the path that ``parse_path`` splits into the same names.

    Raises:
        RefusedError: ``INVALID_PATH`` for the single empty name, whose text would equal that of the root.
    """
    if segments == ("",):
        raise RefusedError(
            ErrorCode.INVALID_PATH, "A top-level key must not be the empty text: its path would be the root."
        )
    return ".".join(map(format_name, segments))


def format_name(name: str) -> str:
    """Return a name as one segment of a path."""
    return name.replace("\\", "\\\\").replace(".", "\\.")


def array_index(segment: str) -> int | None:
    """Return a segment as an array index, or None where it is not an index."""
    return int(segment) if segment.isascii() and _INDEX.fullmatch(segment) else None


def is_present(tree: Any, segments: Sequence[str], *, with_length: bool) -> bool:
    """Return whether there is a value at a path; null is one.

    Args:
        tree: any JSON value.
        segments: names and indexes.
        with_length: whether an array has its ``length``.
    """
    for segment in segments:
        if isinstance(tree, dict):
            if segment not in tree:
                return False
            tree = tree[segment]
        elif isinstance(tree, list):
            index = array_index(segment)
            if index is not None and index < len(tree):
                tree = tree[index]
            elif segment == "length" and with_length:
                tree = len(tree)
            else:
                return False
        else:
            return False
    return True


def look_up(tree: Any, segments: Segments) -> Any:
    """Return the value at a path, or None where it is absent; ``length`` of an array is its number of elements."""
    for segment in segments:
        if isinstance(tree, dict):
            tree = tree.get(segment)
        elif isinstance(tree, list):
            index = array_index(segment)
            if index is not None:
                tree = tree[index] if index < len(tree) else None
            else:
                tree = len(tree) if segment == "length" else None
        else:
            return None
        if tree is None:
            return None
    return tree
