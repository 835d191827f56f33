"""Operations on the log: read, stream, checkpoint."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Annotated, Literal
from urllib.parse import urlencode

import orjson
from fastapi import Header, Query, Response
from sse_starlette import ServerSentEvent

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.access import right_fault
from worldprotocol.api.bootstrap import LoggedEvent
from worldprotocol.api.lookup.log_filter import LogFilter
from worldprotocol.api.remote.event_forms import logged_form
from worldprotocol.export.cloud_events import BATCH_TYPE
from worldprotocol.operations.visibility import Visibility
from worldprotocol.server.call import Authorized, Call
from worldprotocol.server.connections.event_stream import PING, EventStream, Frame, in_chunks
from worldprotocol.server.operation_table import handles
from worldprotocol.server.operations.log_conditions import (
    ALL,
    EventConditions,
    LogConditions,
    find_events,
    stretch_of,
)

Limit = Annotated[int, Query(ge=1, le=500, description="Most entries of the answer.")]
After = Annotated[int, Query(ge=0, le=2**53, description="Position of the last event of the page before: its `next`.")]
Form = Annotated[
    Literal["json", "cloudevents"], Query(alias="format", description="As the log has events, or CloudEvents 1.0.")
]
IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match")]
Position = Annotated[int | None, Query(ge=0, le=2**53, description="Position; absent, the end of the log.")]
Order = Annotated[Literal["oldest", "newest"], Query(description="Which event comes first.")]


@handles("log.read")
async def read_log(
    call: Authorized,
    wanted: Annotated[LogConditions, Query()] = ALL,
    after: After = 0,
    order: Order = "oldest",
    limit: Limit = 100,
    form: Form = "json",
    if_none_match: IfNoneMatch = None,
) -> Response:
    """Return events between two positions that meet all conditions, oldest or newest first.

    Without conditions, an event that is hidden from the caller has only its leaf hash; with conditions it is left out.
    `next` continues, as `after`, or as `before` where the newest event is first; it is null at the end. `after` and
    `upto` are the stretch that was searched: one request searches 20,000 events, or 2,000 for conditions on proposals,
    and all for `types` and `stream`. As CloudEvents the answer is a batch, and the header field `Link` has the next
    page.
    """

    def run() -> tuple[bytes, int | None]:
        found = find_events(call, wanted, stretch_of(call, wanted, after, order), limit)
        if form == "cloudevents":
            forms = call.hosted.cloud_events.forms(found.events, is_whole=not call.visibility.rules)
            return orjson.dumps(forms), found.cursor
        rendered = [logged_form(one, is_hidden=is_hidden) for one, is_hidden in found.events]
        searched = {"after": found.searched.after, "upto": found.searched.upto}
        return orjson.dumps({"events": rendered, **searched, "next": found.cursor, **call.left_out()}), found.cursor

    data, cursor = await call.run(run)
    headers = {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "Cache-Control": "private, no-cache"}
    if form == "cloudevents" and cursor is not None:
        stretch = {"after": after, "before": cursor, "order": order} if order == "newest" else {"after": cursor}
        query = wanted.model_dump(exclude_none=True) | stretch | {"limit": limit, "format": form}
        headers["Link"] = f'</v1/realms/{call.hosted.name}/log?{urlencode(query)}>; rel="next"'
    if if_none_match is not None and headers["ETag"] in if_none_match:
        return Response(status_code=304, headers=headers)
    return Response(data, 200, headers, BATCH_TYPE if form == "cloudevents" else "application/json")


@handles("log.stream")
async def stream_log(
    call: Authorized,
    wanted: Annotated[EventConditions, Query()] = ALL,
    after: Position = None,
    form: Form = "json",
    last_event_id: Annotated[str | None, Header(alias="Last-Event-ID")] = None,
) -> Response:
    """Stream events as they are committed (SSE); the id of each is its position, from which `Last-Event-ID` resumes.

    With conditions, events that are hidden from the caller are left out.
    """
    chosen = wanted.filter(call)
    if last_event_id is not None:
        if not last_event_id.isascii() or not last_event_id.isdecimal() or len(last_event_id) > 16:
            raise RefusedError(ErrorCode.INVALID_VALUE, "Last-Event-ID is not the position of an event.")
        after = int(last_event_id)
    begin = call.view.position if after is None else after
    archived = (await call.run(call.left_out)).get("archivedUpto", 0)
    if begin < archived:
        raise RefusedError(
            ErrorCode.EVENT_ARCHIVED,
            f"The log was cut after event {archived}, and the stream was to begin after event {begin}. Begin it after "
            f"event {archived}; the archives have the events before.",
            position=begin + 1,
            archived_upto=archived,
        )
    size = 0 if begin <= call.view.position else (await call.run(call.hosted.realm.log.head)).size
    if begin > max(size, call.view.position):
        raise RefusedError(
            ErrorCode.CONSUMER_AHEAD,
            f"The stream was to begin after event {begin}, and the log has {size} events: it was restored from an "
            "older copy, or lost commits in a failover. Compare what was read with the log, and begin where it ends.",
            events=size,
        )
    call.check_waits()
    return EventStream(_stream(call, begin, chosen, form))


async def _stream(call: Call, after: int, chosen: LogFilter | None, form: str) -> AsyncGenerator[bytes, None]:
    """Yield encoded events; ends when the server stops, or the caller has lost its right."""
    log_watch, threads = call.hosted.log_watch, call.service.threads
    visibility: Visibility | None = call.visibility
    seen = log_watch.access_changes
    topics = None if chosen is None or call.visibility.rules else chosen.topics
    by_feed = chosen is None or (chosen.stream is None and not chosen.narrows and not call.visibility.rules)
    with call.waits:
        async for batch in log_watch.events(after, topics):
            if seen != log_watch.access_changes or _is_expired(call):
                seen = log_watch.access_changes
                visibility = await threads.run(lambda: _visibility(call))
            if visibility is None or (chosen is not None and visibility.rules and not chosen.alone):
                return
            frames = await _frames(call, visibility, batch, form)
            if not by_feed and chosen is not None:
                frames = await threads.run(partial(_matching, batch, frames, chosen))
            for chunk in in_chunks([frame.data for frame in frames] or [PING]):
                yield chunk


async def _frames(call: Call, visibility: Visibility, batch: list[LoggedEvent], form: str) -> Sequence[Frame]:
    """Return the frames of a batch, which the readers with one view share.

    What rules hide depends on the names that the log has, so that frames with rules are made again once it has grown.
    """
    log_watch, threads = call.hosted.log_watch, call.service.threads
    grown = log_watch.position if visibility.rules else 0
    view, positions = (form, visibility.rules, grown), [event.position for event in batch]
    encode = partial(_encoded, call, visibility, batch, form)
    if form == "json" and not visibility.rules:  # it reads nothing, and takes less than a change of threads
        return log_watch.frames.get(view, positions) or log_watch.frames.keep(view, positions, encode())
    return await log_watch.frames.shared(view, positions, lambda: threads.run(encode))


def _encoded(call: Call, visibility: Visibility, batch: list[LoggedEvent], form: str) -> list[Frame]:
    """Encode the events of a batch for all readers with one view."""
    shown = visibility.events(batch)
    if form == "json":
        return [_frame(event, is_hidden=is_hidden) for event, is_hidden in shown]
    forms = call.hosted.cloud_events.forms(shown, is_whole=not visibility.rules)
    sent = [ServerSentEvent(orjson.dumps(one).decode(), event=one["type"], id=one["id"]).encode() for one in forms]
    return [Frame(data, is_hidden) for data, (_, is_hidden) in zip(sent, shown, strict=True)]


def _matching(batch: list[LoggedEvent], frames: Sequence[Frame], chosen: LogFilter) -> list[Frame]:
    """Return the frames of the events that meet the conditions; hidden ones meet none."""
    pairs = zip(batch, frames, strict=True)
    return [frame for event, frame in pairs if not frame.is_hidden and chosen.match(event) is not None]


def _frame(event: LoggedEvent, *, is_hidden: bool = False) -> Frame:
    """Return an event as it is sent in a stream."""
    data = orjson.dumps(logged_form(event, is_hidden=is_hidden)).decode()
    kind = "redacted" if is_hidden else event.topic
    return Frame(ServerSentEvent(data, event=kind, id=str(event.position)).encode(), is_hidden)


def _is_expired(call: Call) -> bool:
    token = call.view.tokens.get(call.verified.token_id or "")
    return token is not None and call.service.clock.now_ms() >= token.expires_at


def _visibility(call: Call) -> Visibility | None:
    """Return what the caller may read now; None where it has no right any more."""
    view = call.hosted.realm.realm()
    fault = right_fault(view, call.verified, call.operation.rights, call.service.clock.now_ms())
    return None if fault is not None else Visibility(view, call.verified, call.hosted.redactions)
