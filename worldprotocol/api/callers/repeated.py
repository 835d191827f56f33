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
    realm: Realm,
    verified: Verification,
    kind: Kinds,
    run: Callable[[], Any],
    *,
    said: Any,
    says: Callable[[Any], Any],
    stream: str | None = None,
) -> None:
    """Run a command that records an event, unless an earlier request with the same key recorded it.

    Args:
        realm: the realm.
        verified: the caller, with the key of the request; without a key the command runs.
        kind: the event that the command records, or several of which it records one.
        run: the command of that caller.
        said: what this request says.
        says: returns what the request of such an event said.
        stream: where the event is; None is a stream of the whole realm, which has few events of this kind.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where the key was used for another request; what the command refuses.
    """
    topics = [one.TOPIC for one in (kind if isinstance(kind, tuple) else (kind,))]

    def is_recorded() -> bool:
        for logged in realm.log.read(topics=topics) if stream is None else realm.log.stream(stream):
            event: Any = decoded(logged) if logged.topic in topics else None
            before: Verification | None = None if event is None else event.verified
            if before is None or before.key != verified.key:
                continue
            if before.verified_actor != verified.verified_actor or says(event) != said:
                raise RefusedError(
                    ErrorCode.IDEMPOTENCY_CONFLICT,
                    f"The key {verified.key} was used for another request; use a new key for each request.",
                )
            return True
        return False

    if verified.key is None:
        run()
    elif not is_recorded():
        try:
            run()
        except RefusedError:
            if not is_recorded():
                raise
