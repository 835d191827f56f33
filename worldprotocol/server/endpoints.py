"""Endpoints of declared operations: a request is read from path, query or body, and its answer is written."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from fastapi import Request, Response
from msgspec import structs

from worldprotocol.operations.calling import invalid, perform, read_request
from worldprotocol.operations.declaring import Declared, MediaContent
from worldprotocol.server.call import SMALL_BYTES, Call, answer, authorize
from worldprotocol.server.operation_table import STREAMS

__all__ = ["IDEMPOTENCY_KEY", "LAST_EVENT_ID", "endpoint", "streamed"]

FOREVER: Final = "private, max-age=31536000, immutable"
"""What keeps an answer that never changes: the caller's own cache; shared ones may not, because it needs sign-in."""

LOOKS_EVERY_S: Final = 0.1
"""Time between looks at what is not in the log, in seconds."""

LAST_EVENT_ID: Final = "last-event-id"
"""Header field with the position from which a stream continues, in place of ``after``."""

IDEMPOTENCY_KEY: Final = "idempotency-key"
"""Header field with the key of a request."""


def endpoint(operation: Declared[Any, Any]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return the handler of an operation's requests."""

    async def handle(request: Request) -> Response:
        call = await authorize(request)
        wanted = await _read(operation, request, call)
        if operation.is_stream:
            return await streamed(operation, call, wanted)
        key = request.headers.get(IDEMPOTENCY_KEY) if operation.is_write else None

        def run() -> tuple[Any, Response]:
            done = perform(operation, call, wanted, key)
            return done, _response(operation, request, wanted, done)

        done, response = await call.perform(operation, run)
        awaited = operation.awaited
        if awaited is not None and not awaited.is_done(wanted, done):
            seconds = min(wanted.wait, call.service.config.max_wait_s)
            if seconds > 0:
                with call.waits:
                    done = await _awaited(operation, call, wanted, seconds)
                return _response(operation, request, wanted, done)
        return response

    handle.__doc__ = operation.run.__doc__
    return handle


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


async def _awaited(operation: Declared[Any, Any], call: Call, wanted: Any, seconds: float) -> Any:
    """Return the answer for which a request waits, or that after so many seconds."""
    assert operation.awaited is not None
    stream, is_done = operation.awaited.stream_of(wanted), partial(operation.awaited.is_done, wanted)
    run = partial(operation.run, call, wanted)
    if stream is not None:
        return await call.hosted.log_watch.wait_until(stream, run, is_done, seconds)
    clock = asyncio.get_running_loop()
    until = clock.time() + seconds
    while not is_done(done := await call.perform(operation, run)) and clock.time() < until:
        await asyncio.sleep(LOOKS_EVERY_S)
    return done


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
    """Return the header fields of an answer: its version, what it depends on, and where the next part of a list is."""
    headers: dict[str, str] = {}
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
        wanted = _negotiated(operation, request)
        return read_request(operation, {**given, **path, **wanted}, "query", strict=False)
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
    """Return the parameters of the query of a write, which say how it is answered.

    Raises:
        RefusedError: ``INVALID_VALUE`` for one that is not valid, or that the body has.
    """
    found = {}
    for one in structs.fields(operation.request) if operation.unhashed else ():
        name = one.encode_name
        if name not in operation.unhashed:
            continue
        if name in given:
            raise invalid(f"body.{name}", "It is a parameter of the query")
        if name in request.query_params:
            try:
                found[name] = msgspec.convert(request.query_params[name], one.type, strict=False)
            except msgspec.ValidationError as error:
                raise invalid(f"query.{name}", str(error)) from None
    return found


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
