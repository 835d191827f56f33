"""Agents of LangChain whose tools are governed, against the real package and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import AgentMiddleware, ToolRetryMiddleware
from langchain_core.messages import ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command

from examples.frameworks import langchain_agent
from examples.frameworks.desk import TOOLS
from tests.agents.frameworks.proposals import LARGE, PAGES, SMALL, TOO_LARGE, approve, reject, result_of, states
from worldprotocol.agents.frameworks.langchain import GovernedTools
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

THREAD: Any = {"configurable": {"thread_id": "t-1"}}
GO: Any = {"messages": [{"role": "user", "content": "go"}]}
Calls = Sequence[tuple[str, dict[str, Any]]]


class Shop:
    """The tools, and what was made of them."""

    def __init__(self) -> None:
        self.made: list[Any] = []
        self.failures = 0

    def refund(self, order: str, amount: int) -> str:
        """Pay back."""
        self.made.append(order)
        if len(self.made) <= self.failures:
            raise ConnectionError("the bank does not answer")
        return f"paid {amount} for {order}"

    def publish(self, pages: list[str]) -> str:
        """Publish pages."""
        self.made.append(pages)
        return "published"

    def look(self, word: str) -> str:
        """Look a word up."""
        self.made.append(word)
        return "a meaning"


@pytest.fixture
def agent_of(realm: Realm, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Shop]]:
    """Return what makes an agent that makes some calls at once."""

    def make(calls: Calls, before: Sequence[Any] = (), after: Sequence[Any] = ()) -> tuple[Any, Shop]:
        monkeypatch.setattr(langchain_agent, "CALLS", list(calls))
        shop = Shop()
        agent = create_agent(
            langchain_agent.ScriptedModel(),
            tools=[shop.refund, shop.publish, shop.look],
            middleware=[*before, GovernedTools(realm, "bot", tools=TOOLS), *after],
            checkpointer=InMemorySaver(),
        )
        return agent, shop

    return make


def told(found: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what the model was told of each call."""
    return [(one.status, str(one.content)) for one in found["messages"] if isinstance(one, ToolMessage)]


def test_an_approved_call_is_made(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)])
    assert told(agent.invoke(GO, THREAD)) == [("success", "paid 30 for o-1")]
    [proposal] = realm.proposals()
    assert (shop.made, proposal.status) == (["o-1"], "completed")
    assert proposal.intent.body.input == SMALL
    trace = dict(proposal.submitted.trace or {})
    assert trace.pop("session").startswith("t-1/lc_run-")
    assert trace == {"client": "langchain", "callId": "call-0", "tool": "refund"}
    assert result_of(proposal) == {"value": "paid 30 for o-1"}


def test_a_rejected_call_is_not_made_and_the_model_reads_why(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", TOO_LARGE)])
    [(status, content)] = told(agent.invoke(GO, THREAD))
    assert status == "error"
    assert "agents make no refunds above 1000. Nothing was done." in content
    assert (shop.made, states(realm)) == ([], ["rejected"])


def test_a_narrowed_call_is_made_with_what_was_approved(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("publish", PAGES)])
    agent.invoke(GO, THREAD)
    assert shop.made == [["home", "help"]]


def test_a_tool_without_an_action_is_governed_too(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("look", {"word": "tea"})])
    agent.invoke(GO, THREAD)
    [proposal] = realm.proposals()
    assert (shop.made, proposal.intent.body.type) == (["tea"], "tool.use")
    assert proposal.intent.body.input == {"tool": "look", "arguments": {"word": "tea"}}


def test_a_resume_is_not_the_answer_of_the_person_who_is_asked(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", LARGE)])
    [waiting] = agent.invoke(GO, THREAD)["__interrupt__"]
    assert waiting.value["proposalId"] == realm.inbox()[0].proposal_id
    assert waiting.value["waitsFor"].startswith("an answer of ann")
    assert (waiting.value["tool"], waiting.value["arguments"]) == ("refund", LARGE)
    for _ in range(2):
        [again] = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), THREAD)["__interrupt__"]
        assert again.value["proposalId"] == waiting.value["proposalId"]
    assert (shop.made, states(realm)) == ([], ["evaluating"])
    approve(realm)
    assert told(agent.invoke(Command(resume=True), THREAD)) == [("success", "paid 300 for o-2")]
    assert (shop.made, states(realm)) == (["o-2"], ["completed"])


