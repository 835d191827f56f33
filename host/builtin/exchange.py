"""One HTTP exchange over httpx: a request with its redirects, within one time limit, and cancellable.

One thread can shut down a socket that another thread reads: this enforces the time limit and a cancellation against a
server that sends slowly. Host names are resolved by the operating system, which cannot be interrupted.
"""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final

import httpx

from host.builtin.effect_support import EFFECT_CANCELLED, MAX_BYTES, EffectError
from host.effects import EFFECT_INVALID_INPUT
from world.model.secrets.literal import SECRET_HEADERS

__all__ = ["Exchange", "HttpResponse", "Outgoing"]

MAX_REDIRECTS: Final = 5
"""Highest number of redirects, all within the same origin."""

MAX_READ: Final = 1 << 30
"""Bytes of a response that are read for its hash; a longer response is aborted."""

_POLL_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request.

    Args:
        method: in capitals.
        url: absolute.
        headers: with lower-case names.
        body: None for none.
        is_repeatable: whether sending it again is harmless, although the server may have processed it.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None
    is_repeatable: bool


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A response.

    Args:
        status: its code.
        url: its address after redirects.
        headers: with lower-case names.
        size: of the body, in bytes.
        sha256: of the body, in hex.
        body: None when it is longer than a result may be.
    """

    status: int
    url: str
    headers: dict[str, str]
    size: int
    sha256: str
    body: bytes | None


class Exchange:
    """A request in progress; it ends with its ``with`` block.

    Args:
        out: the request.
        timeout_ms: for all of it, in milliseconds.
        is_cancelled: whether it must be aborted.
    """

    def __init__(self, out: Outgoing, *, timeout_ms: int, is_cancelled: Callable[[], bool]) -> None:
        """Prepare; nothing is sent yet."""
        self._out = out
        self._timeout_ms = timeout_ms
        self._is_cancelled = is_cancelled
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._sockets: list[socket.socket] = []
        self._stop_reason: str | None = None
        self._was_sent = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._watch_limits, name=f"watch of {out.method}", daemon=True)

    def __enter__(self) -> Exchange:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watch.join()

    def run(self, check_before_send: Callable[[], None]) -> HttpResponse:
        """Send the request and return the response.

        Args:
            check_before_send: raises where nothing may be sent; called before each request.

        Raises:
            EffectError: ``HTTP_CONNECT_FAILED``, ``HTTP_TLS_FAILED``, ``HTTP_TIMED_OUT``, ``HTTP_BROKEN_OFF``,
                ``HTTP_TOO_MANY_REDIRECTS``, ``EFFECT_CANCELLED``, ``EFFECT_INVALID_INPUT``. An exception of
                ``check_before_send`` is passed on.
        """
        out = self._out
        timeout = httpx.Timeout(self._timeout_ms / 1000)
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=timeout) as client:
            with self._reporting_faults():
                request: httpx.Request | None = client.build_request(
                    out.method, out.url, headers=dict(out.headers), content=out.body
                )
            assert request is not None
            request.headers["accept-encoding"] = "identity"  # prevents decompression bombs
            for _ in range(MAX_REDIRECTS + 1):
                check_before_send()
                result, next_request = self._once(client, request)
                if next_request is None:
                    return result
                request = next_request
        raise EffectError("HTTP_TOO_MANY_REDIRECTS", f"{self._name} was redirected more than {MAX_REDIRECTS} times.")

    def _once(self, client: httpx.Client, request: httpx.Request) -> tuple[HttpResponse, httpx.Request | None]:
        request.extensions = {**request.extensions, "trace": self._trace}
        with self._reporting_faults():
            response = client.send(request, stream=True)
            try:
                result = _received(response)
            finally:
                response.close()
        next_request = response.next_request
        if next_request is None or not _same_origin(request.url, next_request.url):
            return result, None
        return result, next_request

    @property
    def _name(self) -> str:
        return f"{self._out.method} {self._out.url}"

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Record the connection's socket, and that the request began to be sent."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            connection = info["return_value"].get_extra_info("socket")
            if connection is not None:
                self._sockets.append(connection)
        elif event.endswith(".send_request_headers.started"):
            self._was_sent = True

    def _watch_limits(self) -> None:
        while not self._ended.wait(_POLL_S):
            if self._is_cancelled():
                self._stop_reason = EFFECT_CANCELLED
            elif time.monotonic() > self._deadline:
                self._stop_reason = "HTTP_TIMED_OUT"
            if self._stop_reason is not None:
                for one in tuple(self._sockets):
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(one, socket.SHUT_RDWR)  # below TLS, which would wait for the peer

    @contextmanager
    def _reporting_faults(self) -> Iterator[None]:
        try:
            yield
            if self._stop_reason is not None:
                raise httpx.ReadError("cut off")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> EffectError:
        context = {"url": self._out.url}
        retryable = self._out.is_repeatable or not self._was_sent
        if self._stop_reason == EFFECT_CANCELLED:
            return EffectError(
                EFFECT_CANCELLED, f"{self._name} was cancelled; whether it was received is unknown.", context
            )
        if self._stop_reason is not None or isinstance(error, httpx.TimeoutException):
            message = f"{self._name} took longer than {self._timeout_ms} ms."
            return EffectError("HTTP_TIMED_OUT", message, context, retryable=retryable)
        if isinstance(error, httpx.ConnectError):
            if _is_tls(error):
                return EffectError("HTTP_TLS_FAILED", f"{self._name}: the TLS connection failed: {error}", context)
            return EffectError(
                "HTTP_CONNECT_FAILED", f"{self._name}: the connection failed: {error}", context, retryable=True
            )
        if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError | ValueError):
            return EffectError(EFFECT_INVALID_INPUT, f"{self._name} cannot be sent: {error}", context)
        message = f"{self._name} was aborted: {type(error).__name__} {error}"
        return EffectError("HTTP_BROKEN_OFF", message.rstrip(), context, retryable=retryable)


def _is_tls(error: BaseException) -> bool:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLError):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def _same_origin(one: httpx.URL, other: httpx.URL) -> bool:
    def origin(url: httpx.URL) -> tuple[str, str, int | None]:
        return url.scheme, url.host, url.port

    return origin(one) == origin(other)


def _received(response: httpx.Response) -> HttpResponse:
    kept: list[bytes] = []
    size, digest = 0, hashlib.sha256()
    for piece in response.iter_raw():
        size += len(piece)
        digest.update(piece)
        if size <= MAX_BYTES:
            kept.append(piece)
        elif size > MAX_READ:
            raise httpx.ReadError(f"its body is longer than {MAX_READ} bytes")
    return HttpResponse(
        status=response.status_code,
        url=str(response.url),
        headers={name.lower(): value for name, value in response.headers.items() if name.lower() not in SECRET_HEADERS},
        size=size,
        sha256=digest.hexdigest(),
        body=b"".join(kept) if size <= MAX_BYTES else None,
    )
