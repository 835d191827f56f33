"""Operations on the log: events that meet conditions, once and as they are committed, and the bounded search for them.

The conditions are those of ``worldctl log``. An event that is hidden from the caller meets none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from msgspec import Meta, field, json

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations import AnswerForm, MediaContent, MediaType, OperationCall, Paged, RequestForm, operation
from worldprotocol.operations.declaring import content_version
from worldprotocol.operations.fields import HASH, ID, NOW, Limit, Name, Position
from worldprotocol.operations.records import LoggedForm

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.lookup.log_filter import LogFilter

Order = Annotated[Literal["oldest", "newest"], Meta(description="Which event comes first.")]
Notation = Annotated[Literal["json", "cloudevents"], Meta(description="As the log has events, or CloudEvents 1.0.")]
Time = Annotated[str, Meta(min_length=1, max_length=100)]

SEARCHED: Final = 20_000
"""Positions that one request searches for conditions on the content of events; `next` of the answer continues."""

SEARCHED_PROPOSALS: Final = 2_000
"""The same for conditions on the proposals that events are about."""

WINDOW: Final = 1_000
"""Positions that are read at once, first."""

BATCH_TYPE: Final = "application/cloudevents-batch+json"
CONDITIONS: Final = ("stream", "actor", "action", "branch", "proposal", "text", "status", "since", "until")
"""Conditions besides topics, by the names of the filter of ``worldctl log``."""


class EventConditions(RequestForm, frozen=True, kw_only=True):
    """Conditions on events; all that are given have to hold."""

    types: (
        Annotated[str, Meta(max_length=4_000, description="Topics, separated by commas, such as `proposal.submitted`.")]
        | None
    ) = None
    stream: Annotated[Name, Meta(description="Stream of the events.")] | None = None
    actor: Annotated[Name, Meta(description="Actor of the event, or of its proposal.")] | None = None
    action: Name | None = None
    branch: Name | None = None
    proposal: Name | None = None
    text: Annotated[Name, Meta(description="Text of the state as JSON, in upper or lower case.")] | None = None


class ReadLog(EventConditions, frozen=True, kw_only=True):
    """Conditions on events that are in the log, and the stretch and order in which they are read."""

    status: Annotated[str, Meta(min_length=1, max_length=100)] | None = None
    since: Annotated[Time, Meta(description="ISO 8601, ms since 1970, or 2h.")] | None = None
    until: Annotated[Time, Meta(description="As `since`.")] | None = None
    at: Annotated[str, Meta(min_length=1, max_length=200, description="The log at a point in the past.")] | None = None
    before: Annotated[Position, Meta(description="Position after the last event; absent, the end.")] | None = None
    after: Annotated[Position, Meta(description="Position of the last event of the page before: its `next`.")] = 0
    order: Order = "oldest"
    limit: Limit = 100
    form: Notation = field(name="format", default="json")


class StreamLog(EventConditions, frozen=True, kw_only=True):
    """Conditions on events, and the position after which the stream begins."""

    after: Annotated[Position, Meta(description="Position; absent, the end of the log.")] | None = None
    form: Notation = field(name="format", default="json")


class LogPage(AnswerForm, frozen=True, kw_only=True):
    """Events, and the stretch that was searched; `archivedUpto` is up to where a cut log has none."""

    events: list[LoggedForm]
    after: int
    upto: int
    next: int | None
    archived_upto: int | None = None


class CloudEvent(AnswerForm, frozen=True, kw_only=True):
    """An event as CloudEvents 1.0 has it; a hidden one has no more than its leaf hash."""

    specversion: Literal["1.0"]
    id: str
    source: str
    type: str
    leaf: str
    subject: str | None = None
    datacontenttype: str | None = None
    time: str | None = None
    traceparent: str | None = None
    schemaversion: int | None = None
    streamversion: int | None = None
    data: dict[str, Any] | None = None


class StreamStart(AnswerForm, frozen=True, kw_only=True):
    """The position after which a stream begins."""

    after: int


_CLOUD_EVENT: Final = CloudEvent(
    specversion="1.0",
    id="7",
    source=f"urn:world-protocol:log:{ID}",
    type="world-protocol.actor.registered",
    subject="realm",
    datacontenttype="application/json",
    time="2026-01-01T00:00:00.000Z",
    leaf=HASH,
    schemaversion=1,
    streamversion=4,
    data={"actor": {"actorId": "bot", "kind": "agent"}},
)
_EVENT: Final = LoggedForm(
    position=7,
    stream="realm",
    version=4,
    topic="actor.registered",
    schema_version=1,
    state={"actor": {"actorId": "bot", "kind": "agent"}, "at": NOW, "by": "operator"},
    leaf=HASH,
)


@operation(
    "log.read",
    "GET /log",
    "reader auditor",
    page=Paged("events", lambda request: "before" if request.order == "newest" else "after"),
    etag=content_version,
    media=(MediaType(BATCH_TYPE, list[CloudEvent], [_CLOUD_EVENT]),),
    example=(ReadLog(limit=1), LogPage(events=[_EVENT], after=0, upto=7, next=None)),
)
def read_log(call: OperationCall, request: ReadLog) -> LogPage | MediaContent:
    """Return events between two positions that meet all conditions, oldest or newest first.

    Without conditions, an event that is hidden from the caller has only its leaf hash; with conditions it is left out.
    `next` continues, as `after`, or as `before` where the newest event is first; it is null at the end. `after` and
    `upto` are the stretch that was searched: one request searches 20,000 events, or 2,000 for conditions on proposals,
    and all for `types` and `stream`. As CloudEvents the answer is a batch, and the header field `Link` has the next
    page.
    """
    found = _find_events(call, request, _stretch_of(call, request))
    if request.form == "cloudevents":
        forms = call.served.cloud_events.forms(found.events, is_whole=not call.visibility.rules)
        return MediaContent(media_type=BATCH_TYPE, data=json.encode(forms), next=found.cursor)
    return LogPage(
        events=[_logged(one, is_hidden=is_hidden) for one, is_hidden in found.events],
        after=found.searched.after,
        upto=found.searched.upto,
        next=found.cursor,
        archived_upto=call.left_out().get("archivedUpto"),
    )


def _logged(event: LoggedEvent, *, is_hidden: bool) -> LoggedForm:
    from world.read_models.decoding import state_of

    if is_hidden:
        return LoggedForm(position=event.position, leaf=event.leaf.hex(), redacted=True)
    return LoggedForm(
        position=event.position,
        stream=event.stream,
        version=event.version,
        topic=event.topic,
        schema_version=event.schema_version,
        state=state_of(event),
        leaf=event.leaf.hex(),
    )


@operation(
    "log.stream",
    "GET /log/stream",
    "reader auditor",
    is_stream=True,
    media=(MediaType("text/event-stream", str, 'id: 7\nevent: actor.registered\ndata: {"position": 7}\n\n'),),
    example=(StreamLog(types="proposal.submitted"), StreamStart(after=7)),
)
def stream_log(call: OperationCall, request: StreamLog) -> StreamStart:
    """Stream events as they are committed (SSE); the id of each is its position, from which `Last-Event-ID` resumes.

    With conditions, events that are hidden from the caller are left out.
    """
    filter_of(call, request)
    end = call.view.position
    begin = end if request.after is None else request.after
    archived = call.left_out().get("archivedUpto", 0)
    if begin < archived:
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"The log was cut after event {archived}, and the stream was to begin after event {begin}. Begin it after "
            f"event {archived}; the archives have the events before.",
            position=begin + 1,
            archived_upto=archived,
        )
    size = 0 if begin <= end else call.hosted.realm.log.head().size
    if begin > max(size, end):
        raise RefusedError(
            ErrorCode.CONSUMER_AHEAD,
            f"The stream was to begin after event {begin}, and the log has {size} events: it was restored from an "
            "older copy, or lost commits in a failover. Compare what was read with the log, and begin where it ends.",
            events=size,
        )
    return StreamStart(after=begin)


def topics_of(wanted: EventConditions) -> list[str] | None:
    """Return the topics of conditions; None is all.

    Args:
        wanted: the conditions.

    Raises:
        RefusedError: ``INVALID_VALUE`` for one that does not exist.
    """
    from world.events.codec import TOPICS

    if wanted.types is None:
        return None
    named = [one.strip() for one in wanted.types.split(",")]
    unknown = [one for one in named if one not in TOPICS]
    if unknown:
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"There is no topic {unknown[0][:80]!r}; docs/reference/log-format.md lists them.",
        )
    return named


def filter_of(call: OperationCall, wanted: EventConditions, upto: int | None = None) -> LogFilter | None:
    """Return the filter of ``worldctl log`` with conditions; None without conditions.

    Args:
        call: the call.
        wanted: the conditions.
        upto: position after which events do not count for the status of a proposal.

    Raises:
        RefusedError: ``RIGHT_MISSING`` for a condition on proposals by a reader with redaction; ``INVALID_VALUE``.
    """
    from worldprotocol.api.lookup.log_filter import LogFilter
    from worldprotocol.api.time_parsing import moment_of

    named = ((name, getattr(wanted, name, None)) for name in CONDITIONS)
    given: dict[str, Any] = {name: value for name, value in named if value is not None}
    if not given and wanted.types is None:
        return None
    if call.visibility.rules and {"action", "status"} & set(given):
        raise RefusedError(
            ErrorCode.RIGHT_MISSING,
            "The conditions `action` and `status` look at all events of a proposal, of which some may be hidden "
            "from a reader with redaction; leave them out.",
        )
    try:
        given |= {name: moment_of(given[name], call.clock.now_ms()) for name in ("since", "until") if name in given}
    except ValueError as wrong:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"{wrong}.") from None
    alone = bool(call.visibility.rules)
    return LogFilter(call.hosted.realm, topics=topics_of(wanted), upto=upto, alone=alone, **given)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the log.

    Args:
        after: position before the first event.
        upto: last position.
        is_reversed: whether the newest event comes first.
    """

    after: int
    upto: int
    is_reversed: bool


