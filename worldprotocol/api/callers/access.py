"""``Realm.access``: rights of actors, and API tokens, which verify callers of a server.

A token is ``wp1_ID_SECRET``. The log holds its id and the SHA-256 of its secret. The secret has 256 random bits, so the
digest does not reveal it, and a slow hash would protect nothing; it is shown once and stored nowhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.access_events import TokenCreated
from world.events.verification import BrowserSession, Right, Verification
from world.state.access import Rights
from world.state.realm_view import RealmView

if TYPE_CHECKING:
    from world.clock import IdSource
    from world.engine.writer import Writer

__all__ = ["DEFAULT_TTL_MS", "NewToken", "RealmAccess", "verify_token"]

DEFAULT_TTL_MS: Final = 90 * 86_400_000
"""Time to live of a token without a given one, in ms."""

MAX_TTL_MS: Final = 10 * 365 * 86_400_000
"""Longest time to live of a token, in ms."""

_PREFIX: Final = "wp1"
_NO_DIGEST: Final = "0" * 64
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just created.

    Args:
        token: the text that a caller sends; it is not stored and cannot be shown again.
        created: what the log records of it.
    """

    token: str
    created: TokenCreated


class RealmAccess:
    """Rights and tokens of a realm.

    Args:
        protocol: the writer of the log.
        ids: source of ids of tokens.
    """

    def __init__(self, protocol: Writer, ids: IdSource) -> None:
        """Use the commands of the log's writer."""
        self._protocol = protocol
        self._ids = ids

    def grant(self, actor_id: str, right: Right, *, by: str, redaction: Sequence[str] | None = None) -> bool:
        """Grant a right to an actor; return False where it has it with the same redaction.

        Args:
            actor_id: a registered actor.
            right: ``reader``, ``actor``, ``approver``, ``operator``, ``auditor`` or ``worker``.
            by: actor id that the log records.
            redaction: rules by which events are hidden from a reader (``worldctl export --redact``); None hides no
                event.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``.
        """
        from world.engine.access_commands import grant_right

        return self._protocol.run(lambda work: grant_right(work, actor_id, right, by=by, redaction=redaction))

    def revoke(self, actor_id: str, right: Right, *, by: str, reason: str) -> None:
        """Revoke a right of an actor.

        Raises:
            RefusedError: ``RIGHT_NOT_GRANTED``, ``REASON_MISSING``.
        """
        from world.engine.access_commands import revoke_right

        self._protocol.run(lambda work: revoke_right(work, actor_id, right, by=by, reason=reason))

    def rights(self) -> Mapping[str, Rights]:
        """Return the rights in force, by actor id and name of the right."""
        return self._protocol.archive.peek(lambda realm: realm.rights)

    def create_token(
        self,
        actor_id: str,
        *,
        by: str,
        can: Sequence[Right] | None = None,
        ttl_ms: int = DEFAULT_TTL_MS,
        note: str | None = None,
        session: BrowserSession | None = None,
        lost: str | None = None,
    ) -> NewToken:
        """Create an API token that verifies its bearer as an actor.

        Args:
            actor_id: a registered actor.
            by: actor id that the log records.
            can: the rights that the token is limited to; None does not limit the actor's rights.
            ttl_ms: time to live, in ms.
            note: text that the log records, such as the place where the token is used.
            session: how its owner was verified, for the token of a browser session.
            lost: why the tokens that the caller created with the same key are revoked; None revokes none.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``.
        """
        from world.engine.access_commands import create_token

        if type(ttl_ms) is not int or not 1 <= ttl_ms <= MAX_TTL_MS:
            raise RefusedError(
                ErrorCode.INVALID_VALUE, f"{ttl_ms!r} is not a time to live of a token: from 1 to {MAX_TTL_MS} ms."
            )
        secret, token_id = secrets.token_urlsafe(_SECRET_BYTES), self._ids.new_id()
        token = TokenCreated(
            at=0,
            token_id=token_id,
            actor_id=actor_id,
            digest=_digest(secret),
            expires_at=0,
            by=by,
            can=None if can is None else list(can),
            note=note,
            session=session,
        )
        created = self._protocol.run(lambda work: create_token(work, token, ttl_ms, lost=lost))
        return NewToken(f"{_PREFIX}_{token_id}_{secret}", created)

    def revoke_token(self, token_id: str, *, by: str, reason: str) -> None:
        """Revoke a token; it verifies no caller from then on.

        Raises:
            RefusedError: ``UNKNOWN_TOKEN``, ``REASON_MISSING``.
        """
        from world.engine.access_commands import revoke_token

        self._protocol.run(lambda work: revoke_token(work, token_id, by=by, reason=reason))

    def tokens(self) -> Mapping[str, TokenCreated]:
        """Return the tokens that were not revoked, by id; expired ones are among them."""
        return self._protocol.archive.peek(lambda realm: dict(realm.tokens.items()))


def verify_token(realm: RealmView, text: str, now_ms: int) -> Verification:
    """Return the verification of the bearer of a token; that of a browser session is as the session began.

    Only digests are compared, in constant time, and an unknown id takes the same path as a wrong secret.

    Args:
        realm: the current state of the realm.
        text: the token.
        now_ms: ms since 1970.

    Raises:
        RefusedError: ``TOKEN_NOT_VALID``.
    """
    prefix, _, rest = text.partition("_")
    token_id, _, secret = rest.partition("_")
    token = realm.tokens.get(token_id) if prefix == _PREFIX else None
    is_equal = hmac.compare_digest(_digest(secret), _NO_DIGEST if token is None else token.digest)
    if token is None or not is_equal:
        raise RefusedError(
            ErrorCode.TOKEN_NOT_VALID,
            "The API token is not one of this realm, or it was revoked; create another one (`worldctl token create`).",
        )
    if now_ms >= token.expires_at:
        raise RefusedError(
            ErrorCode.TOKEN_NOT_VALID,
            f"The API token {token_id} expired at {token.expires_at} (ms); create another one "
            "(`worldctl token create`).",
            token_id=token_id,
        )
    if token.session is not None:
        return token.session.verification(token.actor_id, token_id)
    return Verification(method="token", actor_id=token.actor_id, token_id=token_id)


def _digest(secret: Any) -> str:
    return hashlib.sha256(str(secret).encode("utf-8", "surrogatepass")).hexdigest()
