"""State of one proposal in the simulator's model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from worldprotocol.simulation.model_people import ModelQuestion

__all__ = ["Process", "Told"]

Told = Mapping[str, Any]


@dataclass(slots=True)
class Process:
    """A proposal, from its submission to its end.

    Args:
        rendered: its ``proposal.submitted``.
        judged: its last ruling, with the deadline.
        decision: the decision record.
        started: the last ``execution.started``.
        requested: effects under way, by requirement, with the number of the attempt.
        journal: results by requirement.
        doubtful: effects in doubt.
        sealed: the world that its execution sealed.
        asked: what people said to it.
        is_shadowed: a second policy was asked about it.
        is_called_off: its execution was cancelled.
        narrowed: the patterns of each answer that narrowed its scope.
        failures: how often each effect failed and was to be made again.
        ended: completed, failed, rejected or superseded.
    """

    rendered: Told
    judged: Told | None = None
    decision: Told | None = None
    started: Told | None = None
    requested: dict[str, Told] = field(default_factory=dict)
    journal: dict[str, Told] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)
    sealed: Told | None = None
    asked: ModelQuestion | None = None
    is_shadowed: bool = False
    is_called_off: bool = False
    narrowed: list[list[str]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    ended: str | None = None

    @property
    def status(self) -> str:
        """The state of the life of a proposal (WP-fsm)."""
        if self.ended is not None:
            return self.ended
        if self.started is not None:
            return "executing"
        if self.decision is not None:
            return "approved"
        return "submitted" if self.judged is None else "evaluating"

    @property
    def intent(self) -> Told:
        """The intent in wire form."""
        intent: Told = self.rendered["intent"]
        return intent

    @property
    def waits_for_people(self) -> bool:
        """Whether people are asked at the moment."""
        return self.status == "evaluating" and self.judged is not None and self.judged["ruling"]["verdict"] == "wait"
