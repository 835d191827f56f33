"""Errors name the place and the thing they are about."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from projections import CatalogRequest, ProjectionRegistry, projection
from world.core import load_domain, load_schema
from world.errors import RefusedError
from world.model.immutable_json import freeze
from world.model.patch import apply_patches, merge


def test_a_yaml_fault_has_its_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text("id: urn:x\nactions: [\n", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"at line 3, column 1") as caught:
        load_domain(str(file))
    assert caught.value.code == "MALFORMED_YAML"


def test_a_computed_value_with_a_wrong_name_is_a_fault_of_the_schema() -> None:
    portable = {
        "id": "urn:example:shop",
        "version": "1.0.0",
        "state": {"fields": {}},
        "computed": {"fields": {"open": {"deps": [], "expr": {"kind": "lit", "value": 1}}}},
        "actions": {"rest": {"flow": {"kind": "halt"}}},
    }
    with pytest.raises(RefusedError) as caught:
        load_schema(freeze(portable))
    found = caught.value.details["faults"]
    assert [(one["code"], one["path"]) for one in found] == [("SCHEMA_ERROR", "$.computed.fields.open")]


def test_a_merge_into_what_is_no_object_names_the_path() -> None:
    with pytest.raises(RefusedError, match=r"beds\.rose"):
        apply_patches(freeze({"beds": {"rose": [1]}}), [merge("beds.rose", {"wet": True})])


def test_a_malformed_catalog_request_lists_its_members() -> None:
    with pytest.raises(RefusedError, match=r"besides it only actions"):
        CatalogRequest.read({"schemaHash": 5})


def test_wrong_sources_at_registration_name_the_projection() -> None:
    @projection("form")
    def form(req: Any) -> None:
        return None

    with pytest.raises(RefusedError, match=r"'form' declares sources 'post'"):
        ProjectionRegistry().add(form, sources=cast(Any, ["post"]))
