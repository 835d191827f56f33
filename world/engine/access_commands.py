"""Commands that change access to a realm: rights of actors, and API tokens."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.access_events import RightGranted, RightRevoked, TokenCreated, TokenRevoked
from world.events.base import REALM_STREAM
from world.events.verification import RIGHTS, Right
from world.pipeline.unit_of_work import UnitOfWork

__all__ = ["create_token", "grant_right", "revoke_right", "revoke_token"]


def grant_right(
    work: UnitOfWork, actor_id: str, right: Right, *, by: str, redaction: Sequence[str] | None = None
) -> bool:
    """Grant a right; return False where the actor has it with the same redaction.

    Args:
        work: the unit of work.
        actor_id: a registered actor.
        right: one of ``RIGHTS``.
        by: actor id that the log records.
        redaction: rules of redaction for a ``reader``.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``.
    """
    work.require_actor(actor_id)
    check_rights([right])
    if redaction and right != "reader":
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"Rules of redaction belong to the right reader, not to {right}; grant reader with them.",
            right=right,
        )
    rules = list(redaction) if redaction else None
    known = work.realm.rights.get(actor_id, {}).get(right)
    if known is not None and known.redaction == rules:
        return False
    event = RightGranted(at=work.at, actor_id=actor_id, right=right, by=by, redaction=rules)
    work.emit(REALM_STREAM, work.of_caller(event))
    return True


def revoke_right(work: UnitOfWork, actor_id: str, right: Right, *, by: str, reason: str) -> None:
    """Revoke a right.

    Raises:
        RefusedError: ``RIGHT_NOT_GRANTED``, ``REASON_MISSING``.
    """
    _check_reason(reason, "A revocation of a right")
    if right not in work.realm.rights.get(actor_id, {}):
        raise RefusedError(
            ErrorCode.RIGHT_NOT_GRANTED,
            f"{actor_id!r} does not have the right {right!r}; `worldctl rights list` lists the rights.",
            actor_id=actor_id,
            right=right,
        )
    event = RightRevoked(at=work.at, actor_id=actor_id, right=right, by=by, reason=reason)
    work.emit(REALM_STREAM, work.of_caller(event))


def create_token(work: UnitOfWork, token: TokenCreated, ttl_ms: int, *, lost: str | None = None) -> TokenCreated:
    """Record an API token.

    Args:
        work: the unit of work.
        token: the token; its times are set.
        ttl_ms: its time to live, in ms.
        lost: why the tokens that the caller created with the same key are revoked; None revokes none.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR``, ``INVALID_VALUE``.
    """
    work.require_actor(token.actor_id)
    check_rights(token.can or ())
    for name in [] if lost is None else _created_with(work):
        revoke_token(work, name, by=token.by, reason=lost or "")
    created = replace(token, at=work.at, expires_at=work.at + ttl_ms)
    work.emit(REALM_STREAM, work.of_caller(created))
    return created


def _created_with(work: UnitOfWork) -> list[str]:
    """Return the ids of the tokens in force that the caller created with the key of the request."""
    own = None if work.verified is None else (work.verified.actor_id, work.verified.key)
    tokens = work.realm.tokens.values()
    return [one.token_id for one in tokens if one.verified and (one.verified.actor_id, one.verified.key) == own]


def revoke_token(work: UnitOfWork, token_id: str, *, by: str, reason: str) -> None:
    """Revoke an API token.

    Raises:
        RefusedError: ``UNKNOWN_TOKEN``, ``REASON_MISSING``.
    """
    _check_reason(reason, "A revocation of a token")
    if token_id not in work.realm.tokens:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOKEN,
            f"There is no token {token_id!r} in force; `worldctl token list` lists the tokens.",
            token_id=token_id,
        )
    work.emit(REALM_STREAM, work.of_caller(TokenRevoked(at=work.at, token_id=token_id, by=by, reason=reason)))


def check_rights(rights: Sequence[str]) -> None:
    """Refuse a right that does not exist.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    for right in rights:
        if right not in RIGHTS:
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"There is no right {right!r}; the rights are {', '.join(RIGHTS)}.",
                right=right,
            )


def _check_reason(reason: str, what: str) -> None:
    if not reason.strip():
        raise RefusedError(ErrorCode.REASON_MISSING, f"{what} needs a reason; give one.")
