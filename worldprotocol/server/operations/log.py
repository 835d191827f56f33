"""The stream of the events of a log."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from functools import partial

import orjson
from fastapi import Response
from sse_starlette import ServerSentEvent

from world.state.access import right_fault
from worldprotocol.api.bootstrap import LoggedEvent
from worldprotocol.api.lookup.log_filter import LogFilter
from worldprotocol.api.remote.event_forms import logged_form
from worldprotocol.operations.log import StreamLog, StreamStart, filter_of
from worldprotocol.operations.visibility import Visibility
from worldprotocol.server.call import Call
from worldprotocol.server.connections.event_stream import PING, EventStream, Frame, in_chunks
from worldprotocol.server.operation_table import streams


@streams("log.stream")
async def stream_log(call: Call, wanted: StreamLog, begun: StreamStart) -> Response:
    """Stream the events after a position that meet conditions."""
    chosen = filter_of(call, wanted)
    call.check_waits()
    return EventStream(_stream(call, begun.after, chosen, wanted.form))


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
