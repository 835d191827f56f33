"""One authorised request: its operation, realm and verified caller. Every handler gets a ``Call``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import msgspec
import orjson
from fastapi import Depends, Header, Request, Response
from fastapi.routing import APIRoute

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import UNAUTHENTICATED, Verification
from world.klis.session import AgentKey
from world.state.access import right_fault
from world.state.realm_view import RealmView
from worldprotocol.json_text import as_text
from worldprotocol.operations import OperationCall
from worldprotocol.operations.declaring import Declared
from worldprotocol.operations.visibility import Visibility
from worldprotocol.server.operation_table import OPERATIONS, Operation
from worldprotocol.server.request_body import body_of
from worldprotocol.server.service import HostedRealm, Service
from worldprotocol.server.sign_in import signed_by
from worldprotocol.server.threads import retrieve

__all__ = [
    "COUNTED",
    "Authorized",
    "Call",
    "Key",
    "OperationRoute",
    "address_of",
    "answer",
    "authorize",
    "check_right",
    "count_failure",
    "count_visitor",
    "counted_failure",
    "operation_of",
    "service_of",
    "timed_out",
    "visitor",
]

R = TypeVar("R")

COUNTED: Final = "is_counted"
"""Member of the state of a request that this process sends for another one, which was counted."""

SMALL_BYTES: Final = 65_536
"""Size of a body that is parsed where it is read; a thread parses larger ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(OperationCall):
    """A request over HTTP whose caller was verified and has a right to the operation.

    Args:
        hosted: the realm.
        service: the service.
        operation: the operation.
    """

    hosted: HostedRealm
    service: Service
    operation: Operation

    @classmethod
    def of(
        cls, service: Service, operation: Operation, hosted: HostedRealm, verified: Verification, view: RealmView
    ) -> Call:
        """Return the call of a verified caller, which reads what its rights permit."""
        return cls(
            hosted=hosted,
            verified=verified,
            view=view,
            visibility=Visibility(view, verified, hosted.redactions),
            clock=service.clock,
            service=service,
            operation=operation,
        )

    @property
    def waits(self) -> AbstractContextManager[None]:
        """Counts a request that waits; raises ``TooManyRequestsError`` when it is entered."""
        return self.service.waits.one(self._subject)

    def check_waits(self) -> None:
        """Refuse a stream before it begins, which counts itself as waiting then.

        Raises:
            TooManyRequestsError: too many requests wait.
        """
        self.service.waits.check(self._subject)

    @property
    def _subject(self) -> str:
        return f"{self.hosted.name}/{self.actor_id}"

    async def run(self, call: Callable[[], R]) -> R:
        """Return the result of a call in a thread.

        Raises:
            RefusedError: ``REQUEST_TIMED_OUT``; the call itself continues.
        """
        running = asyncio.ensure_future(self.service.threads.run(call))
        try:
            async with asyncio.timeout(self.service.config.request_timeout_s):
                return await asyncio.shield(running)
        except TimeoutError:
            running.add_done_callback(retrieve)
            raise timed_out(self.service) from None

    async def perform(self, operation: Declared[Any, Any], run: Callable[[], R]) -> R:
        """Return the result of a call of an operation, in a thread unless it is immediate.

        Raises:
            RefusedError: as ``run``.
        """
        return run() if operation.is_immediate else await self.run(run)


def timed_out(service: Service) -> RefusedError:
    """Return the refusal of a request that took too long."""
    return RefusedError(
        ErrorCode.REQUEST_TIMED_OUT,
        f"The request took longer than {service.config.request_timeout_s} s (request_timeout_s); what it wrote may be "
        "in the log. Send it again with the same Idempotency-Key.",
    )


def service_of(request: Request) -> Service:
    """Return the service of an application."""
    service: Service = request.app.state.service
    return service


