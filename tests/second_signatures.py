"""Ed25519 (RFC 8032) and the signatures of intents, from docs/reference/log-format.md and the RFC alone.

See ``tests.second_implementation``; only the standard library is used.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any

from tests.second_forms import canonical, must

P = 2**255 - 19
Q = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)

Point = tuple[int, int]
ZERO: Point = (0, 1)


def added(a: Point, b: Point) -> Point:
    """Return the sum of two points of the curve."""
    product = D * a[0] * b[0] * a[1] * b[1] % P
    x = (a[0] * b[1] + b[0] * a[1]) * pow(1 + product, -1, P)
    y = (a[1] * b[1] + a[0] * b[0]) * pow(1 - product, -1, P)
    return x % P, y % P


def times(number: int, point: Point) -> Point:
    """Return a multiple of a point."""
    result = ZERO
    while number:
        if number & 1:
            result = added(result, point)
        point, number = added(point, point), number >> 1
    return result


def point_of(data: bytes) -> Point:
    """Decode a point (RFC 8032, 5.1.3)."""
    number = int.from_bytes(data, "little")
    sign, y = number >> 255, number & (2**255 - 1)
    must(len(data) == 32 and y < P, "no point")
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if (x * x - square) % P:
        x = x * ROOT % P
    must((x * x - square) % P == 0 and not (x == 0 and sign), "not on the curve")
    return (P - x if x & 1 != sign else x), y


BASE = point_of((4 * pow(5, -1, P) % P).to_bytes(32, "little"))


def is_signed(key: bytes, content: bytes, signature: bytes) -> bool:
    """Return whether a key signed a content (RFC 8032, 5.1.7)."""
    must(len(signature) == 64, "no signature")
    first, number = signature[:32], int.from_bytes(signature[32:], "little")
    must(number < Q, "not reduced")
    hashed = int.from_bytes(hashlib.sha512(first + key + content).digest(), "little") % Q
    return times(number, BASE) == added(point_of(first), times(hashed, point_of(key)))


def check_signature(state: Mapping[str, Any], log_id: str, keys: Mapping[str, Any], youngest: int, age: int) -> None:
    """Check the signature of a submission, if it has one, against the keys in force.

    ``keys`` are tuples of agent and key, or None for one that was revoked; ``youngest`` is the earliest time of
    signing, and ``age`` the greatest difference from the time of the event.
    """
    signed, verified = state.get("signed"), state.get("verified") or {}
    if verified.get("method") == "signature":
        must(signed is not None and signed["keyId"] == verified.get("keyId"), "verified by no signature")
    if signed is None:
        return
    agent, key = keys.get(signed["keyId"]) or (None, b"")
    must(agent == state["actor"]["actorId"], "no key in force of the actor")
    issued = signed["issuedAt"]
    must(abs(state["at"] - issued) <= age and issued >= youngest, "signed at a wrong time")
    content = {"signs": "world-protocol intent v1", "logId": log_id, "issuedAt": issued, "intent": state["intent"]}
    must(
        is_signed(key, canonical(content).encode(), base64.b64decode(signed["signature"], validate=True)), "not signed"
    )
