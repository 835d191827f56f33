"""Delivery of one feed: one message after the other, each repeated until it is accepted."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

from eventsourcing.persistence import Tracking
from eventsourcing.projection import Projection

from world.clock import Clock
from world.events.writer_events import WriterClosed
from worldprotocol.api.sections.feeds import FeedConfig
from worldprotocol.export.feeds.messages import FeedMessage, MessageSource
from worldprotocol.export.feeds.sinks import Sink
from worldprotocol.export.feeds.state import DeliveryFailure, FeedState

__all__ = ["Delivery", "FeedReport", "consumer_of", "wait_ms"]

RESUME_POLL_S: Final = 1.0
"""Interval at which a paused feed looks whether it was resumed, in seconds."""


@dataclass(frozen=True, slots=True)
class FeedReport:
    """A step of a feed.

    Args:
        kind: a message was ``delivered``, an attempt ``failed``, the feed was ``paused`` or ``resumed``.
        feed: its name.
        position: up to which the log was delivered.
        events: events that this step delivered.
        failure: of the attempt.
        attempts: failed attempts to deliver the message.
        wait_ms: time until the next attempt, in ms.
    """

    kind: Literal["delivered", "failed", "paused", "resumed"]
    feed: str
    position: int
    events: int = 0
    failure: DeliveryFailure | None = None
    attempts: int = 0
    wait_ms: int = 0


def wait_ms(config: FeedConfig, attempts: int, asked_s: float, draw: Callable[[int], int] = secrets.randbelow) -> int:
    """Return the time to wait after a failed attempt, in ms.

    It doubles with each attempt up to ``longest_wait_ms``, and half of it is drawn, so that feeds that failed together
    do not return together. It is never shorter than what the receiver asks for.

    Args:
        config: of the feed.
        attempts: failed attempts to deliver the message, at least 1.
        asked_s: what the receiver asks for, in seconds.
        draw: returns a number from 0 to below its argument.
    """
    whole = min(config.first_wait_ms << min(attempts - 1, 30), config.longest_wait_ms)
    return max(whole - draw(whole // 2 + 1), round(asked_s * 1_000))


class Delivery:
    """Delivers the events of a log after the position of a feed.

    Args:
        name: of the feed.
        log_id: id of the log in the ids of messages.
        config: how often and when an attempt is repeated.
        source: makes messages.
        sink: takes them.
        clock: gives the time of deliveries and failures.
    """

    def __init__(
        self, name: str, log_id: str, config: FeedConfig, source: MessageSource, sink: Sink, clock: Clock
    ) -> None:
        self._name = name
        self._log_id = log_id
        self._config = config
        self._source = source
        self._sink = sink
        self._clock = clock
        self._position: int | None = None
        self._stopping = threading.Event()
        self.on_report: Callable[[FeedReport], None] = lambda _: None
        self.on_writer_closed: Callable[[int], object] = lambda position: None
        """Called with the position of an event that closed the log to writers, once it is delivered."""

    def stop(self) -> None:
        """Begin no further attempt, from any thread."""
        self._stopping.set()

    def advance(self, state: FeedState, tracking: Tracking) -> None:
        """Deliver the events up to a position, and perhaps further ones that are in the log.

        It returns early after ``stop``.

        Args:
            state: of the feed.
            tracking: the position.

        Raises:
            IntegrityError: of the library; another process of this feed has stored the position.
            DamagedLogError: the log cannot be read.
        """
        if self._position is None:
            self._position = state.max_tracking_id(tracking.application_name) or 0
        while self._position < tracking.notification_id and not self._stopping.is_set():
            message = self._source.after(self._position, state.progress().under_way)
            if self._deliver(state, message, Tracking(tracking.application_name, message.last)):
                self._position = message.last
                self._report("delivered", events=len(message.lines))

    def _deliver(self, state: FeedState, message: FeedMessage, tracking: Tracking) -> bool:
        """Deliver a message; return False where it was not delivered before ``stop``."""
        if not message.lines:
            state.deliver(tracking, 0, self._clock.now_ms(), state.progress().file_bytes)
            return True
        message_id = message.id_in(self._name, self._log_id)
        while self._may_send(state):
            progress = state.progress()
            if progress.under_way is None:
                state.begin(message.last)
            sent = self._sink.send(message, message_id, progress)
            if not isinstance(sent, DeliveryFailure):
                state.deliver(tracking, len(message.lines), self._clock.now_ms(), sent)
                return True
            self._note(state, sent, progress.attempts + 1)
        return False

    def _may_send(self, state: FeedState) -> bool:
        """Wait while the feed is paused; return whether an attempt may begin."""
        progress = state.progress()
        if progress.paused:
            failure = DeliveryFailure(progress.code or "", progress.message or "")
            self._report("paused", failure=failure, attempts=progress.attempts)
            while state.progress().paused:
                if self._stopping.wait(RESUME_POLL_S):
                    return False
            self._report("resumed")
        return not self._stopping.is_set()

    def _note(self, state: FeedState, failure: DeliveryFailure, attempts: int) -> None:
        """Store a failure, which may pause the feed, and wait for the next attempt."""
        pauses = failure.is_final or attempts >= self._config.max_attempts
        state.fail(failure, attempts, self._clock.now_ms(), pauses=pauses)
        if pauses:
            return
        wait = wait_ms(self._config, attempts, failure.retry_after_s)
        self._report("failed", failure=failure, attempts=attempts, wait_ms=wait)
        self._stopping.wait(wait / 1_000)

    def _report(self, kind: Literal["delivered", "failed", "paused", "resumed"], **told: Any) -> None:
        self.on_report(FeedReport(kind, self._name, self._position or 0, **told))


def consumer_of(delivery: Delivery) -> type[Projection[FeedState]]:
    """Return the event consumer of a feed, which hands each event to a delivery."""

    class FeedConsumer(Projection[FeedState]):
        """The event consumer of one feed."""

        def process_event(self, domain_event: Any, tracking: Tracking) -> None:
            delivery.advance(self.view, tracking)
            if isinstance(domain_event, WriterClosed):
                delivery.on_writer_closed(tracking.notification_id)

    return FeedConsumer
