"""Actors: people, agents and systems (intent specification 3.1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from world.model.value import Identifier, Json, Text, Value

ActorKind = Literal["human", "agent", "system"]


def _object(value: Any) -> Any:
    if not isinstance(value, dict):
        raise ValueError("must be an object")
    return value


JsonObject = Annotated[Json, AfterValidator(_object)]
"""A canonical JSON object, frozen."""


class ActorRef(Value):
    """Actor that an intent is attributed to (INT-3.1)."""

    actor_id: Identifier
    kind: ActorKind
    name: Text | None = None
    meta: JsonObject | None = None
