"""How far a feed is: position, lag, deliveries, and its last failure."""

from __future__ import annotations

from typing import Any

from world.log import open_log
from world.masking import masked
from worldprotocol.api.consumers import consumer_name
from worldprotocol.export.feeds.running import ConfiguredFeed, opened_state
from worldprotocol.export.feeds.state import FeedProgress

__all__ = ["feed_status"]


def feed_status(feed: ConfiguredFeed) -> dict[str, Any]:
    """Return how far a feed is, as JSON; nothing is made where the feed has not run yet.

    ``lag`` is the number of events after the position. ``state`` is ``new``, ``paused``, ``retrying``, ``behind`` or
    ``current``. Times are in ms since 1970.

    Args:
        feed: the feed.

    Raises:
        RefusedError: those of ``open_log``; ``NOT_FOUNDED``.
    """
    with open_log(feed.address, read_only=True) as log:
        size, name = log.head().size, consumer_name(log)
    position, progress = _read(feed, name)
    failure = {"at": progress.failed_at, "code": progress.code, "message": progress.message}
    return {
        "feed": feed.name,
        "format": feed.config.format,
        "target": feed.config.file or masked(feed.config.url or ""),
        "state": _state(position, size, progress),
        "position": position or 0,
        "events": size,
        "lag": size - (position or 0),
        "sent": progress.sent,
        "deliveredAt": progress.delivered_at,
        "underWay": progress.under_way,
        "attempts": progress.attempts,
        "lastFailure": None if progress.failed_at is None else failure,
    }


def _read(feed: ConfiguredFeed, name: str) -> tuple[int | None, FeedProgress]:
    if not feed.state.exists():
        return None, FeedProgress()
    with opened_state(feed) as state:
        return state.max_tracking_id(name), state.progress()


def _state(position: int | None, size: int, progress: FeedProgress) -> str:
    if progress.paused:
        return "paused"
    if progress.attempts:
        return "retrying"
    if position is None:
        return "new"
    return "behind" if position < size else "current"
