"""Declared against observed: the design's table, wildcards, what one made oneself, and the error's words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import RefusedError, ScopeViolationError
from world.klis.observation import SATISFIED_BY, Declaration, Seen, outside_resource, violation
from world.klis.predicate import Predicate
from world.klis.resources.resource_reading import canonical_resource
from world.klis.triple import Triple

SATISFIES = {
    "PROVIDES": {"PROVIDES", "MUTATES", "CONSUMES", "DEPENDS_ON"},
    "MUTATES": {"MUTATES", "CONSUMES", "DEPENDS_ON", "PROVIDES"},
    "CONSUMES": {"CONSUMES", "DEPENDS_ON"},
    "DEPENDS_ON": {"DEPENDS_ON"},
    "DELETES": {"DELETES"},
    "RENAMES": {"RENAMES"},
}
"""The design's table the other way round: what a declared predicate lets an agent do."""


def triple(predicate: str, resource: str) -> Triple:
    return Triple(Predicate(predicate), canonical_resource(resource))


def declaration(*told: tuple[str, str]) -> Declaration:
    return Declaration("ann", "s1", [triple(*one) for one in told])


def seen(predicate: str, resource: str, **more: object) -> Seen:
    return Seen(Predicate(predicate), canonical_resource(resource), **more)  # type: ignore[arg-type]


@pytest.mark.requirement("KO-3")
@for_each("declared", list(Predicate))
@for_each("observed", list(Predicate))
def test_a_declared_predicate_covers_exactly_what_the_table_says(declared: Predicate, observed: Predicate) -> None:
    ground = declaration((declared.value, "FILE:/a.txt"))
    assert ground.covers(seen(observed.value, "FILE:/a.txt")) is (observed.value in SATISFIES[declared.value])
    assert (declared in SATISFIED_BY[observed]) is (observed.value in SATISFIES[declared.value])


@pytest.mark.requirement("KO-3")
@pytest.mark.parametrize(
    ("declared", "observed", "covered"),
    [
        ("FILE:/src/*", "FILE:/src/a/b.py", True),
        ("FILE:/src/*", "FILE:/src", True),
        ("FILE:/src/*", "FILE:/srcs/a.py", False),
        ("FILE:/src", "FILE:/src/a.py", False),
        ("FILE:/src/a.py", "FILE:/src/*", False),
        ("FILE:/src/*", "FILE:/src/*", True),
        ("FILE:/src/*", "FILE:/*", False),
        ("URL:https://example.com/api/*", "URL:https://example.com/api/v1", True),
        ("URL:https://example.com/api/*", "URL:https://example.org/api/v1", False),
        ("SYMBOL:User.save", "SYMBOL:User.save", True),
        ("SYMBOL:User.save", "SYMBOL:User.load", False),
    ],
)
def test_wildcards_cover_what_lies_below_and_nothing_beside(declared: str, observed: str, covered: bool) -> None:
    assert declaration(("MUTATES", declared)).covers(seen("MUTATES", observed)) is covered


@pytest.mark.requirement("KO-3", "KO-2.1")
def test_deleting_a_directory_covers_what_is_in_it() -> None:
    ground = declaration(("DELETES", "FILE:/c"))
    assert ground.covers(seen("DELETES", "FILE:/c/*"))
    assert ground.covers(seen("DELETES", "FILE:/c/x/y"))
    assert not ground.covers(seen("DELETES", "FILE:/cat"))
    assert not ground.covers(seen("MUTATES", "FILE:/c/x"))


def test_who_may_use_something_may_look_for_it_and_no_more() -> None:
    ground = declaration(("CONSUMES", "FILE:/src/app/a.py"))
    assert ground.covers(seen("CONSUMES", "FILE:/src", looks=True))
    assert ground.covers(seen("CONSUMES", "FILE:/", looks=True))
    assert not ground.covers(seen("CONSUMES", "FILE:/src"))
    assert not ground.covers(seen("CONSUMES", "FILE:/other", looks=True))


@pytest.mark.requirement("KO-2.1")
def test_a_connection_is_covered_by_a_url_of_that_host_and_port() -> None:
    ground = declaration(("CONSUMES", "URL:https://example.com/api/*"), ("DEPENDS_ON", "URL:https://quiet.example/"))
    assert ground.hosts == {("example.com", 443)}
    assert ground.covers(seen("CONSUMES", "URL:https://example.com/", address=("example.com", 443)))
    assert not ground.covers(seen("CONSUMES", "URL:http://example.com/", address=("example.com", 80)))
    assert not ground.covers(seen("CONSUMES", "URL:https://quiet.example/", address=("quiet.example", 443)))


