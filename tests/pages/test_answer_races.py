"""An answer is bound to what was shown also where the state changes between the comparison and the record."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from world.errors import RefusedError
from world.events.proposal_events import HumanAnswered
from world.events.verification import Verification
from worldprotocol import Domain, set_
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.bodies import AnswerToGive
from worldprotocol.server.call import Call
from worldprotocol.server.operation_table import OPERATIONS
from worldprotocol.server.operations.proposals import give_answer, inbox_entry
from worldprotocol.server.service import RealmToServe, Service

VERIFIED = Verification(method="peer", actor_id="ann")


class Slip(BaseModel):
    name: str
    text: str = "tea"


class Slips(BaseModel):
    slips: dict[str, str] = {}


class Gate:
    """Stops the action of the slip ``gated`` while it is closed."""

    def __init__(self) -> None:
        """Begin open."""
        self.reached, self.opened = threading.Event(), threading.Event()
        self.opened.set()

    def pass_through(self) -> None:
        """Note that the action runs, and wait until the gate is open."""
        self.reached.set()
        assert self.opened.wait(30)

    def close(self) -> None:
        """Stop the next action."""
        self.reached.clear()
        self.opened.clear()


def a_domain(gate: Gate) -> Domain:
    domain = Domain("urn:test:slips", version="1.0.0", state=Slips)

    @domain.action("slip.write", version="1")
    def write(ctx: Any, input: Slip) -> Any:  # noqa: A002
        if input.name == "gated":
            gate.pass_through()
        return [set_(f"slips.{input.name}", input.text)]

    @domain.action("slip.fix", version="1")
    def fix(ctx: Any, input: Slip) -> Any:  # noqa: A002
        return [set_(f"slips.{input.name}", input.text)]

    return domain


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def realm(tmp_path: Path, gate: Gate) -> Iterator[Realm]:
    with Realm.create(tmp_path / "world.db", domain=a_domain(gate)) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("bob", "human", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "hitl", "ask": ["ann", "bob"]})
        realm.access.grant("ann", "approver", by="operator")
        yield realm


def a_call(realm: Realm) -> Call:
    """Return a request of ann to answer."""
    service = Service.of(ServerConfig(), [RealmToServe("main", realm)])
    hosted, view = service.realms["main"], realm.realm()
    return Call.of(service, OPERATIONS["proposals.answer"], hosted, VERIFIED, view)


def answered(realm: Realm) -> list[tuple[str, str | None]]:
    events = (event for _, event in realm.events() if isinstance(event, HumanAnswered))
    return [(one.answer.choice, one.answer.by.actor_id) for one in events]


def raced(realm: Realm, gate: Gate, meanwhile: Any) -> RefusedError | None:
    """Approve what is shown, and run ``meanwhile`` while the answer is compared with it; return its refusal."""
    proposal = realm.act("bot", "slip.write", {"name": "gated"})
    call = a_call(realm)
    shown = inbox_entry(call, proposal, 0)["shown"]
    body = AnswerToGive(choice="approve", shown=shown)
    gate.close()
    with ThreadPoolExecutor(1) as pool:
        answering = pool.submit(give_answer, call, call.realm, proposal.proposal_id, body)
        try:
            assert gate.reached.wait(30)
            meanwhile(proposal.proposal_id)
        finally:
            gate.opened.set()
        error = answering.exception(60)
    assert error is None or isinstance(error, RefusedError)
    return error


def test_an_answer_is_refused_where_another_was_given_while_it_was_compared(realm: Realm, gate: Gate) -> None:
    refused = raced(realm, gate, lambda name: realm.decide(name, "ask", by="bob", reason="which tea?"))
    assert refused is not None
    assert refused.code == "SHOWN_CHANGED"
    assert answered(realm) == [("ask", "bob")]
    assert realm.data() == {"slips": {}}


def test_an_answer_is_refused_where_an_approval_would_do_something_else_by_then(realm: Realm, gate: Gate) -> None:
    refused = raced(realm, gate, lambda _: realm.act("ann", "slip.fix", {"name": "gated", "text": "milk"}))
    assert refused is not None
    assert refused.code == "SHOWN_CHANGED"
    assert answered(realm) == []
    assert realm.data() == {"slips": {"gated": "milk"}}


def test_an_answer_holds_where_the_head_moved_and_an_approval_does_the_same(realm: Realm, gate: Gate) -> None:
    before = realm.branch().head
    assert raced(realm, gate, lambda _: realm.act("ann", "slip.fix", {"name": "other", "text": "milk"})) is None
    assert realm.branch().head != before
    assert answered(realm) == [("approve", "ann")]
    assert realm.data() == {"slips": {"other": "milk", "gated": "tea"}}


def test_an_answer_without_a_hash_is_compared_with_nothing(realm: Realm, gate: Gate) -> None:
    proposal = realm.act("bot", "slip.write", {"name": "free"})
    call = a_call(realm)
    give_answer(call, call.realm, proposal.proposal_id, AnswerToGive(choice="approve"))
    assert answered(realm) == [("approve", "ann")]
