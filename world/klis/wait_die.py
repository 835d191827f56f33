"""Wait-Die scheduling of conflicting requests (KLIS-3).

An older requester waits, a younger one dies and retries later with the same priority. Only older sessions wait for
younger ones, so no cycle of waits can form (KP-3b); priorities never change, so every retrying requester becomes the
oldest eventually (KP-3c, KP-3d). Source: Rosenkrantz, Stearns and Lewis, TODS 3(2), 1978.
"""

from __future__ import annotations

from typing import Final, Literal
from zlib import crc32

from world.klis.session import Died, Rank
from world.klis.settings import KlisSettings

__all__ = ["Status", "asks_again_at", "asks_for_room_at", "decide", "retry_after", "spread"]

Status = Literal["Granted", "Wait", "Die"]

ROOM_BACKOFFS: Final = 8
"""Time after which a session that found the queue full retries by timer, in times of the first backoff."""


def decide(requester: Rank, oldest_holder: Rank) -> Status:
    """Return the status of a requester in conflict with holders (KP-3a).

    It waits only if it is older than every holder; an equal rank is another session of the same agent, and dies.
    """
    return "Wait" if requester < oldest_holder else "Die"


def retry_after(dies: int, *, backoff_ms: int, max_backoff_ms: int) -> int:
    """Return the time until the next request, in ms.

    Args:
        dies: number of consecutive Die verdicts before this one.
        backoff_ms: time after the first.
        max_backoff_ms: maximum time.
    """
    return min(max_backoff_ms, backoff_ms << min(dies, 40))


def spread(after_ms: int, session_id: str, dies: int) -> int:
    """Return how much later than its verdict says a session retries by timer: up to half of the time, in ms.

    Sessions that died at one instant do not retry at one instant. It follows from the id, so a replay gives the same.

    Args:
        after_ms: the time that the verdict gives.
        session_id: the session.
        dies: number of consecutive Die verdicts, this one included.
    """
    return after_ms * (crc32(f"{session_id}:{dies}".encode()) & 1023) // 2046


def asks_for_room_at(since: int, settings: KlisSettings, session_id: str) -> int:
    """Return when a session that found the queue full retries by timer, ms since 1970: late, since room wakes it.

    Args:
        since: when its verdict was given, ms since 1970.
        settings: the settings in force.
        session_id: the session.
    """
    after = min(settings.max_backoff_ms, ROOM_BACKOFFS * settings.backoff_ms)
    return since + after + spread(after, session_id, 1)


def asks_again_at(died: Died | None, settings: KlisSettings, session_id: str) -> int:
    """Return when a session retries by timer, ms since 1970; 0 without a Die verdict.

    Args:
        died: its Die verdicts; None for none.
        settings: the settings in force.
        session_id: the session.
    """
    if died is None:
        return 0
    after = retry_after(died.dies - 1, backoff_ms=settings.backoff_ms, max_backoff_ms=settings.max_backoff_ms)
    if settings.wake_rules < 2:
        return died.at + after
    return died.at + after + spread(after, session_id, died.dies)
