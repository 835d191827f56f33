"""Every expression answers as the vectors say."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from conformance.vectors import evaluation_of, read_expression_case, unmarked
from tests.support.tables import for_each
from world.core.expressions.expression import KINDS
from world.core.expressions.expression_ast import check_expression

VECTORS = Path(__file__).parent.parent / "vectors"
CASES = read_expression_case((VECTORS / "expression.json").read_text())["cases"]


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
@for_each("case", CASES, ids=[f"{at}-{case['name']}" for at, case in enumerate(CASES)])
def test_an_expression_has_the_value_of_its_vector(case: dict[str, Any]) -> None:
    answer, expected = evaluation_of(case["input"], {}), case["expected"]
    assert same(unmarked(answer), expected), answer


@for_each("case", CASES, ids=[f"{at}-{case['name']}" for at, case in enumerate(CASES)])
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
