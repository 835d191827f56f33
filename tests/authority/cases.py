"""Cases, people and an empty history: what an authority is given, made of nothing but values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from authority import Approve, Narrow, Policy, PolicyRegistry, PythonRule, QuestionSettings, StandardAuthority
from world.model.actor import ActorKind, ActorRef
from world.model.decision import HumanAnswer, HumanChoice
from world.model.immutable_json import FrozenDict, freeze
from world.model.intent import IntentBody, IntentInstance, IntentMeta, IntentOrigin, IntentScope
from world.model.snapshot import SnapshotView
from world.model.source import SourceRef
from world.state.ports import Case

AUTO: Mapping[str, Any] = FrozenDict({"kind": "auto_approve"})
ASKING = QuestionSettings(("*",), 60_000, "reject")


class NoHistory:
    """A log in which nothing happened before."""

    def count(self, **conditions: Any) -> int:
        """Return 0."""
        return 0

    def sum(self, path: str, **conditions: Any) -> int:
        """Return 0."""
        return 0


def scope(*patterns: str) -> IntentScope:
    """Return a scope of these patterns."""
    return IntentScope(allowed_paths=patterns)


def make_case(
    binding: Mapping[str, Any] = AUTO,
    *,
    proposed: IntentScope | None = None,
    actor_id: str = "bot",
    kind: ActorKind = "agent",
    action: str = "todo.add",
    given: Any = None,
    data: Mapping[str, Any] | None = None,
) -> Case:
    """Return a case like those that the protocol makes."""
    actor = ActorRef(actor_id=actor_id, kind=kind)
    body = IntentBody(type=action, input=given, scope_proposal=proposed)
    origin = IntentOrigin(projection_id="ui:todo", source=SourceRef(kind="ui", event_id="event-1"), actor=actor)
    intent = IntentInstance(
        body=body, intent_id="intent-1", intent_key=body.key("schema"), meta=IntentMeta(origin=origin)
    )
    return Case(
        proposal_id="proposal-1",
        intent=intent,
        actor=actor,
        binding=binding,
        action=FrozenDict({"input": {}}),
        base_world="world-1",
        view=SnapshotView(freeze(dict(data or {})), FrozenDict()),
        schema_hash="schema",
        branch="main",
        submitted_at=1_700_000_000_000,
        earlier_attempts=0,
        history=NoHistory(),
    )


def said(
    by: str,
    choice: HumanChoice,
    *,
    kind: ActorKind = "human",
    within: IntentScope | None = None,
    reason: str = "",
) -> HumanAnswer:
    """Return a person's answer."""
    return HumanAnswer(
        answer_id="answer-1",
        by=ActorRef(actor_id=by, kind=kind),
        choice=choice,
        scope=within,
        reason=reason,
    )


def always(opinion: Any, name: str = "always") -> PythonRule:
    """Return a rule that says the same of every case."""
    return PythonRule(name, lambda case: opinion)


def raising(error: BaseException, name: str = "raising") -> PythonRule:
    """Return a rule that fails."""

    def fail(case: Case) -> Approve | Narrow | None:
        raise error

    return PythonRule(name, fail)


def policy(*opinions: Any, name: str = "house") -> Policy:
    """Return a policy of rules r0, r1, ... that say these things."""
    return Policy(name, [always(opinion, f"r{at}") for at, opinion in enumerate(opinions)])


def authority_with(*policies: Policy) -> StandardAuthority:
    """Return an authority that has these policies at hand."""
    return StandardAuthority(PolicyRegistry(policies))


def by_policy(name: str = "house", **more: Any) -> Mapping[str, Any]:
    """Return a binding to a policy."""
    return FrozenDict({"kind": "policy_rules", "policy": name, **more})


def by_people(**more: Any) -> Mapping[str, Any]:
    """Return a binding to people."""
    return FrozenDict({"kind": "hitl", **more})
