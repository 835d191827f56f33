r"""The algebra of scope patterns: is one list within another, and what do two lists have in common.

A pattern means what ``world.patch.scope_allows`` takes it for: ``data.`` in front may be left out, ``*`` is
one segment, and a pattern covers every place that begins as it does, so that a final ``*`` is the whole
subtree below and a pattern without a star is that place with everything in it. A literal ``*`` is written
``\*``.

Both questions have exact answers. There are always more names than a list of patterns mentions, so a pattern
lies within a list only if it lies within one member of it; and two patterns meet in exactly one pattern, or
not at all. Sources: INT-5.3, INT-13.3; design section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from world.errors import Refused
from world.intent import IntentScope
from world.paths import parse_path

MAX_PATTERNS: Final = 256
"""Patterns in a list that is compared with another; with more, the comparison is refused."""

MAX_NAMES: Final = 2_048
"""Names in all patterns of such a list together; this bounds a comparison to tens of milliseconds."""

Segments = tuple[str | None, ...]
"""A pattern's names below the data; None is the star."""


@lru_cache(maxsize=4_096)
def parse_pattern(pattern: str) -> Segments:
    """Return the names of a pattern, without ``data``; None stands for ``*``."""
    names = parse_path(pattern)
    if names[:1] == ("data",):
        names = names[1:]
    return tuple(None if name == "*" else "*" if name == "\\*" else name for name in names)


def format_pattern(segments: Segments) -> str:
    """Return the text that ``parse_pattern`` splits into the same names."""
    return ".".join(("data", *map(_written, segments)))


def is_within(inner: Iterable[str], outer: Iterable[str]) -> bool:
    """Tell whether every patch that ``inner`` allows is allowed by ``outer`` as well.

    Raises:
        Refused: ``SCOPE_TOO_LARGE`` for lists beyond ``MAX_PATTERNS`` or ``MAX_NAMES``.
    """
    return not outside(inner, outer)


def outside(inner: Iterable[str], outer: Iterable[str]) -> list[str]:
    """Return the patterns of ``inner`` that reach out of ``outer``; the same refusal as ``is_within``."""
    wide = [parse_pattern(pattern) for pattern in _bounded(outer)]
    return [pattern for pattern in _bounded(inner) if not any(_covers(whole, parse_pattern(pattern)) for whole in wide)]


def intersection(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Return patterns that allow exactly what both lists allow, without any that another one covers.

    A pattern that already stands in one of the lists keeps its text.

    Raises:
        Refused: ``SCOPE_TOO_LARGE`` for lists, given or resulting, beyond ``MAX_PATTERNS`` or ``MAX_NAMES``.
    """
    mine, theirs = _minimal(_bounded(left)), _minimal(_bounded(right))
    common: dict[Segments, str] = {}
    for one, text in mine.items():
        if any(_covers(other, one) for other in theirs):
            common[one] = text
            continue
        for other, their_text in theirs.items():
            both = _meet(one, other)
            if both is not None:
                common.setdefault(both, their_text if both == other else format_pattern(both))
    return tuple(_minimal(_bounded(common.values())).values())


def restrict(scope: IntentScope | None, narrowings: Sequence[IntentScope]) -> IntentScope | None:
    """Return the scope that lies within ``scope`` and within every narrowing.

    Args:
        scope: what was proposed; None, or a scope without patterns, is no restriction.
        narrowings: what it is narrowed to; none at all gives ``scope`` itself.

    Returns:
        The narrower scope. Its patterns are empty where nothing is left.

    Raises:
        Refused: ``SCOPE_TOO_LARGE``; ``INVALID_VALUE`` for a common pattern too long to be written.
    """
    result = scope
    for narrowing in narrowings:
        if narrowing.allowed_paths is None:
            continue
        if result is None or result.allowed_paths is None:
            result = narrowing
            continue
        common = intersection(narrowing.allowed_paths, result.allowed_paths)
        if common == narrowing.allowed_paths:
            result = narrowing
        elif common != result.allowed_paths:
            result = IntentScope.read({"allowedPaths": common})
    return result


def _minimal(patterns: Iterable[str]) -> dict[Segments, str]:
    """Return the patterns that no other one covers, each once, with their texts."""
    texts: dict[Segments, str] = {}
    for pattern in patterns:
        texts.setdefault(parse_pattern(pattern), pattern)
    return {
        one: text for one, text in texts.items() if not any(other != one and _covers(other, one) for other in texts)
    }


def _covers(whole: Segments, part: Segments) -> bool:
    if len(part) < len(whole):
        return False
    return all(wanted is None or wanted == name for wanted, name in zip(whole, part, strict=False))


def _meet(left: Segments, right: Segments) -> Segments | None:
    if len(left) < len(right):
        left, right = right, left
    common = list(left)
    for at, name in enumerate(right):
        if common[at] is None:
            common[at] = name
        elif name is not None and name != common[at]:
            return None
    return tuple(common)


def _written(name: str | None) -> str:
    if name is None:
        return "*"
    return "\\*" if name == "*" else name.replace("\\", "\\\\").replace(".", "\\.")


def _bounded(patterns: Iterable[str]) -> tuple[str, ...]:
    patterns = tuple(patterns)
    if len(patterns) > MAX_PATTERNS or sum(len(parse_pattern(pattern)) for pattern in patterns) > MAX_NAMES:
        raise Refused(
            "SCOPE_TOO_LARGE",
            f"A scope of {len(patterns)} patterns is too large to be compared; the limit is {MAX_PATTERNS} patterns "
            f"with {MAX_NAMES} names altogether. Name the common parents instead.",
            patterns=len(patterns),
            max_patterns=MAX_PATTERNS,
            max_names=MAX_NAMES,
        )
    return patterns
