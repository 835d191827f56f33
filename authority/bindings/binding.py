"""Bindings: by which authority an actor's proposals are judged; every actor has exactly one (WP-bind).

A binding is a closed record ``{"kind": ..., ...}`` in the log: unknown fields and values are refused. Each kind is
one module with its class, which reads the record, gives the ruling on a case, and says how people are asked. Bindings
can be shared: nothing in them names the actor. Kinds are found in ``authority.bindings.registry``.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from authority.people.answers import QuestionSettings
from authority.policies.registry import PolicyRegistry
from world.code.time_limit import TimeLimit
from world.model.decision import Ruling
from world.model.value import Value
from world.state.ports import Case

__all__ = ["Binding", "JudgingContext"]


@dataclass(frozen=True, slots=True)
class JudgingContext:
    """What an authority has available when it judges.

    Args:
        policies: the policies by name.
        time_limit: for each rule.
    """

    policies: PolicyRegistry
    time_limit: TimeLimit


class Binding(Value):
    """Base of all kinds; a subclass declares ``kind: Literal["..."]`` and the fields of its record.

    The fields ``policy`` (name of a policy that has to be adopted), ``members`` and ``then`` have the same meaning in
    every kind: the protocol checks what they name.
    """

    kind: str

    @abstractmethod
    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        """Return the ruling on a new case: a pure function of the binding, the case and the policies.

        Args:
            case: all that an authority sees of the proposal.
            context: policies and time limit available.

        Raises:
            RefusedError: the case cannot be judged; it is rejected with this reason.
        """

    @property
    def label(self) -> str:
        """``Ruling.authority`` of every ruling by this binding."""
        return self.kind

    @property
    def asking(self) -> QuestionSettings | None:
        """How people are asked; None where this kind never asks."""
        return None

    @property
    def words(self) -> str:
        """The binding in a few words."""
        return self.label

    def check(self, policies: PolicyRegistry) -> None:
        """Refuse a binding that names what is not available; called before it is recorded.

        Args:
            policies: the available policies.

        Raises:
            RefusedError: such as ``UNKNOWN_POLICY``.
        """
