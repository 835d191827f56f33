"""Whether a realm would accept a write, for ``worldctl doctor``; no byte is changed for that."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from world.clock import SystemClock
from world.engine.writability import LOCK_S, LockWatch, Writability, writability
from world.error_codes import ErrorCode
from worldprotocol.api.waiting.readiness import WITHIN_S, WriteProbe
from worldprotocol.cli.support.health.checks import Check

if TYPE_CHECKING:
    from world.limits import Limits
    from worldprotocol.api.realm import Realm

__all__ = ["writable_check"]


def writable_check(world: Realm, limits: Limits) -> Check:
    """Return whether a command would be accepted now.

    Where the lock is held, the check waits for it, for as long as a unit of work may hold it.

    Args:
        world: the realm, open to be read.
        limits: those of the realm.
    """
    if world.log.derives_views:
        return Check("writable", ok=True, facts="exported tables are never written")
    watch = LockWatch(time.monotonic, limits.max_unit_ms)
    found = _probed(world, watch, LOCK_S)
    if found.busy is not None:
        found = _probed(world, watch, LOCK_S + limits.max_unit_ms / 1000)
    obstacle = found.obstacle
    if obstacle is None:
        busy = "" if found.busy is None else f", after a wait: {found.busy.message}"
        return Check("writable", ok=True, facts=f"a command would be accepted now{busy}")
    is_ok = obstacle.code == ErrorCode.LOG_FENCED  # on purpose; `writer` says so
    advice = "" if is_ok or obstacle.code not in list(ErrorCode) else ErrorCode(obstacle.code).remedy or ""
    held_ms = obstacle.details.get("held_ms")
    held = "" if held_ms is None else f" It has been held for {held_ms / 1000:.1f} s."
    return Check("writable", is_ok, f"{obstacle.message}{held} [{obstacle.code}]", advice)


def _probed(world: Realm, watch: LockWatch, lock_s: float) -> Writability:
    """Probe once, and wait so many seconds for the lock."""
    probe = WriteProbe(lambda: writability(world.archive, SystemClock(), watch, lock_s=lock_s))
    found = probe.answer(lock_s + WITHIN_S - LOCK_S)
    probe.join(WITHIN_S)
    return found
