"""Actors: people, agents and systems (intent specification 3.1)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from world.model.immutable_json import FrozenDict
from world.model.record import Record, freeze_member
from world.model.value import Identifier, Text, frozen_json

ActorKind = Literal["human", "agent", "system"]


def _object(value: Any) -> Any:
    frozen = frozen_json(value)
    if not isinstance(frozen, dict):
        raise ValueError("must be an object")
    return frozen


JsonObject = Annotated[dict[str, Any], PlainValidator(_object)]
"""A canonical JSON object, frozen."""


class ActorRef(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Actor that an intent is attributed to (INT-3.1)."""

    actor_id: Identifier
    kind: ActorKind
    name: Text | None = None
    meta: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.meta is not None and type(self.meta) is not FrozenDict:
            freeze_member(self, "meta")
