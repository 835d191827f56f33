"""Conditions against the public conformance tests of CEL: each has its value, is refused when read, or fails."""

from __future__ import annotations

import math
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from authority.cel.conditions import read_when
from authority.cel.tokens import ConditionError, tokens_of
from tests.authority.cases import make_case
from tests.authority.cel_deviations import AS_DEFINED, DEVIATIONS, REFUSED, TESTS, TOO_LONG
from world.errors import RefusedError


def plain(value: dict[str, Any]) -> Any:
    ((kind, inner),) = value.items()
    if kind == "list":
        return [plain(one) for one in inner]
    if kind == "map":
        return {plain(key): plain(one) for key, one in inner}
    if kind in ("timestamp", "duration"):
        length = timedelta(seconds=inner[0], microseconds=inner[1] // 1_000)
        return datetime(1970, 1, 1, tzinfo=UTC) + length if kind == "timestamp" else length
    return float(inner) if kind == "double" else inner


def is_same(value: dict[str, Any], answer: Any) -> bool:
    expected = plain(value)
    if isinstance(expected, float):
        return type(answer) is float and (answer == expected or (math.isnan(answer) and math.isnan(expected)))
    return type(answer) is type(expected) and bool(answer == expected)


def outcome(expression: str, bindings: dict[str, Any], value: dict[str, Any] | None) -> str:
    """Return the outcome of a test; names of bindings become members of the input, and ``dyn`` changes nothing here."""
    expression = expression.replace("dyn(", "(")
    try:
        if bindings:
            tokens = tokens_of(expression)
            beside = ["", *(one.text for one in tokens)]
            is_bound = [one.text in bindings and before != "." for one, before in zip(tokens, beside, strict=False)]
            named = zip(tokens, is_bound, strict=True)
            expression = " ".join(f"intent.input.{one.text}" if bound else one.text for one, bound in named)
        condition = read_when(expression)
        case = make_case(given={name: plain(one) for name, one in bindings.items()})
    except (ConditionError, RefusedError):
        return "refused"
    try:
        answer = condition.value(case)
    except RefusedError:
        return "as defined" if value is None else "another"
    return "as defined" if value is not None and is_same(value, answer) else "another"


@pytest.mark.requirement("CARD-policy")
def test_conditions_have_the_results_of_the_conformance_tests_or_are_refused() -> None:
    found = {name: outcome(*test) for name, *test in TESTS}
    assert {name for name, one in found.items() if one == "another"} == set(DEVIATIONS)
    assert [sum(one == kind for one in found.values()) for kind in ("as defined", "refused")] == [AS_DEFINED, REFUSED]


@pytest.mark.requirement("CARD-policy")
def test_every_deviation_fails_except_long_differences_of_times() -> None:
    kept = set()
    for name, expression, *_ in TESTS:
        if name in DEVIATIONS:
            with suppress(RefusedError):
                read_when(expression.replace("dyn(", "(")).value(make_case())
                kept.add(name)
    assert kept == {name for name, why in DEVIATIONS.items() if why == TOO_LONG}
