"""Scope patterns against an independent model: the places of a state as texts, and patterns as regular expressions.

The model has no code of the engine. It marks every place that a patch of awkward member names touches,
and asks a regular expression whether the place begins as the pattern says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from authority import Narrow, Policy, intersection, is_within, restrict, rule
from authority.scope import outside
from host.enforcement import first_outside
from tests.second_forms import covers as covers_again
from world.audit.verify import verify
from world.core import ActionContext, Domain, set_
from world.klis.resources.resource_reading import read_resource
from world.model.intent import IntentScope
from world.model.patch import Patch, allows, format_path, scope_allows
from world.model.scope_patterns import compile_scope, format_pattern, parse_pattern
from world.pipeline.driver import submit
from world.pipeline.leasing.proposal_manifest import state_resources
from world.pipeline.submit import Submission
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck

NAMES: Final = ("data", "*", "a.b", "", "0", "12", "\\", "\\*", "\\.", "a", "b", "é", "data.x")
FRESH: Final = "fresh"
"""A name that no pattern mentions: an element of an array that is none of those mentioned."""


def written(name: str) -> str:
    """Return a name as a segment of a pattern."""
    return "\\*" if name == "*" else name.replace("\\", "\\\\").replace(".", "\\.")


SEGMENTS = st.sampled_from(("*", *map(written, NAMES)))
PATTERNS = st.lists(SEGMENTS, min_size=1, max_size=4).map(".".join).filter(bool)
LISTS = st.lists(PATTERNS, max_size=4)
PLACES = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map(tuple).filter(lambda names: names != ("",))
STATES = st.recursive(
    st.integers(0, 3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)


# The model


def names_of(pattern: str) -> list[str | None]:
    """Read a pattern character by character; None is a star."""
    segments: list[list[str]] = [[]]
    at = 0
    while at < len(pattern):
        if pattern[at] == ".":
            segments.append([])
        elif pattern[at] == "\\" and pattern[at + 1 : at + 2] in (".", "\\"):
            segments[-1].append(pattern[at : at + 2])
            at += 1
        else:
            segments[-1].append(pattern[at])
        at += 1
    names: list[str | None] = []
    for pieces in segments:
        text = "".join(pieces)
        plain = "".join(piece[-1] for piece in pieces)
        names.append(None if text == "*" else "*" if text == "\\*" else plain)
    if len(names) >= 2 and names[0] == "data":
        return names[1:]
    return names


def text_of(names: Iterable[str]) -> str:
    """Return a place as a text in which every name is a JSON string."""
    return "".join(json.dumps(name) + "/" for name in names)


def meaning(pattern: str) -> re.Pattern[str]:
    """Return the expression that matches where a covered place begins."""
    one = r'"(?:[^"\\]|\\.)*"/'
    return re.compile("".join(one if name is None else re.escape(text_of([name])) for name in names_of(pattern)))


def model_allows(patterns: Iterable[str], places: Iterable[tuple[str, ...]]) -> bool:
    """Tell whether every place lies within a pattern."""
    expressions = [meaning(pattern) for pattern in patterns]
    return all(any(expression.match(text_of(place)) for expression in expressions) for place in places)


@st.composite
def changes(draw: st.DrawFn) -> tuple[Patch, list[tuple[str, ...]]]:
    """Draw a patch together with the places that it touches."""
    place = draw(PLACES)
    path = format_path(place)
    op = draw(st.sampled_from(("set", "merge", "unset")))
    if op == "set":
        return Patch("set", path, draw(STATES)), [place]
    if op == "merge":
        members = draw(st.dictionaries(st.sampled_from(NAMES), STATES, max_size=3))
        return Patch("merge", path, members), [(*place, name) for name in members] or [place]
    is_index = re.fullmatch(r"0|[1-9][0-9]*", place[-1], re.ASCII) is not None
    elements = (*NAMES, FRESH) if is_index else (place[-1],)
    return Patch("unset", path), [(*place[:-1], name) for name in elements]


# The engine


@pytest.mark.requirement("INT-5.3", "INT-13.5")
@given(LISTS, changes())
def test_the_engine_allows_a_patch_exactly_where_the_model_does(
    patterns: list[str], change: tuple[Patch, list[tuple[str, ...]]]
) -> None:
    patch, places = change
    expected = model_allows(patterns, places)
    assert scope_allows(patterns, patch) is expected
    assert allows(compile_scope(patterns), patch) is expected
    assert (first_outside(IntentScope(allowed_paths=tuple(patterns)), [patch]) is None) is expected
    assert covers_again(patterns, patch.to_wire(), 2) is expected  # the second implementation of the log format


@pytest.mark.requirement("INT-13.3")
@given(LISTS, LISTS, changes())
def test_narrowing_allows_exactly_what_the_model_allows_on_both_sides(
    left: list[str], right: list[str], change: tuple[Patch, list[tuple[str, ...]]]
) -> None:
    patch, places = change
    both = model_allows(left, places) and model_allows(right, places)
    assert scope_allows(intersection(left, right), patch) is both
    proposed, narrowing = IntentScope(allowed_paths=tuple(left)), IntentScope(allowed_paths=tuple(right))
    narrowed = restrict(proposed, [narrowing])
    assert narrowed is not None
    assert (first_outside(narrowed, [patch]) is None) is both


@given(LISTS, LISTS)
def test_a_list_lies_within_another_exactly_where_the_model_finds_no_place_outside(
    inner: list[str], outer: list[str]
) -> None:
    def is_covered(pattern: str) -> bool:
        place = tuple(FRESH if name is None else name for name in names_of(pattern))
        return model_allows(outer, [place])

    assert outside(inner, outer) == [pattern for pattern in inner if not is_covered(pattern)]
    assert is_within(inner, outer) is all(map(is_covered, inner))


@pytest.mark.requirement("KM-2.2")
@given(LISTS, changes())
def test_the_leases_of_a_scope_cover_every_place_that_the_model_allows(
    patterns: list[str], change: tuple[Patch, list[tuple[str, ...]]]
) -> None:
    _, places = change
    leased = [read_resource(text) for text in state_resources("main", IntentScope(allowed_paths=tuple(patterns)))]
    for place in places:
        if model_allows(patterns, [place]):
            (there,) = state_resources("main", IntentScope(allowed_paths=(".".join(("data", *map(written, place))),)))
            assert any(one.covers(read_resource(there)) for one in leased), (patterns, place)


@given(PATTERNS)
def test_a_pattern_reads_as_the_model_says_and_is_written_so_that_it_reads_the_same(pattern: str) -> None:
    assert list(parse_pattern(pattern)) == names_of(pattern)
    assert parse_pattern(format_pattern(parse_pattern(pattern))) == parse_pattern(pattern)


# The member `data`


class Held(BaseModel):
    data: dict[str, int] = {"x": 0}
    other: int = 0


held = Domain("urn:test:held", version="1.0.0", state=Held)


class Written(BaseModel):
    path: str


@held.action("put", version="1")
def put(ctx: ActionContext, input: Written) -> list[Patch]:  # noqa: A002
    return [set_(input.path, 1)]


@rule
def only_data(case: Any) -> Narrow:
    return Narrow(["data"])


@pytest.mark.requirement("INT-5.3", "INT-13.5", "KM-2.2")
def test_narrow_to_data_is_the_member_data_and_nothing_else(log_url: str) -> None:
    with Realm.create(log_url, domain=held, policies=[Policy("held", [only_data])]) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "held"})
        outside = world.act("bot", "put", {"path": "other"})
        assert outside.status == "failed"
        assert outside.error is not None
        assert outside.error.code == "SCOPE_VIOLATION"
        assert world.act("bot", "put", {"path": "data.x"}).status == "completed"
        assert world.data() == {"data": {"x": 1}, "other": 0}
        granted = [one for one in world.log.read() if one.topic == "verdict.given"]
        assert {one["resource"] for event in granted for one in json.loads(event.state)["leases"]} == {
            "STATE:/main/data/*"
        }
        submitted = [json.loads(one.state) for one in world.log.read() if one.topic == "proposal.submitted"]
        assert {one["scopeRules"] for one in submitted} == {2}


@rule
def two_places(case: Any) -> Narrow:
    return Narrow(["data.other", "data.data.a.b.c"])


@pytest.mark.requirement("INT-13.5", "KM-2.2")
def test_the_lease_of_a_deep_pattern_keeps_all_of_its_names(log_url: str) -> None:
    with Realm.create(log_url, domain=held, policies=[Policy("held", [two_places])]) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "held"})
        assert world.act("bot", "put", {"path": "other"}).status == "completed"
        [granted] = [json.loads(one.state) for one in world.log.read() if one.topic == "verdict.given"]
        leased = [one["resource"] for one in granted["leases"]]
        assert leased == ["STATE:/main/other/*", "STATE:/main/data/a/b/c/*"]


@pytest.mark.requirement("CARD-replay", "INT-13.5")
def test_a_proposal_without_scope_rules_goes_on_under_the_first_version(log_url: str) -> None:
    with Realm.create(log_url, domain=held, policies=[Policy("held", [only_data])]) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "held"})
        intent = world.issue("bot", "put", {"path": "other"})
        world._acting.run(lambda work: submit(work, Submission(intent), "before", scope_rules=1))
        assert world.proposal("before").status == "completed"  # `data` was the whole data then
        submitted = [json.loads(one.state) for one in world.log.read() if one.topic == "proposal.submitted"]
        assert "scopeRules" not in submitted[0]
        assert verify(world.log).ok
        assert recheck(world).first is None
        # Read by the second version, the patch lies outside.
        assert not scope_allows(["data"], set_("other", 1), 2)
