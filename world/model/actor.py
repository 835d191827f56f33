"""Actors: people, agents and systems (intent specification 3.1)."""

from __future__ import annotations

from typing import Literal

from world.model.immutable_json import FrozenDict
from world.model.member_types import Identifier, JsonObject, Text
from world.model.record import Record, freeze_member

ActorKind = Literal["human", "agent", "system"]


class ActorRef(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Actor that an intent is attributed to (INT-3.1)."""

    actor_id: Identifier
    kind: ActorKind
    name: Text | None = None
    meta: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.meta is not None and type(self.meta) is not FrozenDict:
            freeze_member(self, "meta")
