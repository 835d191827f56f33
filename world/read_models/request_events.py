"""Events about a request for leases after its first verdict, found through the index.

The index has the verdicts of a request. Withdrawals and the ends of leases are in the stream of the ledger, which is
read only where the ledger shows that there is such an event, and only as far as that event.
"""

from __future__ import annotations

from collections.abc import Iterator

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import KLIS_STREAM, Event
from world.events.lease_events import LeasesExpired, LeasesReleased, LeasesRevoked, RequestWithdrawn, VerdictGiven
from world.klis.ledger_view import ReadableLedger
from world.log import EventLog, LoggedEvent
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.lineage import number

__all__ = ["ends_of_leases", "events_of_request"]

AT_ONCE = 256
"""Events of the ledger that are read at once."""


def events_of_request(
    archive: Archive, request_id: str, *, after: int = 0, ledger: ReadableLedger | None = None
) -> Iterator[tuple[LoggedEvent, VerdictGiven | RequestWithdrawn]]:
    """Yield the verdicts on a request for leases, and its withdrawal, in the order of the log.

    Archived verdicts of a cut log are left out.

    Args:
        archive: of the log.
        request_id: the request.
        after: position before the first event.
        ledger: the ledger as it was at the point in time that is looked at; None is now.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED``; an event was changed after it was logged.
    """
    newest: tuple[LoggedEvent, VerdictGiven] | None = None
    for (position,) in archive.rows("verdicts_of_request", {"of_request": request_id}):
        try:
            logged = archive.event_at(number(position))
        except RefusedError as refused:
            if refused.code != ErrorCode.EVENT_ARCHIVED:
                raise
            continue
        event = decoded(logged)
        if isinstance(event, VerdictGiven):
            newest = logged, event
            if logged.position > after:
                yield newest
    requests = (archive.realm().klis if ledger is None else ledger).requests
    if newest is None or not newest[1].queued or request_id in requests:
        return
    for logged, event in _of_ledger(archive.log, newest[0].version):
        if isinstance(event, RequestWithdrawn) and event.request_id == request_id:
            if logged.position > after:
                yield logged, event
            return


def ends_of_leases(
    log: EventLog, verdict: LoggedEvent, lease_ids: set[str]
) -> Iterator[tuple[LoggedEvent, LeasesReleased | LeasesExpired | LeasesRevoked]]:
    """Yield the events by which leases ended, until all of them have.

    Args:
        log: the log.
        verdict: the event that granted them.
        lease_ids: leases that have ended.
    """
    lasting = set(lease_ids)
    for logged, event in _of_ledger(log, verdict.version) if lasting else ():
        if isinstance(event, LeasesReleased | LeasesExpired | LeasesRevoked) and lasting & set(event.lease_ids):
            lasting -= set(event.lease_ids)
            yield logged, event
            if not lasting:
                return


def _of_ledger(log: EventLog, version: int) -> Iterator[tuple[LoggedEvent, Event]]:
    """Yield the events of the ledger after a version."""
    while batch := log.stream(KLIS_STREAM, after=version, limit=AT_ONCE):
        yield from ((logged, decoded(logged)) for logged in batch)
        version = batch[-1].version
