r"""Scope patterns, their semantics, and the trie that a list of patterns is compiled to (INT-5.3; design section 4).

A pattern is a path (``world.model.paths``) in which a segment ``*`` matches any one name; ``\*`` is the name ``*``. It
covers the place that it names and everything below, so a final ``*`` covers everything below its parent, without the
parent itself.

A first name ``data`` that is followed by another name means the data itself and may be omitted: ``data.profile.*`` is
``profile.*``. Without a second name it is an ordinary member: ``data`` is the member ``data``, as ``data.data``. The
semantics never depend on the state. No pattern covers the whole data as one value; replacing it requires an
unrestricted scope.

These are version 2 of the scope rules, which ``proposal.submitted`` records. A proposal without a recorded version is
read by version 1: there ``data`` alone is the whole data, and ``\\*`` is the name ``*`` instead of a backslash and a
star.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.paths import format_name, parse_path, written_segments
from world.sizes import MAX_SCOPE_PATTERNS

__all__ = [
    "SCOPE_RULES",
    "Pattern",
    "Trie",
    "check_number",
    "compile_scope",
    "format_pattern",
    "parse_pattern",
]

SCOPE_RULES: Final = 2
"""Version of the scope rules that is recorded with new proposals."""

Pattern = tuple[str | None, ...]
"""The names of a pattern below the data; None is ``*``."""


@lru_cache(maxsize=16_384)
def parse_pattern(pattern: str, rules: int = SCOPE_RULES) -> Pattern:
    """Return the names of a pattern below the data.

    Args:
        pattern: such as ``data.todos.*.done``.
        rules: version of the scope rules, 1 or 2.
    """
    if rules < 2:
        names = parse_path(pattern)
        names = names[1:] if names[:1] == ("data",) else names
        return tuple(None if name == "*" else "*" if name == "\\*" else name for name in names)
    segments = [_name(written) for written in written_segments(pattern)] if pattern else []
    if len(segments) > 1 and segments[0] == "data":
        del segments[0]
    return tuple(segments)


def format_pattern(pattern: Pattern) -> str:
    """Return the text that ``parse_pattern`` parses into the same names."""
    return ".".join(("data", *map(_written, pattern)))


def _name(written: str) -> str | None:
    if written == "*":
        return None
    if written == "\\*":
        return "*"
    return parse_path(written)[0] if "\\" in written else written


def _written(name: str | None) -> str:
    if name is None:
        return "*"
    if name == "*":
        return "\\*"
    return format_name(name)


class _TrieNode:
    """Node of a trie; ``at`` is the number of the pattern that ends at it, or -1."""

    __slots__ = ("at", "names", "star")

    def __init__(self) -> None:
        self.at = -1
        self.names: dict[str, _TrieNode] = {}
        self.star: _TrieNode | None = None

    def followed(self, name: str | None) -> tuple[_TrieNode, ...]:
        """Return the children that match a name; only ``*`` matches the name None."""
        literal = None if name is None else self.names.get(name)
        if literal is None:
            return () if self.star is None else (self.star,)
        return (literal,) if self.star is None else (literal, self.star)

    def children(self) -> tuple[_TrieNode, ...]:
        """Return all children."""
        return tuple(self.names.values()) if self.star is None else (*self.names.values(), self.star)


class Trie:
    """Compiled list of patterns.

    A query visits, for each name of the place, the nodes that can match: one, and one more for each way in which
    stars of the list match the preceding names. Its cost does not depend on the number of patterns.

    Attributes:
        visited: total number of nodes visited by queries, for tests and benchmarks.
    """

    __slots__ = ("_root", "visited")

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        """Compile patterns; of equal patterns the first one is used."""
        self._root = _TrieNode()
        self.visited = 0
        for at, pattern in enumerate(patterns):
            node = self._root
            for name in pattern:
                following = node.star if name is None else node.names.get(name)
                if following is None:
                    following = _TrieNode()
                    if name is None:
                        node.star = following
                    else:
                        node.names[name] = following
                node = following
            if node.at < 0:
                node.at = at

    def covers(self, place: Pattern, but: int = -1) -> bool:
        """Return whether one of the patterns covers a place.

        Args:
            place: names; None means every name, which only ``*`` covers.
            but: number of a pattern to ignore; -1 ignores none.
        """
        nodes: Sequence[_TrieNode] = (self._root,)
        for name in place:
            self.visited += len(nodes)
            for node in nodes:
                if node.at >= 0 and node.at != but:
                    return True
            nodes = nodes[0].followed(name) if len(nodes) == 1 else [n for node in nodes for n in node.followed(name)]
            if not nodes:
                return False
        self.visited += len(nodes)
        return any(node.at >= 0 and node.at != but for node in nodes)

    def meeting(self, pattern: Pattern) -> list[int]:
        """Return the numbers of the patterns that have a place in common with a pattern, in order."""
        numbers: list[int] = []
        nodes: list[_TrieNode] = [self._root]
        for name in pattern:
            self.visited += len(nodes)
            numbers += [node.at for node in nodes if node.at >= 0]
            nodes = [n for node in nodes for n in (node.children() if name is None else node.followed(name))]
        while nodes:
            self.visited += len(nodes)
            numbers += [node.at for node in nodes if node.at >= 0]
            nodes = [child for node in nodes for child in node.children()]
        return sorted(numbers)


def compile_scope(patterns: Iterable[str], rules: int = SCOPE_RULES) -> Trie:
    """Return the trie of a list of patterns; recent results are cached.

    Args:
        patterns: texts of the patterns.
        rules: version of the scope rules.
    """
    return _compiled(tuple(patterns), rules)


@lru_cache(maxsize=32)
def _compiled(patterns: tuple[str, ...], rules: int) -> Trie:
    return Trie([parse_pattern(pattern, rules) for pattern in patterns])


def check_number(patterns: int, what: str) -> None:
    """Refuse a list of too many patterns before it is processed.

    Args:
        patterns: the number of patterns, or a lower bound of it.
        what: the thing that lists them, as the message names it.

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE``.
    """
    if patterns > MAX_SCOPE_PATTERNS:
        raise RefusedError(
            ErrorCode.SCOPE_TOO_LARGE,
            f"{what} lists {patterns} patterns or more; the limit is {MAX_SCOPE_PATTERNS} (MAX_SCOPE_PATTERNS). "
            "Name the common parents instead.",
            patterns=patterns,
            max_patterns=MAX_SCOPE_PATTERNS,
        )
