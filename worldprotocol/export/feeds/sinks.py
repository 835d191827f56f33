"""Where messages of a feed go: a receiver over HTTP, or a file of JSON lines.

Messages to a receiver are signed by the specification Standard Webhooks 1.0: HMAC-SHA256 over id, time and body. A
secret is ``whsec_`` and 24 to 64 bytes in base64. With several secrets a message has a signature of each, so that a
receiver can change to another secret at any time.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import hmac
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final, Protocol

import httpx

from host.secrets.masking import ValueMask
from world.clock import Clock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.private_files import make_private
from worldprotocol.export.feeds.messages import FeedMessage
from worldprotocol.export.feeds.state import DeliveryFailure, FeedProgress

__all__ = ["FileSink", "HttpSink", "HttpTarget", "Sink", "read_secrets", "signature_headers"]

MAX_ANSWER_BYTES: Final = 65_536
"""Bytes of an answer that are read, so that its connection can be used again."""

MAX_RETRY_AFTER_S: Final = 86_400.0
"""Longest wait that a receiver can ask for, in seconds."""

_GONE: Final = 410


class Sink(Protocol):
    """Takes messages."""

    def send(self, message: FeedMessage, message_id: str, progress: FeedProgress) -> int | DeliveryFailure:
        """Send a message; return the size of the file with it (0 where there is none), or why it was not delivered."""
        ...

    def close(self) -> None:
        """Release connections."""
        ...


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """A receiver, with the values of its secrets.

    Args:
        url: of the receiver.
        headers: further header fields.
        keys: of the signatures.
        timeout_s: longest silence of the receiver, and longest time for the body of an answer, in seconds.
        mask: removes values of secrets from texts.
    """

    url: str
    headers: Mapping[str, str]
    keys: Sequence[bytes]
    timeout_s: int
    mask: ValueMask


class HttpSink:
    """A receiver over HTTP: 2xx confirms a message, 410 refuses this and all further ones.

    No redirect is followed, and the environment is ignored: no proxies, no netrc. Source: Standard Webhooks 1.0.

    Args:
        target: the receiver.
        clock: gives the time of signatures.
    """

    def __init__(self, target: HttpTarget, clock: Clock) -> None:
        self._target = target
        self._clock = clock
        self._client = httpx.Client(trust_env=False, follow_redirects=False, timeout=target.timeout_s)

    def send(self, message: FeedMessage, message_id: str, progress: FeedProgress) -> int | DeliveryFailure:
        """Send a message; return 0, or why it was not confirmed."""
        failure = self._sent(message, message_id)
        if failure is None:
            return 0
        return replace(failure, message=self._target.mask.text(failure.message))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _sent(self, message: FeedMessage, message_id: str) -> DeliveryFailure | None:
        target, body = self._target, message.body
        signature = signature_headers(target.keys, message_id, self._clock.now_ms() // 1_000, body)
        own = {"content-type": message.media_type, "user-agent": "world-protocol", "accept-encoding": "identity"}
        try:
            with self._client.stream(
                "POST", target.url, content=body, headers={**target.headers, **own, **signature}
            ) as answer:
                self._drain(answer)
                return self._failure_of(answer)
        except httpx.TimeoutException:
            return DeliveryFailure(
                ErrorCode.HTTP_TIMED_OUT, f"The receiver did not answer within {target.timeout_s} s."
            )
        except httpx.ConnectError as error:
            return DeliveryFailure(ErrorCode.HTTP_CONNECT_FAILED, f"The connection failed: {error}.")
        except (httpx.HTTPError, OSError) as error:
            return DeliveryFailure(ErrorCode.HTTP_BROKEN_OFF, f"The request was aborted: {type(error).__name__}.")

    def _drain(self, answer: httpx.Response) -> None:
        until, size = time.monotonic() + self._target.timeout_s, 0
        for piece in answer.iter_raw():
            size += len(piece)
            if size > MAX_ANSWER_BYTES or time.monotonic() > until:
                return  # the status is known, and leaving the block closes the connection

    def _failure_of(self, answer: httpx.Response) -> DeliveryFailure | None:
        if answer.is_success:
            return None
        status = answer.status_code
        return DeliveryFailure(
            ErrorCode.HTTP_STATUS,
            f"The receiver answered {status}{', a redirect, which is not followed' if answer.is_redirect else ''}.",
            self._asked_wait_s(answer.headers.get("retry-after", "")),
            is_final=status == _GONE,
        )

    def _asked_wait_s(self, text: str) -> float:
        """Return the time of ``Retry-After`` (RFC 9110 section 10.2.3) in seconds, at most ``MAX_RETRY_AFTER_S``."""
        if text.isascii() and text.isdecimal():
            return min(float(text[:9]), MAX_RETRY_AFTER_S)
        try:
            wait_s = parsedate_to_datetime(text).timestamp() - self._clock.now_ms() / 1_000
        except (ValueError, OverflowError):
            return 0.0
        return min(max(wait_s, 0.0), MAX_RETRY_AFTER_S)


class FileSink:
    """A file of JSON lines; a new one can be read by its owner only.

    Lines are written behind those that were stored as delivered; what a killed process has written there is
    overwritten. A file that was moved away is made anew. One that another program has cut or extended is refused.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def send(self, message: FeedMessage, message_id: str, progress: FeedProgress) -> int | DeliveryFailure:
        """Write the lines of a message; return the size of the file, or why it could not be written."""
        try:
            return self._written(message, progress)
        except OSError as error:
            code = ErrorCode.FILE_DISK_FULL if error.errno == errno.ENOSPC else ErrorCode.FILE_FAILED
            return DeliveryFailure(code, f"{self._path} cannot be written: {error.strerror or error}.")

    def close(self) -> None:
        """Do nothing: the file is open only while it is written."""

    def _written(self, message: FeedMessage, progress: FeedProgress) -> int | DeliveryFailure:
        begin = progress.file_bytes if self._path.exists() else self._make()
        with self._path.open("r+b") as file:
            size = os.fstat(file.fileno()).st_size
            if size < begin or (size > begin and progress.under_way is None):
                return DeliveryFailure(
                    ErrorCode.FILE_CHANGED_MEANWHILE,
                    f"{self._path} has {size} bytes, and this feed has written {begin}. Move it away, and resume.",
                    is_final=True,
                )
            file.truncate(begin)
            file.seek(begin)
            file.write(b"".join(line + b"\n" for line in message.lines))
            file.flush()
            os.fsync(file.fileno())
            return file.tell()

    def _make(self) -> int:
        """Make the file, also in the folder as it is stored, and return its size."""
        make_private(self._path)
        folder = os.open(self._path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
        return 0


def read_secrets(text: str, feed: str) -> list[bytes]:
    """Return the keys of secrets that are separated by spaces.

    Args:
        text: ``whsec_...``, once or more.
        feed: name of the feed, for messages.

    Raises:
        RefusedError: ``INVALID_CONFIG``.
    """
    found = []
    for one in text.split():
        try:
            key = base64.b64decode(one.removeprefix("whsec_"), validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not 24 <= len(key) <= 64:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"The secret of feed {feed} is not whsec_ and 24 to 64 bytes in base64; "
                '`echo "whsec_$(openssl rand -base64 32)"` makes one.',
            )
        found.append(key)
    return found


def signature_headers(keys: Sequence[bytes], message_id: str, seconds: int, body: bytes) -> dict[str, str]:
    """Return the header fields of a message.

    Args:
        keys: of the secrets; without any the message is not signed.
        message_id: id of the message; it contains no dot.
        seconds: time of this attempt, since 1970.
        body: of the message.
    """
    signed = b"%b.%d.%b" % (message_id.encode(), seconds, body)
    headers = {"webhook-id": message_id, "webhook-timestamp": str(seconds)}
    if not keys:
        return headers
    signatures = [f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}" for key in keys]
    return {**headers, "webhook-signature": " ".join(signatures)}
