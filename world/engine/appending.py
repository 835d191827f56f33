"""What a unit of work appends, and what its commands look up, in the form that the log takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import WorldSealed
from world.log import NEXT_VERSION, NewEvent, Pending
from world.model.canonical_json import canonical_text
from world.pipeline.unit_of_work import Emitted, UnitOfWork
from world.read_models.index import IndexRows
from world.read_models.unit_lookup import IntentNames

__all__ = ["SpoiledError", "add_checkpoints", "intents_of", "new_events"]


class SpoiledError(Exception):
    """A command failed after it had emitted events; the whole unit is given up and done again without it."""

    def __init__(self, pending: Pending[Any, Any], error: Exception) -> None:
        self.pending = pending
        self.error = error


def intents_of(commands: Sequence[Pending[Any, Any]]) -> list[IntentNames]:
    """Return the intents that commands are going to submit, as far as the commands name them."""
    named = [getattr(pending.command, "intent_names", None) for pending in commands]
    return [names for names in named if names is not None]


def new_events(emitted: Sequence[Emitted]) -> list[NewEvent]:
    """Return emitted events for the log; a submission is the first event of its stream, so its version is known."""
    return [
        NewEvent(
            item.stream,
            item.event.TOPIC,
            item.event.VERSION,
            item.state,
            1 if type(item.event) is ProposalSubmitted else NEXT_VERSION,
        )
        for item in emitted
    ]


def add_checkpoints(work: UnitOfWork, rows: IndexRows, every: int) -> None:
    """Add the full state of every so many worlds to the index, so that any past one is near one (WP-restore)."""
    for item in work.emitted:
        event = item.event
        if isinstance(event, WorldSealed) and event.height % every == 0:
            rows.add_checkpoint(event.world_id, canonical_text(work.snapshot(event.world_id).data))
