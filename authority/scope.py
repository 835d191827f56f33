"""The algebra of scope patterns: is one list within another, and what do two lists have in common.

What a pattern means, ``world.model.scope_patterns`` says; version 2 of the scope rules is meant where none is named.

Both questions have exact answers. There are always more names than a list of patterns mentions, so a pattern
lies within a list only if it lies within one member of it; and two patterns meet in exactly one pattern, or
not at all. Sources: INT-5.3, INT-13.3; design section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from world.errors import RefusedError
from world.model.intent import IntentScope
from world.model.scope_patterns import SCOPE_RULES, Pattern, Trie, format_pattern, parse_pattern
from world.sizes import MAX_SCOPE_NAMES, MAX_SCOPE_PATTERNS, MAX_SCOPE_STEPS

__all__ = ["intersection", "is_within", "outside", "restrict"]

_LIMITS: Final = {1: (256, 2_048), 2: (MAX_SCOPE_PATTERNS, MAX_SCOPE_NAMES)}
"""By version of the scope rules: patterns and names of a list that is compared with another.

Version 1 keeps what it had, because a refusal is part of the ruling that was recorded.
"""


def is_within(inner: Iterable[str], outer: Iterable[str], rules: int = SCOPE_RULES) -> bool:
    """Tell whether every patch that ``inner`` allows is allowed by ``outer`` as well.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE``.
    """
    return not outside(inner, outer, rules)


def outside(inner: Iterable[str], outer: Iterable[str], rules: int = SCOPE_RULES) -> list[str]:
    """Return the patterns of ``inner`` that reach out of ``outer``.

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
    """Return patterns that allow exactly what both lists allow, without any that another one covers.

    A pattern that already stands in one of the lists keeps its text.

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
    """Return the scope that lies within ``scope`` and within every narrowing.

    Args:
        scope: what was proposed; None, or a scope without patterns, is no restriction.
        narrowings: what it is narrowed to; none at all gives ``scope`` itself.
        rules: version of the scope rules.

    Returns:
        The narrower scope. Its patterns are empty where nothing is left.

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
    """Return the patterns that no other one covers, each once, with their texts."""
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
    """Return the pattern of what two patterns have in common, which is something."""
    if len(left) < len(right):
        left, right = right, left
    both = (name if wanted is None else wanted for wanted, name in zip(left, right, strict=False))
    return (*both, *left[len(right) :])


def _bounded(patterns: Iterable[str], rules: int) -> tuple[str, ...]:
    patterns = tuple(patterns)
    max_patterns, max_names = _LIMITS[rules]
    if len(patterns) > max_patterns or sum(len(parse_pattern(one, rules)) for one in patterns) > max_names:
        raise RefusedError(
            "SCOPE_TOO_LARGE",
            f"A scope of {len(patterns)} patterns is too large to be compared; the limit is {max_patterns} patterns "
            f"with {max_names} names altogether. Name the common parents instead.",
            patterns=len(patterns),
            max_patterns=max_patterns,
            max_names=max_names,
        )
    return patterns


def _check_steps(trie: Trie, rules: int) -> None:
    """Refuse a comparison that goes on for too long: stars of both lists can match in very many ways."""
    if rules >= 2 and trie.visited > MAX_SCOPE_STEPS:
        raise RefusedError(
            "SCOPE_TOO_LARGE",
            f"Two scopes cannot be compared in {MAX_SCOPE_STEPS} steps (MAX_SCOPE_STEPS): their `*` match in too many "
            "ways. Write fewer patterns with `*` in front of a name.",
            max_steps=MAX_SCOPE_STEPS,
        )
