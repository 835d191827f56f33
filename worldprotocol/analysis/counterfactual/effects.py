"""Recorded results of effects, for a branch in which nothing is made.

An effect's id follows from the schema, the intentId, the action, the place in it, and the effect with its arguments. A
recorded intent keeps its id in the branch, so an effect has its recorded id exactly where the same place asks for
the same with the same arguments. Where only the place is another one, as in another turn of a loop, the id differs,
and the recorded result of the same effect with the same arguments still applies, each one once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from world.events.execution_events import EffectFulfilled, EffectRequested
from world.model.canonical_json import digest
from world.model.snapshot import Requirement
from world.read_models.decoding import decoded
from world.state.proposal import ROLLBACK
from worldprotocol.api.bootstrap import EventLog

__all__ = ["Needed", "Recorded", "recorded_effects", "result_for"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """An effect as the record has it.

    Args:
        name: its requirement id.
        call: hash of the effect's name and arguments.
        position: where its result stands; None where it has none.
        result: the result in wire form.
    """

    name: str
    call: str
    position: int | None
    result: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class Needed:
    """An effect that would have to be made.

    Args:
        proposal_id: for which proposal.
        effect: its name.
        args: its arguments.
        place: where in the action.
    """

    proposal_id: str
    effect: str
    args: Any
    place: str

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {"proposalId": self.proposal_id, "effect": self.effect, "args": self.args, "nodePath": self.place}


def recorded_effects(log: EventLog, proposal_id: str) -> list[Recorded]:
    """Return the effects of a proposal in the order in which they were first asked for."""
    found: dict[str, Recorded] = {}
    for logged in log.stream(proposal_id):
        event = decoded(logged)
        if isinstance(event, EffectRequested):
            asked = Requirement.from_wire(event.requirement)
            if asked.id not in found:
                found[asked.id] = Recorded(asked.id, _call(asked), None, None)
        elif isinstance(event, EffectFulfilled) and event.requirement_id in found:
            known = found[event.requirement_id]
            found[event.requirement_id] = Recorded(known.name, known.call, logged.position, event.result)
    return list(found.values())


def result_for(recorded: list[Recorded], asked: Requirement, used: Mapping[str, str]) -> Recorded | None:
    """Return the record that an effect of the branch may take its result from.

    Args:
        recorded: the effects of the same proposal.
        asked: what the branch asks for.
        used: by the id of a record, the effect of the branch that took it.
    """
    free = [one for one in recorded if used.get(one.name, asked.id) == asked.id]
    taken = next((one for one in free if one.name in used), None)  # it is asked for once more
    same = taken or next((one for one in free if one.name == asked.id), None)
    if same is not None:
        return same
    call = _call(asked)
    return next((one for one in free if one.call == call), None)


def given_back() -> dict[str, Any]:
    """Return the result of giving back a workspace that nothing touched."""
    return {"value": {"restored": [], "removed": [], "failed": []}}


def is_giving_back(asked: Requirement) -> bool:
    """Tell whether an effect is the engine's own, which gives back a workspace."""
    return asked.type == ROLLBACK


def _call(asked: Requirement) -> str:
    return digest({"name": asked.type, "args": asked.params})
