"""Metrics of a server for Prometheus: its requests, its writes and its process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.registry import Collector
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from world.engine.observing import WriteTiming

__all__ = ["Counted", "Metrics"]

WRITE_BUCKETS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
REQUEST_BUCKETS: Final = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """Counters and histograms of one server, from its start on."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        own = self._registry = CollectorRegistry()
        for kind in (ProcessCollector, PlatformCollector, GCCollector):
            kind(registry=own)
        self._requests = Counter(
            "worldprotocol_requests", "Requests by operation and status.", ["operation", "status"], registry=own
        )
        self._refused = Counter(
            "worldprotocol_refused",
            "Refused requests by operation and error code.",
            ["operation", "code"],
            registry=own,
        )
        self._duration = Histogram(
            "worldprotocol_request_duration_seconds",
            "Time from a request to the beginning of its answer, waiting included.",
            ["operation"],
            registry=own,
            buckets=REQUEST_BUCKETS,
        )
        self._lock_wait = Histogram(
            "worldprotocol_lock_wait_seconds",
            "Time that a write waited for the lock of the log.",
            ["realm"],
            registry=own,
            buckets=WRITE_BUCKETS,
        )
        self._commit = Histogram(
            "worldprotocol_commit_duration_seconds",
            "Time of a commit, from the last event to its acknowledgement by the storage.",
            ["realm"],
            registry=own,
            buckets=WRITE_BUCKETS,
        )
        self._failed = Counter(
            "worldprotocol_commits_failed", "Writes that were given up, by error code.", ["realm", "code"], registry=own
        )
        self._ended = Counter(
            "worldprotocol_units_ended",
            "Units of work of other processes that were ended, since they held the lock of the log for too long.",
            ["realm"],
            registry=own,
        )
        self._waiting = Gauge("worldprotocol_waiting_requests", "Requests that wait.", registry=own)

    def answered(self, operation: str, status: int, code: str | None, seconds: float) -> None:
        """Count the answer of a request.

        Args:
            operation: name of the operation.
            status: HTTP status.
            code: error code; None for success.
            seconds: time until the answer began.
        """
        self._requests.labels(operation, str(status)).inc()
        self._duration.labels(operation).observe(seconds)
        if code is not None:
            self._refused.labels(operation, code).inc()

    def writes_of(self, realm: str) -> Callable[[WriteTiming], None]:
        """Return what notes the writes of a realm."""
        lock_wait, commit = self._lock_wait.labels(realm), self._commit.labels(realm)
        ended = self._ended.labels(realm)

        def note(timing: WriteTiming) -> None:
            lock_wait.observe(timing.lock_wait_s)
            ended.inc(timing.units_ended)
            if timing.error is None and timing.events:
                commit.observe(timing.commit_s)
            code = getattr(timing.error, "code", None)
            if code is not None:
                self._failed.labels(realm, str(code)).inc()

        return note

    def refusals(self, operation: str, code: str) -> float:
        """Return how many requests were refused with a code."""
        found = self._registry.get_sample_value("worldprotocol_refused_total", {"operation": operation, "code": code})
        return found or 0.0

    def text(self, waiting: int, realms: Collector) -> bytes:
        """Return all metrics in the text format of Prometheus.

        Args:
            waiting: requests that wait.
            realms: the metrics of the realms to show.
        """
        self._waiting.set(waiting)
        state = CollectorRegistry(auto_describe=False)
        state.register(realms)
        return generate_latest(self._registry) + generate_latest(state)


class Counted:
    """ASGI middleware that counts every answer, and sets the header fields that all answers have.

    Args:
        app: the application.
        metrics: the counters.
    """

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begin = time.perf_counter()

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("X-Frame-Options", "DENY")
                headers.setdefault("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
                name = getattr(scope.get("route"), "name", "unknown")
                code = scope.get("state", {}).get("error_code")
                self._metrics.answered(name, message["status"], code, time.perf_counter() - begin)
            await send(message)

        await self._app(scope, receive, counted)
