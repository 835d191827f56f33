"""Deviations of conditions from the public conformance tests of CEL, as tests hold them and the page lists them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any, Final

TESTS: Final[list[list[Any]]] = json.loads(
    (Path(__file__).parents[1] / "vectors" / "cel.json").read_text(encoding="utf-8")
)["tests"]
"""Public tests: name, expression, bindings, value or None for an error."""

AS_DEFINED: Final = 765
REFUSED: Final = 347
"""Tests with the defined result, and tests that are refused when the condition is read."""

NO_INFINITY: Final = "a double divided by zero fails, so that no number is infinite or undefined"
NO_INDEX: Final = "a double is no index, not even a whole one"
MICROSECONDS: Final = "times have microseconds; a finer one fails"
TOO_LONG: Final = "a difference of two times of more than 292 years has its value, and does not fail"

DEVIATIONS: Final[Mapping[str, str]] = {
    "comparisons/eq_literal/not_eq_double_nan": NO_INFINITY,
    "comparisons/eq_literal/not_eq_int_double_nan": NO_INFINITY,
    "comparisons/eq_literal/not_eq_uint_double_nan": NO_INFINITY,
    "comparisons/ne_literal/not_ne_double_nan": NO_INFINITY,
    "comparisons/ne_literal/not_ne_int_double_nan": NO_INFINITY,
    "comparisons/ne_literal/not_ne_uint_double_nan": NO_INFINITY,
    "comparisons/ne_literal/ne_double_nan": NO_INFINITY,
    "fp_math/fp_math/divide_zero": NO_INFINITY,
    "lists/index/zero_based_double": NO_INDEX,
    "timestamps/timestamp_conversions/toString_timestamp_nanos": MICROSECONDS,
    "timestamps/timestamp_selectors/getMilliseconds": MICROSECONDS,
    "timestamps/timestamp_arithmetic/add_time_to_duration_nanos_negative": MICROSECONDS,
    "timestamps/timestamp_arithmetic/add_time_to_duration_nanos_positive": MICROSECONDS,
    "timestamps/timestamp_range/sub_time_duration_over": TOO_LONG,
    "timestamps/timestamp_range/sub_time_duration_under": TOO_LONG,
}
"""Tests with another result, and why. All but those of ``TOO_LONG`` fail, so that the rule rejects."""


def deviation_table() -> str:
    """Return the table of ``docs/policy-author.md``."""
    tests = {name: (re.sub(r"dyn\(([^()]*)\)", r"\1", expression), value) for name, expression, _, value in TESTS}
    counted = (
        f"Of {len(TESTS):,} tests, {AS_DEFINED} have the defined result, {REFUSED} use what conditions do not have "
        f"and are refused when the file is read, and {len(DEVIATIONS)} deviate:"
    )
    lines = [
        counted,
        "",
        "| deviation | tests | expressions |",
        "|---|--:|---|",
    ]
    for reason, group in groupby(DEVIATIONS.items(), lambda item: item[1]):
        shown = [f"`{tests[name][0]}` ({_text(tests[name][1])} in CEL)" for name, _ in group]
        lines.append(f"| {reason} | {len(shown)} | {'; '.join(dict.fromkeys(shown))} |")
    return "\n".join(lines).replace("||", "\\|\\|")


def _text(value: Mapping[str, Any] | None) -> str:
    """Return a defined result as a reader writes it."""
    return "an error" if value is None else json.dumps(next(iter(value.values()))).strip('"')
