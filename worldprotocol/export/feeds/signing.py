"""Signatures of messages by the specification Standard Webhooks 1.0: HMAC-SHA256 over id, time and body.

A secret is ``whsec_`` and 24 to 64 bytes in base64. With several secrets a message has a signature of each, so that a
receiver can change to another secret at any time.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["read_secrets", "signature_headers"]


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
    return {**headers, "webhook-signature": " ".join(_signatures(keys, signed))}


def _signatures(keys: Iterable[bytes], signed: bytes) -> Iterable[str]:
    return (f"v1,{base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()}" for key in keys)
