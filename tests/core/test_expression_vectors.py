"""Every expression answers as the vectors say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from world.core.anatomy import check_expression
from world.core.expression import KINDS, compile_expression
from world.core.scope import Scope
from world.core.values import ExpressionError
from world.frozen import freeze


def float_beyond_2_53(digits: str) -> int | float:
    """Read numbers as doubles, as the vectors' own language does."""
    return int(digits) if abs(int(digits)) <= 2**53 else float(digits)


VECTORS = Path(__file__).parent.parent / "vectors"
CASES = json.loads((VECTORS / "expression.json").read_text(), parse_int=float_beyond_2_53)["cases"]
CONTEXT = json.loads((VECTORS / "expression_context.json").read_text())


def marked(value: Any) -> Any:
    """Read the numbers that JSON cannot carry."""
    if isinstance(value, dict):
        if set(value) == {"$vec"}:
            return float(value["$vec"])
        return {key: marked(item) for key, item in value.items()}
    return [marked(item) for item in value] if isinstance(value, list) else value


def same(left: Any, right: Any) -> bool:
    """Compare without Python's 1 == True, with NaN equal to itself and the zeros apart."""
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, bool) or isinstance(right, bool) or left is None or right is None:
        return left is right
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        if left != left or right != right:
            return left != left and right != right
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    return type(left) is type(right) and left == right


@pytest.mark.requirement("HC-flow", "INT-3.4a")
@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case['name']}" for at, case in enumerate(CASES)])
def test_an_expression_has_the_value_of_its_vector(case: dict[str, Any]) -> None:
    given, expected = marked(case["input"]), marked(case["expected"])
    scope = Scope(freeze(CONTEXT["data"]), computed={}, input=freeze(given.get("input", CONTEXT["input"])))
    evaluate = compile_expression(given["expr"], computed=given.get("phase") == "computed")
    if expected["ok"]:
        answer = evaluate(scope)
        assert same(answer, expected["value"]), answer
    else:
        with pytest.raises(ExpressionError) as caught:
            evaluate(scope)
        assert (caught.value.code, caught.value.message) == (expected["code"], expected["message"])


@pytest.mark.parametrize("case", CASES, ids=[f"{at}-{case['name']}" for at, case in enumerate(CASES)])
def test_the_check_finds_unknown_kinds_and_nothing_else(case: dict[str, Any]) -> None:
    expression = case["input"]["expr"]
    unknown = any(f'"kind": "{kind}"' in json.dumps(expression) for kind in ("nope", "switch"))
    assert bool(check_expression(expression)) is unknown


def test_all_seventy_two_kinds_have_vectors() -> None:
    used: set[str] = set()

    def collect(node: Any) -> None:
        if isinstance(node, dict):
            used.add(str(node.get("kind")))
            for part in node.values():
                collect(part)
        elif isinstance(node, list):
            for part in node:
                collect(part)

    for case in CASES:
        collect(case["input"]["expr"])
    assert len(KINDS) == 72
    assert used >= KINDS
