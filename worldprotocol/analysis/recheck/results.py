"""Results of a recheck: divergent steps, and changes of the code since the record."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from world.errors import DivergenceError
from world.model.record import Record, WireForm

__all__ = ["DRIFT", "Changed", "Divergence", "Rechecked", "drift_key"]

DRIFT: Final = frozenset(
    {"CODE_CHANGED", "POLICY_CHANGED", "POLICY_NOT_AT_HAND", "BINDING_NOT_AT_HAND", "CANNOT_RECHECK"}
)
"""Codes of changed code; other codes are divergent steps."""


class Changed(Record, frozen=True, omit_defaults=True):
    """Differences between the loaded code and the code at the time of a recorded step.

    The log does not record the code of projections.

    Args:
        schema: whether the domain's schema changed.
        code: names of changed functions of the domain.
        policies: names of policies in force then that changed or are not loaded.
        distributions: descriptions of changed versions of distributions, whose code is not compared otherwise.
        is_whole: whether the recorded hashes cover all code that the functions use; in an older log they cover the
            functions alone.
    """

    schema: bool
    code: tuple[str, ...]
    policies: tuple[str, ...]
    distributions: tuple[str, ...] = ()
    is_whole: bool = True
    WIRE: ClassVar = "schema code policies distributions code_compared?"

    @property
    def code_compared(self) -> str | None:
        """What the comparison covers, where that is not all code."""
        return None if self.is_whole else "own source"

    def __str__(self) -> str:
        """Return the differences as a sentence."""
        parts = ["the schema"] if self.schema else []
        parts += [f"the code of {name}" for name in self.code] + [f"the policy {name}" for name in self.policies]
        parts += [f"the distribution {one}" for one in self.distributions]
        if parts:
            return f"since this was recorded, {', '.join(parts)} changed"
        if not self.is_whole:
            return (
                "neither schema nor policies nor the functions' own source have changed since this was recorded; what "
                "the functions call was not recorded"
            )
        return "neither schema nor code of the domain nor policies have changed since this was recorded"


@dataclass(frozen=True, slots=True)
class Divergence(WireForm):
    """Step with another result than recorded, or that could not be performed again.

    Args:
        position: the event of the record.
        topic: its topic.
        difference: what differs.
        changed: changes of the code since the record; None for drift.
    """

    position: int
    topic: str
    difference: DivergenceError
    changed: Changed | None = None
    WIRE: ClassVar = "position topic *facts changedSince=changed?"

    @property
    def facts(self) -> dict[str, Any]:
        """What differs, as JSON."""
        return self.difference.to_dict()

    @property
    def is_drift(self) -> bool:
        """Whether the cause is changed code only."""
        return self.difference.code in DRIFT


@dataclass(slots=True)
class Rechecked(WireForm):
    """Result of a recheck.

    Args:
        divergences: divergences in the order of the log.
        steps: number of projections, rulings and executions that were performed again, and of those that could not be
            (``notRechecked``, ``notRepeatable``; ``archived`` where a cut removed what they need).
        position: position of the last checked event.
        archived_upto: up to where the events of a cut log are left out; 0 for others.
    """

    divergences: list[Divergence] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    position: int = 0
    archived_upto: int = 0
    WIRE: ClassVar = "ok position archivedUpto=cut? steps=counted divergences"

    @property
    def ok(self) -> bool:
        """Whether every step was performed again with the recorded result."""
        return not self.divergences

    @property
    def cut(self) -> int | None:
        """``archived_upto``; None for a log that is not cut."""
        return self.archived_upto or None

    @property
    def counted(self) -> dict[str, int]:
        """``steps`` in order of name."""
        return dict(sorted(self.steps.items()))

    @property
    def first(self) -> Divergence | None:
        """The first divergent step, without drift."""
        return next((one for one in self.divergences if not one.is_drift), None)

    def add(self, later: Rechecked) -> None:
        """Add the result of the following partition; known drift is not repeated."""
        known = {drift_key(one.difference) for one in self.divergences if one.is_drift}
        self.divergences += [
            one for one in later.divergences if not one.is_drift or drift_key(one.difference) not in known
        ]
        self.steps.update(later.steps)
        self.position = later.position
        self.archived_upto = later.archived_upto


def drift_key(difference: DivergenceError) -> tuple[str, str]:
    """Return the key of a drift; of drifts with equal keys one is reported."""
    details = difference.details
    of_policy = details.get("policy_hash") or (details.get("recorded") if "policy" in details else None)
    cause = details.get("projection") or details.get("recorded") or details.get("authority")
    return ("", of_policy) if of_policy else (difference.code, str(cause))
