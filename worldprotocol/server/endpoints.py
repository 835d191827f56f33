"""Endpoints of declared operations: the request is read from path, query or body, and the answer is written as JSON."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import replace
from functools import cache, partial
from typing import Any, Final, cast
from urllib.parse import urlencode

import msgspec
from fastapi import Request, Response

from worldprotocol.operations.calling import invalid, perform, read_request
from worldprotocol.operations.declaring import REALM, Awaited, Declared, RequestForm
from worldprotocol.server.call import SMALL_BYTES, Call, answer, authorize, timed_out
from worldprotocol.server.threads import retrieve

__all__ = ["IDEMPOTENCY_KEY", "endpoint"]

IDEMPOTENCY_KEY: Final = "idempotency-key"
"""Header field with the key of a request."""


def endpoint(operation: Declared[Any, Any]) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """Return the handler of an operation's requests."""

    async def handle(request: Request) -> Response:
        call = await authorize(request)
        wanted = await _read(operation, request, call)
        key = request.headers.get(IDEMPOTENCY_KEY) if operation.is_write else None
        done = await _performed(operation, call, wanted, key)
        awaited = operation.awaited
        seconds = 0 if awaited is None else min(wanted.wait, call.service.config.max_wait_s)
        if awaited is not None and seconds > 0 and not awaited.is_done(wanted, done):
            read, again = partial(perform, operation, call, wanted, key), awaited.again
            now = (lambda _: read()) if again is None else partial(again, replace(call, key=key), wanted)
            done = await _waited(awaited, request, call, (wanted, done, now), seconds)
        headers = _headers(operation, request, done)
        if "ETag" in headers and headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return answer(done, 200 if operation.status is None else operation.status(done), headers)

    handle.__doc__ = operation.run.__doc__
    return handle


async def _waited(
    awaited: Awaited[Any, Any],
    request: Request,
    call: Call,
    of: tuple[Any, Any, Callable[[Any], Any]],
    seconds: float,
) -> Any:
    """Return the answer to a request once it is what the request waits for, or as it is after a time.

    Nothing more is done for a caller that is gone.

    Args:
        awaited: what the request waits for.
        request: the request.
        call: the call.
        of: what was requested, the answer so far, and what returns it as it is now, of an earlier one.
        seconds: the time.

    Raises:
        TooManyRequestsError: too many requests wait.
    """
    wanted, done, now = of
    pause_s = None if awaited.pause_s is None else partial(awaited.pause_s, call)
    changes = call.hosted.log_watch.changes(awaited.stream_of(wanted, done), seconds, pause_s)
    with call.waits:
        async with aclosing(changes):
            async for _ in changes:
                if await request.is_disconnected():
                    break
                done = await call.run(partial(now, done))
                if awaited.is_done(wanted, done):
                    break
    return done


async def _performed(operation: Declared[Any, Any], call: Call, wanted: Any, key: str | None) -> Any:
    """Return the answer to a request, or what it has made so far where it takes longer than it may.

    Raises:
        RefusedError: ``REQUEST_TIMED_OUT``; the request itself continues.
    """
    if operation.interim is None:
        return await call.run(partial(perform, operation, call, wanted, key))
    service = call.service
    call = replace(call, made_id=call.hosted.realm.new_id())
    longest = max(service.config.request_timeout_s, min(wanted.wait, service.config.max_wait_s))
    first = longest if wanted.within is None else min(wanted.within, longest)
    running = asyncio.ensure_future(service.threads.run(partial(perform, operation, call, wanted, key)))
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
    return found


def _headers(operation: Declared[Any, Any], request: Request, done: Any) -> dict[str, str]:
    """Return the header fields of an answer: its version, its place, and where the next part of a list begins."""
    headers: dict[str, str] = {}
    place = None if operation.location is None else operation.location(done)
    if place is not None:
        headers["Location"] = REALM.format(realm=request.path_params["realm"]) + place
    if operation.etag is not None:
        headers |= {"ETag": f'"{operation.etag(done)}"', "Cache-Control": "private, no-cache"}
    page = operation.page
    if page is not None and done.next is not None:
        query = {**request.query_params, page.cursor: done.next}
        headers["Link"] = f'<{request.url.path}?{urlencode(query)}>; rel="next"'
    return headers


async def _read(operation: Declared[Any, Any], request: Request, call: Call) -> Any:
    """Return the request that a call sent.

    Raises:
        RefusedError: ``INVALID_VALUE``, with the member at fault.
    """
    kind = operation.request
    members = dict(zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True))
    path = {members[name]: text for name, text in request.path_params.items() if name != "realm"}
    if not operation.is_write:
        _check_once(path, request.query_params, "query")
        query: dict[str, Any] = {**request.query_params, **path}
        query |= {name: request.query_params.getlist(name) for name in operation.lists if name in query}
        return read_request(operation, query, "query", strict=False)
    content = await request.body()
    if len(content) > SMALL_BYTES:
        given = await call.service.threads.run(partial(_decoded, content, request))
    else:
        given = _decoded(content, request)
    if isinstance(given, dict):
        _check_once(path, given, "body")
        given |= path | _shown(operation, request, given)
    return read_request(operation, given, "body", strict=True)


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
