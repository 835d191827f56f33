"""Parts of bindings that ask people: the actors, the time limit, the vote, and the further steps in ``then``.

``ask`` names actors any one of whom answers, ``members`` actors who vote; ``timeoutMs`` and ``onTimeout`` say what
happens without an answer. Where the time is over and ``onTimeout`` is ``escalate``, or the question is handed up, the
next step asks. These fields have the same meaning in every kind of binding: the protocol checks that ``members`` are
registered. Source: WP-bind.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Annotated, Any, Final, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from authority.bindings.binding import Binding
from authority.people.answers import QuestionSettings
from authority.people.questions import ANYBODY
from authority.policies.opinions import MAX_ASKED
from world.model.decision import OnTimeout, Quorum, VoteRule
from world.model.member_types import Identifier
from world.model.value import Value

__all__ = ["DAY_MS", "MAX_TIMEOUT_MS", "AnyOneBinding", "Asked", "AskingBinding", "ChainStep", "Members", "quorum"]

DAY_MS: Final = 86_400_000
"""How long people are waited for where a binding says nothing else, in milliseconds: one day."""

MAX_TIMEOUT_MS: Final = 3_650 * DAY_MS
"""Longest time to wait, in milliseconds: ten years; null waits for ever."""

MAX_STEPS: Final = 8
"""Maximum number of further steps of a binding."""


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _distinct(ids: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(ids)) < len(ids):
        raise ValueError("names an actor twice")
    return ids


def _named(ids: tuple[str, ...]) -> tuple[str, ...]:
    if ANYBODY in ids:
        raise ValueError("members are named; * is nobody in particular")
    return ids


Asked = Annotated[
    tuple[Identifier, ...],
    BeforeValidator(_as_tuple),
    Field(min_length=1, max_length=MAX_ASKED),
    AfterValidator(_distinct),
]
"""Ids of actors who may answer, at least one; ``*`` is any human."""

Members = Annotated[Asked, AfterValidator(_named)]
"""Ids of registered actors who vote, at least one."""

TimeoutMs = Annotated[int, Field(ge=1, le=MAX_TIMEOUT_MS)] | None


class _Asking(Value):
    """Fields of bindings and steps that ask people; what happens after the time depends on whether a step follows."""

    timeout_ms: TimeoutMs = DAY_MS
    on_timeout: OnTimeout | None = None

    @property
    @abstractmethod
    def people(self) -> tuple[tuple[str, ...], Quorum | None]:
        """Who is asked, and how many of them must approve; None is any one."""

    def end(self, *, is_last: bool) -> OnTimeout:
        """Return what happens when the time is over."""
        return self.on_timeout or ("reject" if is_last else "escalate")

    def rendered(self, *, is_last: bool) -> dict[str, Any]:
        """Return the full form; a ``timeoutMs`` of null is included, because it is not the default."""
        wire = super().to_wire() | {"timeoutMs": self.timeout_ms, "onTimeout": self.end(is_last=is_last)}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in wire.items()}


def quorum(rule: VoteRule, threshold: int | None, members: tuple[str, ...]) -> Quorum:
    """Return how many members must approve.

    Raises:
        ValueError: a threshold without the rule ``threshold``, the rule without one, or one that no vote can reach.
    """
    if (rule == "threshold") != (threshold is not None):
        raise ValueError("a threshold goes with the rule threshold, and with no other")
    if threshold is not None and threshold > len(members):
        raise ValueError(f"{threshold} of {len(members)} can never approve; lower the threshold or name more members")
    return Quorum(rule, threshold)


class ChainStep(_Asking):
    """A further step: any one of ``ask``, or a vote of ``members``."""

    ask: Asked | None = None
    members: Members | None = None
    rule: VoteRule | None = None
    threshold: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.ask is None) == (self.members is None):
            raise ValueError("a step names either ask or members")
        if self.ask is not None and (self.rule or self.threshold) is not None:
            raise ValueError("rule and threshold go with members")
        _ = self.people
        return self

    @property
    def people(self) -> tuple[tuple[str, ...], Quorum | None]:
        """Who is asked, and how many of them must approve."""
        if self.members is None:
            return self.ask or (), None
        return self.members, quorum(self.rule or "majority", self.threshold, self.members)

    def rendered(self, *, is_last: bool) -> dict[str, Any]:
        """Return the full form."""
        rule = {} if self.members is None else {"rule": self.rule or "majority"}
        return super().rendered(is_last=is_last) | rule


class AskingBinding(_Asking, Binding):
    """Base of bindings that may ask people, with further steps in ``then``."""

    then: Annotated[tuple[ChainStep, ...], BeforeValidator(_as_tuple), Field(max_length=MAX_STEPS)] = ()

    @model_validator(mode="after")
    def _ends(self) -> Self:
        last = self.then[-1] if self.then else self
        if last.on_timeout == "escalate":
            raise ValueError("onTimeout is approve or reject where no further step follows")
        _ = self.people
        return self

    @cached_property
    def asking(self) -> QuestionSettings:
        """How people are asked: first by the binding, then by its steps; many cases are judged by one binding."""
        steps = tuple(
            QuestionSettings(*_first(one), one.end(is_last=one is self.then[-1]), one.people[1]) for one in self.then
        )
        return QuestionSettings(*_first(self), self.end(is_last=not self.then), self.people[1], steps)

    @property
    def words(self) -> str:
        """The binding in a few words, with the number of its further steps."""
        steps = f", and {len(self.then)} further step{'s' if len(self.then) > 1 else ''}" if self.then else ""
        return f"{self.own_words}{steps}"

    @property
    def own_words(self) -> str:
        """The binding in a few words, without its further steps."""
        return self.label

    def to_wire(self) -> dict[str, Any]:
        """Return the full form, the further steps where there are any."""
        wire = self.rendered(is_last=not self.then)
        del wire["then"]
        if self.then:
            wire["then"] = [one.rendered(is_last=one is self.then[-1]) for one in self.then]
        return wire


def _first(one: _Asking) -> tuple[tuple[str, ...], int | None]:
    return one.people[0], one.timeout_ms


class AnyOneBinding(AskingBinding):
    """Base of bindings where any one of ``ask`` answers."""

    ask: Asked = (ANYBODY,)

    @property
    def people(self) -> tuple[tuple[str, ...], Quorum | None]:
        """Who is asked; any one of them answers."""
        return self.ask, None
