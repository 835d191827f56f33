"""References to secrets: ``${secret:NAME}`` in a text, in place of a value that never enters the log.

A name has 1 to 128 of the ASCII letters and digits and ``_``, ``.`` and ``-``, and begins with a letter or ``_``. A
text may hold several references. A literal ``${secret:`` is written ``$${secret:``; of several dollar signs before
``{secret:`` one is removed and no reference is read. Keys of objects hold no references. The host replaces references
when it performs an effect (``host.secrets``); everything before that, and the log, holds the reference.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from world.errors import RefusedError

__all__ = ["SECRET_REFERENCE_INVALID", "has_reference", "is_literal", "references", "with_references_replaced"]

SECRET_REFERENCE_INVALID: Final = "SECRET_REFERENCE_INVALID"
"""The code of a text with ``${secret:`` that is not followed by a name and ``}``."""

_REFERENCE: Final = re.compile(r"(?<!\$)(\$+)\{secret:(?:([A-Za-z_][A-Za-z0-9_.-]{0,127})\})?")


def has_reference(text: str) -> bool:
    """Return whether a text contains at least one reference to a secret."""
    return any(match[2] is not None and match[1] == "$" for match in _REFERENCE.finditer(text))


def is_literal(value: Any) -> bool:
    """Return whether a secret field's value is anything but a reference, null and the empty text."""
    return value not in (None, "") and not (isinstance(value, str) and has_reference(value))


def references(value: Any) -> tuple[str, ...]:
    """Return the names of the secrets that a JSON value refers to, in order of first mention.

    Raises:
        RefusedError: ``SECRET_REFERENCE_INVALID``.
    """
    names: dict[str, None] = {}
    for text in _texts(value):
        if "{secret:" in text:
            _REFERENCE.sub(lambda one: names.setdefault(_name(one), None) or "" if one[1] == "$" else "", text)
    return tuple(names)


def with_references_replaced(value: Any, value_of: Callable[[str], str]) -> Any:
    """Return a copy of a JSON value with a secret's value in place of each reference, and escapes removed.

    Args:
        value: JSON.
        value_of: returns the value of the secret with a given name.

    Raises:
        RefusedError: ``SECRET_REFERENCE_INVALID``, and what ``value_of`` raises.
    """

    def replaced(one: re.Match[str]) -> str:
        return value_of(_name(one)) if one[1] == "$" else one[0][1:]

    if isinstance(value, str):
        return _REFERENCE.sub(replaced, value) if "{secret:" in value else value
    if isinstance(value, Mapping):
        return {key: with_references_replaced(inner, value_of) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [with_references_replaced(inner, value_of) for inner in value]
    return value


def _name(reference: re.Match[str]) -> str:
    if reference[2] is None:
        raise RefusedError(
            SECRET_REFERENCE_INVALID,
            "A reference to a secret is written ${secret:NAME}; NAME has letters, digits, '_', '.' and '-', and begins "
            "with a letter or '_'. Write $${secret: for the literal text.",
        )
    return reference[2]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
