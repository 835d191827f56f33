"""Bindings of the kind ``policy_rules``: the rules of a policy judge, and people where a rule escalates."""

from __future__ import annotations

from typing import Literal

from authority.bindings.asking import AnyOneBinding
from authority.bindings.binding import JudgingContext
from authority.policies.registry import PolicyRegistry
from world.model.decision import Ruling
from world.model.member_types import Identifier
from world.state.ports import Case

__all__ = ["PolicyRulesBinding"]


class PolicyRulesBinding(AnyOneBinding):
    """The rules of ``policy`` judge; ``ask``, ``timeoutMs`` and ``onTimeout`` apply where a rule escalates."""

    kind: Literal["policy_rules"]
    policy: Identifier

    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        """Return what the rules of the policy come to."""
        return context.policies.get(self.policy).evaluate(case, self.asking, context.time_limit)

    @property
    def label(self) -> str:
        """The kind and the name of the policy."""
        return f"{self.kind}:{self.policy}"

    @property
    def own_words(self) -> str:
        """The kind and the name of the policy."""
        return f"{self.kind} {self.policy}"

    def check(self, policies: PolicyRegistry) -> None:
        """Refuse a policy that is not available or cannot be loaded."""
        policies.get(self.policy)
