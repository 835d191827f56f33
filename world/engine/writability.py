"""Whether a realm would accept a write now, and if not, why: one answer for servers, ``doctor``, metrics and workers.

What would refuse a command is looked at in the order in which a command meets it: the place and the files of the log,
its lock and its room (``Store.probe``), the founding, the writer epoch, the clock, and the domain. No event is written.
Source: docs/adr/0016-what-ready-means.md.
"""

from __future__ import annotations

from typing import Final

from world.clock import Clock
from world.core import Domain
from world.engine.clock_state import clock_state
from world.engine.writer_epochs import check_place
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.read_models.archive import Archive
from world.state.realm_view import RealmView
from world.state.writer_epoch import WriterPlace, closed_log

__all__ = ["LOCK_S", "write_obstacle"]

LOCK_S: Final = 0.5
"""How long a probe waits for the log's lock, in seconds; a unit of work holds it for milliseconds."""


def write_obstacle(
    archive: Archive, clock: Clock, domain: Domain | None = None, *, lock_s: float = LOCK_S
) -> WorldProtocolError | None:
    """Return the error that a command would end with now; None where the realm would accept a write.

    It does not end while the database or the disk hangs (``worldprotocol.api.waiting.readiness`` answers in time).

    Args:
        archive: of the realm. Where its log is open to be read only, no byte is changed, and less is found out.
        clock: of this process.
        domain: that of this process; None compares none.
        lock_s: how long to wait for the lock, in seconds.
    """
    known = archive.live.published
    try:
        if known is not None and known.writer.closed is not None:
            return closed_log(archive.realm().writer.closed or known.writer.closed)
        place = archive.log.probe(lock_s)
        _check(archive.realm(), place, domain)
        _check_clock(archive, clock)
    except WorldProtocolError as error:
        return error
    except OSError as error:
        message = f"The log {archive.log.address} cannot be reached: {error}."
        return WorldProtocolError(ErrorCode.LOG_UNAVAILABLE, message)
    return None


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
