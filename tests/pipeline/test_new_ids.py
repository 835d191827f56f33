"""Which ids can be given to new actors, agents and sessions, and who can be asked by a delegation."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pipeline.workshop import a_workshop
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.base import REALM_STREAM
from world.events.realm_events import ActorRegistered
from world.model.actor import ActorRef
from world.model.new_names import check_new_id
from worldprotocol.api.realm import Realm

ALLOWED = ["a", "Z9", "ann@example.org", "team/agent-7:main", "a.b_c", "x" * 128, "-", ".."]
REFUSED = [
    "*", "**", "a*", "", " ", "ann ", "a\nb", "a\x00", "a\x7f", "\x1b[31mann", "ann\u200b", "\u202eann", "a\u2066b",
    "\u0430nn", "ａnn", "é", "ann\ufeff", "x" * 129, "a\\b", "a'b", "a#b", "😀",
]  # fmt: skip


@pytest.fixture
def world(tmp_path: Path):
    with a_workshop(":memory:", tmp_path / "w") as opened:
        yield opened


def code_of(call, *arguments, **named) -> str:
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **named)
    return caught.value.code


def lease(world: Realm, agent: str, session: str):
    document = {
        "ver": "1.0",
        "session_id": session,
        "agent_id": agent,
        "scope": [{"predicate": "CONSUMES", "resource": "FILE:/x"}],
    }
    return world.leases.desk.request(document, by=agent)


@pytest.mark.requirement("INT-3.1")
@pytest.mark.parametrize("actor_id", ALLOWED)
def test_an_id_of_the_alphabet_is_registered(world: Realm, actor_id: str) -> None:
    world.register(actor_id, "human")
    assert actor_id in world.realm().actors


@pytest.mark.requirement("INT-3.1")
@pytest.mark.parametrize("actor_id", REFUSED)
def test_any_other_id_is_refused(world: Realm, actor_id: str) -> None:
    size = world.log.head().size
    assert code_of(world.register, actor_id, "human") in ("INVALID_ID", "INVALID_VALUE" if not actor_id else "")
    if actor_id:
        assert code_of(world.leases.desk.register_agent, actor_id, by="ops") == "INVALID_ID"
    assert world.log.head().size == size


@given(st.text(max_size=140))
def test_the_rule_is_an_alphabet_of_68_characters_and_a_length(text: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9._@:/-]{1,128}", text):
        check_new_id("actor", text)
    else:
        assert code_of(check_new_id, "actor", text) == "INVALID_ID"


def test_the_message_shows_a_refused_id_without_its_control_characters(world: Realm) -> None:
    with pytest.raises(RefusedError) as caught:
        world.register("\x1b[31m\u202eann", "human")
    assert caught.value.message.isascii()
    assert caught.value.message.isprintable()


@pytest.mark.parametrize(("agent", "session"), [("*", "s"), ("a b", "s"), ("agent", "s\u202e"), ("agent", "*")])
def test_leases_are_given_to_agents_and_sessions_of_the_alphabet_alone(world: Realm, agent: str, session: str) -> None:
    assert code_of(lease, world, agent, session) == "INVALID_ID"
    assert lease(world, "agent", "s/1:a").status == "Granted"
    assert (agent, session) not in world.realm().klis.ledger().sessions


def test_ids_that_a_log_holds_already_stay_valid(world: Realm) -> None:
    old = "J\u00f6rg \u202e"
    actor = ActorRef(actor_id=old, kind="human")

    def earlier(work) -> None:
        work.emit(REALM_STREAM, ActorRegistered(at=work.at, actor=actor, by="ops"))

    world._acting.run(earlier)
    world.register(old, "human", name="J", binding={"kind": "auto_approve"})
    assert world.act(old, "run", {"steps": []}).status == "completed"
    assert verify(world.log).findings == ()


def waiting(world: Realm, binding) -> str:
    for name in ("mia", "noa", "pia"):
        world.register(name, "human")
    world.register("bot", "agent", binding=binding)
    return world.act("bot", "run", {"steps": []}).proposal_id


@pytest.mark.requirement("WP-bind")
def test_a_seat_is_not_handed_to_any_human(world: Realm) -> None:
    star = ActorRef(actor_id="*", kind="human")
    world._acting.run(
        lambda work: work.emit(REALM_STREAM, ActorRegistered(at=work.at, actor=star, by="ops"))
    )  # as in a log of before ids had an alphabet
    name = waiting(world, {"kind": "hitl", "ask": ["mia"]})
    with pytest.raises(RefusedError) as caught:
        world.decide(name, "delegate", by="mia", to="*")
    assert caught.value.code == "DELEGATION_REFUSED"
    assert code_of(world.decide, name, "approve", by="noa") == "NOT_ASKED"


@pytest.mark.requirement("WP-bind")
def test_a_member_who_has_voted_is_not_asked_again_through_a_delegation(world: Realm) -> None:
    steps = [{"ask": ["pia"]}]
    name = waiting(world, {"kind": "tribunal", "members": ["mia", "noa"], "rule": "unanimous", "then": steps})
    world.decide(name, "approve", by="mia")
    assert code_of(world.decide, name, "delegate", by="noa", to="mia") == "DELEGATION_REFUSED"
    world.decide(name, "escalate", by="noa", reason="not mine to say")
    with pytest.raises(RefusedError) as caught:
        world.decide(name, "delegate", by="pia", to="mia")
    assert caught.value.code == "DELEGATION_REFUSED"
    assert "'mia' has voted on this proposal" in caught.value.message
    world.decide(name, "delegate", by="pia", to="noa")
    assert world.decide(name, "approve", by="noa").status == "completed"
