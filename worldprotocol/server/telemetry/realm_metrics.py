"""A scrape: the metrics of a server, and of the realms that its caller may operate or audit, for Prometheus.

It is answered while a log cannot be read, too: the caller is then verified by the last state that was read.

Labels are names of realms, statuses and codes: never actors, paths, types of intents or other texts of callers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from fastapi import Request
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from world.audit.database_server import stored_bytes
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.read_models.live.offered_effects import offered_effects
from world.state.access import right_fault
from world.state.realm_view import RealmView
from worldprotocol.server.call import count_failure
from worldprotocol.server.operation_table import Operation
from worldprotocol.server.service import HostedRealm, Service
from worldprotocol.server.telemetry.readiness import readiness_of

__all__ = ["RealmMetrics", "RealmSample", "scraped", "storage_of"]

FILE_ENDINGS = ("", "-wal")


@dataclass(frozen=True, slots=True)
class RealmSample:
    """What one realm is measured by.

    Args:
        hosted: the realm.
        view: its state, the newest that is known.
        outcomes: ended proposals by status; None where the log cannot be read.
        stored_bytes: size of the tables in a database server; None for a log in a file, and where it cannot be read.
        now_ms: the time, ms since 1970.
        obstacle: code of what is in the way of writes; empty where they would be accepted.
    """

    hosted: HostedRealm
    view: RealmView
    outcomes: dict[str, int] | None
    stored_bytes: int | None
    now_ms: int
    obstacle: str


def storage_of(hosted: HostedRealm) -> tuple[int, int] | None:
    """Return the bytes of the log's files, and the free bytes of their file system; None without files."""
    path = hosted.realm.log.address.path
    if not path or not Path(path).exists():
        return None
    files = [Path(f"{path}{ending}") for ending in FILE_ENDINGS]
    size = sum(file.stat().st_size for file in files if file.exists())
    about = os.statvfs(Path(path).parent)
    return size, about.f_bavail * about.f_frsize


