"""Endpoints of declared operations: a request is read from path, query or body, and its answer is written."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, cast
from urllib.parse import unquote, urlencode

import msgspec
from fastapi import Request, Response
from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations.calling import invalid, perform, read_request
from worldprotocol.operations.declaring import REALM, Declared, MediaContent, RequestForm
from worldprotocol.server.call import SMALL_BYTES, Call, answer, authorize, timed_out
from worldprotocol.server.operation_table import STREAMS
from worldprotocol.server.threads import retrieve

__all__ = ["IDEMPOTENCY_KEY", "LAST_EVENT_ID", "endpoint", "streamed"]

FOREVER: Final = "private, max-age=31536000, immutable"
"""What keeps an answer that never changes: the caller's own cache; shared ones may not, because it needs sign-in."""

LOOKS_EVERY_S: Final = 0.1
"""Time between looks at what is not in the log, in seconds."""

LAST_EVENT_ID: Final = "last-event-id"
"""Header field with the position from which a stream continues, in place of ``after``."""

IDEMPOTENCY_KEY: Final = "idempotency-key"
"""Header field with the key of a request."""

ACTOR: Final = "wp-actor"
"""Header field with the actor that a caller means to be, percent-encoded; a request of another one is refused."""


def endpoint(operation: Declared[Any, Any]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return the handler of an operation's requests."""

    async def handle(request: Request) -> Response:
        call = await authorize(request)
        _check_actor(request, call)
        wanted = await _read(operation, request, call)
        if operation.is_stream:
            return await streamed(operation, call, wanted)
        key = request.headers.get(IDEMPOTENCY_KEY) if operation.is_write else None
        done, response = await _performed(operation, request, call, wanted, key)
        awaited = operation.awaited
        seconds = 0 if awaited is None else min(wanted.wait, call.service.config.max_wait_s)
        if awaited is None or seconds <= 0 or awaited.is_done(wanted, done):
            return response
        read, again = partial(perform, operation, call, wanted, key), awaited.again
        now = (lambda _: read()) if again is None else partial(again, replace(call, key=key), wanted)
        done = await _waited(operation, request, call, (wanted, done, now), seconds)
        return _response(operation, request, wanted, done)

    handle.__doc__ = operation.run.__doc__
    return handle


def _check_actor(request: Request, call: Call) -> None:
    """Refuse a request that is meant to be of another actor than the verified one.

    Raises:
        RefusedError: ``NOT_THE_VERIFIED_ACTOR``.
    """
    named = unquote(request.headers.get(ACTOR, call.actor_id))
    if named != call.actor_id:
        raise RefusedError(
            ErrorCode.NOT_THE_VERIFIED_ACTOR,
            f"The request names {named[:100]!r}, and the verified actor is {call.actor_id!r}; leave the name out.",
        )


async def streamed(operation: Declared[Any, Any], call: Call, wanted: Any) -> Response:
    """Return the stream that a request begins.

    Args:
        operation: the operation.
        call: its call.
        wanted: the request.

    Raises:
        RefusedError: as the operation.
    """
    begun = await call.perform(operation, partial(perform, operation, call, wanted))
    response: Response = await STREAMS[operation.name](call, wanted, begun)
    return response


async def _waited(
    operation: Declared[Any, Any],
    request: Request,
    call: Call,
    of: tuple[Any, Any, Callable[[Any], Any]],
    seconds: float,
) -> Any:
    """Return the answer to a request once it is what the request waits for, or as it is after a time.

    Nothing more is done for a caller that is gone.

    Args:
        operation: the operation, which says what the request waits for.
        request: the request.
        call: the call.
        of: what was requested, the answer so far, and what returns it as it is now, of an earlier one.
        seconds: the time.

    Raises:
        TooManyRequestsError: too many requests wait.
    """
    awaited = operation.awaited
    assert awaited is not None
    wanted, done, now = of
    pause_s = None if awaited.pause_s is None else partial(awaited.pause_s, call)
    stream = awaited.stream_of(wanted, done)
    changes = _looks(seconds) if stream is None else call.hosted.log_watch.changes(stream, seconds, pause_s)
    with call.waits:
        async with aclosing(changes):
            async for _ in changes:
                if await request.is_disconnected():
                    break
                done = await call.perform(operation, partial(now, done))
                if awaited.is_done(wanted, done):
                    break
    return done


async def _performed(
    operation: Declared[Any, Any], request: Request, call: Call, wanted: Any, key: str | None
) -> tuple[Any, Response]:
    """Return the answer to a request as it is and as it is written, or of what it made so far where it takes longer.

    Raises:
        RefusedError: ``REQUEST_TIMED_OUT``; the request itself continues.
    """

    def run() -> tuple[Any, Response]:
        done = perform(operation, call, wanted, key)
        return done, _response(operation, request, wanted, done)

    if operation.interim is None:
        return await call.perform(operation, run)
    service = call.service
    call = replace(call, made_id=call.hosted.realm.new_id())
    longest = max(service.config.request_timeout_s, min(wanted.wait, service.config.max_wait_s))
    first = longest if wanted.within is None else min(wanted.within, longest)
    running = asyncio.ensure_future(service.threads.run(run))
    for time_s in (first, longest - first):
        await asyncio.wait([running], timeout=time_s)
        if running.done():
            return running.result()
        found = await service.threads.run(partial(operation.interim, call, wanted))
        if found is not None:
            break
    running.add_done_callback(retrieve)
    if found is None:
        raise timed_out(service)
    return found, _response(operation, request, wanted, found)


async def _looks(seconds: float) -> AsyncGenerator[None, None]:
    """Yield from time to time, for an answer that does not depend on the log."""
    clock = asyncio.get_running_loop()
    until = clock.time() + seconds
    while clock.time() < until:
        await asyncio.sleep(LOOKS_EVERY_S)
        yield


def _response(operation: Declared[Any, Any], request: Request, wanted: Any, done: Any) -> Response:
    """Return an answer as it is written, or that the caller has it already."""
    encoding = {}
    if operation.is_immutable and _takes_gzip(request.headers.get("accept-encoding", "")):
        packed = gzip.compress(done.data, 6, mtime=0)
        if len(packed) < len(done.data):
            done, encoding = structs.replace(done, data=packed), {"Content-Encoding": "gzip"}
    headers = _headers(operation, request, wanted, done)
    if "ETag" in headers and headers["ETag"] in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    status = 200 if operation.status is None else operation.status(done)
    if isinstance(done, MediaContent):
        return Response(done.data, status, {"Cache-Control": "no-store", **headers, **encoding}, done.media_type)
    return answer(done, status, headers)


def _headers(operation: Declared[Any, Any], request: Request, wanted: Any, done: Any) -> dict[str, str]:
    """Return the header fields of an answer: its place and version, what it depends on, and where the next part is."""
    headers: dict[str, str] = {}
    place = None if operation.location is None else operation.location(done)
    if place is not None:
        headers["Location"] = REALM.format(realm=request.path_params["realm"]) + place
    if operation.etag is not None:
        cached = FOREVER if operation.is_immutable else "private, no-cache"
        headers |= {"ETag": f'"{operation.etag(done)}"', "Cache-Control": cached}
    if operation.is_immutable or operation.negotiated:
        headers["Vary"] = "Accept-Encoding" if operation.is_immutable else "Accept"
    page = operation.page
    if page is not None and done.next is not None:
        query = {**request.query_params, page.cursor_of(wanted): done.next}
        headers["Link"] = f'<{request.url.path}?{urlencode(query)}>; rel="next"'
    return headers


def _takes_gzip(accepted: str) -> bool:
    """Return whether a caller accepts gzip (RFC 9110 section 12.5.3)."""
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


async def _read(operation: Declared[Any, Any], request: Request, call: Call) -> Any:
    """Return the request that a call sent.

    Raises:
        RefusedError: ``INVALID_VALUE``, with the member at fault.
    """
    kind = operation.request
    members = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    path = {members[name]: text for name, text in request.path_params.items() if name != "realm"}
    if not operation.is_write:
        given: Mapping[str, Any] = request.query_params
        if operation.is_stream and "after" in members and LAST_EVENT_ID in request.headers:
            given = {**given, "after": request.headers[LAST_EVENT_ID]}
        _check_once(path, given, "query")
        lists = {name: request.query_params.getlist(name) for name in operation.lists if name in given}
        return read_request(
            operation, {**given, **lists, **path, **_negotiated(operation, request)}, "query", strict=False
        )
    content = await request.body()
    if len(content) > SMALL_BYTES:
        given = await call.service.threads.run(partial(_decoded, content, request))
    else:
        given = _decoded(content, request)
    if isinstance(given, dict):
        _check_once(path, given, "body")
        given |= path | _shown(operation, request, given)
    return read_request(operation, given, "body", strict=True)


def _negotiated(operation: Declared[Any, Any], request: Request) -> dict[str, str]:
    """Return the wanted media type where a caller accepts another than the first, and does not name that beside it.

    Source: RFC 9110 section 12.5.1.

    Raises:
        RefusedError: ``INVALID_VALUE`` for a query that names it.
    """
    for name in operation.negotiated:
        if name in request.query_params:
            raise invalid(f"query.{name}", "It is the header field Accept")
        accepted = {part.partition(";")[0].strip().lower() for part in request.headers.get("accept", "").split(",")}
        found = [one.name for one in operation.media if one.name in accepted]
        if found and operation.example.answer.media_type not in accepted:
            return {name: found[0]}
    return {}


def _shown(operation: Declared[Any, Any], request: Request, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a write in the query and the header, which do not belong to its meaning.

    Raises:
        RefusedError: ``INVALID_VALUE`` for one that is not valid, or that the body has.
    """
    found, headers, form = {}, operation.headers, cast("Any", operation.request)
    for name, kind in _types(form):
        if name not in operation.unhashed:
            continue
        where, texts = ("header", request.headers) if name in headers else ("query", request.query_params)
        if name in given:
            raise invalid(f"body.{name}", f"It is a parameter of the {where}")
        text = texts.get(headers.get(name, name))
        if text is not None:
            try:
                found[name] = msgspec.convert(text, kind, strict=False)
            except msgspec.ValidationError as error:
                raise invalid(f"{where}.{name}", str(error)) from None
    return found


@cache
def _types(request: type[RequestForm]) -> tuple[tuple[str, Any], ...]:
    """Return the members of requests, by their names in JSON, with their types."""
    return tuple((one.encode_name, one.type) for one in msgspec.structs.fields(request))


def _check_once(path: Mapping[str, Any], given: Mapping[str, Any], where: str) -> None:
    """Refuse a member that the path has, too."""
    twice = next((name for name in path if name in given), None)
    if twice is not None:
        raise invalid(f"{where}.{twice}", "The path names it")


def _decoded(content: bytes, request: Request) -> Any:
    """Return the JSON of a body; an empty one is an empty object."""
    if not content:
        return {}
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "application/json" and not media.endswith("+json"):
        raise invalid("body", f"Expected JSON with Content-Type: application/json, got {media[:80] or 'none'}")
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise invalid("body", str(error)) from None
