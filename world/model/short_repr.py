"""Representation of a value on one line, for debuggers, logs and test reports."""

from __future__ import annotations

from typing import Final

__all__ = ["MAX_REPR", "short_repr"]

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
