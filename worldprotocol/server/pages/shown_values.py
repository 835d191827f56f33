"""Values and differences as pages show them: one line for each member, and old and new value of each path.

Text that a reader could take for another type of value is quoted, as in YAML, so that what is shown is exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final, Literal

import orjson

__all__ = ["ShownChange", "ValueLine", "as_text", "shown_changes", "value_lines"]

MAX_LINES: Final = 400
"""Lines that are shown of a value; a last line has the number of the others."""

SHORT: Final = 48
"""Characters up to which an old and a new value are shown side by side."""

LONG: Final = 80
"""Characters beyond which a text is shown over the whole width."""

MAX_WORDS: Final = 1_500
"""Words and separators of a text that is compared word by word; longer ones are shown whole."""

MAX_DEPTH: Final = 6
"""Levels that are indented."""

MOST_COMPARED: Final = 30
"""Texts of one list of changes that are compared word by word."""

_PARTS: Final = re.compile(r"\s+|\w+|[^\w\s]")
_NUMBER: Final = re.compile(r"[-+.]?[0-9].*")
_WORDS: Final = frozenset({"", "null", "true", "false", "none", "~", "yes", "no", "on", "off", "absent", "removed"})

Part = tuple[str, bool]
"""A part of a text, and whether it differs from the other text."""


@dataclass(frozen=True, slots=True)
class ValueLine:
    """One line of a value.

    Args:
        depth: level of indentation, from 0 to ``MAX_DEPTH``.
        key: name of the member, ``-`` for an element of a list; None for a value alone.
        text: the value; empty where lines below have its members.
    """

    depth: int
    key: str | None
    text: str


@dataclass(frozen=True, slots=True)
class ShownChange:
    """One path with its old and new value.

    Args:
        path: the path.
        kind: what happens to it.
        before: parts of the old text; empty where there is no text of it.
        after: parts of the new text.
        before_lines: lines of an old value with members.
        after_lines: lines of a new value with members.
        is_short: whether old and new value are shown side by side.
    """

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Sequence[Part] = ()
    after: Sequence[Part] = ()
    before_lines: Sequence[ValueLine] = field(default=())
    after_lines: Sequence[ValueLine] = field(default=())
    is_short: bool = False

    @property
    def is_long(self) -> bool:
        """Whether a text of it needs the whole width."""
        return max(_size(self.before), _size(self.after)) > LONG


def as_text(value: Any) -> str:
    """Return a value without members as text: JSON, and text without quotes where nothing else looks like it."""
    if isinstance(value, str) and value.lower() not in _WORDS and not _NUMBER.match(value):
        is_plain = value == value.strip() and value[0] not in "\"'[]{}#&*!|>%@`-"
        return value if is_plain else orjson.dumps(value).decode()
    return orjson.dumps(value).decode()


def value_lines(value: Any) -> list[ValueLine]:
    """Return the lines of a JSON value.

    Args:
        value: the value.
    """
    lines: list[ValueLine] = []
    rest = 0
    for line in _lines(value, 0, None):
        if len(lines) < MAX_LINES:
            lines.append(line)
        else:
            rest += 1
    return [*lines, ValueLine(0, None, f"… {rest:,} more lines")] if rest else lines


def _lines(value: Any, depth: int, key: str | None) -> Iterator[ValueLine]:
    level = min(depth, MAX_DEPTH)
    if not isinstance(value, Mapping | list | tuple) or not value:
        yield ValueLine(level, key, as_text(value))
        return
    if key is not None:
        yield ValueLine(level, key, "")
        depth += 1
    members = value.items() if isinstance(value, Mapping) else (("-", one) for one in value)
    for name, member in members:
        yield from _lines(member, depth, name)


def shown_changes(changes: Sequence[Mapping[str, Any]]) -> list[ShownChange]:
    """Return changes as an API operation lists them in the form that pages show.

    Args:
        changes: objects with ``path``, and ``before`` or ``after`` or both.
    """
    shown: list[ShownChange] = []
    compared = 0
    for one in changes:
        made = _change(one, may_compare=compared < MOST_COMPARED)
        compared += any(is_word for _, is_word in (*made.before, *made.after))
        shown.append(made)
    return shown


def _change(one: Mapping[str, Any], *, may_compare: bool) -> ShownChange:
    path = one["path"]
    if "before" not in one:
        parts, lines = _side(one["after"])
        return ShownChange(path, "added", after=parts, after_lines=lines)
    if "after" not in one:
        parts, lines = _side(one["before"])
        return ShownChange(path, "removed", before=parts, before_lines=lines)
    (before, before_lines), (after, after_lines) = _side(one["before"]), _side(one["after"])
    is_short = not before_lines and not after_lines and max(_size(before), _size(after)) <= SHORT
    if not is_short and may_compare and isinstance(one["before"], str) and isinstance(one["after"], str):
        before, after = _compared(before[0][0], after[0][0])
    return ShownChange(path, "changed", before, after, before_lines, after_lines, is_short)


def _side(value: Any) -> tuple[Sequence[Part], Sequence[ValueLine]]:
    """Return a value as text or, with members, as lines."""
    if isinstance(value, Mapping | list | tuple) and value:
        return (), value_lines(value)
    return ((as_text(value), False),), ()


def _size(parts: Sequence[Part]) -> int:
    return sum(len(text) for text, _ in parts)


def _compared(before: str, after: str) -> tuple[list[Part], list[Part]]:
    """Return the parts of two texts, each with whether the other text has it not."""
    left, right = _PARTS.findall(before), _PARTS.findall(after)
    if max(len(left), len(right)) > MAX_WORDS:
        return [(before, False)], [(after, False)]
    gone: list[Part] = []
    new: list[Part] = []
    for kind, begin, end, start, stop in SequenceMatcher(None, left, right).get_opcodes():
        if begin < end:
            gone.append(("".join(left[begin:end]), kind != "equal"))
        if start < stop:
            new.append(("".join(right[start:stop]), kind != "equal"))
    return gone, new
