"""Limits on requests: host and origin, body, cookies, rate of a subject, waits; and the service's end."""

from __future__ import annotations

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from world.error_codes import ErrorCode
from worldprotocol.api.config import ServerConfig
from worldprotocol.server.problems import TooManyRequestsError, problem
from worldprotocol.server.request_body import RequestBody, UnreadBodies, set_body

__all__ = ["HostLimit", "Rates", "RequestLimit", "Running", "Waits", "is_own_origin"]

SHARE: Final = 10
"""One in so many of the requests that may wait is kept for other subjects than the one that has the most."""

COOKIES: Final = b"world_protocol_"
"""Beginning of the names of this server's cookies."""

MAX_COOKIE_BYTES: Final = 4_096
"""Size of a cookie, which is what browsers store."""

_QUOTING: Final = frozenset(b'"\\')

MAX_SUBJECTS: Final = 100_000
"""Subjects whose rates are remembered; the one that was idle longest is forgotten first, with a full allowance."""


class Rates:
    """Token buckets, one for each subject.

    Args:
        per_second: requests that a subject may send in a second, on average.
        burst: requests that it may send at once.
        clock: returns monotonic seconds.
    """

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def check(self, subject: str) -> float:
        """Return how many requests a subject may send at once, of which none is counted.

        Raises:
            TooManyRequestsError: its allowance is used up.
        """
        now = self._clock()
        left, then = self._buckets.get(subject, (float(self._burst), now))
        left = min(self._burst, left + (now - then) * self._per_second)
        if left < 1:
            seconds = max(1, round((1 - left) / self._per_second + 0.5))
            raise TooManyRequestsError(
                f"{subject} sent more than {self._burst} requests at once, or {self._per_second:g} a second; "
                f"send the next one in {seconds} s.",
                seconds,
            )
        return left

    def give_back(self, subject: str) -> None:
        """Count one request of a subject less."""
        if subject in self._buckets:
            left, then = self._buckets[subject]
            self._buckets[subject] = min(float(self._burst), left + 1), then

    def take(self, subject: str) -> None:
        """Count one request of a subject.

        Raises:
            TooManyRequestsError: its allowance is used up.
        """
        left, now = self.check(subject), self._clock()
        self._buckets[subject] = left - 1, now
        self._buckets.move_to_end(subject)
        if len(self._buckets) > MAX_SUBJECTS:
            self._buckets.popitem(last=False)