def operation_of(request: Request) -> Operation:
    """Return the operation of a request.

    Raises:
        RefusedError: ``RIGHT_MISSING`` where the table has no such operation.
    """
    operation = OPERATIONS.get(getattr(request.scope.get("route"), "name", ""))
    if operation is None:
        raise RefusedError(ErrorCode.RIGHT_MISSING, "This route is not in the table of operations.")
    return operation


class OperationRoute(APIRoute):
    """Route of an operation: the caller is verified, and has the right, before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the handler of requests."""
        handle = super().get_route_handler()

        async def handle_authorized(request: Request) -> Response:
            operation, body = OPERATIONS.get(self.name), body_of(request)
            if operation is not None and operation.is_in_realm and not operation.is_public:
                await body.read(_subject_of(await authorize(request)))
            elif operation is not None:
                await body.read_unverified(address_of(request))
            body.release()
            return await handle(_ParsedRequest(request.scope, request.receive))

        return handle_authorized


class _ParsedRequest(Request):
    """A request whose body a thread parses, unless it is small."""

    async def json(self) -> Any:
        """Return the JSON of the body.

        Raises:
            ValueError: it is not JSON.
        """
        body = await self.body()
        if len(body) <= SMALL_BYTES:
            return json.loads(body)
        return await service_of(self).threads.run(lambda: json.loads(body))


def _subject_of(call: Call) -> str:
    return f"{call.actor_id}@{call.hosted.name}" if call.verified.is_verified else "visitors"


async def authorize(request: Request) -> Call:
    """Return the call of a request, which is authorised once.

    Raises:
        RefusedError: as ``_authorized``.
    """
    known: Call | None = getattr(request.state, "call", None)
    if known is None:
        known = request.state.call = await _authorized(request)
    return known


async def _authorized(request: Request) -> Call:
    """Verify the caller, count the request, and check the right to the operation.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``UNKNOWN_REALM``, ``RIGHT_MISSING``,
            ``TOO_MANY_REQUESTS``.
    """
    service, operation = service_of(request), operation_of(request)
    name = request.path_params["realm"]
    hosted = service.realms.get(name)
    if hosted is None:
        await verified_somewhere(service, request)
        raise RefusedError(ErrorCode.UNKNOWN_REALM, f"This server has no realm {name!r}; `GET /v1/realms` lists them.")
    verified, view = await verify(service, hosted, request)
    if verified.is_verified and not getattr(request.state, COUNTED, False):
        service.rates.take(f"{verified.actor_id}@{name}")
    check_right(view, verified, operation, service.clock.now_ms())
    call = Call.of(service, operation, hosted, verified, view)
    if operation.is_whole:
        call.visibility.check_whole()
    return call


def check_right(view: RealmView, verified: Verification, operation: Operation, now_ms: int) -> None:
    """Refuse a caller without a right to an operation, and a visitor what is not open to the public.

    Raises:
        RefusedError: ``RIGHT_MISSING``, ``TOKEN_NOT_VALID``, ``SIGN_IN_REQUIRED``.
    """
    if not verified.is_verified:
        if not operation.is_open:
            raise RefusedError(
                ErrorCode.SIGN_IN_REQUIRED,
                f"{operation.name} is not open to the public; sign in as docs/server.md describes.",
            )
        return
    fault = right_fault(view, verified, operation.rights, now_ms)
    if fault is not None:
        raise RefusedError(fault.code, fault.message)


def visitor(service: Service, hosted: HostedRealm, request: Request) -> Verification | None:
    """Return the caller of a request that shows no credentials; None where the realm is not public.

    A visitor reads: it cannot write or wait, and is counted by its address.

    Raises:
        RefusedError: ``TOO_MANY_REQUESTS``.
    """
    is_anonymous = "authorization" not in request.headers and getattr(request.state, "peer_uid", None) is None
    if not hosted.redactions.public or request.method != "GET" or "wait" in request.query_params or not is_anonymous:
        return None
    count_visitor(service, hosted.name, request)
    return UNAUTHENTICATED


def count_visitor(service: Service, realm: str, request: Request) -> None:
    """Count a request that shows no credentials and needs none, by its address.

    Raises:
        TooManyRequestsError: there were many.
    """
    service.rates.take(f"visitor {address_of(request)}@{realm}")


