"""``worldctl domain schema``: the published JSON Schema is one, and accepts what the engine accepts."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from tests.cli.realm import CliRealm
from tests.core.test_state_models import DOMAIN as GARDEN
from tests.core.test_state_models import GOOD_AND_BAD, started
from world.core import Domain, genesis, load_domain
from world.core.execution import ComputeContext
from world.core.state_model.publishing import METASCHEMA, published_input, published_state
from world.core.validate import check_input
from world.errors import RefusedError
from world.model.immutable_json import freeze, thaw

LAMP = """
id: urn:test:lamp
version: 1.0.0
state:
  fields:
    lit: {type: boolean, default: false, required: true}
    colour: {type: {enum: [red, blue]}}
    lines: {type: array, items: {type: object, fields: {n: {type: number, required: true}}}}
actions:
  light:
    input: {type: object, fields: {hours: {type: number, required: true}, note: {type: string}}}
    flow: {kind: halt}
  douse: {flow: {kind: halt}}
"""


def valid(schema: object, value: object) -> bool:
    jsonschema.Draft202012Validator.check_schema(schema)  # type: ignore[arg-type]
    formats = jsonschema.FormatChecker(["date", "uuid"])
    return bool(jsonschema.Draft202012Validator(schema, format_checker=formats).is_valid(value))  # type: ignore[arg-type]


@pytest.mark.requirement("IC-action")
@pytest.mark.slow
def test_the_published_schema_of_a_model_is_json_schema_and_accepts_what_the_engine_accepts() -> None:
    schema = published_state(GARDEN.schema)
    assert (schema["$schema"], schema["$comment"]) == (METASCHEMA, GARDEN.schema.hash)
    data = thaw(started().data)
    assert valid(schema, data)
    for field, good, bad in GOOD_AND_BAD:
        if field in ("at", "cents"):  # the library asserts no date-time here, and divides fractions as doubles
            continue
        assert all(valid(schema, {**data, field: value}) for value in good), field
        assert not any(valid(schema, {**data, field: value}) for value in bad if "\n" not in str(value)), field
    assert valid(published_input(GARDEN.schema, "go"), {"patches": [{}]})
    assert not valid(published_input(GARDEN.schema, "go"), {})


def test_field_specs_are_published_as_json_schema_too(tmp_path: Path) -> None:
    (tmp_path / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    domain: Domain = load_domain(tmp_path / "lamp.yaml")
    schema = published_state(domain.schema)
    for data in (
        {"lit": True}, {"lit": None, "colour": "red"}, {"lit": True, "lines": [{"n": 1}, None]}, {"lit": 1},
        {"lit": True, "colour": "green"}, {"lit": True, "lines": [{}]}, {"x": 1, "lit": True},
    ):  # fmt: skip
        try:
            genesis(domain, ComputeContext(1, "x"), data)
            fits = True
        except RefusedError:
            fits = False
        assert valid(schema, data) is fits, data
    taken = published_input(domain.schema, "light")
    for value in ({"hours": 1}, {"hours": 1, "note": None}, {"hours": None}, {"note": "x"}, {"hours": 1, "x": 1}):
        found = check_input(domain.schema.actions["light"].input, freeze(value))
        assert valid(taken, value) is (found == []), value
    assert valid(published_input(domain.schema, "douse"), {"anything": 1})


def test_worldctl_prints_the_schema_of_the_state_and_of_an_input(tmp_path: Path) -> None:
    (tmp_path / "lamp.yaml").write_text(LAMP, encoding="utf-8")
    realm = CliRealm(tmp_path)
    (tmp_path / "world.toml").write_text('domain = "lamp.yaml"\nlog = "world.db"\n', encoding="utf-8")
    domain = load_domain(tmp_path / "lamp.yaml")
    assert json.loads(realm("domain", "schema").out) == published_state(domain.schema)
    assert json.loads(realm("domain", "schema", "--action", "light").out) == published_input(domain.schema, "light")
    assert "UNKNOWN_ACTION" in realm("domain", "schema", "--action", "fly", code=1).err
