"""Agents of the OpenAI Agents SDK whose tools are governed, against the real package and a scripted model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from agents import Agent, FunctionTool, ModelResponse, RunConfig, Runner, RunState, Usage, function_tool
from agents.tool_context import ToolContext
from openai.types.responses import ResponseFunctionToolCall

from examples.frameworks import openai_agent
from examples.frameworks.desk import TOOLS
from tests.agents.frameworks.proposals import LARGE, PAGES, SMALL, TOO_LARGE, approve, reject, result_of, states
from worldprotocol.agents.frameworks.openai_agents import GovernedFunctionTools
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

UNTRACED = RunConfig(tracing_disabled=True)


class Shop:
    """An agent, its tools, and what was made of them."""

    def __init__(self, realm: Realm, needs_approval: bool = False) -> None:
        self.made: list[Any] = []
        self.error: Exception | None = None
        self.governed = GovernedFunctionTools(realm, "bot", tools=TOOLS)
        shop = self

        @function_tool(needs_approval=needs_approval)
        def refund(order: str, amount: int) -> str:
            """Pay back."""
            shop.made.append(order)
            if shop.error is not None:
                raise shop.error
            return f"paid {amount} for {order}"

        @function_tool
        async def publish(pages: list[str], draft: bool = False) -> str:
            """Publish pages."""
            shop.made.append(pages)
            return "published"

        self.plain = [refund, publish]
        tools: list[Any] = [self.governed(one) for one in self.plain]
        self.agent = Agent("shop", model=openai_agent.ScriptedModel(), tools=tools)

    def run(self, given: Any = "go") -> Any:
        """Run, or go on, in a loop of its own."""
        return asyncio.run(Runner.run(self.agent, given, run_config=UNTRACED))

    def go_on(self, stored: str, approved: bool = False) -> Any:
        """Go on from a stored state, as another process does."""

        async def run() -> Any:
            state: Any = await RunState.from_string(self.agent, stored)
            for one in state.get_interruptions() if approved else ():
                state.approve(one)
            await self.governed.approve_decided(state)
            return await Runner.run(self.agent, state, run_config=UNTRACED)

        return asyncio.run(run())


def script(monkeypatch: pytest.MonkeyPatch, calls: Sequence[tuple[str, dict[str, Any]]]) -> None:
    monkeypatch.setattr(openai_agent, "CALLS", list(calls))


def stored_of(result: Any) -> str:
    text: str = result.to_state().to_string()
    return text


def test_an_approved_call_is_made(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    assert shop.run().final_output == "paid 30 for o-1"
    [proposal] = realm.proposals()
    assert (shop.made, proposal.status, proposal.intent.body.input) == (["o-1"], "completed", SMALL)
    assert result_of(proposal) == {"value": "paid 30 for o-1"}


def test_a_rejected_call_is_stopped_by_the_guardrail_of_its_input(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", TOO_LARGE)])
    shop = Shop(realm)
    result = shop.run()
    assert "agents make no refunds above 1000. Nothing was done." in result.final_output
    [guarded] = result.tool_input_guardrail_results
    [proposal] = realm.proposals()
    assert guarded.output.behavior["type"] == "reject_content"
    assert guarded.output.output_info == {"proposalId": proposal.proposal_id}
    assert (shop.made, proposal.status) == ([], "rejected")


def test_a_narrowed_call_is_made_with_what_was_approved(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("publish", PAGES)])
    shop = Shop(realm)
    assert shop.run().final_output == "published"
    assert shop.made == [["home", "help"]]


def test_a_call_waits_in_a_stored_state(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    first = Shop(realm).run()
    [waiting] = first.interruptions
    assert (waiting.name, json.loads(waiting.arguments)) == ("refund", LARGE)
    shop = Shop(realm)
    again = shop.go_on(stored_of(first))
    assert (len(again.interruptions), shop.made, states(realm)) == (1, [], ["evaluating"])
    approve(realm)
    assert Shop(realm).go_on(stored_of(again)).final_output == "paid 300 for o-2"
    assert states(realm) == ["completed"]


def test_the_approval_of_a_state_is_not_the_answer_of_the_person_who_is_asked(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
):
    script(monkeypatch, [("refund", LARGE)])
    stored = stored_of(Shop(realm).run())
    shop = Shop(realm)
    assert "Not yet: it waits for an answer of ann" in shop.go_on(stored, approved=True).final_output
    assert (shop.made, states(realm)) == ([], ["evaluating"])


def test_a_person_rejects_while_the_run_is_interrupted(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = stored_of(Shop(realm).run())
    reject(realm, "wrong customer")
    shop = Shop(realm)
    assert "wrong customer" in shop.go_on(stored, approved=True).final_output
    assert (shop.made, states(realm)) == ([], ["rejected"])


def test_parallel_calls_are_proposals_of_their_own_and_each_is_made_once(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    calls = [("refund", {"order": f"o-{number}", "amount": 10}) for number in range(6)]
    script(monkeypatch, [*calls, ("refund", {"order": "big", "amount": 300}), ("refund", TOO_LARGE)])
    shop = Shop(realm)
    result = shop.run()
    assert sorted(shop.made) == [f"o-{number}" for number in range(6)]
    approve(realm)
    assert "paid 300 for big" in shop.go_on(stored_of(result)).final_output
    assert sorted(shop.made) == ["big", *(f"o-{number}" for number in range(6))]
    assert sorted(states(realm)) == ["completed"] * 7 + ["rejected"]


def test_a_state_that_goes_on_twice_is_one_proposal_and_one_call(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", LARGE)])
    stored = stored_of(Shop(realm).run())
    approve(realm)
    first, second = Shop(realm), Shop(realm)
    assert first.go_on(stored).final_output == "paid 300 for o-2"
    assert second.go_on(stored).final_output == "paid 300 for o-2"
    assert (first.made, second.made, states(realm)) == (["o-2"], [], ["completed"])


def test_a_tool_that_fails_is_recorded_as_failed_and_the_model_is_told_as_before(
    realm: Realm, monkeypatch: pytest.MonkeyPatch
):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    shop.error = ConnectionError("the bank does not answer")
    plain = Agent("plain", model=openai_agent.ScriptedModel(), tools=[*shop.plain])
    expected = asyncio.run(Runner.run(plain, "go", run_config=UNTRACED)).final_output
    assert shop.run().final_output == expected
    [proposal] = realm.proposals()
    assert (proposal.status, result_of(proposal)) == ("failed", "TOOL_FAILED")


def test_a_tool_that_needs_an_approval_of_the_program_needs_both(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm, needs_approval=True)
    first = shop.run()
    assert (len(first.interruptions), states(realm)) == (1, [])
    assert len(shop.go_on(stored_of(first)).interruptions) == 1
    assert shop.go_on(stored_of(first), approved=True).final_output == "paid 30 for o-1"
    assert (shop.made, states(realm)) == (["o-1"], ["completed"])


def test_arguments_that_are_no_object_are_refused(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    class Broken(openai_agent.ScriptedModel):
        async def get_response(self, *args: Any, **more: Any) -> ModelResponse:
            found = await super().get_response(*args, **more)
            if isinstance(found.output[0], ResponseFunctionToolCall):
                found.output[0].arguments = "[1, 2"
            return ModelResponse(output=found.output, usage=Usage(), response_id=None)

    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    shop.agent.model = Broken()
    first = shop.run()
    assert "no JSON object" in shop.go_on(stored_of(first), approved=True).final_output
    assert (shop.made, states(realm)) == ([], [])


def test_nothing_is_made_without_the_realm(realm: Realm, monkeypatch: pytest.MonkeyPatch):
    script(monkeypatch, [("refund", SMALL)])
    shop = Shop(realm)
    realm.close()
    with pytest.raises(Exception, match="closed"):
        shop.run()
    assert shop.made == []


def test_a_tool_gets_what_was_judged_and_not_the_text_of_the_model(realm: Realm):
    got: list[str] = []

    async def take(context: Any, text: str) -> str:
        got.append(text)
        return "done"

    plain = FunctionTool("look", "Look.", {"type": "object"}, take, strict_json_schema=False)
    tool = GovernedFunctionTools(realm, "bot")(plain)

    async def called(text: str, call_id: str) -> Any:  # as runners do that have no guardrails
        context = ToolContext(None, tool_name="look", tool_call_id=call_id, tool_arguments=text)
        return await tool.on_invoke_tool(context, text)

    assert asyncio.run(called('{"word": "secret", "word": "a"}', "c-1")) == "done"
    assert "no JSON object" in asyncio.run(called('["secret"]', "c-2"))
    assert [json.loads(one, object_pairs_hook=list) for one in got] == [[("word", "a")]]
    assert states(realm) == ["completed"]
