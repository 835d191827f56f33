"""MEL compiles as the vectors say.

The vectors hold what one earlier compiler answers (``expected``), and a later one (``expected_v5``). Where documents
decide otherwise, the case is in ``DEVIATIONS`` with the reason, and the test asserts that the answers differ.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.mel import mel_of
from tests.cli.realm import CliRealm
from tests.support.tables import for_each
from world.core import load_schema
from world.errors import RefusedError
from world.model.canonical_json import canonical_text
from world.model.identity import schema_hash

CASES = json.loads((Path(__file__).parent.parent / "vectors" / "mel.json").read_text())["cases"]
BY_NAME = {case["name"]: case for case in CASES}

AS_LATER = {
    "todo": "dispatchable when is part of the documented grammar",
    "expr typeof": "typeof is a documented function and no reserved word",
    "expr unknown var": "the documented code is E_UNDEFINED, and an error has the line of its place",
    "expr bad arity": "a wrong number of arguments is a documented error, E_ARG_COUNT",
    "action type mismatch": "a literal that does not fit its place is a documented error, E_TYPE_MISMATCH",
    "dispatchable when": "dispatchable when is part of the documented grammar",
    "lexer error": "a text that is not closed is an error of the lexer; its consequences are no errors",
}
"""Deviations in which the later compiler, which follows the documents, accepts or refuses for the same reasons."""

OTHERS = {
    "expr object lit": "a computed value depends on what its object reads; the earlier deps left it out",
    "expr find": "$item is an element and no dependency of a computed value",
    "expr every": "$item is an element and no dependency of a computed value",
    "action unguarded patch (error)": "the specification's own examples patch without a guard; repeated computation is "
    "safe here, so `worldctl domain check` advises a guard and the compiler does not demand one",
    "two domains": "a file holds exactly one domain; a second one is an error instead of being ignored",
}

DEVIATIONS = AS_LATER | OTHERS


@pytest.mark.requirement("IC-mel")
@for_each("case", CASES, ids=[case["name"] for case in CASES])
def test_a_source_compiles_as_its_vector_says(case: dict[str, Any]) -> None:
    answer = mel_of(case["input"])
    if case["name"] in DEVIATIONS:
        assert canonical_text(answer) != canonical_text(case["expected"])
    else:
        assert canonical_text(answer) == canonical_text(case["expected"])


@pytest.mark.parametrize("name", AS_LATER)
def test_a_deviation_for_the_documents_has_the_errors_of_the_later_compiler(name: str) -> None:
    answer, later = mel_of(BY_NAME[name]["input"]), BY_NAME[name]["expected_v5"]
    assert (answer["ok"], answer["errors"]) == (later["ok"], later["errors"])


def test_the_only_difference_of_three_schemas_is_in_the_dependencies() -> None:
    for name, deps in {"expr object lit": ["s"], "expr find": ["arr"], "expr every": ["arr"]}.items():
        schema, expected = mel_of(BY_NAME[name]["input"])["schema"], BY_NAME[name]["expected"]["schema"]
        assert schema["computed"]["fields"]["computed.c"]["deps"] == deps
        assert BY_NAME[name]["expected_v5"]["schema"]["computed"]["fields"]["c"]["deps"] == deps
        expected["computed"]["fields"]["computed.c"]["deps"] = deps
        assert {**schema, "hash": None} == {**expected, "hash": None}


def test_every_deviation_is_a_case() -> None:
    assert DEVIATIONS.keys() <= BY_NAME.keys()


@for_each("case", CASES, ids=[case["name"] for case in CASES])
def test_the_engine_loads_what_compiles_and_its_hash_is_the_schemas(case: dict[str, Any]) -> None:
    schema = mel_of(case["input"])["schema"]
    if schema is None:
        return
    assert schema["hash"] == schema_hash(schema)
    if case["name"] == "empty domain":
        with pytest.raises(RefusedError, match="at least one action"):
            load_schema(schema)
    else:
        assert load_schema(schema).hash == schema["hash"]


@pytest.mark.slow
def test_the_command_answers_each_line(tmp_path: Path) -> None:
    given = "".join(json.dumps(case["input"]) + "\n" for case in CASES)
    said = CliRealm(tmp_path, "conformance")("mel", given=given)
    assert [canonical_text(line) for line in said.lines] == [canonical_text(mel_of(case["input"])) for case in CASES]
    wrong = CliRealm(tmp_path, "conformance")("mel", given='{"source": 5}\n{}\n', code=1)
    assert [line["error"]["code"] for line in wrong.lines] == ["INVALID_VALUE", "INVALID_VALUE"]
