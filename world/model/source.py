"""What happened outside: the raw trigger that a projection receives (intent specification 3.2)."""

from __future__ import annotations

from typing import Literal

from world.model.value import Identifier, Json, Milliseconds, Value

SourceKind = Literal["ui", "api", "agent", "system"]


class SourceRef(Value):
    """Names a source event inside an origin."""

    kind: SourceKind
    event_id: Identifier


class SourceEvent(Value):
    """A raw external trigger; ``occurred_at`` (ms) never reaches a projection (INT-3.2, INT-11.3)."""

    kind: SourceKind
    event_id: Identifier
    payload: Json = None
    occurred_at: Milliseconds | None = None

    @property
    def ref(self) -> SourceRef:
        """The reference that an origin carries."""
        return SourceRef(kind=self.kind, event_id=self.event_id)
