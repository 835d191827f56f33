"""Endpoints of declared operations: the request is read from path, query or body, and the answer is written as JSON."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import unquote, urlencode

import msgspec
from fastapi import Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.operations.calling import invalid, perform, read_request
from worldprotocol.operations.declaring import Declared
from worldprotocol.server.call import SMALL_BYTES, Call, answer, authorize

__all__ = ["IDEMPOTENCY_KEY", "endpoint"]

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
        key = request.headers.get(IDEMPOTENCY_KEY) if operation.is_write else None
        done = await call.run(partial(perform, operation, call, wanted, key))
        awaited = operation.awaited
        if awaited is not None and not awaited.is_done(wanted, done):
            seconds = min(wanted.wait, call.service.config.max_wait_s)
            if seconds > 0:
                with call.waits:
                    done = await call.hosted.log_watch.wait_until(
                        awaited.stream_of(wanted),
                        partial(operation.run, call, wanted),
                        partial(awaited.is_done, wanted),
                        seconds,
                    )
        headers = _headers(operation, request, done)
        if "ETag" in headers and headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return answer(done, 200 if operation.status is None else operation.status(done), headers)

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


def _headers(operation: Declared[Any, Any], request: Request, done: Any) -> dict[str, str]:
    """Return the header fields of an answer: its version, and where the next part of a list begins."""
    headers: dict[str, str] = {}
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
        return read_request(operation, {**request.query_params, **path}, "query", strict=False)
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
    """Return the parameters of the query of a write, which say how it is answered.

    Raises:
        RefusedError: ``INVALID_VALUE`` for one that is not valid, or that the body has.
    """
    found = {}
    for one in msgspec.structs.fields(operation.request) if operation.unhashed else ():
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
