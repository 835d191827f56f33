"""Bindings of the kind ``hitl``: people decide, any one of ``ask``."""

from __future__ import annotations

from typing import Literal

from authority.bindings.asking import AnyOneBinding
from authority.bindings.binding import JudgingContext
from authority.people.answers import ask_people
from world.model.decision import Ruling
from world.state.ports import Case

__all__ = ["HitlBinding"]


class HitlBinding(AnyOneBinding):
    """People decide."""

    kind: Literal["hitl"]

    def judge(self, case: Case, context: JudgingContext) -> Ruling:
        """Wait for any one of those who are asked."""
        return ask_people(case, self.asking, self.label)

    @property
    def own_words(self) -> str:
        """The kind and the ids of the actors who are asked."""
        return f"{self.kind} asking {', '.join(self.ask)}"
