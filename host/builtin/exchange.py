"""One HTTP exchange over httpx: a request with its redirects, within one time limit, cut off when it must end.

A socket that is being read by one thread can be shut down by another: that is how the time limit and a cancellation
reach a server that sends a byte now and then. Host names are looked up by the system, which cannot be interrupted.
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
from world.model.literal_secrets import SECRET_HEADERS

__all__ = ["Exchange", "HttpResponse", "Outgoing"]

MAX_REDIRECTS: Final = 5
"""Redirects that are followed, all within the same origin."""

MAX_READ: Final = 1 << 30
"""Bytes of a response that are read to tell its hash; what is longer is broken off."""

_LOOK_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request.

    Args:
        method: in capitals.
        url: absolute.
        headers: with lower-case names.
        body: None for none.
        is_repeatable: whether sending it again does no harm, though the server may have seen it.
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
        url: where it came from, after redirects.
        headers: with lower-case names.
        size: of the body, in bytes.
        sha256: of the body, in hex.
        body: None when it is longer than a result can be.
    """

    status: int
    url: str
    headers: dict[str, str]
    size: int
    sha256: str
    body: bytes | None


class Exchange:
    """A request on its way; ends when it is left.

    Args:
        out: the request.
        timeout_ms: for all of it, in milliseconds.
        is_cancelled: whether it shall be broken off.
    """

    def __init__(self, out: Outgoing, *, timeout_ms: int, is_cancelled: Callable[[], bool]) -> None:
        """Prepare; nothing is sent yet."""
        self._out = out
        self._timeout_ms = timeout_ms
        self._is_cancelled = is_cancelled
        self._deadline = time.monotonic() + timeout_ms / 1000
        self._sockets: list[socket.socket] = []
        self._cut: str | None = None
        self._was_sent = False
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look, name=f"watch of {out.method}", daemon=True)

    def __enter__(self) -> Exchange:
        self._watch.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watch.join()

    def run(self, last_look: Callable[[], None]) -> HttpResponse:
        """Send the request and return the response.

        Args:
            last_look: raises where nothing may be sent any more; called before each request.

        Raises:
            EffectError: ``HTTP_CONNECT_FAILED``, ``HTTP_TLS_FAILED``, ``HTTP_TIMED_OUT``, ``HTTP_BROKEN_OFF``,
                ``HTTP_TOO_MANY_REDIRECTS``, ``EFFECT_CANCELLED``, ``EFFECT_INVALID_INPUT``. What ``last_look`` raises
                passes through.
        """
        out = self._out
        timeout = httpx.Timeout(self._timeout_ms / 1000)
        with httpx.Client(trust_env=False, follow_redirects=False, timeout=timeout) as client:
            with self._telling():
                request: httpx.Request | None = client.build_request(
                    out.method, out.url, headers=dict(out.headers), content=out.body
                )
            assert request is not None
            request.headers["accept-encoding"] = "identity"  # a small answer must not become a huge one
            for _ in range(MAX_REDIRECTS + 1):
                last_look()
                received, following = self._once(client, request)
                if following is None:
                    return received
                request = following
        raise EffectError("HTTP_TOO_MANY_REDIRECTS", f"{self._name} was redirected more than {MAX_REDIRECTS} times.")

    def _once(self, client: httpx.Client, request: httpx.Request) -> tuple[HttpResponse, httpx.Request | None]:
        request.extensions = {**request.extensions, "trace": self._trace}
        with self._telling():
            response = client.send(request, stream=True)
            try:
                received = _received(response)
            finally:
                response.close()
        following = response.next_request
        if following is None or not _same_origin(request.url, following.url):
            return received, None
        return received, following

    @property
    def _name(self) -> str:
        return f"{self._out.method} {self._out.url}"

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        """Take note of the connection's socket, and of when something of the request leaves."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            found = info["return_value"].get_extra_info("socket")
            if found is not None:
                self._sockets.append(found)
        elif event.endswith(".send_request_headers.started"):
            self._was_sent = True

    def _look(self) -> None:
        while not self._ended.wait(_LOOK_S):
            if self._is_cancelled():
                self._cut = EFFECT_CANCELLED
            elif time.monotonic() > self._deadline:
                self._cut = "HTTP_TIMED_OUT"
            if self._cut is not None:
                for one in tuple(self._sockets):
                    with contextlib.suppress(OSError):
                        socket.socket.shutdown(one, socket.SHUT_RDWR)  # below TLS, which would wait for the other side

    @contextmanager
    def _telling(self) -> Iterator[None]:
        try:
            yield
            if self._cut is not None:
                raise httpx.ReadError("cut off")
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError, ValueError) as error:
            raise self._fault(error) from None

    def _fault(self, error: Exception) -> EffectError:
        context = {"url": self._out.url}
        again = self._out.is_repeatable or not self._was_sent
        if self._cut == EFFECT_CANCELLED:
            return EffectError(EFFECT_CANCELLED, f"{self._name} was cancelled; whether it arrived is unknown.", context)
        if self._cut is not None or isinstance(error, httpx.TimeoutException):
            told = f"{self._name} took longer than {self._timeout_ms} ms."
            return EffectError("HTTP_TIMED_OUT", told, context, retryable=again)
        if isinstance(error, httpx.ConnectError):
            if _is_tls(error):
                return EffectError("HTTP_TLS_FAILED", f"{self._name}: no trusted connection. {error}", context)
            return EffectError("HTTP_CONNECT_FAILED", f"{self._name}: no connection. {error}", context, retryable=True)
        if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError | ValueError):
            return EffectError(EFFECT_INVALID_INPUT, f"{self._name} cannot be sent: {error}", context)
        told = f"{self._name} was broken off: {type(error).__name__} {error}"
        return EffectError("HTTP_BROKEN_OFF", told.rstrip(), context, retryable=again)


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
