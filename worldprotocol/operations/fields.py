"""Types of the members of requests and answers, with their bounds and descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from worldprotocol.operations.declaring import AnswerForm, RequestForm

__all__ = ["ID", "At", "AtPoint", "EventForm", "Ids", "Name", "Position", "Reason", "Seconds", "recorded"]

ID: Final = "0190f0e4c3b24a6d8f5e2b1a9c7d6e50"
"""An id, for examples."""

Name = Annotated[str, Meta(min_length=1, max_length=1_000)]
Ids = Annotated[list[Name], Meta(min_length=1, max_length=1_000)]
Reason = Annotated[str, Meta(min_length=1, max_length=10_000, description="Why; the log keeps it.")]
Position = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0, le=3_600)]
At = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=200,
        description="A point in the past: a position, the id of a world or proposal, a branch, HEAD, or a time.",
    ),
]


class AtPoint(RequestForm, frozen=True, kw_only=True):
    """A point in the past; absent, now."""

    at: At | None = None


class EventForm(AnswerForm, frozen=True, kw_only=True):
    """An event as it is recorded, without its place in the log."""

    topic: str
    schema_version: int
    state: dict[str, Any]


def recorded(event: Any) -> EventForm:
    """Return an event as an answer shows it."""
    from worldprotocol.api.remote.event_forms import event_form

    form = event_form(event)
    return EventForm(topic=form["topic"], schema_version=form["schemaVersion"], state=form["state"])
