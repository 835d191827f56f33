"""``worldctl actions``: the catalog on the command line, for people, for models, and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm

DOMAIN = """
id: urn:test:lamp
version: 1.0.0
state:
  fields:
    lit: {type: boolean, default: false}
    oil: {type: number, default: 1}
actions:
  lamp.light:
    label: Light
    description: Lights the lamp.
    input: {type: object, fields: {hours: {type: number, required: true}}}
    available: {kind: not, arg: {kind: get, path: lit}}
    flow: {kind: patch, op: set, path: lit, value: {kind: lit, value: true}}
  lamp.douse:
    available: {kind: get, path: lit}
    flow: {kind: patch, op: set, path: lit, value: {kind: lit, value: false}}
  lamp.fill:
    available: {kind: eq, left: {kind: get, path: meta.actor.meta.role}, right: {kind: lit, value: keeper}}
    flow: {kind: patch, op: set, path: oil, value: {kind: lit, value: 9}}
  lamp.look:
    flow: {kind: halt}
"""


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    folder = tmp_path_factory.mktemp("lamp")
    (folder / "lamp.yaml").write_text(DOMAIN)
    realm = CliRealm(folder)
    realm("init", "--domain", "lamp.yaml")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve", "--meta", '{"role": "keeper"}')
    realm("actor", "add", "bot", "--kind", "agent", "--auto-approve")
    realm("submit", "lamp.light", "--actor", "ann", "--input", '{"hours": 1}')
    return realm


def listed(realm: CliRealm, *options: str) -> list[list[str]]:
    return [line.split("\t") for line in realm("actions", *options).out.splitlines()]


@pytest.mark.requirement("INT-7.4.1", "INT-7.4.3a")
def test_the_actions_that_are_offered_are_listed(realm: CliRealm) -> None:
    assert listed(realm, "--actor", "ann") == [
        ["action", "availability", "what"],
        ["lamp.douse", "available", ""],
        ["lamp.fill", "available", ""],
        ["lamp.look", "available", ""],
    ]
    everything = listed(realm, "--actor", "bot", "--all")
    assert everything[2:4] == [
        ["lamp.fill", "unknown (missing_context)", ""],
        ["lamp.light", "unavailable", "Light"],
    ]
    assert [row[0] for row in listed(realm, "--max", "1", "--certain")] == ["action", "lamp.douse"]
    assert [row[0] for row in listed(realm, "--certain")] == ["action", "lamp.douse", "lamp.look"]


@pytest.mark.requirement("INT-3.4c", "INT-7.4.4b")
def test_the_catalog_is_printed_as_json_and_its_hash_is_the_same_in_every_mode(realm: CliRealm) -> None:
    shown = {mode: realm("actions", "--json", "--all", "--mode", mode).json for mode in ("llm", "ui", "debug")}
    assert {catalog["kind"] for catalog in shown.values()} == {"action_catalog"}
    assert len({catalog["catalogHash"] for catalog in shown.values()}) == 1
    light = {mode: catalog["actions"][2] for mode, catalog in shown.items()}
    assert light["ui"].keys() == {"type", "label", "inputSchema", "availability"}
    assert light["llm"]["description"] == "Lights the lamp."
    assert light["debug"]["availability"]["reason"] == "the predicate is false (lit is true)"
    named = [{"type": one["type"], **one["availability"]} for one in shown["llm"]["actions"]]
    line = {"schemaHash": shown["llm"]["schemaHash"], "actions": named, "pruning": {"policy": "mark_only"}}
    again = CliRealm(realm.folder, "conformance")("id", "catalog", given=json.dumps(line)).json
    assert again["catalogHash"] == shown["llm"]["catalogHash"]


def test_tools_are_printed_for_models(realm: CliRealm) -> None:
    told = realm("actions", "--tools", "--actor", "ann", "--branch", "main").json
    assert told["names"] == {"lamp-douse": "lamp.douse", "lamp-fill": "lamp.fill", "lamp-look": "lamp.look"}
    assert {tuple(tool) for tool in told["tools"]} == {("name", "description", "input_schema")}


def test_each_action_is_explained(realm: CliRealm) -> None:
    rows = {row[0]: row[1:] for row in listed(realm, "--explain", "--actor", "bot")}
    assert rows["lamp.light"] == [
        "no", "unavailable", "the predicate is false (lit is true); unavailable actions are dropped",
    ]  # fmt: skip
    assert rows["lamp.fill"] == ["yes", "unknown (missing_context)", "meta.actor.meta.role is absent"]
    told = {one["type"]: one for one in realm("actions", "--explain", "--json").json["explanations"]}
    assert told["lamp.fill"]["missing"] == ["meta.actor.meta.role"]
    assert told["lamp.douse"]["reads"] == {"lit": True}
    assert told["lamp.look"]["predicate"] is None


@pytest.mark.requirement("INT-7.4.3b")
def test_a_past_world_and_the_schemas_order_can_be_asked_for(realm: CliRealm) -> None:
    first = realm("worlds", "--json").lines[0]
    rows = listed(realm, "--at", first["worldId"][:12], "--sort", "schema_order")
    assert [row[0] for row in rows] == ["action", "lamp.fill", "lamp.light", "lamp.look"]
    assert rows == listed(realm, "--at", first["worldId"][:12], "--branch", "main", "--sort", "schema_order")
    said = realm("actions", "--at", first["worldId"][:12], "--actor", "ann", code=1).err
    assert "The actor 'ann' was not registered up to event 5." in said


def test_options_that_contradict_each_other_are_refused(realm: CliRealm) -> None:
    for options in (("--tools", "--explain"), ("--tools", "--mode", "ui"), ("--max", "-1")):
        assert realm("actions", *options, code=2).err
    assert realm("actions", "--actor", "nobody", code=1).err


def test_looking_needs_no_code_and_changes_no_byte(realm: CliRealm, tmp_path: Path) -> None:
    log = next(realm.folder.glob("*.db"))
    before = log.read_bytes()
    told = realm("actions", "--json", "--actor", "ann").json
    elsewhere = CliRealm(tmp_path)
    assert elsewhere("actions", "--json", "--actor", "ann", "--log", str(log)).json == told
    assert log.read_bytes() == before


def test_a_domain_that_cannot_be_loaded_is_told_and_done_without(realm: CliRealm) -> None:
    domain = realm.folder / "lamp.yaml"
    kept = domain.read_text()
    told = realm("actions", "--json").json
    domain.write_text("id: [")
    try:
        said = realm("actions", "--json")
        assert said.json == told
        assert "Without the domain's own code" in said.err
    finally:
        domain.write_text(kept)
