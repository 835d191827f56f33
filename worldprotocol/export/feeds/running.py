"""Running feeds: what ``[feeds]`` configures, put together with log, state and receiver, and how far they are."""

from __future__ import annotations

import errno
import fcntl
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from eventsourcing.persistence import InfrastructureFactory, PersistenceError, Tracking
from eventsourcing.projection import ProjectionRunner

from host.secrets import Secrets
from world.clock import Clock
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.events.writer_events import WriterClosed
from world.log import EventLog, open_log
from world.masking import masked
from world.private_files import make_private, open_private
from worldprotocol.api.bootstrap import log_files, secrets_of
from worldprotocol.api.config import Config
from worldprotocol.api.consumers import RecordedEvents, consumer_name, run_consumer
from worldprotocol.api.sections.feeds import FeedConfig
from worldprotocol.export.feeds.delivery import Delivery, FeedReport, consumer_of
from worldprotocol.export.feeds.messages import MessageSource
from worldprotocol.export.feeds.sinks import FileSink, HttpSink, HttpTarget, Sink, read_secrets
from worldprotocol.export.feeds.state import FeedProgress, FeedState
from worldprotocol.export.redaction import Redaction

__all__ = ["ConfiguredFeed", "FeedRun", "configured_feeds", "feed_status", "opened_state"]

MOVE_POLL_S: Final = 0.5
"""Time between two looks at where a realm is whose log was closed to writers, in seconds."""

_NAME_PREFIX: Final = "world-protocol/"


@dataclass(frozen=True, slots=True)
class ConfiguredFeed:
    """A feed of ``world.toml``.

    Args:
        name: its name.
        config: its section, with absolute paths.
        address: of the log.
        state: its database.
        secrets: those that it may refer to.
        roles: redaction rules by role.
    """

    name: str
    config: FeedConfig
    address: str
    state: Path
    secrets: Secrets
    roles: Mapping[str, Sequence[str]]

    def sink(self, clock: Clock) -> Sink:
        """Return where the messages go.

        Raises:
            RefusedError: ``SECRET_NOT_FOUND`` and others of resolving secrets; ``INVALID_CONFIG`` for a secret that
                signs nothing.
        """
        config = self.config
        if config.file is not None:
            return FileSink(Path(config.file))
        wanted = {"secret": config.secret or "", "url": config.url, "headers": config.headers}
        found = self.secrets.resolve(wanted, [f"URL:{config.url}"])
        keys = read_secrets(found.params["secret"], self.name)
        return HttpSink(
            HttpTarget(found.params["url"], dict(found.params["headers"]), keys, config.timeout_s, found.mask), clock
        )


def configured_feeds(
    config: Config, address: str, names: Sequence[str] = (), *, is_placed: bool = False
) -> list[ConfiguredFeed]:
    """Return the feeds that a configuration has.

    Args:
        config: the configuration.
        address: of the log.
        names: only these; none are all.
        is_placed: whether a directory gave the address; databases of feeds are not beside the log then, which moves.

    Raises:
        RefusedError: ``UNKNOWN_FEED``.
    """
    known = config.feeds or {}
    for name in names:
        if name not in known:
            listed = ", ".join(known) or "none"
            raise RefusedError(
                ErrorCode.UNKNOWN_FEED, f"[feeds] in world.toml has no feed {name!r}; its feeds: {listed}.", name=name
            )
    files = () if is_placed else log_files(address)
    beside = files[0] if files else str(config.folder / "world")
    secrets = secrets_of(config.placed_secrets(), address, config.folder)
    placed = {name: known[name].in_folder(config.folder) for name in names or known}
    return [
        ConfiguredFeed(name, one, address, Path(one.state or f"{beside}.feed-{name}"), secrets, config.redact or {})
        for name, one in placed.items()
    ]