@dataclass(slots=True)
class FoundEvents:
    """Events that meet conditions.

    Args:
        events: the events, each with whether it is hidden from the caller.
        searched: the stretch that was searched.
        cursor: `after`, or `before` where the newest event comes first, of what is left; None at the end.
    """

    events: list[tuple[LoggedEvent, bool]]
    searched: Stretch
    cursor: int | None


def _stretch_of(call: OperationCall, wanted: ReadLog) -> Stretch:
    """Return the stretch that a request names.

    Raises:
        RefusedError: as ``OperationCall.moment``.
    """
    end = call.hosted.realm.log.head().size if wanted.at is None else call.moment(wanted.at).position
    upto = end if wanted.before is None else max(0, min(wanted.before - 1, end))
    return Stretch(min(wanted.after, upto), upto, wanted.order == "newest")


def _find_events(call: OperationCall, wanted: ReadLog, stretch: Stretch) -> FoundEvents:
    """Return the events of a stretch that meet conditions, at most ``limit`` of them.

    Args:
        call: the call.
        wanted: the conditions.
        stretch: where they are searched for.

    Raises:
        RefusedError: as ``filter_of``.
    """
    chosen, limit, topics = (
        filter_of(call, wanted, None if wanted.at is None else stretch.upto),
        wanted.limit,
        topics_of(wanted),
    )
    found: list[tuple[LoggedEvent, bool]] = []
    done = stretch.upto if stretch.is_reversed else stretch.after
    for after, upto in _windows(stretch, chosen, limit, is_redacted=bool(call.visibility.rules)):
        log = call.hosted.realm.log
        read = log.read(after, upto, topics=topics, stream=wanted.stream, skip_archived=True)
        shown = call.visibility.events(read)
        for event, is_hidden in reversed(shown) if stretch.is_reversed else shown:
            if chosen is not None and (is_hidden or chosen.match(event) is None):
                continue
            found.append((event, is_hidden))
            if len(found) == limit:
                return _found(found, stretch, event.position - stretch.is_reversed)
        done = after if stretch.is_reversed else upto
    return _found(found, stretch, done)