class Waits:
    """Requests that wait: long polls and event streams.

    Args:
        most: requests that may wait at once; one subject may have nine tenths of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = most - most // SHARE
        self._by_subject: Counter[str] = Counter()
        self.count = 0

    def check(self, subject: str) -> None:
        """Refuse a further waiting request.

        Args:
            subject: realm and actor.

        Raises:
            TooManyRequestsError: ``most`` requests wait already, or those of the subject are its share.
        """
        own = self._by_subject[subject]
        if self.count >= self._most or own >= self._share:
            raise TooManyRequestsError(
                f"{self.count} requests wait already, {own} of them of this caller; the limits are {self._most} "
                f"(max_waits) and {self._share}."
            )

    @contextmanager
    def one(self, subject: str) -> Iterator[None]:
        """Count one waiting request.

        Raises:
            TooManyRequestsError: as ``check``.
        """
        self.check(subject)
        self.count += 1
        self._by_subject[subject] += 1
        try:
            yield
        finally:
            self.count -= 1
            self._by_subject[subject] -= 1
            if not self._by_subject[subject]:
                del self._by_subject[subject]


class Running:
    """Requests that are being answered."""

    def __init__(self) -> None:
        self._ends: set[asyncio.Event] = set()
        self._is_idle = asyncio.Event()
        self._is_idle.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one request."""
        end = asyncio.Event()
        self._ends.add(end)
        self._is_idle.clear()
        try:
            yield
        finally:
            end.set()
            self._ends.discard(end)
            if not self._ends:
                self._is_idle.set()

    async def ended_so_far(self) -> None:
        """Return once the requests that are being answered now have ended."""
        for end in list(self._ends):
            await end.wait()

    async def ended(self, timeout_s: float) -> None:
        """Return once there is none, or after a time.

        Args:
            timeout_s: longest wait, in seconds.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._is_idle.wait()


class RequestLimit:
    """ASGI middleware that gives requests a bounded body, and refuses requests while the server stops.

    Cookies of other programs are left out of requests: all parsers of cookies read them otherwise, and the one of
    Python before 3.11.10 takes quadratic time for some.

    Args:
        app: the application.
        config: the limits.
        is_stopping: whether the server stops.
        running: counts the requests that are not refused for that.
        unread: counts the bytes of bodies.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        config: ServerConfig,
        is_stopping: Callable[[], bool],
        running: Running,
        unread: UnreadBodies,
    ) -> None:
        self._app = app
        self._config = config
        self._is_stopping = is_stopping
        self._running = running
        self._unread = unread

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._is_stopping() and scope["path"] != "/healthz":
            words = "The server is stopping; send the request again later."
            await _refuse(ErrorCode.SERVER_STOPPING, words)(scope, receive, send)
        else:
            with self._running.one():
                try:
                    await self._with_body(scope, receive, send)
                except asyncio.CancelledError:
                    if not self._is_stopping():
                        raise
                    words = (
                        "The server stopped before this request was answered; what it writes will be in the log. Send "
                        "it again with the same Idempotency-Key."
                    )
                    with suppress(RuntimeError):  # an answer has begun
                        await _refuse(ErrorCode.SERVER_STOPPING, words)(scope, receive, send)

    async def _with_body(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Have a request answered whose body the application reads once the caller is known."""
        scope["headers"] = list(_without_foreign_cookies(scope["headers"]))
        if {"content-length", "transfer-encoding"} <= set(Request(scope).headers):
            words = "The request has both Content-Length and Transfer-Encoding, so its end is uncertain; send one."
            scope.setdefault("state", {})["error_code"] = ErrorCode.INVALID_VALUE.value
            await _refuse(ErrorCode.INVALID_VALUE, words)(scope, receive, send)
            return
        body = RequestBody(scope, receive, self._config, self._unread)
        set_body(scope, body)

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and body.ends_connection:
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        try:
            await self._app(scope, body.receive, sent)
        finally:
            body.release()


def _without_foreign_cookies(fields: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield header fields, with the cookies of this server alone, whose values need no quotes and escapes."""
    for name, value in fields:
        if name != b"cookie":
            yield name, value
            continue
        own = [one.strip() for one in value.split(b";") if one.strip().startswith(COOKIES)]
        if plain := [one for one in own if len(one) <= MAX_COOKIE_BYTES and not _QUOTING & set(one)]:
            yield name, b"; ".join(plain)


def is_own_origin(origin: str, host: str, public_url: str | None) -> bool:
    """Return whether an origin is a page of this server.

    Args:
        origin: header ``Origin``.
        host: header ``Host``.
        public_url: the address that browsers use; None where it is that of the listener.
    """
    try:
        named = urlsplit(origin).netloc
    except ValueError:
        return False
    return (bool(named) and named == host) or (public_url is not None and origin == public_url)


class HostLimit:
    """ASGI middleware of a TCP listener that refuses requests for other hosts, and from pages of other sites.

    A page of another site whose name leads to this server (DNS rebinding) names that host in its requests. Browsers say
    where a request comes from; following a link from another site is permitted.

    Args:
        app: the application.
        hosts: names of the server; None accepts any, where the names of a listener for other machines are unknown.
        public_url: the address that browsers use; None where it is that of the listener.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str] | None, public_url: str | None) -> None:
        self._app = app
        self._hosts = None if hosts is None else {one.lower() for one in hosts}
        self._public_url = public_url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        words = self._fault(Request(scope)) if scope["type"] == "http" else None
        if words is None:
            await self._app(scope, receive, send)
        else:
            await problem(ErrorCode.FOREIGN_SITE, words)(scope, receive, send)

    def _fault(self, request: Request) -> str | None:
        hosts = request.headers.getlist("host")
        host = hosts[0] if len(hosts) == 1 else ""
        if self._hosts is not None and _host_name(host) not in self._hosts:
            return f"This server is not {host[:200]!r}; use one of its addresses, or add the name to hosts in [server]."
        origin = request.headers.get("origin")
        is_foreign = origin is not None and not is_own_origin(origin, host, self._public_url)
        is_link = request.headers.get("sec-fetch-mode") == "navigate" and request.method in ("GET", "HEAD")
        if is_foreign or (request.headers.get("sec-fetch-site") in ("cross-site", "same-site") and not is_link):
            return "A page of another site sent this request; use the pages of this server."
        return None


def _host_name(host: str) -> str:
    """Return the name in a header ``Host``, without the port; empty where it is malformed."""
    try:
        parts = urlsplit(f"//{host}")
        _ = parts.port
        return "" if parts.netloc != host or "@" in host else (parts.hostname or "").rstrip(".")
    except ValueError:
        return ""


def _refuse(code: ErrorCode, detail: str) -> Response:
    """Return a problem that ends the connection."""
    answer = problem(code, detail)
    answer.headers["Connection"] = "close"
    return answer
