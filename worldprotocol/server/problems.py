"""Errors as ``application/problem+json`` (RFC 9457): each is a ``RefusedError`` with an ``ErrorCode``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError

if TYPE_CHECKING:
    from worldprotocol.server.service import Service

__all__ = ["MEDIA_TYPE", "TooManyRequestsError", "install", "problem", "type_of"]

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
_LOGGER = logging.getLogger("worldprotocol.server")
_UNAVAILABLE: Final = frozenset({429, 503})
_BY_STATUS: Final = {404: ErrorCode.UNKNOWN_OPERATION, 405: ErrorCode.METHOD_NOT_ALLOWED}
_SAFE_DETAILS: Final = frozenset(
    {
        "proposal_id",
        "intent_id",
        "actor_id",
        "world_id",
        "lease_id",
        "request_id",
        "state",
        "status",
        "faults",
        "path",
        "limit_bytes",
        "head",
        "why",
    }
)
"""Details of a refusal that an answer shows; others may name files of the server."""


class TooManyRequestsError(RefusedError):
    """A limit on requests was reached; ``retry_after_s`` is when to try again, in seconds."""

    def __init__(self, message: str, retry_after_s: int = RETRY_AFTER_S) -> None:
        super().__init__(ErrorCode.TOO_MANY_REQUESTS, message)
        self.retry_after_s = retry_after_s


def type_of(code: ErrorCode) -> str:
    """Return the URI reference that identifies a kind of problem and leads to its description."""
    return f"/v1/errors/{code.value}"


def problem(
    code: ErrorCode,
    detail: str,
    *,
    status: int | None = None,
    details: dict[str, Any] | None = None,
    retry_after_s: int = RETRY_AFTER_S,
) -> Response:
    """Return the answer of a refused or failed request.

    Args:
        code: the error code, which has the HTTP status.
        detail: what happened and what to do.
        status: the HTTP status; None is that of the code.
        details: facts for programs.
        retry_after_s: for the statuses 429 and 503: when to try again, in seconds.
    """
    status = code.http_status if status is None else status
    body = {"type": type_of(code), "title": code.text, "status": status, "code": code.value, "detail": detail}
    if details:
        body["details"] = details
    headers = {"Cache-Control": "no-store"}
    if status in _UNAVAILABLE:
        headers["Retry-After"] = str(retry_after_s)
    if status == 401:
        headers["WWW-Authenticate"] = 'Bearer realm="world-protocol"'
    return Response(orjson.dumps(body, default=str), status, headers, MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Answer every error of an application as a problem."""
    app.add_exception_handler(WorldProtocolError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _failed)


async def _refused(request: Request, raised: Exception) -> Response:
    assert isinstance(raised, WorldProtocolError)
    service: Service = request.app.state.service
    error = service.answered(request.path_params.get("realm"), raised)
    code = ErrorCode(error.code)
    if code.http_status in (401, 403):
        _LOGGER.warning("%s %s refused: %s %s", request.method, request.url.path, code.value, error.message)
    elif code.http_status == 500:
        _LOGGER.error("%s %s failed: %s %s", request.method, request.url.path, code.value, error.message)
    request.state.error_code = code.value
    details = {name: value for name, value in error.details.items() if name in _SAFE_DETAILS}
    return problem(code, error.message, details=details, retry_after_s=getattr(error, "retry_after_s", RETRY_AFTER_S))


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    request.state.error_code = ErrorCode.INVALID_VALUE.value
    faults = [{"path": ".".join(map(str, one["loc"])), "message": one["msg"]} for one in error.errors()]
    words = "; ".join(f"{one['path']}: {one['message']}" for one in faults[:5])
    return problem(ErrorCode.INVALID_VALUE, f"The request is not valid: {words}.", details={"faults": faults[:20]})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = _BY_STATUS.get(error.status_code, ErrorCode.INVALID_VALUE)
    request.state.error_code = code.value
    answer = problem(code, f"{request.method} {request.url.path}: {code.text}; {code.remedy}.")
    for name, value in (error.headers or {}).items():
        answer.headers[name] = value
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    _LOGGER.error("%s %s failed", request.method, request.url.path, exc_info=error)
    request.state.error_code = ErrorCode.SERVER_FAILED.value
    return problem(ErrorCode.SERVER_FAILED, "The server failed to answer this request; its log has the cause.")