def test_a_person_rejects_while_the_graph_is_interrupted(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", LARGE)])
    agent.invoke(GO, THREAD)
    reject(realm, "wrong customer")
    [(status, content)] = told(agent.invoke(Command(resume=True), THREAD))
    assert status == "error"
    assert "wrong customer" in content
    assert (shop.made, states(realm)) == ([], ["rejected"])


@pytest.mark.parametrize("is_async", [False, True])
def test_parallel_calls_are_proposals_of_their_own_and_each_is_made_once(realm: Realm, agent_of: Any, is_async: bool):
    calls = [("refund", {"order": f"o-{number}", "amount": 10}) for number in range(6)]
    agent, shop = agent_of([*calls, ("refund", {"order": "big", "amount": 300}), ("refund", TOO_LARGE)])

    def go(given: Any) -> dict[str, Any]:
        found: dict[str, Any] = asyncio.run(agent.ainvoke(given, THREAD)) if is_async else agent.invoke(given, THREAD)
        return found

    assert len(go(GO)["__interrupt__"]) == 1
    assert sorted(shop.made) == [f"o-{number}" for number in range(6)]
    approve(realm)
    assert [status for status, _ in told(go(Command(resume=True)))] == ["success"] * 7 + ["error"]
    assert sorted(shop.made) == ["big", *(f"o-{number}" for number in range(6))]
    assert sorted(states(realm)) == ["completed"] * 7 + ["rejected"]


def test_retries_inside_of_the_gate_are_one_proposal(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)], after=[ToolRetryMiddleware(max_retries=2, initial_delay=0)])
    shop.failures = 2
    assert told(agent.invoke(GO, THREAD)) == [("success", "paid 30 for o-1")]
    assert (len(shop.made), states(realm)) == (3, ["completed"])


def test_retries_outside_of_the_gate_are_one_proposal_and_one_call(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)], before=[ToolRetryMiddleware(max_retries=2, initial_delay=0)])
    shop.failures = 1
    [(status, content)] = told(agent.invoke(GO, THREAD))
    assert status == "error"
    assert "TOOL_FAILED" in content
    assert "the bank does not answer" in content
    assert "Nothing was done" not in content
    assert (len(shop.made), states(realm)) == (1, ["failed"])


def test_a_graph_that_runs_again_from_an_earlier_checkpoint_gets_the_recorded_result(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)])
    first = told(agent.invoke(GO, THREAD))
    [before] = [one for one in agent.get_state_history(THREAD) if one.next == ("tools",)]
    assert told(agent.invoke(None, before.config)) == first
    assert (shop.made, states(realm)) == (["o-1"], ["completed"])


def test_a_model_that_gives_the_same_ids_again_makes_other_calls(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)])
    for thread in ("t-1", "t-2"):
        agent.invoke(GO, {"configurable": {"thread_id": thread}})
    assert (shop.made, states(realm)) == (["o-1", "o-1"], ["completed", "completed"])


def test_calls_that_middleware_changed_are_told_apart_by_their_message(
    realm: Realm, agent_of: Any, monkeypatch: pytest.MonkeyPatch
):
    class Shouting(AgentMiddleware):
        def wrap_tool_call(self, request: Any, handler: Any) -> Any:
            call = request.tool_call
            return handler(request.override(tool_call={**call, "args": {"word": call["args"]["word"].upper()}}))

    class Forgetful(langchain_agent.ScriptedModel):
        def _generate(self, messages: list[Any], *args: Any, **more: Any) -> Any:
            return super()._generate(messages[-1:], *args, **more)

    monkeypatch.setattr(langchain_agent, "ScriptedModel", Forgetful)
    agent, shop = agent_of([("look", {"word": "a"})], before=[Shouting()])
    for _ in range(2):  # the model gives the same id in each of its messages
        agent.invoke(GO, THREAD)
    assert (shop.made, states(realm)) == (["A", "A"], ["completed", "completed"])


def test_a_tool_that_fails_is_recorded_as_failed(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)])
    shop.failures = 1
    with pytest.raises(ConnectionError):
        agent.invoke(GO, THREAD)
    [proposal] = realm.proposals()
    assert (proposal.status, result_of(proposal)) == ("failed", "TOOL_FAILED")


def test_wrong_arguments_are_refused_and_the_run_goes_on(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", {"order": "o-1", "amount": "many"}), ("refund", SMALL)])
    [(status, content), (other, _)] = told(agent.invoke(GO, THREAD))
    assert (status, other) == ("error", "success")
    assert "INVALID_INPUT" in content
    assert shop.made == ["o-1"]


def test_nothing_is_made_without_the_realm(realm: Realm, agent_of: Any):
    agent, shop = agent_of([("refund", SMALL)])
    realm.close()
    with pytest.raises(Exception, match="closed"):
        agent.invoke(GO, THREAD)
    assert shop.made == []
