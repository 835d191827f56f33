"""What the published strategies make is accepted by its type and comes back from its wire form."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Approve, Policy, PolicyRegistry, StandardAuthority, rule
from tests.golden.garden import garden
from world.events.base import Event
from world.events.codec import TOPICS, decode_event, encode_event
from world.klis.manifest import read_manifest
from world.klis.resources.resource_reading import canonical_resource
from world.klis.settings import KlisSettings
from world.klis.triple import Triple, read_triple
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import DecisionRecord, HumanAnswer, RuleOutcome, Ruling
from world.model.immutable_json import freeze
from world.model.intent import IntentBody, IntentInstance, IntentScope
from world.model.patch import Patch, scope_allows
from world.model.paths import format_path, parse_path
from world.model.record import to_wire
from world.model.snapshot import ErrorValue, Requirement, Snapshot
from world.model.source import SourceEvent
from world.state.ports import Case
from worldprotocol.policy_tools.cases import CaseEntry
from worldprotocol.testing import strategies as wp

ROOT = Path(__file__).parents[2]


def through_wire(wire: Any) -> Any:
    """Return what a reader elsewhere gets."""
    return read_json(canonical_bytes(wire))


READERS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "actors": (wp.actors(), ActorRef.read),
    "source_events": (wp.source_events(), SourceEvent.read),
    "scopes": (wp.scopes(), IntentScope.read),
    "intent_bodies": (wp.intent_bodies(), IntentBody.read),
    "intents": (wp.intents(), IntentInstance.read),
    "patches": (wp.patches(), Patch.from_wire),
    "errors": (wp.errors(), ErrorValue.from_wire),
    "requirements": (wp.requirements(), Requirement.from_wire),
    "snapshots": (wp.snapshots(), Snapshot.from_wire),
    "rule_outcomes": (wp.rule_outcomes(), RuleOutcome.from_wire),
    "rulings": (wp.rulings(), Ruling.from_wire),
    "human_answers": (wp.human_answers(), HumanAnswer.read),
    "decisions": (wp.decisions(), DecisionRecord.from_wire),
    "triples": (wp.triples(), lambda wire: read_triple(**wire)),
    "manifests": (wp.manifests(), lambda wire: read_manifest(wire, settings=KlisSettings())),
}


@pytest.mark.requirement("CARD-tests")
@pytest.mark.parametrize("name", READERS)
@pytest.mark.slow
def test_a_value_comes_back_from_its_wire_form(name: str) -> None:
    made, read = READERS[name]

    @settings(max_examples=30)
    @given(made)
    def comes_back(value: Any) -> None:
        again = read(through_wire(value.to_wire()))
        assert again == value
        assert canonical_bytes(again.to_wire()) == canonical_bytes(value.to_wire())

    comes_back()


@given(wp.json_values())
def test_json_has_a_canonical_text_that_reads_back(value: Any) -> None:
    text = canonical_bytes(value)
    assert read_json(text) == value
    assert canonical_bytes(read_json(text)) == text


@settings(max_examples=30)
@given(wp.json_objects(), wp.identifiers(), wp.texts(max_size=2), wp.milliseconds(), wp.hashes())
def test_plain_values_are_what_they_say(one: Any, name: str, text: str, at: int, hashed: str) -> None:
    assert isinstance(one, dict)
    assert ActorRef(actor_id=name, kind="human", name=text, meta=one).actor_id == name
    assert SourceEvent(kind="ui", event_id=name, occurred_at=at).occurred_at == at
    assert len(bytes.fromhex(hashed)) == 32


@settings(max_examples=50)
@given(wp.paths(), wp.names(), wp.scope_patterns(), wp.patches())
def test_paths_and_patterns_are_read(path: str, name: str, pattern: str, patch: Patch) -> None:
    assert format_path(parse_path(path)) == path
    assert parse_path(format_path((name,))) == (name,)
    assert scope_allows([pattern], patch) in (True, False)
    assert IntentScope.read({"allowedPaths": [pattern]}).allowed_paths == (pattern,)


@settings(max_examples=50)
@given(wp.resources(), wp.triples())
def test_resources_are_canonical(resource: str, triple: Triple) -> None:
    assert canonical_resource(resource).text == resource
    assert canonical_resource(triple.resource.text).text == triple.resource.text


@settings(max_examples=20)
@given(wp.intents(schema_hash="5c" * 32))
def test_the_key_of_an_intent_is_that_of_its_body(intent: IntentInstance) -> None:
    assert intent.intent_key == intent.body.key("5c" * 32)


def frozen(event: Event) -> dict[str, Any]:
    """Return the parts of an event as they are used: frozen, integers beyond 2^53 as the doubles that they are."""
    return {name: freeze(to_wire(getattr(event, name))) for name in event.__struct_fields__}


@pytest.mark.requirement("CARD-tests", "CARD-log")
@pytest.mark.parametrize("topic", sorted(TOPICS))
@pytest.mark.slow
def test_an_event_of_every_topic_is_recorded_and_read_back(topic: str) -> None:
    @settings(max_examples=8)
    @given(wp.events(topic))
    def comes_back(event: Event) -> None:
        state = encode_event(event)
        again = decode_event(topic, event.VERSION, state)
        assert frozen(again) == frozen(event)
        assert encode_event(again) == state

    comes_back()


@settings(max_examples=20)
@given(wp.events())
def test_events_are_of_any_topic(event: Event) -> None:
    assert TOPICS[event.TOPIC] is type(event)


@rule
def everybody(case: Case) -> Approve:
    assert case.history.count(actor_id=case.actor.actor_id) >= 0
    return Approve(case.intent.body.type)


@settings(max_examples=50)
@given(wp.cases() | wp.cases(domain=garden, given={"base": {"data": {"beds": {}}, "computed": {}}}))
def test_cases_can_be_judged(case: Case) -> None:
    ruling = StandardAuthority(PolicyRegistry([Policy("any", [everybody])])).judge(case)
    assert (ruling.verdict, ruling.trace[0].answer) == ("approve", "approve"), ruling


@settings(max_examples=50)
@given(wp.case_entries())
def test_entries_of_cases_come_back_from_their_wire_form(entry: CaseEntry) -> None:
    assert CaseEntry.read(through_wire(entry.to_wire())) == entry


def test_every_published_strategy_is_tried_here() -> None:
    text = Path(__file__).read_text(encoding="utf-8")
    assert [name for name in wp.__all__ if f"wp.{name}(" not in text] == []


def imports(path: Path, name: str) -> bool:
    """Tell whether a module imports anything of a package."""
    found = [
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [one.name for one in node.names]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    return any(one == name or one.startswith(f"{name}.") for names in found for one in names)


@pytest.mark.slow
def test_hypothesis_is_imported_by_the_strategies_alone_and_they_by_nobody() -> None:
    roof = list((ROOT / "worldprotocol").rglob("*.py"))
    assert {path.name for path in roof if imports(path, "hypothesis")} == {"strategies.py", "event_strategies.py"}
    published = "worldprotocol.testing.strategies"
    assert [path for path in roof if imports(path, published)] == []
    made = "worldprotocol.testing.event_strategies"
    assert [path.name for path in roof if imports(path, made)] == ["strategies.py"]
