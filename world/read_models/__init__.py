"""Read models for people and for the engine's own look-ups: folded from events, never a source of truth."""
