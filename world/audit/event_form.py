"""Form of recorded events: canonical text, and the stream of each event."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any, Final

import orjson

from world.errors import RefusedError
from world.events.base import KLIS_STREAM, LINEAGE_STREAM, REALM_STREAM, Event
from world.events.caller_events import CallerLeft, SessionBegun, SessionMoved
from world.events.codec import TOPICS
from world.events.proposal_events import (
    ProjectionRecorded,
)
from world.events.realm_events import (
    BranchCreated,
    BranchSwitched,
    WorldSealed,
)
from world.klis.ledger import KLIS_EVENTS
from world.model.canonical_json import canonical_bytes, read_json
from world.state.proposal import PROPOSAL_EVENTS

__all__ = ["is_canonical", "stream_of", "stream_rule"]


_LINEAGE: Final = frozenset({WorldSealed.TOPIC, BranchCreated.TOPIC, BranchSwitched.TOPIC})


_WITH_STREAMS: Final[frozenset[type[Event]]] = frozenset({CallerLeft, SessionBegun, SessionMoved})
"""Events that say their stream themselves."""


_SORTED: Final = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER


_STREAMS: Final[Mapping[str, str]] = {
    topic: LINEAGE_STREAM if topic in _LINEAGE else KLIS_STREAM if kind in KLIS_EVENTS else REALM_STREAM
    for topic, kind in TOPICS.items()
    if kind not in PROPOSAL_EVENTS | _WITH_STREAMS and kind is not ProjectionRecorded and not topic.startswith("run.")
}


def is_canonical(state: bytes, *, has_fraction: bool = True) -> bool:
    """Return whether a stored state is the canonical text of its value.

    ASCII text without fractions is canonical if and only if orjson, which sorts ASCII keys alike and refuses integers
    beyond 2^53, produces it again; other text is parsed strictly and encoded by RFC 8785.

    Args:
        state: the stored bytes.
        has_fraction: False if the event has no number with a fraction or an exponent.
    """
    try:
        if not has_fraction and state.isascii() and orjson.dumps(orjson.loads(state), option=_SORTED) == state:
            return True
    except (orjson.JSONDecodeError, TypeError, RecursionError):
        pass  # parsed strictly below
    try:
        return canonical_bytes(read_json(state)) == state
    except RefusedError:
        return False


def stream_rule(kind: type[Event]) -> Callable[[Any], str]:
    """Return the function that returns the id of the stream that an event of a type belongs to."""
    fixed = _STREAMS.get(kind.TOPIC)
    if fixed is not None:
        return lambda _: fixed
    if kind is ProjectionRecorded:
        return lambda event: f"projection:{event.projection_id}"
    if kind in _WITH_STREAMS:
        return attrgetter("stream")
    if kind.TOPIC.startswith("run."):
        return lambda event: f"run:{event.run_id}"
    return attrgetter("proposal_id")  # all other events are those of proposals


def stream_of(event: Event) -> str:
    """Return the id of the stream that an event belongs to."""
    return stream_rule(type(event))(event)
