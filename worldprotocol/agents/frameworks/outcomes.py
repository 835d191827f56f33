"""What a call of a governed tool may be answered with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from world.state.effect_claim import EffectClaim
from worldprotocol.agents.call_values import not_yet

__all__ = ["Begun", "MadeBefore", "Pause", "Permit", "Refusal"]


@dataclass(frozen=True, slots=True)
class Permit:
    """The call is to be made now, and reported.

    Args:
        proposal_id: its proposal.
        claim: the claim on its effect.
        given: the arguments that were given, as JSON.
        approved: those that the tool gets.
    """

    proposal_id: str
    claim: EffectClaim
    given: Mapping[str, Any]
    approved: Mapping[str, Any]

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments that the tool gets, as they were given; those that were narrowed are JSON.

        Args:
            given: the arguments with which the call was begun.
        """
        return {
            name: value if self.approved[name] == self.given[name] else self.approved[name]
            for name, value in given.items()
        }


@dataclass(frozen=True, slots=True)
class MadeBefore:
    """The call was made already.

    Args:
        value: the result that was recorded, JSON.
    """

    value: Any

    @property
    def message(self) -> str:
        """Text for the model, as the result of the tool."""
        return self.value if isinstance(self.value, str) else json.dumps(self.value)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The call must not be made.

    Args:
        code: code of the refusal.
        reason: why, in a sentence.
        proposal_id: its proposal; None where there is none.
    """

    code: str
    reason: str
    proposal_id: str | None = None

    @property
    def message(self) -> str:
        """Text for the model, as the result of the tool."""
        proposal = "" if self.proposal_id is None else f", proposal {self.proposal_id}"
        is_undone = self.proposal_id is None or self.code in ("REJECTED", "SUPERSEDED")
        return f"Refused: {self.reason.rstrip('.')}.{' Nothing was done.' * is_undone} [{self.code}{proposal}]"


@dataclass(frozen=True, slots=True)
class Pause:
    """The call waits for people or resources; ask again with the same id.

    Args:
        proposal_id: its proposal.
        waits_for: what it waits for, after the words "It waits for".
    """

    proposal_id: str
    waits_for: str

    @property
    def message(self) -> str:
        """Text for the model where the run cannot be paused."""
        return not_yet(self.proposal_id, self.waits_for)

    def to_wire(self, tool: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the pause as JSON, for the framework that stores it."""
        return {"proposalId": self.proposal_id, "waitsFor": self.waits_for, "tool": tool, "arguments": {**arguments}}


Begun = Permit | MadeBefore | Refusal | Pause
