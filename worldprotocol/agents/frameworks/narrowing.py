"""Scopes of calls: which data the arguments of a tool mean, and what is left of them where the scope is narrowed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from world.model.intent import IntentScope
from world.model.scope_patterns import Trie, compile_scope, parse_pattern

__all__ = ["emptied", "narrowed", "patterns_of"]

PLACE: Final = "{}"
"""Place of the value in a pattern."""


def patterns_of(narrows: Mapping[str, str], arguments: Mapping[str, Any]) -> list[str]:
    """Return the patterns that a call proposes as its scope, each once.

    Args:
        narrows: by argument the pattern that each of its values means, with ``{}`` in place of the value.
        arguments: the arguments, JSON.
    """
    found = [
        _pattern(pattern, value)
        for name, pattern in narrows.items()
        if name in arguments
        for value in _values(arguments[name])
    ]
    return list(dict.fromkeys(found))


def narrowed(
    narrows: Mapping[str, str], arguments: Mapping[str, Any], scope: IntentScope | None, rules: int
) -> dict[str, Any]:
    """Return the arguments without the values whose patterns are not within an approved scope.

    Of a list its elements are left out, of an object its members; any other argument is left out as a whole.

    Args:
        narrows: as for ``patterns_of``.
        arguments: the arguments, JSON.
        scope: the approved scope; None is no restriction.
        rules: version of the scope rules.
    """
    if scope is None or scope.allowed_paths is None:
        return dict(arguments)
    allowed, kept = compile_scope(scope.allowed_paths, rules), {}
    for name, value in arguments.items():
        pattern = narrows.get(name)
        if pattern is None:
            kept[name] = value
        elif isinstance(value, list):
            kept[name] = [one for one in value if _is_within(allowed, pattern, one, rules)]
        elif isinstance(value, dict):
            kept[name] = {key: one for key, one in value.items() if _is_within(allowed, pattern, key, rules)}
        elif value is None or _is_within(allowed, pattern, value, rules):
            kept[name] = value
    return kept


def emptied(narrows: Mapping[str, str], given: Mapping[str, Any], kept: Mapping[str, Any]) -> str | None:
    """Return an argument of whose values none is left; a tool may take its absence for everything.

    Args:
        narrows: as for ``patterns_of``.
        given: the arguments, JSON.
        kept: what ``narrowed`` left of them.
    """
    return next((name for name in narrows if _values(given.get(name)) and not _values(kept.get(name))), None)


def _is_within(allowed: Trie, pattern: str, value: Any, rules: int) -> bool:
    return allowed.covers(parse_pattern(_pattern(pattern, value), rules))


def _values(value: Any) -> list[Any]:
    """Return the values of an argument: the elements of a list, the keys of an object, or itself; none of null."""
    if isinstance(value, list | dict):
        return list(value)
    return [] if value is None else [value]


def _pattern(pattern: str, value: Any) -> str:
    """Return a pattern with a value in its place, as one literal name."""
    name = str(value)
    name = "\\*" if name == "*" else name.replace("\\", "\\\\").replace(".", "\\.")
    return pattern.replace(PLACE, name)
