"""Source events, the raw external triggers that projections receive (intent specification 3.2)."""

from __future__ import annotations

from typing import Literal

from world.model.value import Identifier, Json, Milliseconds, Value

SourceKind = Literal["ui", "api", "agent", "system"]


class SourceRef(Value):
    """Reference to a source event in an origin."""

    kind: SourceKind
    event_id: Identifier


class SourceEvent(Value):
    """Raw external trigger; ``occurred_at`` (ms) is never passed to a projection (INT-3.2, INT-11.3)."""

    kind: SourceKind
    event_id: Identifier
    payload: Json = None
    occurred_at: Milliseconds | None = None

    @property
    def ref(self) -> SourceRef:
        """The reference to this event in an origin."""
        return SourceRef(kind=self.kind, event_id=self.event_id)
