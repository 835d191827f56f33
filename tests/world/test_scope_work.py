"""What holding patches to a scope costs, counted in visited nodes and not in time."""

from __future__ import annotations

import pytest

from authority import Narrow, intersection
from authority.scope import outside
from host.enforcement import first_outside
from world.errors import RefusedError
from world.model.intent import IntentScope
from world.model.patch import set_
from world.model.paths import parse_path
from world.model.scope_patterns import compile_scope
from world.sizes import MAX_SCOPE_PATTERNS, MAX_SCOPE_STEPS

PATTERNS = tuple(f"data.m{number % 90}.p{number}" for number in range(9_000))
PATCHES = [set_(f"m{number % 90}.p{number}", 1) for number in range(2_000)]


def steps(patterns: tuple[str, ...]) -> int:
    """Return the nodes that are visited for all patches, and check that all are allowed."""
    trie = compile_scope(patterns)
    before = trie.visited
    assert first_outside(IntentScope(allowed_paths=patterns), PATCHES) is None
    return trie.visited - before


def test_nine_thousand_patterns_cost_no_more_steps_than_the_depth_of_the_paths() -> None:
    depth = sum(len(parse_path(patch.path)) for patch in PATCHES)
    assert steps(PATTERNS) == depth + len(PATCHES)
    assert steps(("data.*.*",)) == depth + len(PATCHES)


def test_a_scope_is_compiled_once_for_all_its_patches() -> None:
    assert compile_scope(PATTERNS) is compile_scope(list(PATTERNS))


def test_comparing_nine_thousand_patterns_is_exact_and_within_the_limit() -> None:
    assert intersection(PATTERNS, PATTERNS) == PATTERNS
    assert outside(PATTERNS, [*PATTERNS[1:], "data.q"]) == [PATTERNS[0]]


def test_stars_that_match_in_too_many_ways_are_refused_and_not_tried_out() -> None:
    left = [".".join("*a"[number >> at & 1] for at in range(12)) + f".l{number}" for number in range(4_096)]
    right = [".".join("*b"[number >> at & 1] for at in range(12)) + ".*" for number in range(4_096)]
    with pytest.raises(RefusedError) as refused:
        intersection(left, right)
    assert (refused.value.code, refused.value.details) == ("SCOPE_TOO_LARGE", {"max_steps": MAX_SCOPE_STEPS})


@pytest.mark.parametrize("kind", [iter, list])
def test_ten_million_narrowings_are_refused_after_one_more_than_the_limit(kind: type) -> None:
    looked = 0

    def patterns():
        nonlocal looked
        for number in range(10_000_000):
            looked += 1
            yield f"p{number}"

    given = patterns() if kind is iter else [f"p{number}" for number in range(MAX_SCOPE_PATTERNS + 1)]
    with pytest.raises(RefusedError) as refused:
        Narrow(given)
    assert refused.value.code == "SCOPE_TOO_LARGE"
    assert refused.value.details == {"patterns": MAX_SCOPE_PATTERNS + 1, "max_patterns": MAX_SCOPE_PATTERNS}
    assert looked in (0, MAX_SCOPE_PATTERNS + 1)
