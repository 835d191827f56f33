"""compute, apply, schema validation, schema hashes and effect loops as the flow vectors say.

The vectors hold what one earlier implementation answers. Where this engine decides otherwise, the case
stands in ``DEVIATIONS`` with the reason, and the test makes sure that the answers really differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.vectors import flow_of
from tests.support.tables import for_each
from world.model.canonical_json import canonical_text

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "flow.json").read_text())["cases"]

DEVIATIONS = {
    "input enum not checked": "an input's enums are checked like all its other types",
    "set array element past end": "a path never turns an array into an object",
    "apply: array element": "a path never turns an array into an object",
    "$system.uuid depends on intentId": "ids come from the context's seed, all 122 bits",
    "$system.timestamp is snapshot time": "time comes from the context, frozen per job",
    "apply: merge target null rejected": "worlds store patches, so apply takes every patch that compute made",
    "host: unguarded effect loops to max iterations": "re-entry answers it from the journal",
    "host: effect patch invalid": "an effect whose patches do not fit ends the execution with that error",
}


@pytest.mark.requirement(
    "HC-flow", "HC-compute", "HC-snapshot", "IC-effects", "IC-validate", "IC-available", "IC-nostate"
)
@for_each("case", CASES, ids=[case["name"] for case in CASES])
def test_a_flow_ends_as_its_vector_says(case: dict[str, Any]) -> None:
    expected, answer = case["expected"], flow_of(case["input"])
    if case["name"] in DEVIATIONS:
        assert canonical_text(answer) != canonical_text(expected)
    else:
        assert canonical_text(answer) == canonical_text(expected)


def test_every_deviation_is_a_case() -> None:
    assert DEVIATIONS.keys() <= {case["name"] for case in CASES}