@pytest.mark.requirement("KO-5.1")
def test_an_opaque_tool_needs_its_working_directory_or_a_declaration_by_hand() -> None:
    process = canonical_resource("PROCESS:build")
    both = [
        Seen(Predicate.PROVIDES, process),
        Seen(Predicate.MUTATES, canonical_resource("FILE:/site/*"), opaque_of=process),
    ]
    assert declaration(("PROVIDES", "PROCESS:build")).outside(both) == []
    assert declaration(("MUTATES", "FILE:/site/*")).outside(both) == []
    assert declaration(("MUTATES", "FILE:/site/a.txt")).outside(both) == [both[1]]
    assert declaration(("PROVIDES", "PROCESS:other")).outside(both) == [both[1]]


@pytest.mark.requirement("KO-3.1")
def test_the_error_is_in_the_words_of_the_specification_and_names_agent_and_declaration() -> None:
    error = violation(declaration(("CONSUMES", "FILE:/etc/hosts")), seen("MUTATES", "FILE:/etc/hosts", call="open()"))
    assert isinstance(error, ScopeViolationError)
    assert isinstance(error, RefusedError)
    assert error.message.startswith("Agent attempted MUTATES on /etc/hosts but only declared CONSUMES.")
    assert "'ann'" in error.message
    assert error.details["declared"] == [{"predicate": "CONSUMES", "resource": "FILE:/etc/hosts"}]
    assert (error.details["predicate"], error.details["resource"]) == ("MUTATES", "FILE:/etc/hosts")
    assert (error.details["agent_id"], error.details["session_id"], error.details["call"]) == ("ann", "s1", "open()")


@pytest.mark.requirement("KO-3.1")
def test_the_error_tells_what_was_declared_nearby_or_that_nothing_was() -> None:
    ground = declaration(("DELETES", "FILE:/c/x.txt"), ("MUTATES", "FILE:/other"))
    assert "only declared DELETES on /c/x.txt." in violation(ground, seen("DELETES", "FILE:/c/*")).message
    assert "but declared nothing there." in violation(ground, seen("MUTATES", "FILE:/b")).message
    many = declaration(*(("CONSUMES", f"FILE:/c/{name}") for name in range(5)))
    assert "and 2 more" in violation(many, seen("DELETES", "FILE:/c/*")).message
    far = Seen(Predicate.MUTATES, outside_resource("/etc/hosts"), outside="/etc/hosts")
    assert "on /etc/hosts but that lies outside of the workspace." in violation(ground, far).message
    assert not ground.covers(far)


@pytest.mark.requirement("KO-4")
def test_what_nothing_made_use_of_is_unused_and_reading_does_not_use_a_deletion() -> None:
    ground = declaration(("MUTATES", "FILE:/a"), ("PROVIDES", "FILE:/out/*"), ("DELETES", "FILE:/old"))
    assert ground.unused([seen("CONSUMES", "FILE:/a"), seen("PROVIDES", "FILE:/out/x")]) == [
        triple("DELETES", "FILE:/old")
    ]
    assert len(ground.unused([])) == 3


@pytest.mark.requirement("KO-4")
@for_each("declared", list(Predicate))
@for_each("observed", list(Predicate))
def test_only_an_effect_that_a_predicate_lets_an_agent_do_is_a_use_of_it(
    declared: Predicate, observed: Predicate
) -> None:
    ground = declaration((declared.value, "FILE:/a.txt"))
    is_used = not ground.unused([seen(observed.value, "FILE:/a.txt")])
    assert is_used is (observed.value in SATISFIES[declared.value])


NAMES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map(lambda parts: "FILE:/" + "/".join(parts))
RESOURCES = st.builds(lambda name, below: name + ("/*" if below else ""), NAMES, st.booleans())
TRIPLES = st.builds(triple, st.sampled_from([one.value for one in Predicate]), RESOURCES)


@given(st.lists(TRIPLES, max_size=5), TRIPLES, TRIPLES)
@pytest.mark.requirement("KO-3")
def test_more_declared_never_covers_less_and_what_is_declared_is_covered(
    declared: list[Triple], more: Triple, attempted: Triple
) -> None:
    one = Seen(attempted.predicate, attempted.resource)
    before, after = Declaration("a", "s", declared), Declaration("a", "s", [*declared, more])
    assert not before.covers(one) or after.covers(one)
    assert after.covers(Seen(more.predicate, more.resource))


@given(st.lists(TRIPLES, max_size=5), TRIPLES)
@pytest.mark.requirement("KO-3")
def test_coverage_agrees_with_a_plain_reading_of_the_rules(declared: list[Triple], attempted: Triple) -> None:
    def plain(one: Triple) -> bool:
        if attempted.predicate.value not in SATISFIES[one.predicate.value]:
            return False
        low, high = attempted.resource, one.resource
        inside = low.key == high.key or low.key.startswith(high.key + "/")
        if one.predicate in (Predicate.DELETES, Predicate.RENAMES) or high.subtree:
            return inside
        return low.key == high.key and not low.subtree

    ground = Declaration("a", "s", declared)
    assert ground.covers(Seen(attempted.predicate, attempted.resource)) is any(map(plain, declared))
