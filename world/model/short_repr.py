"""Representation of a value on one line, for debuggers, logs and test reports; and of many names in a sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

__all__ = ["MAX_REPR", "fields_repr", "listed", "one_line", "short_repr"]

MAX_REPR: Final = 160
"""Maximum length of a representation, in characters."""


def short_repr(value: object, *facts: str) -> str:
    """Return ``<Type fact, ...>`` on one line of at most ``MAX_REPR`` characters.

    Args:
        value: the value; its type is named.
        *facts: what identifies it, the most important first; the end is cut where all do not fit.
    """
    words = " ".join(f"{type(value).__name__} {', '.join(facts)}".split())
    line = "".join(character if character.isprintable() else "?" for character in words)
    return f"<{line}>" if len(line) <= MAX_REPR - 2 else f"<{line[: MAX_REPR - 5]}...>"


def one_line(text: str) -> str:
    """Return a representation on one line of at most ``MAX_REPR`` characters; its end is cut where it is longer."""
    line = "".join(character if character.isprintable() else "?" for character in text)
    return line if len(line) <= MAX_REPR else f"{line[: MAX_REPR - 4]}...{line[-1]}"


def fields_repr(value: Any) -> str:
    """Return ``Type(field=value, ...)`` of a dataclass on one line; assign it to ``__repr__``."""
    shown = (f"{one.name}={getattr(value, one.name)!r}" for one in dataclasses.fields(value) if one.repr)
    return one_line(f"{type(value).__qualname__}({', '.join(shown)})")


def listed(names: Sequence[str], most: int) -> str:
    """Return names in a sentence: at most so many of them, and the number of the others."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
