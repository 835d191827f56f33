"""Source events, the raw external triggers that projections receive (intent specification 3.2)."""

from __future__ import annotations

from typing import Literal

from world.model.member_types import Identifier, Json, Milliseconds
from world.model.record import Record, freeze_member

SourceKind = Literal["ui", "api", "agent", "system"]


class SourceRef(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Reference to a source event in an origin."""

    kind: SourceKind
    event_id: Identifier


class SourceEvent(Record, frozen=True, kw_only=True, omit_defaults=True):
    """Raw external trigger; ``occurred_at`` (ms) is never passed to a projection (INT-3.2, INT-11.3)."""

    kind: SourceKind
    event_id: Identifier
    payload: Json = None
    occurred_at: Milliseconds | None = None

    def __post_init__(self) -> None:
        freeze_member(self, "payload")

    @property
    def ref(self) -> SourceRef:
        """The reference to this event in an origin."""
        return SourceRef(kind=self.kind, event_id=self.event_id)
