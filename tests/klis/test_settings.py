"""The operator's settings: read strictly, recorded completely."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each
from world.errors import RefusedError
from world.klis.settings import AUTHENTICATION, KlisSettings
from world.model.canonical_json import canonical_text, read_json

NOT_RECORDED = {name: getattr(KlisSettings(), name) for name in ("max_clock_ahead_ms", "normal_form")}
DEFAULTS = KlisSettings().to_wire() | NOT_RECORDED
VALUES: dict[type, st.SearchStrategy[Any]] = {
    bool: st.booleans(),
    int: st.integers(1, 2**53 - 1),
    str: st.text(st.characters(codec="ascii", categories=["L"])),
}
CHOSEN = {"authentication", "manifest_rules", "wake_rules"}
settings = st.fixed_dictionaries(
    {},
    optional={name: VALUES[type(value)] for name, value in DEFAULTS.items() if name not in CHOSEN}
    | {"authentication": st.sampled_from(AUTHENTICATION)},
)


def test_nothing_told_is_the_defaults() -> None:
    assert KlisSettings.read({}) == KlisSettings()


@given(told=settings)
def test_what_is_recorded_is_read_back(told: dict[str, Any]) -> None:
    read = KlisSettings.read(told)
    assert {name: getattr(read, name) for name in told} == told
    assert KlisSettings.recorded(read_json(canonical_text(read.to_wire()))) == read


def test_the_wire_form_names_every_setting() -> None:
    assert set(DEFAULTS) == {field.name for field in fields(KlisSettings)}


@pytest.mark.requirement("KM-7.2")
def test_the_operator_may_allow_every_width() -> None:
    assert KlisSettings.read({"min_subtree_depth": 0}).min_subtree_depth == 0


@for_each(
    "told",
    [
        {"max_tripels": 5},
        {"max_triples": 0},
        {"max_triples": -1},
        {"max_triples": 1.0},
        {"max_triples": True},
        {"max_triples": "5"},
        {"max_triples": 2**53},
        {"max_triples": None},
        {"lower_case": 1},
        {"min_subtree_depth": -1},
        {"authentication": "none"},
        {"authentication": True},
        {"manifest_rules": 1},
        {"wake_rules": 1},
    ],
)
def test_a_setting_that_is_none_is_refused_by_name(told: dict[str, Any]) -> None:
    with pytest.raises(RefusedError) as caught:
        KlisSettings.read(told)
    assert caught.value.code == "INVALID_CONFIG"
    assert caught.value.details["name"] in told


@pytest.mark.requirement("KM-7.1")
def test_settings_from_before_a_setting_was_recorded_keep_their_meaning_and_their_bytes() -> None:
    unrecorded = {*CHOSEN, *NOT_RECORDED}
    wire = {name: value for name, value in DEFAULTS.items() if name not in unrecorded}
    before = KlisSettings.recorded(wire)
    assert (before.authentication, before.manifest_rules, before.wake_rules) == (None, 1, 1)
    assert before.to_wire() == wire
    assert before != KlisSettings()
    assert KlisSettings.recorded(DEFAULTS) == KlisSettings()
    assert DEFAULTS["authentication"] == "channel"


@pytest.mark.parametrize("rules", [0, 4, "2", True, None])
@pytest.mark.parametrize("kind", ["manifest_rules", "wake_rules"])
def test_rules_of_another_version_are_refused(rules: object, kind: str) -> None:
    with pytest.raises(RefusedError) as caught:
        KlisSettings.recorded({kind: rules})
    assert caught.value.code == "INVALID_CONFIG"