def _found(events: list[tuple[LoggedEvent, bool]], stretch: Stretch, done: int) -> FoundEvents:
    """Return found events; ``done`` is the position between what was searched and what is left."""
    if stretch.is_reversed:
        return FoundEvents(events, Stretch(done, stretch.upto, True), done + 1 if done > stretch.after else None)
    return FoundEvents(events, Stretch(stretch.after, done, False), done if done < stretch.upto else None)


def _windows(stretch: Stretch, chosen: LogFilter | None, limit: int, *, is_redacted: bool) -> Iterator[tuple[int, int]]:
    """Yield the parts of a stretch that are read at once, in its order, as far as one request searches.

    Topics and streams are conditions of the database's index, so that their windows grow up to the whole stretch. For
    a caller with redaction they do not, because what is searched would depend on hidden events.
    """
    least, upto = stretch.after, stretch.upto
    by_index = not is_redacted and (chosen is None or not chosen.narrows)
    size = limit if chosen is None else WINDOW
    if not by_index:
        most = SEARCHED if chosen is None or not chosen.narrows_proposals else SEARCHED_PROPOSALS
        least, upto = (max(least, upto - most), upto) if stretch.is_reversed else (least, min(upto, least + most))
    while least < upto:
        if stretch.is_reversed:
            begin = max(least, upto - size)
            yield begin, upto
            upto = begin
        else:
            end = min(upto, least + size)
            yield least, end
            least = end
        size *= 4 if by_index else 1