class FeedRun:
    """A feed that is delivered until it is stopped.

    Args:
        feed: the feed.
        clock: gives the time.
        once: whether it ends when all events are delivered that the log has at its start, or when the feed is paused.
        on_report: called with each step, in a thread of the run.
        place: for a realm that a directory places: returns the address of its log, None while it is being moved. The
            run continues at the next place once the log was closed to writers. None delivers the events of one log.
    """

    def __init__(
        self,
        feed: ConfiguredFeed,
        clock: Clock,
        *,
        once: bool = False,
        on_report: Callable[[FeedReport], None] = lambda _: None,
        place: Callable[[], str | None] | None = None,
    ) -> None:
        self._place = place
        self._is_left = False
        self.feed = feed
        self._clock = clock
        self._once = once
        self._on_report = on_report
        self._upto = 0
        self._stopping = threading.Event()
        self._delivery: Delivery | None = None
        self._runner: ProjectionRunner[RecordedEvents, FeedState] | None = None

    def stop(self) -> None:
        """End the run after the request that is under way, from any thread."""
        self._stopping.set()
        if self._delivery is not None:
            self._delivery.stop()
        if self._runner is not None:
            self._runner.stop()

    def run(self) -> None:
        """Deliver until the run is stopped or, with ``once``, is over.

        Raises:
            RefusedError: ``FEED_BUSY`` where another process runs the feed; those of ``ConfiguredFeed.sink``, of
                ``run_consumer``, of redaction rules, and of ``place``.
            DamagedLogError: an event is not what was logged.
            OSError: the database of the feed cannot be read or written.
        """
        feed = self.feed
        with ExitStack() as opened:
            opened.enter_context(_plain_errors(feed))
            opened.enter_context(_alone(feed))
            sink = opened.enter_context(closing(feed.sink(self._clock)))
            address: str | None = feed.address
            while address is not None:
                self._is_left = False
                self._deliver(address, sink)
                address = self._next_place()

    def _deliver(self, address: str, sink: Sink) -> None:
        """Deliver the events of the log at an address, until the run is over, or the log was left."""
        feed = self.feed
        with open_log(address, read_only=True) as log:
            redaction = Redaction(feed.config.redact, feed.roles)
            redaction.learn(log)
            name = consumer_name(log)
            position, self._upto = _begun(feed, log, name), self._upto or log.head().size
            if self._is_over(position) or self._note_left(log, position):
                return
            source = MessageSource(log, feed.config, redaction)
            log_id = name.removeprefix(_NAME_PREFIX)
            self._delivery = Delivery(feed.name, log_id, feed.config, source, sink, self._clock)
            self._delivery.on_report = self._take
            self._delivery.on_writer_closed = partial(self._note_left, log)
            self._follow(self._delivery, address)

    def _note_left(self, log: EventLog, position: int) -> bool:
        """Return whether a log was closed to writers, all of it is delivered, and a directory places the realm."""
        size = log.head().size
        if self._place is not None and 0 < size <= position and log.event_at(size).topic == WriterClosed.TOPIC:
            self._is_left = True
            if self._runner is not None:
                self._runner.stop()
        return self._is_left

    def _next_place(self) -> str | None:
        """Wait for the end of a move, and return where the realm is; None where the run is over."""
        self._runner = None
        while self._is_left and self._place is not None and not self._stopping.wait(MOVE_POLL_S):
            address = self._place()
            if address is not None:
                return address
        return None

    def _follow(self, delivery: Delivery, address: str) -> None:
        runner = run_consumer(address, consumer_of(delivery), FeedState, _settings(self.feed.state))
        self._runner = runner
        with closing(runner.view.datastore), runner:
            if self._is_left:  # before the runner was known here
                runner.stop()
            if self._stopping.is_set():
                self.stop()
            runner.run_forever()
            delivery.stop()

    def _take(self, report: FeedReport) -> None:
        self._on_report(report)
        if report.kind in ("delivered", "paused") and self._is_over(report.position, report.kind == "paused"):
            self.stop()

    def _is_over(self, position: int, is_paused: bool = False) -> bool:
        return self._once and (is_paused or position >= self._upto)


def _begun(feed: ConfiguredFeed, log: EventLog, name: str) -> int:
    """Return the position of a feed; one that begins with new events gets that of the log's end."""
    with opened_state(feed) as state:
        position = state.max_tracking_id(name)
        size = log.head().size
        if position is None and feed.config.start == "end" and size:
            state.insert_tracking(Tracking(name, size))
            return size
        return position or 0


@contextmanager
def opened_state(feed: ConfiguredFeed) -> Iterator[FeedState]:
    """Open the database of a feed, which is made where it is missing.

    Args:
        feed: the feed.

    Raises:
        OSError: it cannot be read or written.
    """
    with _plain_errors(feed):
        make_private(feed.state)
        factory: InfrastructureFactory[Any] = InfrastructureFactory.construct(_settings(feed.state))
        state = factory.tracking_recorder(FeedState)
        with closing(state.datastore):
            yield state


@contextmanager
def _plain_errors(feed: ConfiguredFeed) -> Iterator[None]:
    """Raise the engine's own error in place of the library's, and an ``OSError`` for the database of a feed."""
    try:
        yield
    except (PersistenceError, sqlite3.Error) as error:
        own = error.__cause__ or error.__context__  # the library's runner clears the cause
        if isinstance(own, WorldProtocolError):
            raise own from None
        raise OSError(errno.EIO, f"the database of feed {feed.name} failed: {error}", str(feed.state)) from error


def _settings(state: Path) -> dict[str, str]:
    return {"PERSISTENCE_MODULE": "eventsourcing.sqlite", "SQLITE_DBNAME": str(state)}


@contextmanager
def _alone(feed: ConfiguredFeed) -> Iterator[None]:
    """Keep other processes from running a feed: two of them would send messages twice, and out of order.

    The lock is on a file of its own: closing a file of SQLite would release the locks of SQLite.
    """
    with open_private(f"{feed.state}.lock") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RefusedError(
                ErrorCode.FEED_BUSY, f"Another process runs the feed {feed.name}.", name=feed.name
            ) from None
        yield


def feed_status(feed: ConfiguredFeed) -> dict[str, Any]:
    """Return how far a feed is, as JSON; nothing is made where the feed has not run yet.

    ``lag`` is the number of events after the position. ``state`` is ``new``, ``paused``, ``retrying``, ``behind`` or
    ``current``. Times are in ms since 1970.

    Args:
        feed: the feed.

    Raises:
        RefusedError: those of ``open_log``; ``NOT_FOUNDED``.
    """
    with open_log(feed.address, read_only=True) as log:
        size, name = log.head().size, consumer_name(log)
    position, progress = _read(feed, name)
    failure = {"at": progress.failed_at, "code": progress.code, "message": progress.message}
    return {
        "feed": feed.name,
        "format": feed.config.format,
        "target": feed.config.file or masked(feed.config.url or ""),
        "state": _state(position, size, progress),
        "position": position or 0,
        "events": size,
        "lag": size - (position or 0),
        "sent": progress.sent,
        "deliveredAt": progress.delivered_at,
        "underWay": progress.under_way,
        "attempts": progress.attempts,
        "lastFailure": None if progress.failed_at is None else failure,
    }


def _read(feed: ConfiguredFeed, name: str) -> tuple[int | None, FeedProgress]:
    if not feed.state.exists():
        return None, FeedProgress()
    with opened_state(feed) as state:
        return state.max_tracking_id(name), state.progress()


def _state(position: int | None, size: int, progress: FeedProgress) -> str:
    if progress.paused:
        return "paused"
    if progress.attempts:
        return "retrying"
    if position is None:
        return "new"
    return "behind" if position < size else "current"
