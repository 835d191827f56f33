"""The Authority of this engine: it judges by the actor's binding.

Judging is a pure function of the case and the policies at hand, and never raises for what a case contains:
whatever cannot be judged is rejected, with the reason. No effect is ever made here (WP-bind).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from authority.bindings.binding import AutoApproveBinding, Binding, PolicyRulesBinding, read_binding
from authority.bounded_text import error_text
from authority.people.answers import QuestionSettings, answered, ask_people, expired
from authority.policies.registry import PolicyRegistry
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.decision import HumanAnswer, Ruling
from world.model.immutable_json import FrozenDict, freeze
from world.state.ports import Case

MAX_KNOWN_BINDINGS: Final = 1_024
"""Bindings that are kept read; there are rarely more than a few different ones."""


class StandardAuthority:
    """Implements ``world.state.ports.Authority`` over a registry of policies.

    Args:
        policies: the policies at hand.
        time_limit: for each rule that is asked.
    """

    def __init__(self, policies: PolicyRegistry, *, time_limit: TimeLimit | None = None) -> None:
        self._policies = policies
        self._time_limit = time_limit or TimeLimit()
        self._known: dict[bytes, Binding] = {}

    def judge(self, case: Case) -> Ruling:
        """Return the ruling on a proposal; what cannot be judged is rejected."""
        authority = "none"
        try:
            case = _sealed(case)
            binding = self._read(case.binding)
            authority = _label(binding)
            return self._judge(case, binding)
        except RefusedError as refused:
            return Ruling("reject", authority, refused.message)
        except Exception as error:  # noqa: BLE001 - no case may stop the engine, and no failure approves
            return Ruling("reject", authority, f"it could not be judged: {error_text(error)}")

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Return the ruling after a person answered a waiting one; ``ask`` and ``reply`` give ``asked`` back.

        While questions are open, it goes on waiting; that ruling remembers the answer.

        Raises:
            RefusedError: see ``authority.people.answers.answered``.
        """
        return answered(case, asked, answer, self._asking(case))

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Return the ruling when nobody answered in time.

        Raises:
            RefusedError: ``NOT_WAITING``.
        """
        return expired(case, asked, self._asking(case))

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the binding in its full form, defaults filled in.

        Raises:
            RefusedError: ``UNKNOWN_BINDING``, ``INVALID_VALUE``; ``UNKNOWN_POLICY``, and whatever is wrong with the
                policy that it names.
        """
        read = read_binding(binding)
        if isinstance(read, PolicyRulesBinding):
            self._policies.get(read.policy)
        return FrozenDict(read.to_wire())

    def describe_policy(self, name: str) -> Mapping[str, Any]:
        """Return ``{"name", "hash", "combination", "rules": [{"rule", "source", "sourceHash", ...}]}``.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``, or why it cannot be loaded.
        """
        return self._policies.describe(name)

    def _judge(self, case: Case, binding: Binding) -> Ruling:
        if isinstance(binding, AutoApproveBinding):
            reason = "the actor's binding approves every proposal"
            return Ruling("approve", binding.kind, reason, case.intent.body.scope_proposal)
        if isinstance(binding, PolicyRulesBinding):
            return self._policies.get(binding.policy).evaluate(case, binding.asking, self._time_limit)
        return ask_people(case, binding.asking, binding.kind)

    def _asking(self, case: Case) -> QuestionSettings | None:
        binding = self._read(case.binding)
        return None if isinstance(binding, AutoApproveBinding) else binding.asking

    def _read(self, wire: Mapping[str, Any]) -> Binding:
        text = canonical_bytes(wire)
        known = self._known.get(text)
        if known is None:
            known = read_binding(wire)
            if len(self._known) >= MAX_KNOWN_BINDINGS:
                self._known.clear()
            self._known[text] = known
        return known


def _label(binding: Binding) -> str:
    return f"{binding.kind}:{binding.policy}" if isinstance(binding, PolicyRulesBinding) else binding.kind


def _sealed(case: Case) -> Case:
    """Return the case with all its parts frozen, so that no rule can change what the next one sees."""
    if (
        type(case.binding) is FrozenDict
        and (case.action is None or type(case.action) is FrozenDict)
        and (case.manifest is None or type(case.manifest) is FrozenDict)
    ):
        return case
    return replace(case, binding=freeze(case.binding), action=freeze(case.action), manifest=freeze(case.manifest))
