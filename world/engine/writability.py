"""Whether a realm would accept a write now, and if not, why: one answer for servers, ``doctor``, metrics and workers.

What would refuse a command is looked at in the order in which a command meets it: the place and the files of the log,
its lock and its room (``Store.probe``), the founding, the writer epoch, the clock, and the domain. No event is written.
Source: docs/adr/0016-what-ready-means.md.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from msgspec import Struct

from world.clock import Clock
from world.core import Domain
from world.engine.clock_state import clock_state
from world.engine.writer_epochs import check_place
from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.read_models.archive import Archive
from world.state.realm_view import RealmView
from world.state.writer_epoch import WriterPlace, closed_log

__all__ = ["LOCK_S", "LockWatch", "Writability", "writability"]

LOCK_S: Final = 0.5
"""How long a probe waits for the log's lock, in seconds; most units of work hold it for milliseconds."""


class Writability(Struct, frozen=True):
    """Whether a realm would accept a write now.

    Args:
        obstacle: the error that a command would end with; None where it would be accepted.
        busy: who holds the log's lock, for no longer than a unit may: a command would wait for it, and be accepted.
            None where the lock is free.
    """

    obstacle: WorldProtocolError | None = None
    busy: LogBusyError | None = None


class LockWatch:
    """Since when the probes of a process have found the lock of a log held, while nothing was committed.

    Args:
        stopwatch: gives the seconds of a monotonic clock.
        limit_ms: how long a unit of work may hold the lock, in milliseconds (``max_unit_ms``).
    """

    def __init__(self, stopwatch: Callable[[], float], limit_ms: int) -> None:
        """Begin without a lock that is held."""
        self.now_s = stopwatch
        self.limit_ms = limit_ms
        self._held: tuple[int, int | None] | None = None
        self._since_s = 0.0

    def note_free(self) -> None:
        """Note that a probe had the lock."""
        self._held = None

    def note_held(self, found: LogBusyError, size: int, since_s: float) -> Writability:
        """Return whether the lock that a probe found held is held for longer than a unit may.

        A process that is stopped releases nothing, so it is not waited for. Where the database says for how long the
        lock is held, that decides; otherwise what the probes have seen since the lock was free.

        Args:
            found: what the probe found, with the process that holds the lock where it is known.
            size: number of events of the log.
            since_s: when the probe began, by ``now_s``.
        """
        holder = (size, found.details.get("pid"))
        if holder != self._held:
            self._held, self._since_s = holder, since_s
        held_ms = found.details.get("held_ms")
        if held_ms is None:
            held_ms = round((self.now_s() - self._since_s) * 1000)
        busy = LogBusyError(found.code, found.message, **{**found.details, "held_ms": held_ms})
        is_overdue = found.details.get("is_stopped", False) or held_ms > self.limit_ms
        return Writability(obstacle=busy) if is_overdue else Writability(busy=busy)


def writability(
    archive: Archive, clock: Clock, watch: LockWatch, domain: Domain | None = None, *, lock_s: float = LOCK_S
) -> Writability:
    """Return whether the realm would accept a write, or the error that a command would end with now.

    It does not end while the database or the disk hangs (``worldprotocol.api.waiting.readiness`` answers in time).

    Args:
        archive: of the realm. Where its log is open to be read only, no byte is changed, and less is found out.
        clock: of this process.
        watch: what earlier probes have found out about the lock.
        domain: that of this process; None compares none.
        lock_s: how long to wait for the lock, in seconds.
    """
    known = archive.live.published
    try:
        if known is not None and known.writer.closed is not None:
            return Writability(closed_log(archive.realm().writer.closed or known.writer.closed))
        place, found = _probed(archive, watch, lock_s)
        if found.obstacle is None:
            _check(archive.realm(), place, domain)
            _check_clock(archive, clock)
    except WorldProtocolError as error:
        return Writability(error)
    except OSError as error:
        message = f"The log {archive.log.address} cannot be reached: {error}."
        return Writability(WorldProtocolError(ErrorCode.LOG_UNAVAILABLE, message))
    return found


def _probed(archive: Archive, watch: LockWatch, lock_s: float) -> tuple[WriterPlace | None, Writability]:
    """Return the place of the log, unknown while its lock is held, and what is in the way there.

    Raises:
        WorldProtocolError: as ``Store.probe``, but for a lock that is held.
    """
    began_s = watch.now_s()
    try:
        place = archive.log.probe(lock_s)
    except LogBusyError as busy:
        return None, watch.note_held(busy, archive.log.head().size, began_s)
    watch.note_free()
    return place, Writability()


def _check(realm: RealmView, place: WriterPlace | None, domain: Domain | None) -> None:
    """Refuse a realm that refuses the commands of this process at a place.

    Raises:
        RefusedError: ``NOT_FOUNDED``, ``LOG_FENCED``, ``WRITER_FENCED``, ``SCHEMA_MISMATCH``.
    """
    if realm.founded is None:
        raise RefusedError(ErrorCode.NOT_FOUNDED, "This log has not been founded; `worldctl init` founds it.")
    if realm.writer.closed is not None:
        raise closed_log(realm.writer.closed)
    if place is not None and realm.branched is None:
        check_place(realm.writer, place)
    in_force = realm.domain
    if domain is not None and in_force is not None and not domain.is_form(in_force.schema_hash, in_force.rules):
        raise RefusedError(
            ErrorCode.SCHEMA_MISMATCH, "Another domain was adopted after this realm was opened; open it again with it."
        )


def _check_clock(archive: Archive, clock: Clock) -> None:
    """Refuse a clock with which nothing is recorded.

    Raises:
        RefusedError: ``CLOCK_AHEAD``.
    """
    limit_ms = archive.peek(lambda realm: realm.klis.in_force.max_clock_ahead_ms)
    state = clock_state(archive.log, clock, limit_ms)
    if state.is_refused:
        details = {"now": state.now_ms, "expected": state.expected_ms, "limit_ms": limit_ms}
        raise RefusedError(ErrorCode.CLOCK_AHEAD, state.cause, **details)
