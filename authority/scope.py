"""Containment and intersection of lists of scope patterns.

``world.model.scope_patterns`` defines the patterns; version 2 of the scope rules is the default.

Both operations are exact. There are always more names than a list of patterns mentions, so a pattern is within a list
only if it is within one member of it; and the intersection of two patterns is exactly one pattern or empty. The texts
of refusals are recorded in rulings and must not change. Sources: INT-5.3, INT-13.3; design section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.intent import IntentScope
from world.model.scope_patterns import SCOPE_RULES, Pattern, Trie, format_pattern, parse_pattern
from world.sizes import MAX_SCOPE_NAMES, MAX_SCOPE_PATTERNS, MAX_SCOPE_STEPS

__all__ = ["intersection", "is_within", "outside", "restrict"]

_LIMITS: Final = {1: (256, 2_048), 2: (MAX_SCOPE_PATTERNS, MAX_SCOPE_NAMES)}
"""Maximum number of patterns and names of a compared list, by version of the scope rules.

The limits of version 1 never change, because a refusal is part of a recorded ruling.
"""


def is_within(inner: Iterable[str], outer: Iterable[str], rules: int = SCOPE_RULES) -> bool:
    """Return whether ``outer`` allows every patch that ``inner`` allows.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE``.
    """
    return not outside(inner, outer, rules)


def outside(inner: Iterable[str], outer: Iterable[str], rules: int = SCOPE_RULES) -> list[str]:
    """Return the patterns of ``inner`` that are not within ``outer``.

    Args:
        inner: patterns.
        outer: patterns.
        rules: version of the scope rules.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE`` for lists with more patterns or names than may be compared.
    """
    whole = Trie([parse_pattern(pattern, rules) for pattern in _bounded(outer, rules)])
    beyond = []
    for pattern in _bounded(inner, rules):
        if not whole.covers(parse_pattern(pattern, rules)):
            beyond.append(pattern)
        _check_steps(whole, rules)
    return beyond


def intersection(left: Iterable[str], right: Iterable[str], rules: int = SCOPE_RULES) -> tuple[str, ...]:
    """Return the minimal patterns that allow exactly what both lists allow.

    A pattern of one of the lists keeps its text.

    Args:
        left: patterns.
        right: patterns.
        rules: version of the scope rules.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE`` for lists, given or resulting, with more patterns or names than may be
            compared.
    """
    mine, theirs = _minimal(_bounded(left, rules), rules), _minimal(_bounded(right, rules), rules)
    others = list(theirs.items())
    trie = Trie(theirs)
    common: dict[Pattern, str] = {}
    for one, text in mine.items():
        if trie.covers(one):
            common[one] = text
            continue
        for at in trie.meeting(one):
            other, their_text = others[at]
            both = _meet(one, other)
            common.setdefault(both, their_text if both == other else format_pattern(both))
        _check_steps(trie, rules)
        if rules >= 2 and len(common) > MAX_SCOPE_PATTERNS:
            break
    return tuple(_minimal(_bounded(common.values(), rules), rules).values())


def restrict(
    scope: IntentScope | None, narrowings: Sequence[IntentScope], rules: int = SCOPE_RULES
) -> IntentScope | None:
    """Return the intersection of a scope with all narrowings.

    Args:
        scope: the proposed scope; None, or a scope without patterns, is no restriction.
        narrowings: the narrowings; without any the result is ``scope`` itself.
        rules: version of the scope rules.

    Returns:
        The narrower scope. Its patterns are empty where the intersection is empty.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE``; ``INVALID_VALUE`` for a common pattern too long to be written.
    """
    result = scope
    for narrowing in narrowings:
        if narrowing.allowed_paths is None:
            continue
        if result is None or result.allowed_paths is None:
            result = narrowing
            continue
        common = intersection(narrowing.allowed_paths, result.allowed_paths, rules)
        if common == narrowing.allowed_paths:
            result = narrowing
        elif common != result.allowed_paths:
            result = IntentScope.read({"allowedPaths": common})
    return result


def _minimal(patterns: Iterable[str], rules: int) -> dict[Pattern, str]:
    """Return the distinct patterns that no other one covers, with their texts."""
    texts: dict[Pattern, str] = {}
    for pattern in patterns:
        texts.setdefault(parse_pattern(pattern, rules), pattern)
    trie = Trie(texts)
    kept = {}
    for at, (one, text) in enumerate(texts.items()):
        if not trie.covers(one, but=at):
            kept[one] = text
        _check_steps(trie, rules)
    return kept


def _meet(left: Pattern, right: Pattern) -> Pattern:
    """Return the intersection of two patterns that meet."""
    if len(left) < len(right):
        left, right = right, left
    both = (name if wanted is None else wanted for wanted, name in zip(left, right, strict=False))
    return (*both, *left[len(right) :])


def _bounded(patterns: Iterable[str], rules: int) -> tuple[str, ...]:
    patterns = tuple(patterns)
    max_patterns, max_names = _LIMITS[rules]
    if len(patterns) > max_patterns or sum(len(parse_pattern(one, rules)) for one in patterns) > max_names:
        raise RefusedError(
            ErrorCode.SCOPE_TOO_LARGE,
            f"A scope of {len(patterns)} patterns is too large to be compared; the limit is {max_patterns} patterns "
            f"with {max_names} names altogether. Name the common parents instead.",
            patterns=len(patterns),
            max_patterns=max_patterns,
            max_names=max_names,
        )
    return patterns


def _check_steps(trie: Trie, rules: int) -> None:
    """Raise for a comparison with too many steps, since ``*`` can match in many ways."""
    if rules >= 2 and trie.visited > MAX_SCOPE_STEPS:
        raise RefusedError(
            ErrorCode.SCOPE_TOO_LARGE,
            f"Two scopes cannot be compared in {MAX_SCOPE_STEPS} steps (MAX_SCOPE_STEPS): their `*` match in too many "
            "ways. Write fewer patterns with `*` in front of a name.",
            max_steps=MAX_SCOPE_STEPS,
        )
