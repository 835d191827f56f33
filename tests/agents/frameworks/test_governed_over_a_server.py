"""Governed tools of a program whose realm is on a server: the same gate, by the same operations."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from examples.frameworks.desk import TOOLS, desk_realm
from tests.agents.frameworks.proposals import LARGE, NARROWS, PAGES, SMALL, TOO_LARGE
from tests.server.served import PATH, Place, Served, serving
from world.errors import RefusedError, WaitTimeoutError
from worldprotocol.agents.frameworks.gate import ToolGate
from worldprotocol.agents.frameworks.outcomes import MadeBefore, Pause, Permit, Refusal
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder: Path = tmp_path_factory.mktemp("desk")
    place = Place(folder, str(folder / "world.db"))
    with desk_realm(folder) as realm:
        realm.register("rob", "agent", binding={"kind": "auto_approve"})
        for actor, right in (("bot", "actor"), ("ann", "approver"), ("rob", "actor")):
            realm.access.grant(actor, right, by="operator")  # type: ignore[arg-type]
            place.tokens[actor] = realm.access.create_token(actor, by="operator").token
    with (folder / "world.toml").open("a", encoding="utf-8") as config:
        config.write("\n[server]\nrequests_per_second = 10000\nburst = 10000\n")
    with serving(place) as running:
        yield running


@pytest.fixture
def realm(served: Served) -> Iterator[Realm]:
    with Realm.connect(served.url, token=served.place.tokens["bot"]) as connected:
        yield connected


def decide(served: Served, choice: Any) -> str:
    """Let ann answer the only proposal that waits."""
    with Realm.connect(served.url, token=served.place.tokens["ann"]) as hers:
        [waiting] = hers.inbox()
        hers.decide(waiting.proposal_id, choice, by="ann")
    return waiting.proposal_id


def test_calls_are_made_rejected_narrowed_and_repeated(served: Served, realm: Realm):
    made: list[Any] = []

    @realm.governed(action="refund.issue", key=lambda order, amount: f"first-{order}")
    def refund(order: str, amount: int) -> str:
        made.append(order)
        return f"paid {amount}"

    @realm.governed(action="page.publish", narrows=NARROWS)
    def publish(pages: list[str]) -> None:
        made.append(pages)

    assert [refund(**SMALL), refund(**SMALL)] == ["paid 30", "paid 30"]
    with pytest.raises(RefusedError, match="agents make no refunds above 1000") as refused:
        refund(**TOO_LARGE)
    publish(**PAGES)
    assert made == ["o-1", ["home", "help"]]
    assert refused.value.code == "CALL_REFUSED"
    with Realm.open_read_only(served.place.log) as reading:
        assert [one.status for one in reading.proposals()] == ["completed", "rejected", "completed"]


def test_a_call_waits_on_the_server_for_the_person_who_is_asked(served: Served, realm: Realm):
    results: list[str] = []

    @realm.governed(action="refund.issue", wait_s=60)
    def refund(order: str, amount: int) -> str:
        return f"paid {amount}"

    caller = threading.Thread(target=lambda: results.append(refund(**LARGE)))
    caller.start()
    with Realm.connect(served.url, token=served.place.tokens["ann"]) as hers:
        while not hers.inbox():
            caller.join(0.02)
            assert caller.is_alive()
    decide(served, "approve")
    caller.join(60)
    assert results == ["paid 300"]


def test_a_gate_looks_without_a_claim(served: Served, realm: Realm):
    gate = ToolGate(realm, client="test", tools=TOOLS)
    looked = gate.look("refund", LARGE, "call-1")
    assert isinstance(looked, Pause)
    assert looked.proposal_id == decide(served, "approve")
    assert gate.look("refund", LARGE, "call-1") is None
    begun = gate.begin("refund", LARGE, "call-1")
    assert isinstance(begun, Permit)
    again = gate.begin("refund", LARGE, "call-1")
    assert isinstance(again, Refusal)
    assert again.code == "MADE_ALREADY"
    gate.made(begun, "paid")
    assert gate.begin("refund", LARGE, "call-1") == MadeBefore("paid")
    assert gate.look("refund", LARGE, "call-1") == MadeBefore("paid")
    other = gate.look("refund", {**LARGE, "amount": 301}, "call-1")
    assert isinstance(other, Refusal)
    assert other.code == "IDEMPOTENCY_CONFLICT"


def test_a_request_that_is_sent_again_gets_the_same_claim(served: Served):
    body = {"action": "refund.issue", "input": SMALL, "attempt": "a1"}
    with served.client("bot") as client:
        answers = [
            client.post(f"{PATH}/calls", json=one, headers={"Idempotency-Key": "again-1"})
            for one in (body, body, {**body, "attempt": "a2"})
        ]
        unkeyed = client.post(f"{PATH}/calls", json=body)
    first, second, other = (one.json() for one in answers)
    assert first["answer"] == second["answer"] == "allowed"
    assert {**second["claim"], "now": 0} == {**first["claim"], "now": 0}
    assert (other["answer"], other["code"]) == ("denied", "MADE_ALREADY")
    assert (unkeyed.status_code, unkeyed.json()["code"]) == (400, "INVALID_VALUE")


def test_a_report_counts_for_the_call_of_the_caller_alone(served: Served):
    body = {"action": "refund.issue", "input": SMALL}
    with served.client("bot") as client, served.client("rob") as other:
        claim = client.post(f"{PATH}/calls", json=body, headers={"Idempotency-Key": "own-1"}).json()["claim"]
        report = {"claim": claim, "report": {"result": {"value": {"value": "paid"}}}}
        stolen = other.post(f"{PATH}/calls:report", json=report)
        assert (stolen.status_code, stolen.json()["code"]) == (409, "CLAIM_LOST")
        first, again = (client.post(f"{PATH}/calls:report", json=report) for _ in range(2))
    assert (first.status_code, first.json()["status"]) == (200, "completed")
    assert again.json() == first.json()


def test_a_person_without_the_right_to_act_begins_nothing(served: Served):
    with served.client("ann") as client:
        answer = client.post(
            f"{PATH}/calls", json={"action": "refund.issue", "input": SMALL}, headers={"Idempotency-Key": "hers"}
        )
    assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")


def test_another_actor_than_the_verified_one_begins_nothing(realm: Realm):
    made: list[str] = []

    @realm.governed(actor="rob", action="refund.issue")
    def refund(order: str, amount: int) -> None:
        made.append(order)

    with pytest.raises(RefusedError) as refused:
        refund(**SMALL)
    assert (refused.value.code, made) == ("NOT_THE_VERIFIED_ACTOR", [])


def test_a_server_that_is_gone_lets_nothing_pass(tmp_path: Path):
    with desk_realm(tmp_path) as founding:
        founding.access.grant("bot", "actor", by="operator")
        token = founding.access.create_token("bot", by="operator").token
    made: list[str] = []
    with serving(Place(tmp_path, json.dumps(str(tmp_path)), {"bot": token})) as running:
        realm = Realm.connect(running.url, token=token)

        @realm.governed(action="refund.issue")
        async def refund(order: str, amount: int) -> None:
            made.append(order)

        realm._connection._patience_s = 1.0  # for which it repeats a request
        running.process.kill()
        running.process.wait()
        with realm, pytest.raises(Exception, match=r"server|connect"):
            asyncio.run(refund(**SMALL))
    assert made == []


def test_a_call_whose_time_is_over_stays_open_on_the_server(served: Served, realm: Realm):
    @realm.governed(action="refund.issue", wait_s=0)
    def refund(order: str, amount: int) -> str:
        return f"paid {amount}"

    with pytest.raises(WaitTimeoutError, match="an answer of ann"):
        refund("o-9", 500)
    decide(served, "reject")
