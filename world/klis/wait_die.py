"""Wait-Die scheduling of conflicting requests (KLIS-3).

An older requester waits, a younger one dies and retries later with the same priority. Only older sessions wait for
younger ones, so no cycle of waits can form (KP-3b); priorities never change, so every retrying requester becomes the
oldest eventually (KP-3c, KP-3d). Source: Rosenkrantz, Stearns and Lewis, TODS 3(2), 1978.
"""

from __future__ import annotations

from typing import Literal

from world.klis.session import Died, Rank
from world.klis.settings import KlisSettings

__all__ = ["Status", "asks_again_at", "decide", "retry_after"]

Status = Literal["Granted", "Wait", "Die"]


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


def asks_again_at(died: Died | None, settings: KlisSettings) -> int:
    """Return when a session may retry, ms since 1970; 0 without a Die verdict.

    Args:
        died: its Die verdicts; None for none.
        settings: the settings in force.
    """
    if died is None:
        return 0
    after = retry_after(died.dies - 1, backoff_ms=settings.backoff_ms, max_backoff_ms=settings.max_backoff_ms)
    return died.at + after
