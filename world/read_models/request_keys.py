"""Keys of requests: whose key caused an event, and the events of a key, read from the log.

A key belongs to the actor of the recorded verification; the same key of another actor is another one. A verified
submission without a key has its intentId as its key: earlier releases recorded keys in that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from world.events.base import Event
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from world.log import LoggedEvent
from world.log.tree import archived

__all__ = ["HAS_VERIFIED", "MAX_EVENTS", "KeyedRequest", "events_with_key", "request_of"]

HAS_VERIFIED: Final = b'"verified":'
"""What the canonical text of an event has that records a verification."""

MAX_EVENTS: Final = 4_096
"""Most events between the first and the last one of a request; all are of one command."""


class KeyedRequest(NamedTuple):
    """A request with a key.

    Args:
        actor_id: the actor to whom the key belongs.
        key: the key.
        request: digest of the request; None where an earlier release recorded it, or it is a submission without a key.
    """

    actor_id: str
    key: str
    request: str | None


def request_of(event: Event) -> KeyedRequest | None:
    """Return the request that caused an event; None where none with a key did."""
    verified: Verification | None = getattr(event, "verified", None)
    if verified is None or verified.actor_id is None:
        return None
    if verified.key is not None:
        return KeyedRequest(verified.actor_id, verified.key, verified.request)
    if isinstance(event, ProposalSubmitted):
        return KeyedRequest(verified.actor_id, event.intent.intent_id, None)
    return None


def events_with_key(
    read: Callable[[int, int], Iterable[LoggedEvent]],
    decode: Callable[[LoggedEvent], Event],
    key: tuple[str, str],
    places: tuple[int, int],
) -> Sequence[Any]:
    """Return the events of the first request with a key whose events have contents.

    Args:
        read: returns the events at positions after the first and up to the second one, without those whose contents
            were removed from a cut log.
        decode: decodes one.
        key: the actor and its key.
        places: positions of the first and the last event with the key.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` where the contents of all of them were removed.
    """

    def within(first: int, last: int) -> list[Event]:
        found = [decode(one) for one in read(first - 1, last) if HAS_VERIFIED in one.state]
        return [one for one in found if (request_of(one) or ("", ""))[:2] == key]

    first, last = places
    found = within(first, min(last, first + MAX_EVENTS)) or within(max(first, last - MAX_EVENTS), last)
    if not found:
        raise archived(first)
    return found
