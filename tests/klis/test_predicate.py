"""The six predicates, the matrix, and how predicates are ordered by what they exclude."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.predicate import GROUP_OF, OPPOSED, Predicate, compatible, read_predicate
from world.klis.scope import severity

CASES = json.loads(Path("tests/vectors/klis.json").read_bytes())["cases"]
COMPARISONS = [
    (case["id"], op["held"], op["requested"], expected)
    for case in CASES
    for op, expected in zip(case["ops"], case["expect"], strict=True)
    if op["op"] == "compat"
]


@pytest.mark.requirement("KP-2a")
@for_each(("case", "held", "requested", "expected"), COMPARISONS)
def test_the_matrix_answers_as_the_vectors_say(case: str, held: str, requested: str, expected: bool) -> None:
    assert compatible(Predicate(held), Predicate(requested)) is expected, case


@pytest.mark.requirement("KP-2a")
def test_the_matrix_is_the_one_of_the_specification() -> None:
    rows = {
        "PROVIDES": "FTFFTF",
        "CONSUMES": "TTFFTF",
        "MUTATES": "FFFFFF",
        "DELETES": "FFFFFF",
        "DEPENDS_ON": "TTFFTF",
        "RENAMES": "FFFFFF",
    }
    assert list(rows) == [predicate.value for predicate in Predicate]
    for held, row in rows.items():
        told = "".join("T" if compatible(Predicate(held), requested) else "F" for requested in Predicate)
        assert told == row, held


@pytest.mark.requirement("KP-2b")
def test_the_matrix_is_symmetric() -> None:
    for held, requested in product(Predicate, repeat=2):
        assert compatible(held, requested) == compatible(requested, held)


@pytest.mark.requirement("KP-2a")
def test_the_groups_tell_the_same_as_the_matrix() -> None:
    for held, requested in product(Predicate, repeat=2):
        assert (GROUP_OF[held] in OPPOSED[requested]) is not compatible(held, requested)


@pytest.mark.requirement("KM-3", "KP-1")
def test_the_six_predicates_are_read_by_their_names() -> None:
    assert [read_predicate(predicate.value) for predicate in Predicate] == list(Predicate)


@pytest.mark.requirement("KM-3", "KM-6.2")
@given(told=st.text() | st.sampled_from(["WRITE", "mutates", "MUTATES ", "", "DEPENDS-ON"]) | st.none() | st.integers())
def test_anything_else_is_refused_and_never_mapped_to_a_default(told: Any) -> None:
    if told in set(Predicate):
        return
    with pytest.raises(RefusedError) as caught:
        read_predicate(told, "$.scope[3].predicate")
    assert caught.value.code == "INVALID_PREDICATE"
    assert caught.value.details["path"] == "$.scope[3].predicate"


@pytest.mark.requirement("KM-6.4", "KM-3.2")
def test_the_more_severe_predicate_excludes_at_least_what_the_other_does() -> None:
    for one, other in product(Predicate, repeat=2):
        if severity(one) > severity(other):
            assert set(OPPOSED[one]) >= set(OPPOSED[other])


def test_severity_tells_all_six_apart() -> None:
    ordered = sorted(Predicate, key=severity)
    assert [p.value for p in ordered] == ["DEPENDS_ON", "CONSUMES", "PROVIDES", "MUTATES", "RENAMES", "DELETES"]
