"""A schema that is printed as MEL compiles to a schema with the same hash, and formatting changes no token."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings

from tests.core.mel_schemas import schemas
from tests.plugins.forms import scaled
from world.core.mel.compiling import compile_mel
from world.core.mel.formatting import format_tokens
from world.core.mel.parsing import tokens_of
from world.core.mel.printing import mel_of_schema
from world.errors import RefusedError
from world.model.identity import schema_hash

ROOT = Path(__file__).resolve().parents[2]
VECTORS = json.loads((ROOT / "tests" / "vectors" / "mel.json").read_text())["cases"]


@pytest.mark.slow
@pytest.mark.requirement("IC-mel")
@settings(max_examples=scaled(100, ci=20), deadline=None, suppress_health_check=list(HealthCheck))
@given(schemas())
def test_a_generated_schema_printed_as_mel_compiles_to_its_hash(schema: dict[str, Any]) -> None:
    same(schema)


def same(schema: dict[str, Any]) -> str:
    text = mel_of_schema(schema)
    compiled = compile_mel(text)
    assert compiled.schema is not None, f"{text}\n{compiled.show()}"
    assert compiled.schema["hash"] == schema_hash(schema), text
    assert format_tokens(text) == text
    return text


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("examples/**/*.yaml"), ROOT / "tests" / "golden" / "ledger.yaml"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_a_domain_in_yaml_printed_as_mel_has_the_same_hash_and_no_raw_part(path: Path) -> None:
    text = same(yaml.safe_load(path.read_text()))
    assert text.count("@schema") == 1  # its id and version


@pytest.mark.parametrize("case", VECTORS, ids=[case["name"] for case in VECTORS])
def test_formatting_a_vector_changes_no_token_and_not_the_hash(case: dict[str, Any]) -> None:
    source = case["input"]["source"]
    compiled = compile_mel(source)
    if compiled.schema is None:
        return
    formatted = format_tokens(source)
    assert [str(one) for one in tokens_of(formatted)] == [str(one) for one in tokens_of(source)]
    assert format_tokens(formatted) == formatted
    again = compile_mel(formatted)
    assert again.schema is not None
    assert again.schema["hash"] == compiled.schema["hash"]
    same(compiled.schema)


def test_a_formatted_source_keeps_comments_and_has_one_layout() -> None:
    source = """// a shop
@schema({id:"urn:example:shop",version:"1.0.0"})  domain Shop{ // open
state{stock:number=3 /* pieces */  names:Array<string>=[]}
computed isEmpty=stock==0 computed half=-stock/2
action sell(n:number,note?:string)available when !isEmpty dispatchable when n>0{
when n>stock{fail "SOLD_OUT" with `only ${stock} left`}
// then
once(marker)when(n>1){patch stock=(stock-n)*2 effect mail.send({to:names[0],
into:stock})} stop}}"""
    assert (
        format_tokens(source)
        == """// a shop
@schema({ id: "urn:example:shop", version: "1.0.0" })
domain Shop { // open
  state {
    stock: number = 3 /* pieces */
    names: Array<string> = []
  }

  computed isEmpty = stock == 0
  computed half = -stock / 2

  action sell(n: number, note?: string) available when !isEmpty dispatchable when n > 0 {
    when n > stock {
      fail "SOLD_OUT" with `only ${stock} left`
    }
    // then
    once(marker) when (n > 1) {
      patch stock = (stock - n) * 2
      effect mail.send({ to: names[0],
        into: stock })
    }
    stop
  }
}
"""
    )


@pytest.mark.parametrize("gap", [" /* of */ ", "// of\n", "\n/* * / */ // of\n "])
def test_a_comment_may_be_between_any_two_tokens_and_is_kept(gap: str) -> None:
    plain = "domain D{state{a:Array<number>=[] r:Record<string,number>={}}action go(n?:number){patch a=append(a,n)}}"
    tokens = [str(one) for one in tokens_of(plain)]
    source = gap.join(tokens)
    formatted = format_tokens(source)
    kept = [str(one) for one in tokens_of(formatted) if one.type == "COMMENT"]
    assert kept == [str(one) for one in tokens_of(source) if one.type == "COMMENT"]
    assert format_tokens(formatted) == formatted
    schemas_of = [compile_mel(text).schema for text in (plain, source, formatted)]
    assert schemas_of[0] is not None
    assert schemas_of == [schemas_of[0]] * 3


def test_a_schema_with_python_functions_has_no_mel() -> None:
    schema = {
        "id": "urn:test:shop",
        "version": "1.0.0",
        "state": {"fields": {}},
        "actions": {"go": {"python": {"name": "go", "version": "1"}}},
    }
    with pytest.raises(RefusedError, match="MEL holds no Python functions") as caught:
        mel_of_schema(schema)
    assert caught.value.code == "PYTHON_REQUIRED"


def test_a_schema_of_a_state_model_keeps_it_and_its_fields_are_names() -> None:
    model = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    text = same(
        {
            "id": "urn:test:shop",
            "version": "1.0.0",
            "state": {"dialect": "urn:worldprotocol:state-model:1", "schema": model},
            "actions": {
                "go": {
                    "flow": {"kind": "patch", "op": "set", "path": "n", "value": {"kind": "get", "path": "n"}},
                }
            },
        }
    )
    assert "patch n = n" in text
