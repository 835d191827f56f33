"""Recorded results of effects, for a counterfactual in which no effect is performed.

An effect's id is derived from the schema, the intentId, the action, the node path, and the effect with its arguments. A
recorded intent keeps its id in the counterfactual, so an effect has its recorded id exactly if the same node requests
the same effect with the same arguments. If only the node path differs, as in another iteration of a loop, the id
differs; the recorded result of the same effect with the same arguments is then used, each one once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from world.events.execution_events import EffectFulfilled, EffectRequested
from world.model.canonical_json import digest
from world.model.record import Record
from world.model.snapshot import EffectAnswer, Requirement
from world.read_models.decoding import decoded
from worldprotocol.api.bootstrap import EventLog

__all__ = ["Needed", "Recorded", "recorded_effects", "result_for"]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Recorded effect.

    Args:
        name: its requirement id.
        call: hash of the effect's name and arguments.
        position: position of its result; None without a result.
        result: the result.
    """

    name: str
    call: str
    position: int | None
    result: EffectAnswer | None


class Needed(Record, frozen=True, omit_defaults=True):
    """Effect without a recorded result.

    Args:
        proposal_id: proposal of the effect.
        effect: its name.
        args: its arguments.
        place: node path in the action.
    """

    proposal_id: str
    effect: str
    args: Any
    place: str
    WIRE: ClassVar = "proposal_id effect args nodePath=place"


def recorded_effects(log: EventLog, proposal_id: str) -> list[Recorded]:
    """Return the effects of a proposal in the order of their first requests."""
    found: dict[str, Recorded] = {}
    for logged in log.stream(proposal_id):
        event = decoded(logged)
        if isinstance(event, EffectRequested):
            asked = event.requirement
            if asked.id not in found:
                found[asked.id] = Recorded(asked.id, _call(asked), None, None)
        elif isinstance(event, EffectFulfilled) and event.requirement_id in found:
            known = found[event.requirement_id]
            found[event.requirement_id] = Recorded(known.name, known.call, logged.position, event.result)
    return list(found.values())


def result_for(recorded: list[Recorded], asked: Requirement, used: Mapping[str, str]) -> Recorded | None:
    """Return the recorded effect with the result for an effect of the counterfactual.

    Args:
        recorded: the effects of the same proposal.
        asked: the requested effect.
        used: by the id of a recorded effect, the id of the effect that uses its result.
    """
    free = [one for one in recorded if used.get(one.name, asked.id) == asked.id]
    taken = next((one for one in free if one.name in used), None)  # it is requested again
    same = taken or next((one for one in free if one.name == asked.id), None)
    if same is not None:
        return same
    call = _call(asked)
    return next((one for one in free if one.call == call), None)


def _call(asked: Requirement) -> str:
    return digest({"name": asked.type, "args": asked.params})
