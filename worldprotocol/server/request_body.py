"""Body of a request: it is read once the caller is known, within limits of size, time and memory.

A caller that was not verified may send a small body only (``max_unverified_bytes``), and one that names a registered
key an intent (``max_intent_bytes``). All bodies that were not handed over whole share a limit (``max_unread_bytes``),
of which one subject has at most nine tenths. What is refused is not read: the answer then ends the connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Final

from starlette.requests import HTTPConnection, Request
from starlette.types import Message, Receive, Scope

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import ServerConfig
from worldprotocol.server.problems import TooManyRequestsError

__all__ = ["RequestBody", "UnreadBodies", "body_of", "set_body"]

SHARE: Final = 10
"""One in so many bytes is kept for other subjects than the one that has the most."""

_MEMBER: Final = "body"
"""Member of a scope's state with the body of the request."""


class UnreadBodies:
    """Bytes of all bodies that have begun to arrive and were not handed over.

    Args:
        most: bytes at most; one subject may have nine tenths of them.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._share = most - most // SHARE
        self._by_subject: Counter[str] = Counter()
        self.size = 0

    def add(self, subject: str, size: int) -> None:
        """Count bytes of a subject that arrived.

        Raises:
            TooManyRequestsError: they are too many; they are not counted then.
        """
        own = self._by_subject[subject] + size
        if self.size + size > self._most or own > self._share:
            raise TooManyRequestsError(
                f"Bodies of requests that are still arriving hold {self.size} bytes, {own - size} of them of this "
                f"caller; the limits are {self._most} (max_unread_bytes) and {self._share}. Send the request again."
            )
        self.size += size
        self._by_subject[subject] = own

    def remove(self, subject: str, size: int) -> None:
        """Forget bytes of a subject."""
        self.size -= size
        self._by_subject[subject] -= size
        if not self._by_subject[subject]:
            del self._by_subject[subject]


class RequestBody:
    """The body of one request.

    Args:
        scope: the request.
        receive: receives its messages.
        config: the limits.
        unread: counts the bytes until ``release``.
    """

    def __init__(self, scope: Scope, receive: Receive, config: ServerConfig, unread: UnreadBodies) -> None:
        headers = HTTPConnection(scope).headers
        self._receive = receive
        self._config = config
        self._unread = unread
        self._length = headers.get("content-length", "0")
        self._is_whole = "transfer-encoding" not in headers and self._length == "0"
        self._is_delivered = False
        self._content: bytes | None = None
        self._held: tuple[str, int] = "", 0

    @property
    def ends_connection(self) -> bool:
        """Whether so much of the body may still arrive that an answer now ends the connection."""
        is_small = self._length.isdecimal() and 0 < int(self._length[:20]) <= self._config.max_unverified_bytes
        return not self._is_whole and not is_small

    async def read(self, subject: str) -> bytes:
        """Return the body that a caller sent who was verified.

        Args:
            subject: to which the bytes are counted.

        Raises:
            RefusedError: ``REQUEST_TOO_LARGE``, ``REQUEST_TIMED_OUT``, ``INVALID_VALUE`` where it does not end.
            TooManyRequestsError: there are too many bytes of bodies that are not read.
        """
        return await self._read(subject, self._config.max_body_bytes, "max_body_bytes")

    async def read_unverified(self, address: str) -> bytes:
        """Return the body that a caller sent who was not verified.

        Args:
            address: of the caller.

        Raises:
            RefusedError: as ``read``.
            TooManyRequestsError: as ``read``.
        """
        most = min(self._config.max_unverified_bytes, self._config.max_body_bytes)
        return await self._read(f"address {address}", most, "max_unverified_bytes")

    async def read_signed(self, address: str, max_intent_bytes: int) -> bytes:
        """Return the body that a caller sent who was not verified and names a registered key.

        Args:
            address: of the caller.
            max_intent_bytes: size of the intent; ``max_unverified_bytes`` are for its signature and its form.

        Raises:
            RefusedError: as ``read``.
            TooManyRequestsError: as ``read``.
        """
        most, setting = max_intent_bytes + self._config.max_unverified_bytes, "max_intent_bytes + max_unverified_bytes"
        if self._config.max_body_bytes < most:
            most, setting = self._config.max_body_bytes, "max_body_bytes"
        return await self._read(f"address {address}", most, setting)

    def release(self) -> None:
        """Count the bytes no longer."""
        subject, size = self._held
        self._held = "", 0
        if size:
            self._unread.remove(subject, size)

    async def receive(self) -> Message:
        """Return the whole body, and then what the connection receives."""
        if self._is_delivered:
            return await self._receive()  # waits for the end of the connection
        content = await self.read_unverified("") if self._content is None else self._content
        self._is_delivered = True
        return {"type": "http.request", "body": content, "more_body": False}

    async def _read(self, subject: str, most: int, setting: str) -> bytes:
        if self._content is not None:
            return self._content
        seconds = self._config.request_timeout_s
        too_large = RefusedError(ErrorCode.REQUEST_TOO_LARGE, f"The body has more than {most} bytes ({setting}).")
        if not self._length.isdecimal() or len(self._length) > 20 or int(self._length) > most:
            raise too_large
        content = bytearray()
        try:
            async with asyncio.timeout(seconds):
                more = True
                while more:
                    part, more = await self._part()
                    if len(content) + len(part) > most:
                        raise too_large
                    self._unread.add(subject, len(part))
                    self._held = subject, self._held[1] + len(part)
                    content += part
        except TimeoutError:
            raise RefusedError(
                ErrorCode.REQUEST_TIMED_OUT, f"The body did not arrive within {seconds:g} s (request_timeout_s)."
            ) from None
        self._is_whole, self._content = True, bytes(content)
        return self._content

    async def _part(self) -> tuple[bytes, bool]:
        message = await self._receive()
        if message["type"] != "http.request":
            raise RefusedError(ErrorCode.INVALID_VALUE, "The connection ended before the body of the request did.")
        return message.get("body", b""), message.get("more_body", False)


def body_of(request: Request) -> RequestBody:
    """Return the body of a request."""
    found: RequestBody = request.scope["state"][_MEMBER]
    return found


def set_body(scope: Scope, body: RequestBody) -> None:
    """Note the body of a request for ``body_of``."""
    scope.setdefault("state", {})[_MEMBER] = body
