"""Types of the members of requests and answers, with their bounds and descriptions."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta

from worldprotocol.operations.declaring import AnswerForm, RequestForm, Unhashed

__all__ = [
    "HASH",
    "ID",
    "NOW",
    "WORLD",
    "At",
    "AtPoint",
    "EventForm",
    "History",
    "Ids",
    "Limit",
    "Name",
    "NamedClaim",
    "Position",
    "Reason",
    "Seconds",
    "ShownHistory",
    "Ttl",
    "recorded",
    "shown_retry",
    "shown_time",
]

ID: Final = "0190f0e4c3b24a6d8f5e2b1a9c7d6e50"
WORLD: Final = "9f" * 32
HASH: Final = "5b" * 32
NOW: Final = 1_767_225_600_000
"""An id, a worldId, a hash and a time, for examples."""

Name = Annotated[str, Meta(min_length=1, max_length=1_000)]
Ids = Annotated[list[Name], Meta(min_length=1, max_length=1_000)]
Reason = Annotated[str, Meta(min_length=1, max_length=10_000, description="Why; the log keeps it.")]
Position = Annotated[int, Meta(ge=0, le=2**53)]
Ttl = Annotated[int, Meta(ge=1, description="Time to live without a heartbeat, in ms.")]
Seconds = Annotated[float, Meta(ge=0, le=3_600)]
Limit = Annotated[int, Meta(ge=1, le=500, description="Most entries of the answer.")]
History = Annotated[bool, Meta(description="Add the events of the proposal, as the log holds them.")]
ShownHistory = Annotated[History, Unhashed]
At = Annotated[
    str,
    Meta(
        max_length=200,
        description="A point in the past: a position, the id of a world or proposal, a branch, HEAD, or a time.",
        extra={"metavar": "POSITION|WORLD|PROPOSAL|BRANCH|HEAD|TIME"},
    ),
]


class AtPoint(RequestForm, frozen=True, kw_only=True):
    """A point in the past; absent, now."""

    at: At | None = None


class NamedClaim(AnswerForm, frozen=True, kw_only=True):
    """A predicate on a resource."""

    predicate: str
    resource: str


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


def shown_time(at_ms: int | None) -> str:
    """Return a time in ms since 1970 as people see it; None is empty."""
    from worldprotocol.api.proposal_summary import moment

    return moment(at_ms)


def shown_retry(at_ms: int, *, is_due: bool) -> str:
    """Return when a proposal is tried again, as people see it; the time is in ms since 1970."""
    return "by the next command that acts" if is_due else f"from {shown_time(at_ms)} on"
