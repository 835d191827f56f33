"""Sign-in: which actor of a realm sent a request, and how that was verified.

An API token of the realm, a JWT of a configured issuer, a signed intent, or the credentials of the peer of the Unix
socket. A request has no other way to name its actor.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import orjson
from fastapi import Request

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import Verification
from world.klis.identity.intent_signature import intent_fault
from world.klis.session import AgentKey
from world.state.realm_view import RealmView
from worldprotocol.api.callers.access import verify_token
from worldprotocol.api.config import OidcConfig
from worldprotocol.operations.acting.intents import IssuedIntent, signed_intent
from worldprotocol.server.issuers.issuer import OidcIssuer, refused_sign_in
from worldprotocol.server.threads import Threads

__all__ = ["KEY_ID", "SIGNED", "SignIn", "signed_by"]

MAX_CREDENTIAL_CHARS: Final = 16_384
KEY_ID: Final = "wp-key-id"
"""Header that names the key which signed the intent in the body."""

SIGNED: Final = "intents.submit"
"""The operation whose body may be signed by the caller."""


class SignIn:
    """The ways to sign in to a server.

    Args:
        issuers: issuers of JWTs and of sign-in in browsers.
        peers: by user id in decimal digits, the actor of a peer of the Unix socket.
        threads: the threads that verify JWTs.
    """

    def __init__(self, issuers: Sequence[OidcConfig], peers: Mapping[str, str] | None, threads: Threads) -> None:
        self.issuers = {one.issuer: OidcIssuer(one, threads) for one in issuers}
        self._peers = dict(peers or {})

    async def verified(self, request: Request, realm: RealmView, now_ms: int) -> Verification:
        """Return how the caller of a request was verified as an actor of a realm.

        Args:
            request: the request.
            realm: the current state of the realm.
            now_ms: ms since 1970.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``.
        """
        credential = request.headers.get("authorization")
        if credential is not None:
            verified = await self._bearer(request, credential, realm, now_ms)
        else:
            verified = self._peer(request)
        if verified.actor_id not in realm.actors:
            raise refused_sign_in(f"{verified.actor_id!r} is not a registered actor of this realm")
        return verified

    def signing_key(self, request: Request, realm: RealmView) -> AgentKey | None:
        """Return the key that a request without other credentials names as the one that signed its body.

        None where the request names none, or has a credential, or is of another operation.

        Args:
            request: the request, whose body is not read.
            realm: the current state of the realm.

        Raises:
            RefusedError: ``UNAUTHENTICATED`` for a key that is not registered, or was revoked.
        """
        named = request.headers.get(KEY_ID)
        is_signed = getattr(request.scope.get("route"), "name", "") == SIGNED and named is not None
        if not is_signed or "authorization" in request.headers:
            return None
        key = realm.klis.keys.get(named or "")
        if key is None or key.revoked:
            what = "was revoked" if key is not None else "is not registered"
            raise RefusedError(
                ErrorCode.UNAUTHENTICATED,
                f"The key {(named or '')[:80]!r} in the header Wp-Key-Id {what}; name the registered key that signed "
                "the intent.",
            )
        return key

    def shows_jwt(self, request: Request) -> bool:
        """Return whether a request has a JWT that names a configured issuer, so that verifying it takes work."""
        scheme, _, text = request.headers.get("authorization", "").partition(" ")
        text = text.strip()
        return (
            scheme.lower() == "bearer" and len(text) <= MAX_CREDENTIAL_CHARS and _claimed_issuer(text) in self.issuers
        )

    async def _bearer(self, request: Request, credential: str, realm: RealmView, now_ms: int) -> Verification:
        scheme, _, text = credential.partition(" ")
        text = text.strip()
        if scheme.lower() != "bearer" or not text or len(text) > MAX_CREDENTIAL_CHARS:
            raise refused_sign_in("The header Authorization is not `Bearer` with a token")
        if text.startswith("wp1_"):
            verified = verify_token(realm, text, now_ms)
            if verified.method != "token":
                raise refused_sign_in("This token is the session of a browser, and no API token")
            return verified
        issuer = self.issuers.get(_claimed_issuer(text))
        if issuer is None:
            raise refused_sign_in("The bearer token is neither an API token nor a JWT of a configured issuer")
        claims = await self._claims(request, issuer, text)
        subject = claims.get("sub")
        return Verification(
            method="jwt",
            actor_id=issuer.actor_of(claims),
            issuer=issuer.config.issuer,
            subject=subject if isinstance(subject, str) else None,
        )

    async def _claims(self, request: Request, issuer: OidcIssuer, text: str) -> Mapping[str, Any]:
        """Return the claims of a request's JWT, which is verified once for all realms."""
        known: Mapping[str, Any] | None = getattr(request.state, "claims", None)
        if known is None:
            known = request.state.claims = await issuer.jwt_claims(text)
        return known

    def _peer(self, request: Request) -> Verification:
        uid = getattr(request.state, "peer_uid", None)
        if uid is None:
            raise refused_sign_in(
                "The request has no credentials; a signed intent names its key in the header Wp-Key-Id"
            )
        actor = self._peers.get(str(uid))
        if actor is None:
            raise refused_sign_in(f"The user id {uid} of the peer is not mapped to an actor ([server.peers])")
        return Verification(method="peer", actor_id=actor, uid=uid)


def signed_by(content: bytes, key_id: str, realm: RealmView, now_ms: int) -> Verification:
    """Return the actor that signed the intent in a body.

    Args:
        content: the body.
        key_id: the key that the request names, registered in the realm.
        realm: the current state of the realm.
        now_ms: ms since 1970.

    Raises:
        RefusedError: ``UNAUTHENTICATED`` where the body is no signed intent, or the signature does not hold.
    """
    try:
        intent, signed = signed_intent(msgspec.json.decode(content, type=IssuedIntent))
    except (msgspec.MsgspecError, ValueError, RecursionError, RefusedError):
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED, "The header Wp-Key-Id names a key, and the body is no issued intent; send one."
        ) from None
    if signed is None or signed.key_id != key_id:
        what = "has no signature" if signed is None else f"is signed with the key {signed.key_id}"
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED,
            f"The header Wp-Key-Id names the key {key_id}, and the intent {what}; send what that key signed.",
        )
    log_id = "" if realm.founded is None else realm.founded.log_id
    fault = intent_fault(realm.klis, log_id, intent, signed, now_ms)
    if fault is not None:
        raise RefusedError(
            ErrorCode.UNAUTHENTICATED, f"The signature of the intent {intent.intent_id} is not accepted: {fault}."
        )
    return Verification(method="signature", actor_id=intent.meta.origin.actor.actor_id, key_id=key_id)


def _claimed_issuer(text: str) -> str:
    """Return the issuer that a JWT names, unverified, to choose the keys; empty where it is not a JWT."""
    try:
        part = text.split(".")[1]
        claims = orjson.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        return str(claims["iss"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        return ""