async def verify(service: Service, hosted: HostedRealm, request: Request) -> tuple[Verification, RealmView]:
    """Return the caller as verified in a realm, and the state of the realm.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``UNAUTHENTICATED``; ``TOO_MANY_REQUESTS`` after many
            failures; what is wrong with the body that a key signed.
    """
    view = await hosted.view.result()
    if service.sign_in.shows_jwt(request):
        with counted_failure(service, request):
            return await service.sign_in.verified(request, view, service.clock.now_ms()), view
    try:
        key = service.sign_in.signing_key(request, view)
        if key is None:
            return await service.sign_in.verified(request, view, service.clock.now_ms()), view
    except RefusedError:
        public = visitor(service, hosted, request)
        if public is not None:
            return public, view
        count_failure(service, request)
        raise
    return await _verify_signature(service, hosted, request, view, key), view


async def _verify_signature(
    service: Service, hosted: HostedRealm, request: Request, view: RealmView, key: AgentKey
) -> Verification:
    """Return the actor that signed the intent in a body, which is read and parsed after a failure was counted.

    An id of a key is no secret: the allowance of the actor is checked, and only an actor that was verified uses it up.
    Large intents are checked one after the other, in a thread of their own, so that small ones do not wait for them.
    """
    service.rates.check(f"{key.agent_id}@{hosted.name}")
    with counted_failure(service, request):
        content = await body_of(request).read_signed(address_of(request), hosted.limits.max_intent_bytes)
        is_large = len(content) > service.config.max_unverified_bytes
        checks, now_ms = service.large_checks if is_large else service.checks, service.clock.now_ms()
        return await checks.run(lambda: signed_by(content, key.key_id, view, now_ms))


@contextmanager
def counted_failure(service: Service, request: Request) -> Iterator[None]:
    """Count a failure to verify a caller before the work for it, and take that back where the work succeeds.

    Raises:
        TooManyRequestsError: there were many.
    """
    count_failure(service, request)
    yield
    service.rates.give_back(f"address {address_of(request)}")


def count_failure(service: Service, request: Request) -> None:
    """Count a request whose caller could not be verified, by its address.

    Raises:
        TooManyRequestsError: there were many.
    """
    service.rates.take(f"address {address_of(request)}")


def address_of(request: Request) -> str:
    """Return the address of a caller, by which failures are counted."""
    return request.client.host if request.client else "socket"


async def verified_somewhere(service: Service, request: Request) -> list[tuple[HostedRealm, Verification, RealmView]]:
    """Return the realms in which the caller can be verified.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID`` where there is none; ``TOO_MANY_REQUESTS`` after many
            failures.
    """
    found, refusal = [], RefusedError(ErrorCode.SIGN_IN_REQUIRED, "This server has no realm.")
    with counted_failure(service, request):
        for hosted in service.realms.values():
            view = await hosted.view.result()
            try:
                verified = await service.sign_in.verified(request, view, service.clock.now_ms())
                found.append((hosted, verified, view))
            except RefusedError as refused:
                refusal = refused
        if not found:
            raise refusal
    return found


Authorized = Annotated[Call, Depends(authorize)]
"""The call of a request, for handlers."""

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="Key of the request, one of the actor's; a repeated request has one effect.",
    ),
]
"""The key of a request, for handlers."""


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON answer.

    Args:
        value: JSON, or a struct.
        status: HTTP status.
        headers: header fields.
    """
    try:  # a struct is not made JSON first, which takes as long as writing it ten times where it has a large state
        content = msgspec.json.encode(value) if isinstance(value, msgspec.Struct) else orjson.dumps(value)
    except (TypeError, UnicodeEncodeError):  # an answer may repeat JSON of a request that no log can hold
        content = as_text(msgspec.to_builtins(value)).encode()
    return Response(content, status, {"Cache-Control": "no-store", **(headers or {})}, "application/json")
