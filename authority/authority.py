"""The Authority of this engine: it reads the actor's binding, and the kind of the binding gives the ruling.

Judging is a pure function of the case and the available policies, and never raises for what a case contains:
whatever cannot be judged is rejected, with the reason. No effect is ever made here (WP-bind).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, Final

from authority.bindings.binding import Binding, JudgingContext
from authority.bindings.foreign import foreign_ruling
from authority.bindings.registry import BUILT_IN, BindingRegistry
from authority.bindings.unconfined import answered_unconfined, judged_unconfined
from authority.bounded_text import error_text
from authority.people.answers import QuestionSettings, answered, expired
from authority.policies.adoption import check_adoptable
from authority.policies.registry import PolicyRegistry
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes
from world.model.decision import HumanAnswer, Ruling
from world.model.immutable_json import FrozenDict, freeze
from world.state.ports import Case

MAX_KNOWN_BINDINGS: Final = 1_024
"""Bindings that are kept read; there are rarely more than a few different ones."""

UNREAD: Final = "none"
"""The authority of a ruling on a case whose binding cannot be read."""


class StandardAuthority:
    """Implements ``world.state.ports.Authority`` over a registry of policies.

    Args:
        policies: the available policies.
        time_limit: for each rule that is asked.
        bindings: the kinds of bindings available; None is the built-in ones and those of the installed packages.
    """

    def __init__(
        self,
        policies: PolicyRegistry,
        *,
        time_limit: TimeLimit | None = None,
        bindings: BindingRegistry | None = None,
    ) -> None:
        self._policies = policies
        self._context = JudgingContext(policies, time_limit or TimeLimit())
        self._bindings = bindings or BindingRegistry()
        self._known: dict[bytes, Binding] = {}

    def judge(self, case: Case) -> Ruling:
        """Return the ruling on a proposal; what cannot be judged is rejected."""
        authority = UNREAD
        try:
            case = _sealed(case)
            binding = self._read(case.binding)
            authority = binding.label
            is_own = BUILT_IN.get(binding.kind) is type(binding)
            ruling = binding.judge(case, self._context) if is_own else foreign_ruling(binding, case, self._context)
            return judged_unconfined(case, ruling, binding, self._policies)
        except RefusedError as refused:
            return Ruling("reject", authority, refused.message)
        except Exception as error:  # noqa: BLE001 - no case may stop the engine, and no failure approves
            return Ruling("reject", authority, f"it could not be judged: {error_text(error)}")

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Return the ruling after a person answered a waiting one; ``ask`` and ``reply`` give ``asked`` back.

        While questions are open, it continues waiting; that ruling remembers the answer.

        Raises:
            RefusedError: see ``authority.people.answers.answered``.
        """
        asking = self._asking(case)
        return answered_unconfined(case, answered(case, asked, answer, asking), asking)

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Return the ruling when the time limit has passed without an answer.

        Raises:
            RefusedError: ``NOT_WAITING``.
        """
        return answered_unconfined(case, expired(case, asked, self._asking(case)), None)

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the binding in its full form, defaults filled in.

        Raises:
            RefusedError: what ``authority.bindings.registry.BindingRegistry.read`` refuses; ``UNKNOWN_POLICY``, and
                whatever else is wrong with what it names.
        """
        read = self._bindings.read(binding)
        read.check(self._policies)
        return FrozenDict(read.to_wire())

    def check_policy(self, name: str, actions: Collection[str]) -> None:
        """Check a policy before it is adopted; see ``world.state.ports.Authority.check_policy``.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``, ``RULE_IMPURE``, ``INVALID_POLICY``.
        """
        check_adoptable(self._policies.get(name), actions)

    def describe_policy(self, name: str, like: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return ``{"name", "hash", "combination", "rules": [{"rule", "source", "identity", ...}]}``.

        Args:
            name: the policy.
            like: a recorded description, whose hash of an earlier form is compared by the hash of that form.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``, or why it cannot be loaded.
        """
        return self._policies.describe(name, like)

    def _asking(self, case: Case) -> QuestionSettings | None:
        return self._read(case.binding).asking

    def _read(self, wire: Mapping[str, Any]) -> Binding:
        text = canonical_bytes(wire)
        known = self._known.get(text)
        if known is None:
            known = self._bindings.read(wire)
            if len(self._known) >= MAX_KNOWN_BINDINGS:
                self._known.clear()
            self._known[text] = known
        return known


def _sealed(case: Case) -> Case:
    """Return the case with all its parts frozen, so that no rule can change what the next one sees."""
    if (
        type(case.binding) is FrozenDict
        and (case.action is None or type(case.action) is FrozenDict)
        and (case.manifest is None or type(case.manifest) is FrozenDict)
    ):
        return case
    return replace(case, binding=freeze(case.binding), action=freeze(case.action), manifest=freeze(case.manifest))
