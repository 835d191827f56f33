"""compute, apply, schema validation, schema hashes and effect loops as the flow vectors say.

The vectors hold what one earlier implementation answers. Where this engine decides otherwise, the case
stands in ``DEVIATIONS`` with the reason, and the test makes sure that the answers really differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from world.canonical import canonical_text
from world.core import ComputeContext, Domain, EffectResult, Invocation, apply, compute, genesis, load_schema
from world.core.schema import unchecked_schema
from world.errors import Refused
from world.identity import schema_hash
from world.patch import Patch
from world.snapshot import Snapshot

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


def outcome(snapshot: Snapshot) -> dict[str, Any]:
    """Return what the vectors tell of a snapshot; the ``$`` namespaces are no part of a domain's data."""
    error = snapshot.system.last_error
    return {
        "data": {key: value for key, value in snapshot.data.items() if not key.startswith("$")},
        "computed": dict(snapshot.computed),
        "lastError": None if error is None else {key: error.to_wire()[key] for key in ("code", "source")},
        "pending": [
            {"type": wait.type, "params": wait.params} for wait in snapshot.system.pending_requirements
        ],
    }


def run_compute(given: Mapping[str, Any]) -> dict[str, Any]:
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    intent = given["intent"]
    done = compute(
        domain,
        Snapshot.from_wire(given["snapshot"]),
        Invocation(intent["type"], intent.get("input"), intent["intentId"]),
        ComputeContext(given["context"]["now"], given["context"]["randomSeed"]),
    )
    told = {
        "status": done.status,
        "patches": [patch.to_wire() for patch in done.patches],
        "terminatedBy": None,
    }
    return told | outcome(done.snapshot)


def run_apply(given: Mapping[str, Any]) -> dict[str, Any]:
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    patches = [Patch.from_wire(patch) for patch in given["patches"]]
    base = Snapshot.from_wire(given["snapshot"])
    return outcome(apply(domain, base, patches, ComputeContext(2000, "seed")))


def run_validate(given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        load_schema(given["schema"])
    except Refused as refused:
        return {"valid": False, "codes": sorted({fault["code"] for fault in refused.details["faults"]})}
    return {"valid": True, "codes": []}


def run_schema_hash(given: Mapping[str, Any]) -> dict[str, Any]:
    return {"schemaHash": schema_hash(given["schema"])}


def run_host(given: Mapping[str, Any]) -> dict[str, Any]:
    domain = Domain.of_schema(unchecked_schema(given["schema"]))
    snapshot = genesis(domain, ComputeContext(given["now"], "genesis"), given["data"])
    results, calls = [], []
    for intent in given["intents"]:
        context = ComputeContext(given["now"], intent["intentId"])
        invocation = Invocation(intent["type"], intent.get("input"), intent["intentId"])
        journal: dict[str, EffectResult] = {}
        for _ in range(given.get("maxIterations", 10)):
            done = compute(domain, snapshot, invocation, context, journal)
            if done.status != "pending":
                break
            for requirement in done.requirements:
                calls.append({"type": requirement.type, "params": requirement.params})
                answer = given["effects"][requirement.type]
                journal[requirement.id] = EffectResult(patches=tuple(map(Patch.from_wire, answer["patches"])))
        snapshot = done.snapshot
        results.append({"status": done.status} | outcome(snapshot))
    return {"results": results, "effectCalls": calls}


RUNNERS = {
    "compute": run_compute,
    "apply": run_apply,
    "validate": run_validate,
    "schemaHash": run_schema_hash,
    "host": run_host,
}


@pytest.mark.requirement("HC-flow", "HC-compute", "HC-snapshot", "IC-validate", "IC-available", "IC-nostate")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_flow_ends_as_its_vector_says(case: dict[str, Any]) -> None:
    expected = case["expected"]
    if expected.get("patches", ()) is None:
        expected = expected | {"patches": []}  # the flow did not run
    answer = RUNNERS[case["input"]["op"]](case["input"])
    if case["name"] in DEVIATIONS:
        assert canonical_text(answer) != canonical_text(expected)
    else:
        assert canonical_text(answer) == canonical_text(expected)


def test_every_deviation_is_a_case() -> None:
    assert DEVIATIONS.keys() <= {case["name"] for case in CASES}
