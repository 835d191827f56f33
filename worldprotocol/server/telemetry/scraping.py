"""A scrape: the metrics of a server, and of the realms that its caller may operate or audit.

It is answered while a log cannot be read, too: the caller is then verified by the last state that was read.
"""

from __future__ import annotations

from fastapi import Request

from world.audit.database_server import stored_bytes
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.state.access import right_fault
from worldprotocol.server.operation_table import Operation
from worldprotocol.server.service import HostedRealm, Service
from worldprotocol.server.telemetry.realm_metrics import RealmMetrics, RealmSample

__all__ = ["scraped"]


async def scraped(service: Service, operation: Operation, request: Request) -> bytes:
    """Return the metrics for the caller of a request.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``, ``TOKEN_NOT_VALID``, ``RIGHT_MISSING``, ``TOO_MANY_REQUESTS``.
        WorldProtocolError: ``LOG_UNAVAILABLE`` and others where no state of a log was ever read.
    """
    samples: list[RealmSample] = []
    refusal: WorldProtocolError = RefusedError(ErrorCode.SIGN_IN_REQUIRED, "This server has no realm.")
    is_known = False
    for hosted in service.realms.values():
        try:
            sample = await _sample(service, hosted)
            verified = await service.sign_in.verified(request, sample.view, sample.now_ms)
        except WorldProtocolError as error:
            refusal = refusal if is_known else error
            continue
        service.rates.take(f"{verified.actor_id}@{hosted.name}")
        is_known, fault = True, right_fault(sample.view, verified, operation.rights, sample.now_ms)
        if fault is None:
            samples.append(sample)
        else:
            refusal = RefusedError(fault.code, fault.message)
    if not is_known:
        service.rates.take(f"address {request.client.host if request.client else 'socket'}")
    if not samples:
        raise refusal
    return await service.threads.run(lambda: service.metrics.text(service.waits.count, RealmMetrics(samples)))


async def _sample(service: Service, hosted: HostedRealm) -> RealmSample:
    """Return what a realm is measured by; the last known state where its log cannot be read.

    Raises:
        WorldProtocolError: no state is known.
    """
    archive, now_ms = hosted.realm.archive, service.clock.now_ms()

    def read() -> RealmSample:
        view = hosted.realm.realm()
        outcomes = {str(status): int(count) for status, count in archive.rows("status_counts")}
        return RealmSample(hosted, view, outcomes, stored_bytes(hosted.realm.log), now_ms)

    try:
        return await service.threads.run(read)
    except WorldProtocolError:
        view = archive.live.published
        if view is None:
            raise
        return RealmSample(hosted, view, None, None, now_ms)
