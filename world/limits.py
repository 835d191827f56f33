"""Every limit of the pipeline, named; the composition root may set others."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what one caller may ask for.

    Args:
        max_intent_bytes: canonical bytes of one intent in wire form.
        max_source_bytes: canonical bytes of one source event.
        max_event_bytes: canonical bytes of one logged event.
        max_open_proposals: proposals that wait or execute at the same time.
        checkpoint_every: worlds between two checkpoints on a line of descent.
    """

    max_intent_bytes: int = 1 << 20
    max_source_bytes: int = 1 << 20
    max_event_bytes: int = 8 << 20
    max_open_proposals: int = 100_000
    checkpoint_every: int = 128
