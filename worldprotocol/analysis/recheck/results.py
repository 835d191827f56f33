"""What a recheck comes to: the steps that came out differently, and what is another one now than it was then."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from world.errors import DivergenceError

__all__ = ["DRIFT", "Changed", "Divergence", "Rechecked", "drift_key"]

DRIFT: Final = frozenset(
    {"CODE_CHANGED", "POLICY_CHANGED", "POLICY_NOT_AT_HAND", "BINDING_NOT_AT_HAND", "CANNOT_RECHECK"}
)
"""Codes that say that the code is another one, and not that a step came out differently."""


@dataclass(frozen=True, slots=True)
class Changed:
    """What of the code at hand is another one than it was when a step was recorded.

    The log does not hold what the code of projections was.

    Args:
        schema: whether the domain's schema is.
        code: the names of the domain's functions that are.
        policies: the names of the policies then in force that are, or are not at hand any more.
        distributions: those whose version is, in words; the code in them is compared by nothing else.
        is_whole: whether the recorded identities cover all that the functions reach; in an older log they cover the
            functions alone.
    """

    schema: bool
    code: tuple[str, ...]
    policies: tuple[str, ...]
    distributions: tuple[str, ...] = ()
    is_whole: bool = True

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        wire: dict[str, Any] = {"schema": self.schema, "code": list(self.code), "policies": list(self.policies)}
        wire |= {"distributions": list(self.distributions)} if self.distributions else {}
        return wire if self.is_whole else {**wire, "codeCompared": "own source"}

    def __str__(self) -> str:
        """Say it to people."""
        told = ["the schema"] if self.schema else []
        told += [f"the code of {name}" for name in self.code] + [f"the policy {name}" for name in self.policies]
        told += [f"the distribution {one}" for one in self.distributions]
        if told:
            return f"since this was recorded, {', '.join(told)} changed"
        if not self.is_whole:
            return (
                "neither schema nor policies nor the functions' own source have changed since this was recorded; what "
                "the functions call was not recorded"
            )
        return "neither schema nor code of the domain nor policies have changed since this was recorded"


@dataclass(frozen=True, slots=True)
class Divergence:
    """A step that came out differently, or could not be performed again.

    Args:
        position: the event of the record.
        topic: its topic.
        difference: what differs.
        changed: what is another one now than it was then, see ``Changed``; None for drift, which says it itself.
    """

    position: int
    topic: str
    difference: DivergenceError
    changed: Changed | None = None

    @property
    def is_drift(self) -> bool:
        """Whether only the code at hand is another one."""
        return self.difference.code in DRIFT

    def to_wire(self) -> dict[str, Any]:
        """Return the divergence as JSON."""
        told = {"position": self.position, "topic": self.topic, **self.difference.to_dict()}
        return told if self.changed is None else {**told, "changedSince": self.changed.to_wire()}


@dataclass(slots=True)
class Rechecked:
    """What a recheck came to.

    Args:
        divergences: in the order of the log.
        steps: how many projections, rulings and executions were performed again, and how many could not be
            (``notRechecked``, ``notRepeatable``).
        position: the last event that was looked at.
    """

    divergences: list[Divergence] = field(default_factory=list)
    steps: Counter[str] = field(default_factory=Counter)
    position: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything was performed again and came out as recorded."""
        return not self.divergences

    @property
    def first(self) -> Divergence | None:
        """The first step that came out differently; drift is none."""
        return next((one for one in self.divergences if not one.is_drift), None)

    def add(self, later: Rechecked) -> None:
        """Take in what the stretch after this one came to; a drift that was told before is not told again."""
        told = {drift_key(one.difference) for one in self.divergences if one.is_drift}
        self.divergences += [
            one for one in later.divergences if not one.is_drift or drift_key(one.difference) not in told
        ]
        self.steps.update(later.steps)
        self.position = later.position

    def to_wire(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {
            "ok": self.ok,
            "position": self.position,
            "steps": dict(sorted(self.steps.items())),
            "divergences": [one.to_wire() for one in self.divergences],
        }


def drift_key(difference: DivergenceError) -> tuple[str, str]:
    """Return what two drifts have in common that are told only once."""
    told = difference.details
    of_policy = told.get("policy_hash") or (told.get("recorded") if "policy" in told else None)
    of_other = told.get("projection") or told.get("recorded") or told.get("authority")
    return ("", of_policy) if of_policy else (difference.code, str(of_other))
