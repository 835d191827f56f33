"""The hashes that name things, against the vectors and by their properties."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from conformance.vectors import unmarked
from tests.support.tables import for_each
from world.errors import RefusedError
from world.model.canonical_json import read_json
from world.model.identity import (
    catalog_hash,
    content_id,
    intent_key,
    requirement_id,
    schema_hash,
    snapshot_hash,
    state_hash,
    world_id,
)
from world.model.immutable_json import freeze
from world.model.intent import IntentBody
from worldprotocol.testing import strategies as wp

VECTORS = Path(__file__).parent.parent / "vectors"
SCHEMA = "5c" * 32

# The algorithm takes more than a body may hold: bodies are closed, and a path in a scope has a name.
NO_BODIES = {
    "extra body fields ignored": "$.foo",
    "extra scope fields are hashed": "$.scopeProposal.extra",
    "random 12": "$.scopeProposal.allowedPaths[0]",
    "random 24": "$.scopeProposal.allowedPaths[2]",
}

json_values, objects = wp.json_values(), wp.json_objects()


def vectors(name: str) -> list[Any]:
    """Return the cases of one file as parameters with readable ids."""
    cases = json.loads((VECTORS / f"{name}.json").read_text())["cases"]
    return [pytest.param(case, id=f"{at}-{case['name']}") for at, case in enumerate(cases)]


@pytest.mark.requirement("INT-6.2.1", "INV-I2")
@for_each("case", vectors("intent_key"))
def test_an_intent_has_the_key_of_its_vector(case):
    given, body = unmarked(case["input"]), unmarked(case["input"]["body"])
    key = intent_key(given["schemaHash"], body["type"], body.get("input"), body.get("scopeProposal"))
    assert key == case["expected"]["intentKey"]


@pytest.mark.requirement("INT-6.2.1", "INV-I2", "INT-5.1")
@for_each("case", vectors("intent_key"))
def test_a_body_that_can_be_read_has_the_key_of_its_vector(case):
    wire = unmarked(case["input"]["body"])
    if case["name"] in NO_BODIES:
        with pytest.raises(RefusedError) as caught:
            IntentBody.read(wire)
        assert caught.value.details["faults"][0]["path"] == NO_BODIES[case["name"]]
    else:
        assert IntentBody.read(wire).key(case["input"]["schemaHash"]) == case["expected"]["intentKey"]


@pytest.mark.requirement("INT-7.4.4a", "INV-AC2")
@for_each("case", vectors("catalog_hash"))
def test_a_catalog_has_the_hash_of_its_vector(case):
    given = unmarked(case["input"])
    assert catalog_hash(**_catalog(given)) == case["expected"]["catalogHash"]


def _catalog(given: dict[str, Any]) -> dict[str, Any]:
    return {"schema_hash": given["schemaHash"], "actions": given["actions"], "pruning": given["pruning"]}


@pytest.mark.requirement("WP-hash", "WP-world")
@for_each("case", vectors("snapshot_hash"))
def test_a_snapshot_has_the_hash_of_its_vector(case):
    given, expected = unmarked(case["input"]), case["expected"]
    snapshot = snapshot_hash(given["snapshot"])
    assert snapshot == expected["snapshotHash"]
    assert content_id(given["schemaHash"], snapshot) == expected["contentId"]


def test_every_vector_file_holds_what_its_tests_were_written_for():
    assert [len(vectors(name)) for name in ("intent_key", "catalog_hash", "snapshot_hash")] == [117, 71, 56]


@pytest.mark.requirement("INT-6.2.1")
@given(action=st.text(min_size=1), value=json_values, scope=st.none() | objects)
@pytest.mark.slow
def test_the_key_is_the_hash_of_four_parts_joined_by_colons(action, value, scope):
    parts = b":".join([SCHEMA.encode(), action.encode(), _jcs(value), _jcs(scope)])
    assert intent_key(SCHEMA, action, value, scope) == hashlib.sha256(parts).hexdigest()


def _jcs(value: Any) -> bytes:
    return rfc8785.dumps(json.loads(json.dumps(freeze(value))))


@pytest.mark.requirement("INT-6.2.1")
@given(value=objects)
def test_the_order_of_members_does_not_matter_to_the_key(value):
    backwards = dict(reversed(value.items()))
    assert intent_key(SCHEMA, "t", value) == intent_key(SCHEMA, "t", backwards)


@pytest.mark.requirement("INT-6.4")
@given(first=json_values, second=json_values)
def test_bodies_have_one_key_exactly_when_their_canonical_texts_are_equal(first, second):
    same = _jcs(first) == _jcs(second)
    assert (intent_key(SCHEMA, "t", first) == intent_key(SCHEMA, "t", second)) is same


@pytest.mark.requirement("WP-world")
def test_returning_to_an_earlier_state_is_a_new_world_with_the_same_content():
    genesis = world_id(SCHEMA, "ab" * 32, None)
    later = world_id(SCHEMA, "cd" * 32, genesis)
    back = world_id(SCHEMA, "ab" * 32, later)
    assert len({genesis, later, back}) == 3
    assert content_id(SCHEMA, "ab" * 32) == content_id(SCHEMA, "ab" * 32)


names = st.text(max_size=5)
requirements: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    schema_hash=names,
    intent_id=names,
    action_id=names,
    node_path=names,
    effect_name=names,
    args=objects,
)


@given(one=requirements, other=requirements)
def test_a_requirement_is_named_by_everything_that_makes_it_and_by_nothing_else(one, other):
    assert (requirement_id(**one) == requirement_id(**other)) is (_jcs(one) == _jcs(other))


@given(one=requirements, part=st.sampled_from(["schema_hash", "intent_id", "action_id", "node_path", "effect_name"]))
def test_a_requirement_with_another_part_has_another_id(one, part):
    assert requirement_id(**one) != requirement_id(**{**one, part: one[part] + "x"})


def test_a_schema_is_named_without_its_own_hash_and_without_fields_of_the_platform():
    schema = {"id": "s", "state": {"fields": {"a": {"type": "number"}}}}
    dressed = {
        "hash": "00",
        "id": "s",
        "state": {"fields": {"$host": {"type": "object"}, "a": {"type": "number"}}},
    }
    assert schema_hash(schema) == schema_hash(dressed)
    assert schema_hash(schema) != schema_hash({**schema, "id": "t"})


@pytest.mark.requirement("WP-hash")
@given(data=objects)
def test_what_platforms_keep_beside_the_data_is_no_part_of_the_state(data):
    kept = {key: value for key, value in data.items() if not key.startswith("$")}
    assert state_hash({**kept, "$host": {"x": 1}, "$mel": None}) == state_hash(kept)


@pytest.mark.requirement("WP-hash")
@given(ids=st.lists(st.text(min_size=1), max_size=5), order=st.randoms(use_true_random=False))
def test_the_order_in_which_requirements_wait_is_no_part_of_the_state(ids, order):
    shuffled = list(ids)
    order.shuffle(shuffled)
    assert state_hash({}, pending_ids=ids) == state_hash({}, pending_ids=shuffled)


@pytest.mark.requirement("WP-hash")
def test_the_words_of_an_error_are_no_part_of_the_state_but_its_code_is():
    error = {"code": "E", "message": "one", "source": {"actionId": "a", "nodePath": "p"}, "timestamp": 1}
    reworded = {**error, "message": "two", "timestamp": 2}
    assert state_hash({}, errors=[error]) == state_hash({}, errors=[reworded])
    assert state_hash({}, errors=[error]) != state_hash({}, errors=[{**error, "code": "F"}])


def test_a_value_that_was_written_and_read_has_the_key_it_had():
    value = {"price": 1.0, "big": 10**20, "minus": -0.0, "deep": [{"é": "ü"}]}
    again = read_json(json.dumps(freeze(value)))
    assert intent_key(SCHEMA, "t", value) == intent_key(SCHEMA, "t", again)


ERROR = {"code": "X", "source": {"actionId": "a", "nodePath": "p"}}


def jcs_sha256(value: Any) -> str:
    return hashlib.sha256(rfc8785.dumps(value)).hexdigest()


@pytest.mark.requirement("WP-outcome", "WP-hash")
@for_each("status", ["idle", "computing", "pending", "error", "completed", "failed", ""])
@for_each("errors", [[], [ERROR], [ERROR, {**ERROR, "code": "Y"}]])
@for_each(
    ("last_error", "pending", "outcome"),
    [(None, [], "completed"), (ERROR, [], "failed"), (None, ["r-1"], "failed"), (ERROR, ["r-1"], "failed")],
)
def test_the_hashed_outcome_follows_from_the_last_error_and_what_is_pending_alone(
    status, errors, last_error, pending, outcome
):
    system = {
        "status": status,
        "lastError": last_error,
        "errors": errors,
        "pendingRequirements": [{"id": name} for name in pending],
    }
    expected = {
        "data": {"a": 1},
        "system": {
            "terminalStatus": outcome,
            "errors": sorted(errors, key=jcs_sha256),
            "pendingDigest": jcs_sha256({"pendingIds": pending}) if pending else "empty",
        },
    }
    assert snapshot_hash({"data": {"a": 1}, "system": system}) == jcs_sha256(expected)
