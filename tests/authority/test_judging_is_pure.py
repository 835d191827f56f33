"""A ruling is a function of its case: in any process, in any order; and scopes are the sets of paths that they mean."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import intersection, is_within, restrict
from tests.authority.cases import authority_with, by_policy, make_case, scope
from tests.authority.test_cel_and_python import TWINS, Past, in_cel, in_python
from world.model.actor import ActorRef
from world.model.canonical_json import digest
from world.state.ports import Case

ROOT = Path(__file__).parents[2]
CASES = 60


def some_cases() -> list[Case]:
    """Return many cases, the same in every process."""
    numbers = random.Random(7)
    made = []
    for _ in range(CASES):
        data = {
            "balance": numbers.choice([0, 15, 40, "x"]),
            "total": numbers.randrange(-9, 9),
            "parts": numbers.choice([0, 1, 2, 0.5]),
            "todos": [{"tags": numbers.sample(["urgent", "later", "b"], 2)} for _ in range(numbers.randrange(3))],
        }
        kept = {name: value for name, value in data.items() if numbers.random() < 0.9}
        amount = numbers.choice([1, 19, 21, 150, 19.5, "12", None])
        proposed = numbers.choice([None, scope("data.todos.*", "data.paid"), scope("data")])
        actor = ActorRef(
            actor_id=numbers.choice(["bot", "eve"]), kind="agent", meta={"team": numbers.choice(["blue", "red"])}
        )
        case = make_case(by_policy(), given={"amount": amount}, data=kept, action="todo.add", proposed=proposed)
        at = 1_700_000_000_000 + numbers.randrange(10**8)
        made.append(replace(case, actor=actor, submitted_at=at, history=Past((("bot", numbers.randrange(6)),))))
    return made


def rulings() -> str:
    """Return a digest of the rulings of every twin, in both forms, and of both together."""
    names = sorted(TWINS)
    told = []
    for chosen in (*([name] for name in names), names):
        for made in (in_cel(chosen), in_python(chosen)):
            judge = authority_with(made)
            told += [{**judge.judge(case).to_wire(), "policyHash": ""} for case in some_cases()]
    return digest(told)


@pytest.mark.requirement("CARD-policy", "CARD-replay", "WP-bind")
@pytest.mark.slow
def test_judging_is_the_same_twice_and_in_other_processes_with_other_seeds() -> None:
    here = rulings()
    assert rulings() == here
    program = "from tests.authority.test_judging_is_pure import rulings; print(rulings())"
    for seed in ("1", "4711"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        ran = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
        )
        assert ran.stdout.strip() == here


@pytest.mark.requirement("CARD-policy")
def test_the_order_in_which_cases_are_judged_does_not_matter() -> None:
    judge = authority_with(in_cel(sorted(TWINS)))
    cases = some_cases()[:100]
    forward = [judge.judge(case) for case in cases]
    assert [judge.judge(case) for case in reversed(cases)] == forward[::-1]


LETTERS = ("a", "b", "c")
DEEPEST = 4
PLACES = [place for depth in range(DEEPEST + 1) for place in product(LETTERS, repeat=depth)]
PATTERNS = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=3).map(
    lambda names: "data." + ".".join(names)
)
LISTS = st.lists(PATTERNS, max_size=4)


def meant(patterns: list[str] | tuple[str, ...]) -> set[tuple[str, ...]]:
    """Return every place that patterns mean: below one whose names fit, whatever stands further down.

    One letter stands in no pattern, for all the names that nobody wrote.
    """
    found = set()
    for pattern in patterns:
        names = pattern.split(".")[1:]
        for place in PLACES:
            if len(place) >= len(names) and all(name in ("*", one) for name, one in zip(names, place, strict=False)):
                found.add(place)
    return found


@pytest.mark.requirement("INT-5.3")
@given(LISTS, LISTS)
def test_scopes_are_the_sets_of_places_that_they_mean(left: list[str], right: list[str]) -> None:
    assert is_within(left, right) == (meant(left) <= meant(right))
    assert meant(intersection(left, right)) == meant(left) & meant(right)


@pytest.mark.requirement("INT-5.3", "CARD-policy")
@given(LISTS.filter(bool), st.lists(LISTS.filter(bool), max_size=3))
def test_narrowing_leaves_what_all_of_them_mean(proposed: list[str], narrowings: list[list[str]]) -> None:
    left = restrict(scope(*proposed), [scope(*patterns) for patterns in narrowings])
    assert left is not None
    assert left.allowed_paths is not None
    assert meant(left.allowed_paths) == meant(proposed).intersection(*map(meant, narrowings))
