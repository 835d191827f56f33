"""Events of access to a realm over a server: rights of actors, and API tokens."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event
from world.events.verification import BrowserSession, Right, Verification

__all__ = ["RightGranted", "RightRevoked", "TokenCreated", "TokenRevoked"]


class RightGranted(Event, frozen=True, kw_only=True):
    """An actor received a right in this realm; a further grant of the same right replaces its redaction.

    ``redaction`` are the rules by which events are hidden from a ``reader`` (``worldctl export --redact``).
    """

    TOPIC: ClassVar[str] = "right.granted"
    actor_id: str
    right: Right
    by: str
    redaction: list[str] | None = None
    verified: Verification | None = None


class RightRevoked(Event, frozen=True, kw_only=True):
    """An actor lost a right."""

    TOPIC: ClassVar[str] = "right.revoked"
    actor_id: str
    right: Right
    by: str
    reason: str
    verified: Verification | None = None


class TokenCreated(Event, frozen=True, kw_only=True):
    """An API token of an actor was created; ``digest`` is the SHA-256 of its secret of 256 random bits, in hex.

    ``expires_at`` is a time in ms; ``can`` limits the token to some of the actor's rights, None does not limit it.
    ``session`` is present in the token of a browser session.
    """

    TOPIC: ClassVar[str] = "token.created"
    token_id: str
    actor_id: str
    digest: str
    expires_at: int
    by: str
    can: list[Right] | None = None
    note: str | None = None
    session: BrowserSession | None = None
    verified: Verification | None = None


class TokenRevoked(Event, frozen=True, kw_only=True):
    """An API token was revoked and verifies no caller any more."""

    TOPIC: ClassVar[str] = "token.revoked"
    token_id: str
    by: str
    reason: str
    verified: Verification | None = None