class RealmMetrics(Collector):
    """Metrics of some realms.

    Args:
        samples: the realms.
    """

    def __init__(self, samples: Iterable[RealmSample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield self._gauge(
            "log_available",
            "Whether the log can be read: 1, or 0 where the other values are the last known ones.",
            lambda one: float(one.outcomes is not None),
        )
        yield from self._obstacles()
        yield self._gauge("log_position", "Position of the newest event of the log.", lambda one: one.view.position)
        yield from self._storage()
        yield self._gauge("open_proposals", "Proposals that have not ended.", lambda one: len(one.view.proposals))
        yield from self._proposals()
        yield self._gauge("waiting_for_people", "Proposals that wait for people.", lambda one: len(_asked(one)))
        yield self._gauge(
            "waiting_for_people_oldest_seconds",
            "Time since the submission of the proposal that waits longest.",
            _oldest,
        )
        yield self._gauge("held_proposals", "Proposals that are held for changed code or a workspace.", _held)
        yield self._gauge("effects_requested", "Effects that were requested and have no result.", _requested)
        yield self._gauge("effects_in_doubt", "Effects of which it is unknown whether they happened.", _in_doubt)
        yield from self._offers()
        yield self._gauge("leases_held", "Leases in force.", lambda one: len(one.view.klis.leases))
        yield self._gauge(
            "lease_requests_queued", "Requests for leases that wait.", lambda one: len(one.view.klis.requests)
        )
        yield self._gauge("stream_readers", "Event streams that are open.", lambda one: one.hosted.log_watch.readers)
        yield self._gauge("jobs_running", "Jobs that run: verifications of the log.", _jobs)

    def _gauge(self, name: str, text: str, value: Callable[[RealmSample], float]) -> Metric:
        family = GaugeMetricFamily(f"worldprotocol_{name}", text, labels=["realm"])
        for one in self._samples:
            family.add_metric([one.hosted.name], value(one))
        return family

    def _obstacles(self) -> Iterator[Metric]:
        yield self._gauge(
            "realm_writable", "Whether the realm would accept a write now: 1 or 0.", lambda one: float(not one.obstacle)
        )
        family = GaugeMetricFamily(
            "worldprotocol_write_obstacle", "What is in the way of writes, by error code.", labels=["realm", "code"]
        )
        for one in self._samples:
            if one.obstacle:
                family.add_metric([one.hosted.name, one.obstacle], 1.0)
        yield family

    def _storage(self) -> Iterator[Metric]:
        size = GaugeMetricFamily(
            "worldprotocol_log_bytes",
            "Size of the files of the log, or of all tables of its store in a database server.",
            labels=["realm"],
        )
        free = GaugeMetricFamily(
            "worldprotocol_storage_free_bytes", "Free space of the file system of the log.", labels=["realm"]
        )
        for one in self._samples:
            if one.stored_bytes is not None:
                size.add_metric([one.hosted.name], one.stored_bytes)
            elif (storage := storage_of(one.hosted)) is not None:
                size.add_metric([one.hosted.name], storage[0])
                free.add_metric([one.hosted.name], storage[1])
        yield from (size, free)

    def _proposals(self) -> Iterator[Metric]:
        ended = CounterMetricFamily(
            "worldprotocol_proposals", "Proposals of the log that have ended, by outcome.", labels=["realm", "outcome"]
        )
        for one in self._samples:
            for outcome, count in (one.outcomes or {}).items():
                ended.add_metric([one.hosted.name, outcome], count)
        yield ended

    def _offers(self) -> Iterator[Metric]:
        offers = GaugeMetricFamily(
            "worldprotocol_effects_offered", "Effects that are offered to workers, by state.", labels=["realm", "state"]
        )
        workers = GaugeMetricFamily("worldprotocol_workers", "Workers that hold claims.", labels=["realm"])
        for one in self._samples:
            found = offered_effects(one.view)
            for state in ("offered", "claimed", "in_doubt"):
                offers.add_metric([one.hosted.name, state], sum(effect.state == state for effect in found))
            claims = (claim for proposal in one.view.proposals.values() for claim in proposal.claims.values())
            workers.add_metric([one.hosted.name], len({claim.worker for claim in claims}))
        yield from (offers, workers)


def _asked(one: RealmSample) -> list[int]:
    return [proposal.submitted.at for proposal in one.view.proposals.values() if proposal.asked is not None]


def _oldest(one: RealmSample) -> float:
    return max((one.now_ms - min(_asked(one), default=one.now_ms)) / 1000, 0.0)


def _held(one: RealmSample) -> int:
    holds = (proposal.held for proposal in one.view.proposals.values())
    return sum(held is not None and held.cause != "caller" for held in holds)


def _requested(one: RealmSample) -> int:
    return sum(len(proposal.requested) for proposal in one.view.proposals.values())


def _in_doubt(one: RealmSample) -> int:
    return sum(len(proposal.in_doubt) for proposal in one.view.proposals.values())


def _jobs(one: RealmSample) -> int:
    return sum(job.is_running for job in one.hosted.jobs.listed)


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
        count_failure(service, request)
    if not samples:
        raise refusal
    return await service.threads.run(lambda: service.metrics.text(service.waits.count, RealmMetrics(samples)))


async def _sample(service: Service, hosted: HostedRealm) -> RealmSample:
    """Return what a realm is measured by; the last known state where its log cannot be read.

    Raises:
        WorldProtocolError: no state is known.
    """
    now_ms = service.clock.now_ms()
    [readiness] = await readiness_of([hosted])

    def read() -> RealmSample:
        view = hosted.realm.realm()
        size = stored_bytes(hosted.realm.log)
        return RealmSample(hosted, view, hosted.ended.counts(), size, now_ms, readiness.code)

    try:
        return await service.threads.run(read)
    except WorldProtocolError:
        view = hosted.realm.archive.live.published
        if view is None:
            raise
        return RealmSample(hosted, view, None, None, now_ms, readiness.code)
