"""Bindings of the kind ``tribunal``: ``members`` vote by a ``rule``: ``unanimous``, ``majority`` or ``threshold``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from authority.bindings.asking import AskingBinding, Members, quorum
from authority.bindings.binding import JudgingContext
from authority.people.answers import ask_people
from world.model.decision import Quorum, Ruling, VoteRule
from world.state.ports import Case

__all__ = ["TribunalBinding"]


class TribunalBinding(AskingBinding):
    """Members vote."""

    kind: Literal["tribunal"]
    members: Members
    rule: VoteRule = "majority"
    threshold: Annotated[int, Field(ge=1)] | None = None

    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        """Wait for the votes of the members."""
        return ask_people(case, self.asking, self.label)

    @property
    def people(self) -> tuple[tuple[str, ...], Quorum | None]:
        """Who votes, and how many of them must approve."""
        return self.members, quorum(self.rule, self.threshold, self.members)

    @property
    def own_words(self) -> str:
        """The kind, the ids of the members and the rule of the vote."""
        threshold = "" if self.threshold is None else f" {self.threshold}"
        return f"{self.kind} of {', '.join(self.members)}, {self.rule}{threshold}"
