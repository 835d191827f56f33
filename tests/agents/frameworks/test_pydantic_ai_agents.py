"""Agents of Pydantic AI whose tools are governed, against the real package and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ModelRetry, ToolApproved, ToolDenied
from pydantic_ai.messages import ModelMessagesTypeAdapter, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset

from examples.frameworks import pydantic_agent
from examples.frameworks.desk import TOOLS
from tests.agents.frameworks.proposals import LARGE, PAGES, SMALL, TOO_LARGE, approve, reject, result_of, states
from worldprotocol.agents.frameworks.pydantic_ai import GovernedToolset
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow


class Shop:
    """An agent, its tools, and what was made of them."""

    def __init__(self, realm: Realm) -> None:
        self.made: list[Any] = []
        self.errors: list[Exception] = []
        tools: FunctionToolset[None] = FunctionToolset([self.refund, self.publish])
        governed = GovernedToolset(tools, realm, "bot", tools=TOOLS)
        self.agent: Any = Agent(
            FunctionModel(pydantic_agent.script), toolsets=[governed], output_type=[str, DeferredToolRequests]
        )

    def run(self, *given: Any, **more: Any) -> Any:
        """Run the agent in a loop of its own."""
        return asyncio.run(self.agent.run(*given, **more))

    def refund(self, order: str, amount: int) -> str:
        """Pay back."""
        self.made.append(order)
        if self.errors:
            raise self.errors.pop()
        return f"paid {amount} for {order}"

    async def publish(self, pages: list[str]) -> str:
        """Publish pages."""
        self.made.append(pages)
        return "published"

    def go_on(self, stored: bytes, answers: dict[str, Any]) -> Any:
        """Go on from stored messages, as another process does."""
        messages = ModelMessagesTypeAdapter.validate_json(stored)
        return self.run(message_history=messages, deferred_tool_results=DeferredToolResults(approvals=answers))


def script(monkeypatch: pytest.MonkeyPatch, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    monkeypatch.setattr(pydantic_agent, "CALLS", list(calls))


def outcomes(result: Any) -> list[str]:
    """Return the outcome of each call, as the model is told."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part.outcome for part in parts if isinstance(part, ToolReturnPart)]


def test_an_approved_call_is_made(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    assert shop.run("go").output == "paid 30 for o-1"
    [proposal] = realm.proposals()
    assert (shop.made, proposal.status, proposal.intent.body.input) == (["o-1"], "completed", SMALL)
    assert result_of(proposal) == {"value": "paid 30 for o-1"}


def test_a_rejected_call_is_not_made_and_the_model_reads_why(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", TOO_LARGE)])
    shop = Shop(realm)
    result = shop.run("go")
    assert "agents make no refunds above 1000. Nothing was done." in result.output
    assert outcomes(result) == ["failed"]
    assert (shop.made, states(realm)) == ([], ["rejected"])


def test_a_narrowed_call_is_made_with_what_was_approved(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("publish", PAGES)])
    shop = Shop(realm)
    assert shop.run("go").output == "published"
    assert shop.made == [["home", "help"]]


def test_the_approval_of_a_deferred_call_is_not_the_answer_of_the_person_who_is_asked(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
):
    script(monkeypatch, [("refund", LARGE)])
    first = Shop(realm).run("go")
    assert isinstance(first.output, DeferredToolRequests)
    [waiting] = realm.inbox()
    assert first.output.metadata["call-0"]["proposalId"] == waiting.proposal_id
    assert first.output.metadata["call-0"]["waitsFor"].startswith("an answer of ann")
    shop = Shop(realm)
    again = shop.go_on(first.all_messages_json(), {"call-0": True})
    assert isinstance(again.output, DeferredToolRequests)
    assert (shop.made, states(realm)) == ([], ["evaluating"])
    approve(realm)
    assert shop.go_on(again.all_messages_json(), {"call-0": True}).output == "paid 300 for o-2"
    assert (shop.made, states(realm)) == (["o-2"], ["completed"])


def test_a_person_rejects_while_the_call_is_deferred(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = Shop(realm).run("go").all_messages_json()
    reject(realm, "wrong customer")
    shop = Shop(realm)
    assert "wrong customer" in shop.go_on(stored, {"call-0": True}).output
    assert (shop.made, states(realm)) == ([], ["rejected"])


def test_a_program_may_deny_a_deferred_call_by_itself(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = Shop(realm).run("go").all_messages_json()
    shop = Shop(realm)
    assert shop.go_on(stored, {"call-0": ToolDenied("not today")}).output == "not today"
    assert (shop.made, states(realm)) == ([], ["evaluating"])


def test_changed_arguments_of_an_approval_are_another_call(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = Shop(realm).run("go").all_messages_json()
    approve(realm)
    shop = Shop(realm)
    changed = shop.go_on(stored, {"call-0": ToolApproved(override_args={"order": "o-2", "amount": 999})})
    assert "IDEMPOTENCY_CONFLICT" in str(changed.output)
    assert shop.made == []


def test_parallel_calls_are_proposals_of_their_own_and_each_is_made_once(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    calls = [("refund", {"order": f"o-{number}", "amount": 10}) for number in range(6)]
    script(monkeypatch, [*calls, ("refund", {"order": "big", "amount": 300}), ("refund", TOO_LARGE)])
    shop = Shop(realm)
    first = shop.run("go")
    assert [one.tool_call_id for one in first.output.approvals] == ["call-6"]
    assert sorted(shop.made) == [f"o-{number}" for number in range(6)]
    approve(realm)
    assert "paid 300 for big" in shop.go_on(first.all_messages_json(), {"call-6": True}).output
    assert sorted(shop.made) == ["big", *(f"o-{number}" for number in range(6))]
    assert sorted(states(realm)) == ["completed"] * 7 + ["rejected"]


def test_messages_that_go_on_twice_are_one_proposal_and_one_call(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = Shop(realm).run("go").all_messages_json()
    approve(realm)
    first, second = Shop(realm), Shop(realm)
    assert first.go_on(stored, {"call-0": True}).output == "paid 300 for o-2"
    assert second.go_on(stored, {"call-0": True}).output == "paid 300 for o-2"
    assert (first.made, second.made, states(realm)) == (["o-2"], [], ["completed"])


def test_the_same_ids_in_another_conversation_are_other_calls(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    shop.run("go")
    shop.run("go")
    assert (shop.made, states(realm)) == (["o-1", "o-1"], ["completed", "completed"])


def test_a_tool_that_asks_the_model_to_try_again_has_failed(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    shop.errors = [ModelRetry("name the bank")]
    assert "name the bank" in shop.run("go").output
    [proposal] = realm.proposals()
    assert (proposal.status, result_of(proposal)) == ("failed", "TOOL_FAILED")


def test_an_exception_of_a_tool_is_recorded_and_raised(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    shop.errors = [ConnectionError("the bank does not answer")]
    with pytest.raises(ConnectionError):
        shop.run("go")
    assert states(realm) == ["failed"]


def test_nothing_is_made_without_the_realm(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    realm.close()
    with pytest.raises(Exception, match="closed"):
        shop.run("go")
    assert shop.made == []
