"""``python -m conformance id``, ``eval`` and ``flow`` answer the vectors, each file in one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.vectors import marked, read_expression_case, unmarked
from tests.cli.realm import CliRealm
from tests.core.test_expression_vectors import same
from tests.core.test_flow_vectors import DEVIATIONS
from world.model.canonical_json import canonical_text
from world.model.identity import content_id, snapshot_hash, world_id

VECTORS = Path(__file__).resolve().parents[1] / "vectors"


def cases(name: str) -> list[dict[str, Any]]:
    return json.loads((VECTORS / f"{name}.json").read_text())["cases"]


def lines_of(given: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(case["input"]) + "\n" for case in given)


@pytest.mark.requirement("INT-6.2.1", "INT-7.4.4a", "WP-hash")
@pytest.mark.parametrize(
    ("kind", "name"), [("intent-key", "intent_key"), ("catalog", "catalog_hash"), ("snapshot", "snapshot_hash")]
)
def test_ids_are_as_the_vectors_say(tmp_path, kind, name):
    said = CliRealm(tmp_path, "conformance")("id", kind, given=lines_of(cases(name)))
    assert said.lines == [case["expected"] for case in cases(name)]


@pytest.mark.requirement("WP-world")
def test_a_world_id_follows_from_schema_snapshot_and_parent(tmp_path):
    snapshot = cases("snapshot_hash")[0]["input"]["snapshot"]
    hashed, schema, parent = snapshot_hash(snapshot), "5c" * 32, "ab" * 32
    given = [
        {"schemaHash": schema, "snapshotHash": hashed, "parentWorldId": None},
        {"schemaHash": schema, "snapshot": snapshot, "parentWorldId": parent},
    ]
    (tmp_path / "worlds.jsonl").write_text("".join(json.dumps(one) + "\n" for one in given))
    said = CliRealm(tmp_path, "conformance")("id", "world", "worlds.jsonl")
    assert [one["worldId"] for one in said.lines] == [world_id(schema, hashed, above) for above in (None, parent)]
    assert {one["contentId"] for one in said.lines} == {content_id(schema, hashed)}


def test_a_bad_line_gives_an_error_in_its_place_and_exit_code_1_at_the_end(tmp_path):
    good = cases("intent_key")[0]
    wrong = [
        "{",
        "[]",
        "{}",
        '{"schemaHash": "x", "body": {"type": "a", "input": {"$vec": "NaN"}}}',
        '{"schemaHash": "x", "body": {"type": "a", "input": {"$vec": "what"}}}',
        '{"schemaHash": "x", "body": 3}',
        '{"schemaHash": "x", "body": {"type": "a", "input": 9007199254740993}}',
        '{"schemaHash": "x", "schemaHash": "y", "body": {"type": "a"}}',
        "\x00",
    ]
    said = CliRealm(tmp_path, "conformance")(
        "id", "intent-key", given="\n".join(wrong) + "\n" + lines_of([good]), code=1
    )
    assert [one["error"]["code"] for one in said.lines[:-1]] == [
        "MALFORMED_JSON", "INVALID_VALUE", "INVALID_VALUE", "NOT_CANONICAL", "INVALID_VALUE", "INVALID_VALUE",
        "NOT_CANONICAL", "MALFORMED_JSON", "MALFORMED_JSON",
    ]  # fmt: skip
    assert [one["error"]["line"] for one in said.lines[:-1]] == list(range(1, 10))
    assert said.lines[-1] == good["expected"]


@pytest.mark.requirement("HC-flow")
def test_expressions_have_the_values_of_their_vectors(tmp_path):
    out = CliRealm(tmp_path, "conformance")("eval", given=lines_of(cases("expression"))).out.splitlines()
    answers = [read_expression_case(line) for line in out]
    expected = read_expression_case((VECTORS / "expression.json").read_text())["cases"]
    wrong = [case["name"] for case, answer in zip(expected, answers, strict=True) if not same(answer, case["expected"])]
    assert wrong == []


def test_an_expression_reads_what_its_line_or_the_named_context_gives_and_nothing_else(tmp_path):
    realm = CliRealm(tmp_path, "conformance")
    (tmp_path / "mine.json").write_text('{"data": {"a": {"$vec": "2.5"}}}')
    get = '{"expr": {"kind": "get", "path": "a"}}\n'
    assert realm("eval", given=get).json == {"ok": True, "value": None}
    assert realm("eval", given='{"data": {"a": 5}, ' + get[1:]).json["value"] == 5
    assert realm("eval", "--context", "mine.json", given=get).json["value"] == 2.5
    assert realm("eval", "--context", "mine.json", given='{"data": {"a": 5}, ' + get[1:]).json["value"] == 5
    assert "FILE_UNREADABLE" in realm("eval", "--context", "nowhere.json", given=get, code=2).err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"data": [1]}, '"data" must be an object, not an array'),
        ({"data": None}, '"data" must be an object, not null'),
        ({"data": "x"}, '"data" must be an object, not a string'),
        ({"data": {}, "computed": [1]}, '"computed" must be an object, not an array'),
        ({"data": {}, "system": 5}, '"system" must be an object, not a number'),
        ({"data": {}, "meta": True}, '"meta" must be an object, not a boolean'),
        ({"now": "noon"}, '"now" must be a number, not a string'),
        ({"randomSeed": 5}, '"randomSeed" must be a string, not a number'),
        ({"intentId": []}, '"intentId" must be a string, not an array'),
        ({"currentAction": {}}, '"currentAction" must be a string, not an object'),
    ],
)
def test_a_line_with_surroundings_of_the_wrong_type_is_refused_by_name(tmp_path, given, message):
    line = json.dumps({"expr": {"kind": "get", "path": "a"}, **given})
    said = CliRealm(tmp_path, "conformance")("eval", given=line + "\n", code=1)
    error = said.json["error"]
    assert (error["code"], error["line"]) == ("INVALID_VALUE", 1)
    assert error["message"].startswith(message)
    assert "attribute" not in said.out


def test_a_context_file_with_surroundings_of_the_wrong_type_is_refused_before_any_line(tmp_path):
    (tmp_path / "mine.json").write_text('{"data": [1]}')
    said = CliRealm(tmp_path, "conformance")(
        "eval", "--context", "mine.json", given='{"expr": {"kind": "lit", "value": 1}}\n', code=2
    )
    assert "INVALID_VALUE" in said.err
    assert '--context: "data" must be an object, not an array' in said.err
    (tmp_path / "list.json").write_text("[1]")
    assert (
        "must be a JSON object"
        in CliRealm(tmp_path, "conformance")("eval", "--context", "list.json", given="", code=2).err
    )


@pytest.mark.requirement("HC-flow", "HC-compute")
def test_flows_end_as_their_vectors_say_but_for_the_listed_deviations(tmp_path):
    given = cases("flow")
    answers = CliRealm(tmp_path, "conformance")("flow", given=lines_of(given)).lines
    differ = set()
    for case, answer in zip(given, answers, strict=True):
        if canonical_text(answer) != canonical_text(case["expected"]):
            differ.add(case["name"])
    assert differ == DEVIATIONS.keys()


def test_a_flow_line_that_makes_no_sense_is_an_error_and_no_crash(tmp_path):
    given = '{"op": "dance"}\n{"op": "compute"}\n{"op": ["x"]}\n{"op": "compute", "schema": {}, "snapshot": 1}\n'
    said = CliRealm(tmp_path, "conformance")("flow", given=given, code=1)
    assert [set(one) for one in said.lines] == [{"error"}] * 4


def test_patches_are_applied_with_the_context_of_the_line_and_no_other(tmp_path):
    given = next(case for case in cases("flow") if case["input"]["op"] == "apply")
    bare = {**given, "input": {name: value for name, value in given["input"].items() if name != "context"}}
    said = CliRealm(tmp_path, "conformance")("flow", given=lines_of([given, bare]), code=1).lines
    assert canonical_text(said[0]) == canonical_text(given["expected"])
    assert said[1]["error"] == {
        "code": "INVALID_VALUE", "message": "The line lacks 'context'.", "details": {}, "line": 2,
    }  # fmt: skip


def test_numbers_that_json_cannot_carry_are_marked_and_read_back():
    for number in ("-0", "NaN", "Infinity", "-Infinity"):
        mark = {"$vec": number}
        assert marked([unmarked({"a": mark})]) == [{"a": mark}]
    assert marked({"a": [0.0, 1.5, True, None]}) == {"a": [0.0, 1.5, True, None]}
