"""The HTTP client of one realm on a server.

A request whose answer was lost, and one that the server asks to send again (429, 502, 503, 504), is repeated for a
while: reads as they are, and writes with the ``Idempotency-Key`` of the first attempt, so that they have one effect.
The problems of answers (RFC 9457) become the errors that a local realm raises.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeAlias, TypeVar
from urllib.parse import quote

import httpx

from world.error_codes import ErrorCode
from world.errors import (
    DamagedLogError,
    LogBusyError,
    RefusedError,
    ScopeViolationError,
    StorageFullError,
    WaitTimeoutError,
    WorldProtocolError,
)
from worldprotocol.api.remote.addresses import ServerAddress, read_server_address
from worldprotocol.api.waiting.backoff import Backoff
from worldprotocol.api.waiting.steps import drive, drive_async

__all__ = [
    "HISTORY",
    "RealmRequest",
    "RemoteSteps",
    "ServerConnection",
    "error_of",
    "may_pass",
    "problem_of",
    "resource",
]

R = TypeVar("R")

ANSWER_S: Final = 60.0
"""Longest time for the answer to a request, besides its wait, in seconds."""

SILENCE_S: Final = 60.0
"""Longest time without a byte of an event stream, in seconds; the server sends a comment every 15 s."""

FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 2.0
_TOO_MANY: Final = 429
_SERVER_ERRORS: Final = 500
AGAIN: Final = (_TOO_MANY, 502, 503, 504)
"""Statuses with which a server, or a proxy before it, asks to send a request again."""

_UNTRUSTED: Final = "certificate"
"""In ``reason`` of the error of a request without an answer: the certificate of the server is not trusted."""

_TYPES: Final[Mapping[str, type[RefusedError]]] = {
    "LOG_BUSY": LogBusyError,
    "STORAGE_FULL": StorageFullError,
    "NOT_ENDED_IN_TIME": WaitTimeoutError,
    "WAIT_TIMED_OUT": WaitTimeoutError,
    "KLIS_SCOPE_VIOLATION": ScopeViolationError,
}
_DAMAGED: Final = "Damaged log"
HISTORY: Final[Mapping[str, Any]] = {"history": True}
"""Query with which an answer has the events of its proposals."""

_LIMITS: Final = httpx.Limits(max_connections=None, max_keepalive_connections=20)  # each wait holds a connection


@dataclass(frozen=True, slots=True, kw_only=True)
class RealmRequest:
    """A request to a resource of a realm.

    Args:
        method: HTTP method.
        path: path below the realm.
        query: parameters; those that are None are left out.
        body: JSON; None is no body.
        key: ``Idempotency-Key``, with which the request is repeated; None for requests that need none.
        wait_s: seconds for which the server may wait with the answer.
        is_of_server: whether the path is one of the server, and not below the realm.
    """

    method: str
    path: str
    query: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    key: str | None = None
    wait_s: float = 0.0
    is_of_server: bool = False

    def arguments(self, base: str) -> dict[str, Any]:
        """Return the arguments for a client of httpx.

        Args:
            base: URL below which the path is.
        """
        query = dict(self.query) | ({"wait": self.wait_s} if self.wait_s else {})
        return {
            "method": self.method,
            "url": base + self.path,
            "params": {name: _text(value) for name, value in query.items() if value is not None},
            "json": self.body,
            "headers": {} if self.key is None else {"Idempotency-Key": self.key},
            "timeout": ANSWER_S + self.wait_s,
        }


RemoteSteps: TypeAlias = Generator[RealmRequest | float, Any, R]
"""Yields requests, to which the JSON of their answers is sent, and pauses in seconds."""

_Outcome: TypeAlias = httpx.Response | httpx.TransportError


class ServerConnection:
    """Requests to the resources of one realm on a server; thread-safe, and opened by the first request.

    Args:
        server: URL of the server, or ``unix:PATH`` of its socket.
        realm: name of the realm there; None for the list of the realms.
        token: API token, or JWT; None where the peer of a socket is verified.
        patience_s: how long a request is repeated once the server has answered one, in seconds; 0 never repeats.

    Raises:
        RefusedError: ``INVALID_ADDRESS``, also for an address that sends the token without TLS to another machine.
    """

    def __init__(self, server: str, realm: str | None, token: str | None, *, patience_s: float) -> None:
        """Open nothing yet."""
        self.address: ServerAddress = read_server_address(server)
        self.realm = realm
        path = "/realms" if realm is None else resource("realms", realm)
        self._base = f"{self.address.base_url}/v1{path}"
        self._token = token
        self._patience_s = patience_s
        self._was_answered = False
        self._is_closed = False
        self._streams: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self.before_write: Callable[[], object] = bool
        """Called before each POST; it may refuse."""
        self._client = httpx.Client(**self._options(), transport=self._transport)

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        """The trusted certificates, which take 20 ms to read: read once, and not at all for an address without TLS."""
        if not self.address.base_url.startswith("https:"):
            return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        return httpx.create_ssl_context(trust_env=not self.address.is_local)

    @property
    def _transport(self) -> httpx.HTTPTransport | None:
        path = self.address.socket
        return None if path is None else httpx.HTTPTransport(uds=path, limits=_LIMITS, verify=self._tls)

    def _options(self) -> dict[str, Any]:
        return {
            "headers": {} if self._token is None else {"Authorization": f"Bearer {self._token}"},
            "trust_env": not self.address.is_local,
            "verify": self._tls,
            "limits": _LIMITS,
        }

    def close(self) -> None:
        """End streams and connections; requests are refused from then on."""
        with self._mutex:
            self._is_closed = True
            streams = list(self._streams)
        for one in streams:
            _cut(one)
        self._client.close()

    # Requests

    def base_of(self, request: RealmRequest) -> str:
        """Return the URL below which the path of a request is."""
        return self.address.base_url if request.is_of_server else self._base

    def send(self, request: RealmRequest) -> httpx.Response:
        """Return the answer to a request.

        Raises:
            WorldProtocolError: the problem that the server states.
            RefusedError: ``LOG_UNAVAILABLE`` where there is no answer, ``INVALID_ADDRESS`` for one of something else
                than a server of realms, ``LOG_CLOSED``.
        """
        return drive(self._attempts(request), _pausing(self._attempt))

    def _attempt(self, request: RealmRequest) -> _Outcome:
        try:
            return self._client.request(**request.arguments(self.base_of(request)))
        except httpx.TransportError as error:
            return error
        except RuntimeError:  # the client was closed meanwhile
            raise self._closed() from None

    async def send_async(self, request: RealmRequest) -> httpx.Response:
        """Return the answer to a request without holding a thread; raises as ``send``."""
        path = self.address.socket
        transport = None if path is None else httpx.AsyncHTTPTransport(uds=path, limits=_LIMITS, verify=self._tls)
        async with httpx.AsyncClient(**self._options(), transport=transport) as client:

            async def attempt(request: RealmRequest) -> _Outcome:
                try:
                    return await client.request(**request.arguments(self.base_of(request)))
                except httpx.TransportError as error:
                    return error

            return await drive_async(self._attempts(request), _pausing_async(attempt))

    def perform(self, steps: RemoteSteps[R]) -> R:
        """Return the result of steps: send the requests that they yield, and sleep for their pauses.

        Raises:
            WorldProtocolError: as ``send``, and what the steps raise.
        """
        return drive(steps, _pausing(lambda request: self.json_of(self.send(request))))

    async def perform_async(self, steps: RemoteSteps[R]) -> R:
        """Return the result of steps without holding a thread; see ``perform``."""

        async def ask(request: RealmRequest) -> Any:
            return self.json_of(await self.send_async(request))

        return await drive_async(steps, _pausing_async(ask))

    def get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        """Return the JSON of a resource; raises as ``send``."""
        return self.json_of(self.send(RealmRequest(method="GET", path=path, query=query or {})))

    def post(
        self,
        path: str,
        body: Any,
        *,
        key: str | None = None,
        wait_s: float = 0.0,
        query: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the JSON of the answer to a POST; raises as ``send`` and ``before_write``."""
        self.before_write()
        request = RealmRequest(method="POST", path=path, query=query or {}, body=body, key=key, wait_s=wait_s)
        return self.json_of(self.send(request))

    def json_of(self, answer: httpx.Response) -> Any:
        """Return the JSON of a successful answer.

        Raises:
            RefusedError: ``INVALID_ADDRESS`` for one that is no JSON.
        """
        try:
            return answer.json()
        except ValueError:
            raise _no_server(answer, self.address.text) from None

    def _attempts(self, request: RealmRequest) -> RemoteSteps[httpx.Response]:
        """Yield a request for each attempt, to which the outcome is sent, and pauses; the result is its answer."""
        end: float | None = None
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S)
        while True:
            if self._is_closed:
                raise self._closed()
            outcome: _Outcome = yield request
            if isinstance(outcome, httpx.Response):
                self._was_answered = True
                if outcome.is_success or outcome.status_code == 304:
                    return outcome
            if self._is_closed:
                raise self._closed()
            is_final = isinstance(outcome, httpx.Response) and outcome.status_code not in AGAIN
            pause = max(_retry_after(outcome), backoff.pause_s())
            if end is None:  # a wait on the server is no part of the time for repetitions
                end = time.monotonic() + (self._patience_s if self._was_answered else 0.0)
            if is_final or time.monotonic() + pause > end or _is_untrusted(outcome):
                raise self._error(request, outcome)
            yield pause

    def _error(self, request: RealmRequest, outcome: _Outcome | None) -> WorldProtocolError:
        """Return the error of a request that got no successful answer."""
        if isinstance(outcome, httpx.Response):
            return problem_of(outcome, self.address.text)
        why = str(outcome) or type(outcome).__name__
        key = "" if request.key is None else f" What was asked may be in the log; its key is {request.key}."
        return RefusedError(
            ErrorCode.LOG_UNAVAILABLE,
            f"The server {self.address.text} does not answer: {why.rstrip('.')}.{key}",
            **({"reason": _UNTRUSTED} if _is_untrusted(outcome) else {}),
        )

    def _closed(self) -> RefusedError:
        return RefusedError(ErrorCode.LOG_CLOSED, "The realm was closed; connect again.")

    # Streams

    @contextmanager
    def stream(self, path: str, after: int) -> Iterator[Iterator[tuple[str, str]]]:
        """Yield the events of a stream after a position, each with its name and its data.

        Args:
            path: path below the realm.
            after: the position.

        Raises:
            WorldProtocolError: the problem that the server states.
            RefusedError: ``LOG_CLOSED``.
            httpx.TransportError: the stream was cut.
        """
        headers = {"Last-Event-ID": str(after), "Accept": "text/event-stream"}
        timeout = httpx.Timeout(ANSWER_S, read=SILENCE_S)
        if self._is_closed:
            raise self._closed()
        with self._client.stream("GET", self._base + path, headers=headers, timeout=timeout) as answer:
            if not answer.is_success:
                answer.read()
                raise problem_of(answer, self.address.text)
            network: socket.socket = answer.extensions["network_stream"].get_extra_info("socket")
            with self._mutex:
                self._streams.add(network)
            try:
                yield _sent_events(answer.iter_lines())
            finally:
                with self._mutex:
                    self._streams.discard(network)

    def cut_streams(self) -> None:
        """Cut the open streams, so that their readers end or begin again."""
        with self._mutex:
            streams = list(self._streams)
        for one in streams:
            _cut(one)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed."""
        return self._is_closed


def _pausing(ask: Callable[[RealmRequest], Any]) -> Callable[[RealmRequest | float], Any]:
    """Return a function that performs a step: it sleeps for a pause, and asks for a request."""
    return lambda step: time.sleep(step) if isinstance(step, float) else ask(step)


def _pausing_async(ask: Callable[[RealmRequest], Awaitable[Any]]) -> Callable[[RealmRequest | float], Awaitable[Any]]:
    """Return a function that performs a step without holding a thread; see ``_pausing``."""
    return lambda step: asyncio.sleep(step) if isinstance(step, float) else ask(step)


def problem_of(answer: httpx.Response, server: str) -> WorldProtocolError:
    """Return the error of an answer with a problem.

    Args:
        answer: an answer without success.
        server: its server, for messages.
    """
    try:
        problem = answer.json()
        code, detail = str(problem["code"]), str(problem["detail"])
        details = {str(name): value for name, value in dict(problem.get("details") or {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        if answer.status_code in AGAIN:
            return RefusedError(ErrorCode.LOG_UNAVAILABLE, f"The server {server} answered {answer.status_code}.")
        return _no_server(answer, server)
    if code not in ErrorCode.__members__.values():  # of a later release
        details["status"] = answer.status_code
    return error_of(code, detail, details)


def may_pass(error: WorldProtocolError) -> bool:
    """Return whether a request that failed may succeed later as it is.

    It may where there was no answer, and where the status of the answer is 429 or at least 500; not where the
    certificate of the server is not trusted.

    Args:
        error: of ``ServerConnection.send``.
    """
    if error.code == ErrorCode.LOG_UNAVAILABLE and error.details.get("reason") == _UNTRUSTED:
        return False
    is_own = error.code in ErrorCode.__members__.values()
    status = error.details.get("status") or (ErrorCode(error.code).http_status if is_own else 0)
    return isinstance(status, int) and (status == _TOO_MANY or status >= _SERVER_ERRORS)


def _no_server(answer: httpx.Response, server: str) -> RefusedError:
    return RefusedError(
        ErrorCode.INVALID_ADDRESS,
        f"{server} answered {answer.status_code} and is no server of realms; check its address.",
        status=answer.status_code,
    )


def error_of(code: str, message: str, details: Mapping[str, Any]) -> WorldProtocolError:
    """Return the error that a local realm raises with a code."""
    if code in ErrorCode.__members__.values() and ErrorCode(code).section == _DAMAGED:
        return DamagedLogError(code, message, **details)
    return _TYPES.get(code, RefusedError)(code, message, **details)


def resource(collection: str, name: str) -> str:
    """Return the path of a resource below the realm; any text can be its name."""
    return f"/{collection}/{quote(name, safe='')}"


def _sent_events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Yield name and data of server-sent events (WHATWG HTML, 9.2.6)."""
    name, data = "", list[str]()
    for line in lines:
        member, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not line:
            if data:
                yield name or "message", "\n".join(data)
            name, data = "", []
        elif member == "event":
            name = value
        elif member == "data":
            data.append(value)


def _retry_after(outcome: _Outcome | None) -> float:
    """Return the seconds after which a server asks to send a request again; 0 where it says none."""
    if isinstance(outcome, httpx.Response):
        with suppress(ValueError):
            return max(0.0, float(outcome.headers.get("Retry-After", "0")))
    return 0.0


def _is_untrusted(outcome: _Outcome | None) -> bool:
    """Return whether a connection failed because of its certificate."""
    return isinstance(outcome, httpx.ConnectError) and "CERTIFICATE" in str(outcome)


def _cut(network: socket.socket) -> None:
    with suppress(OSError):
        network.shutdown(socket.SHUT_RDWR)


def _text(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else value
