"""The presets, asked through the hooks of a server: no words are approved without confinement or a person."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agents.hooked import Claude, founded
from tests.server.served import Place, Served, serving
from world.events.proposal_events import DecisionMade, ProposalSubmitted
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

PRESETS = {"strict": "coding-agents-strict", "claude": "coding-agents", "trusting": "coding-agents-trusting"}
"""Actors, and the policy of each."""

FORMS: dict[str, list[str]] = tomllib.loads((Path(__file__).parent / "bypass_forms.toml").read_text(encoding="utf-8"))
HARMLESS = ["ls", "git status", "cat src/app.py", "pytest -q", "ruff format", "true", "echo hello"]
EVERY = [*HARMLESS, *(form for forms in FORMS.values() for form in forms)]


def place_of(folder: Path, confine: str) -> Place:
    """Found a realm with an agent of each preset."""
    place = founded(folder, "wait_s = 0")
    config = place.folder / "world.toml"
    config.write_text(config.read_text().replace('confine = "auto"', f"confine = {confine}"))
    with Realm.from_config(read_config(config)) as realm:
        for name, policy in PRESETS.items():
            binding: dict[str, Any] = {"kind": "policy_rules", "policy": policy, "ask": ["ann"]}
            if name != "claude":
                realm.register(name, "agent", binding=binding)
                realm.access.grant(name, "actor", by="operator")
                place.tokens[name] = realm.access.create_token(name, by="operator").token
        realm.register("auto", "agent", binding={"kind": "auto_approve"})
        realm.access.grant("auto", "actor", by="operator")
        place.tokens["auto"] = realm.access.create_token("auto", by="operator").token
    return place


@pytest.fixture(scope="module")
def unconfined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(place_of(tmp_path_factory.mktemp("unconfined"), "false")) as running:
        yield running


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(place_of(tmp_path_factory.mktemp("confined"), '"auto"')) as running:
        yield running


def asked(agent: Claude, forms: list[str]) -> Iterator[tuple[str, str, str]]:
    """Ask for each form in a session that ends with its call; yield it with the decision and its reason."""
    for number, form in enumerate(forms):
        agent.session = f"{agent.actor}-{number}"
        decision, reason, _ = agent.before("Bash", command=form)
        yield form, decision, reason
        assert agent.event("SessionEnd").status_code == 200


def decided(served: Served, actor: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return decision and input of each command of an actor that was decided."""
    commands: dict[str, Any] = {}
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    with served.place.realm() as realm:
        for _, event in realm.events():
            if isinstance(event, ProposalSubmitted) and event.actor.actor_id == actor:
                commands[event.proposal_id] = event.intent.body.input
            elif isinstance(event, DecisionMade) and event.proposal_id in commands:
                given = commands[event.proposal_id]
                found[given["command"]] = (event.decision.decision, given)
    return found


@pytest.mark.parametrize("actor", [*PRESETS, "auto"])
def test_without_a_boundary_no_form_is_approved_without_a_person(unconfined: Served, actor: str) -> None:
    agent = Claude(unconfined, actor, is_rewritten=True)
    for form, decision, reason in asked(agent, EVERY):
        assert decision == "deny", (form, reason)
    outcomes = decided(unconfined, actor)
    assert [form for form, (decision, _) in outcomes.items() if decision == "approved"] == []
    if actor == "auto":
        assert all(outcomes[form][0] == "rejected" for form in HARMLESS)
    else:
        assert not set(HARMLESS) & set(outcomes)  # they wait for a person


@pytest.mark.parametrize("actor", PRESETS)
def test_with_a_boundary_a_form_is_approved_confined_only(confined: Served, actor: str) -> None:
    agent = Claude(confined, actor, is_rewritten=True)
    allowed = {form for form, decision, _ in asked(agent, EVERY) if decision == "allow"}
    outcomes = decided(confined, actor)
    assert {form for form, (decision, _) in outcomes.items() if decision == "approved"} >= allowed
    approved = [given for decision, given in outcomes.values() if decision == "approved"]
    assert all(given["confined"] and not given["hidden"] for given in approved)
    assert {"ls", "pytest -q"} <= allowed
    if actor == "strict":
        assert {kind for given in approved for kind in given["kinds"]} <= {"read", "test", "format"}


def test_an_agent_whose_commands_cannot_be_rewritten_asks(confined: Served) -> None:
    """Cursor, until it was seen to run a rewritten command."""
    root = str(confined.place.folder.parent / "project")
    event = {
        "hook_event_name": "preToolUse",
        "conversation_id": "c",
        "workspace_roots": [root],
        "tool_use_id": "call-1",
        "tool_name": "Shell",
        "tool_input": {"command": "ls", "working_directory": root},
    }
    with confined.client("claude") as client:
        told = client.post("/v1/realms/main/hooks/cursor", json=event).json()
    assert told["permission"] == "deny"
    with confined.place.realm() as realm:
        [*_, last] = [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)]
        assert realm.proposal(last.proposal_id).status == "evaluating"
    given: Any = last.intent.body.input
    assert given["boundary"] == "none"


def test_an_intent_that_is_posted_is_judged_alike(unconfined: Served) -> None:
    given = {
        "command": "ls",
        "cwd": "/",
        "kinds": ["read"],
        "reads": [],
        "writes": [],
        "touches": [],
        "hosts": [],
        "confined": False,
        "boundary": "none",
        "widened": False,
        "tool": "Bash",
        "guarded": False,
        "hidden": False,
    }
    for actor, status in (("claude", "evaluating"), ("auto", "rejected")):
        with unconfined.client(actor) as client:
            body = {"type": "command.run", "input": given}
            headers = {"Idempotency-Key": f"posted-{actor}"}
            told = client.post("/v1/realms/main/intents", json=body, headers=headers).json()
        with unconfined.client("ann") as client:
            found = client.get(f"/v1/realms/main/proposals/{told['proposalId']}").json()
        assert found["status"] == status, found
