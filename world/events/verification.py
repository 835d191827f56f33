"""Verification of a caller: which actor it is, and how that was established.

It is recorded with what the caller wrote. An absent verification means that none was stated: the log is older, or a
program used the library directly. Source: docs/server.md.
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from world.model.member_types import Identifier, Milliseconds, Text
from world.model.record import Record

__all__ = [
    "METHODS",
    "RIGHTS",
    "UNAUTHENTICATED",
    "BrowserSession",
    "IntentSignature",
    "Method",
    "Right",
    "Verification",
]

Method = Literal["token", "link", "oidc", "jwt", "peer", "signature", "unauthenticated"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
"""The ways in which a caller is verified; ``unauthenticated`` is the command line on a local log."""

Right = Literal["reader", "actor", "approver", "operator", "auditor", "worker"]
RIGHTS: Final[tuple[Right, ...]] = get_args(Right)
"""The rights of an actor in a realm; without a grant an actor has none."""


class Verification(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How a caller was verified.

    Args:
        method: an API token; a browser session, which is a token too, that began with a one-time ``link`` or by sign-in
            at an issuer (``oidc``); a JWT of an OIDC issuer, the credentials of the peer of a Unix socket, a signature
            of the intent, or ``unauthenticated``.
        actor_id: the actor that the caller was verified as; None where it was not.
        token_id: id of the API token, or of the session token.
        issuer: issuer of the JWT, or of the sign-in of the session.
        subject: subject of it at its issuer.
        uid: user id of the peer.
        key_id: key of the signature.
        key: key of the request (``Idempotency-Key``), which the caller may repeat.
        request: digest of the request with that key, 32 hex digits, by which an equal one is recognised.
    """

    method: Method
    actor_id: Identifier | None = None
    token_id: Text | None = None
    issuer: Text | None = None
    subject: Text | None = None
    uid: int | None = None
    key_id: Text | None = None
    key: Text | None = None
    request: Text | None = None

    @property
    def verified_actor(self) -> str | None:
        """The verified actor; None where none was verified."""
        return self.actor_id if self.is_verified else None

    @property
    def is_verified(self) -> bool:
        """Whether an actor was verified, so that rights are required."""
        return self.method != "unauthenticated"

    @property
    def uses_token(self) -> bool:
        """Whether a recorded token verified the actor, so that the token has to be in force."""
        return self.method in ("token", "link", "oidc")


class BrowserSession(Record, frozen=True, kw_only=True, omit_defaults=True):
    """How the owner of a browser session was verified when it began; every later write of the session repeats it.

    Args:
        method: a one-time link, or sign-in at an OIDC issuer.
        issuer: the issuer.
        subject: subject of the ID token at the issuer.
    """

    method: Literal["link", "oidc"]
    issuer: Text | None = None
    subject: Text | None = None

    def verification(self, actor_id: str, token_id: str) -> Verification:
        """Return how a request of the session is verified."""
        return Verification(
            method=self.method, actor_id=actor_id, token_id=token_id, issuer=self.issuer, subject=self.subject
        )


class IntentSignature(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A signature of an intent by a registered key of its actor; see ``world.klis.identity.intent_signature``.

    Args:
        key_id: the key.
        issued_at: when it was signed, ms since 1970.
        signature: Ed25519, in base64.
    """

    key_id: Text
    issued_at: Milliseconds
    signature: Text


UNAUTHENTICATED: Final = Verification(method="unauthenticated")
"""The verification of the command line on a local log."""
