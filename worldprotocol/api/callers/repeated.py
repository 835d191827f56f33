"""Requests that may be repeated: the key of a request is in the verification of what it recorded.

A repeated request finds that event and records nothing. Where two servers get the same request at once, the state of
the realm refuses the second one (a proposal does not wait any more, a branch exists), and its event is found then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.verification import Verification
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

__all__ = ["Kinds", "once"]

Kinds = type[Event] | tuple[type[Event], ...]
"""The event that a command records, or several of which it records one."""


def once(
    realm: Realm, verified: Verification, kind: Kinds, run: Callable[[], Any], *, stream: str | None, says: Any
) -> None:
    """Run a command that records an event, unless an earlier request with the same key recorded it.

    Args:
        realm: the realm.
        verified: the caller, with the key of the request; without a key the command runs.
        kind: the event that the command records, or several of which it records one.
        run: the command of that caller.
        stream: where the event is; None is a stream of the whole realm, which has few events of this kind.
        says: returns of such an event what the request says, and is called with None for this request.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where the key was used for another request; what the command refuses.
    """
    if verified.key is None:
        run()
    elif not _is_recorded(realm, verified, kind, stream, says):
        try:
            run()
        except RefusedError:
            if not _is_recorded(realm, verified, kind, stream, says):
                raise


def _is_recorded(realm: Realm, verified: Verification, kind: Kinds, stream: str | None, says: Any) -> bool:
    """Return whether an event has the key of a request.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT``.
    """
    topics = [one.TOPIC for one in (kind if isinstance(kind, tuple) else (kind,))]
    logged = realm.log.read(topics=topics) if stream is None else realm.log.stream(stream)
    for one in logged:
        if one.topic not in topics:
            continue
        event: Any = decoded(one)
        before: Verification | None = event.verified
        if before is None or before.key != verified.key:
            continue
        if before.verified_actor != verified.verified_actor or says(event) != says(None):
            raise RefusedError(
                ErrorCode.IDEMPOTENCY_CONFLICT,
                f"The key {verified.key} was used for another request; use a new key for each request.",
            )
        return True
    return False
