"""Wait-Die: who waits and who dies when requests conflict (KLIS-3; Rosenkrantz, Stearns and Lewis, TODS 3(2), 1978).

An older requester waits, a younger one dies and asks again later at the same priority. Waiting only ever goes from
old to young, so no cycle of waits can form (KP-3b); priorities never change, so whoever asks often enough becomes the
oldest (KP-3c, KP-3d).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from world.klis.session import Rank

__all__ = ["Status", "decide", "retry_after", "worst"]

Status = Literal["Granted", "Wait", "Die"]
_SEVERITY = {"Granted": 0, "Wait": 1, "Die": 2}


def decide(requester: Rank, oldest_holder: Rank) -> Status:
    """Return what becomes of a requester in conflict, by the oldest of those in its way (KP-3a).

    It waits only when it is older than every one; an equal rank is another session of the same agent, and dies.
    """
    return "Wait" if requester < oldest_holder else "Die"


def worst(statuses: Iterable[Status]) -> Status:
    """Return the worst of several answers: any Die is Die, any Wait without Die is Wait (KP-5a)."""
    return max(statuses, key=_SEVERITY.__getitem__, default="Granted")


def retry_after(dies: int, *, backoff_ms: int, max_backoff_ms: int) -> int:
    """Return when to ask again, in ms from now.

    Args:
        dies: how often in a row the session was told Die before this time.
        backoff_ms: after the first.
        max_backoff_ms: where doubling ends.
    """
    return min(max_backoff_ms, backoff_ms << min(dies, 40))
