"""Subscribers of governance events: called in causal order after the commit, each for itself (WP-events).

Events are queued in the order of the log, those that other processes committed among them. One thread at a time
delivers them, outside of the writer's turn, so that what a handler does or waits for never stops the realm. A thread
that commits has its events delivered before it continues. It waits for another thread that is delivering at the
moment, but not for ever, since that one may wait for it; a watch delivers the rest, and what other processes commit.

A handler cannot change the world: commands from inside one are refused. It may schedule reactions, which run after
all handlers were called. What handlers raise is kept for the operator and affects nothing else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.read_models.archive import Archive
from world.read_models.decoding import decoded

Reaction = Callable[[], None]
Schedule = Callable[[Reaction], None]
Handler = Callable[[int, Event, Schedule], None]

TELLING_WAIT_S: Final = 1.0
"""How long who committed waits for another thread that is telling handlers, in seconds."""

WATCH_S: Final = 0.1
"""How often is looked for what other processes committed, in seconds."""

_AT_ONCE: Final = 1_000  # events of others that the watch takes in between two looks
_LEFT_ROUNDS: Final = 10  # of the watch, after which it delivers what was not delivered
_AFTER_ERROR_S: Final = 2.0
_STOP_S: Final = 2.0  # how long closing waits for a handler that the watch is telling

_log = logging.getLogger("world.engine.event_bus")


@dataclass(frozen=True, slots=True, eq=False)
class _Subscription:
    """A handler, and after which position it listens."""

    handler: Handler
    after: int


class _Mine(threading.local):
    """State of a thread here, and the reactions to the events that it delivered."""

    scheduled: list[Reaction] | None = None  # by the handlers that it is telling
    is_reacting = False

    def __init__(self) -> None:
        self.reactions: deque[Reaction] = deque()


class Subscribers:
    """Handlers of one protocol, in the order of their subscription.

    Args:
        archive: of the log that is listened to.
    """

    def __init__(self, archive: Archive) -> None:
        """Begin without subscribers."""
        self._log = archive.log
        self._subscriptions: tuple[_Subscription, ...] = ()
        self._mine = _Mine()
        self._changed = threading.Condition()
        self._queue: deque[tuple[int, Event]] = deque()
        self._queued = 0  # up to which position events were taken into the queue
        self._told = 0  # the position up to which they were delivered
        self._is_committing = False
        self._is_telling = False
        self._watch: threading.Thread | None = None
        self._closed = threading.Event()

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Add a handler ``(position, event, schedule)`` of what is committed from now on; returns what removes it."""
        with self._changed:
            mine = _Subscription(handler, self._log.head().size)
            if not self._subscriptions:
                self._queue.clear()
                self._queued = self._told = mine.after
            self._subscriptions = (*self._subscriptions, mine)
            if self._watch is None:
                self._watch = threading.Thread(target=self._look_out, name="worldprotocol-watch", daemon=True)
                self._watch.start()

        def unsubscribe() -> None:
            with self._changed:
                self._subscriptions = tuple(one for one in self._subscriptions if one is not mine)

        return unsubscribe

    def close(self) -> None:
        """Stop the delivery of what other processes commit."""
        self._closed.set()
        watch = self._watch
        if watch is not None and watch is not threading.current_thread():
            watch.join(_STOP_S)

    # Telling

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Leave what is committed meanwhile to ``committed``; the watch would deliver it in a thread of its own."""
        with self._changed:
            self._is_committing = True
        try:
            yield
        finally:
            with self._changed:
                self._is_committing = False

    @property
    def has_any(self) -> bool:
        """Whether there is a handler."""
        return bool(self._subscriptions)

    def committed(self, events: Sequence[tuple[int, Event]]) -> None:
        """Queue what was just committed here, in the order of the log; ``tell`` delivers it."""
        if self._subscriptions and events:
            try:
                with self._changed:
                    self._take_in(events[-1][0], events)
            except Exception:  # noqa: BLE001 - the watch reads it again, with what others committed before
                _log.exception("what was committed after event %d cannot be delivered yet", self._queued)

    def tell(self, upto: int | None = None) -> None:
        """Deliver every event up to a position to every handler, in log order; None is all that were queued so far."""
        if not self._subscriptions or self._mine.scheduled is not None:
            return
        upto = self._queued if upto is None else upto
        if not self._begin(upto):
            return
        try:
            while self._tell_next(upto):
                pass
        finally:
            with self._changed:
                self._is_telling = False
                self._changed.notify_all()

    def refuse_inside_handler(self) -> None:
        """Refuse a command that comes from inside a handler.

        Raises:
            RefusedError: ``CALL_FROM_HANDLER``.
        """
        if self._mine.scheduled is not None:
            raise RefusedError(
                ErrorCode.CALL_FROM_HANDLER,
                "A handler cannot change the world while it handles an event; give the change to schedule().",
            )

    # Reactions

    def schedule(self, reaction: Reaction) -> None:
        """Run something when all handlers were called; at once in a thread that delivers no event."""
        if self._mine.scheduled is None:
            reaction()
        else:
            self._mine.scheduled.append(reaction)

    def react(self) -> None:
        """Run the reactions to what this thread delivered, one by one, and those that they schedule in turn."""
        if self._mine.is_reacting:
            return  # a reaction's own commands leave what they schedule to the loop below
        self._mine.is_reacting = True
        try:
            while self._mine.reactions:
                _isolated("a scheduled reaction failed", self._mine.reactions.popleft())
        finally:
            self._mine.is_reacting = False

    # Inside

    def _take_in(self, upto: int, own: Sequence[tuple[int, Event]] = ()) -> None:
        """Queue the events up to a position, each once; all but one's own are read from the log."""
        before = own[0][0] - 1 if own else upto
        rows = self._log.read(self._queued, before) if before > self._queued else ()
        found = [(logged.position, decoded(logged)) for logged in rows]
        self._queue += [*found, *(item for item in own if item[0] > self._queued)]
        self._queued = max(self._queued, upto)

    def _begin(self, upto: int) -> bool:
        """Become the delivering thread when no other one is; False where all is delivered, or another took too long."""
        until = time.monotonic() + TELLING_WAIT_S
        with self._changed:
            while self._told < upto:
                if not self._is_telling:
                    self._is_telling = True
                    return True
                if (left := until - time.monotonic()) <= 0:
                    return False
                self._changed.wait(left)
        return False

    def _tell_next(self, upto: int) -> bool:
        """Deliver the next event; False where there is none up to a position."""
        with self._changed:
            if not self._queue or self._queue[0][0] > upto:
                return False
            position, event = self._queue.popleft()
        scheduled: list[Reaction] = []
        self._mine.scheduled = scheduled
        try:
            self._tell_all(position, event)
        finally:
            self._mine.scheduled = None
            self._mine.reactions += scheduled
            with self._changed:
                self._told = max(self._told, position)
                self._changed.notify_all()
        return True

    def _tell_all(self, position: int, event: Event) -> None:
        """Deliver an event to all handlers; an interrupt by the operator is raised after the last one."""
        interrupt: KeyboardInterrupt | None = None
        for one in self._subscriptions:
            if one.after < position and one in self._subscriptions:
                try:
                    what = f"a subscriber failed on event {position} ({event.TOPIC})"
                    _isolated(what, one.handler, position, event, self.schedule)
                except KeyboardInterrupt as raised:
                    interrupt = raised
        if interrupt is not None:
            raise interrupt

    def _look_out(self) -> None:
        """Deliver what others committed, and what was not delivered for a while, as long as there is a handler."""
        rounds, left = 0, 0
        while not self._closed.wait(WATCH_S):
            with self._changed:
                if not self._subscriptions:
                    self._watch = None
                    return
            try:
                upto = self._look()
                rounds += 1
                if rounds % _LEFT_ROUNDS == 0:  # a committing thread delivers its own events first
                    upto, left = max(upto, left), self._queued
                self.tell(upto)
                self.react()
            except RefusedError as refused:
                if refused.code == "LOG_CLOSED":
                    return
                _log.warning("the log cannot be watched for what others commit: %s", refused)
                self._closed.wait(_AFTER_ERROR_S)
            except (Exception, KeyboardInterrupt):  # noqa: BLE001 - a database that is away for a while must not end the watch
                _log.exception("the log cannot be watched for what others commit")
                self._closed.wait(_AFTER_ERROR_S)

    def _look(self) -> int:
        """Take in what others committed; returns up to where, 0 for nothing."""
        with self._changed:
            if self._is_committing or (size := self._log.head().size) <= self._queued:
                return 0
            self._take_in(min(size, self._queued + _AT_ONCE))
            return self._queued


def _isolated(what: str, call: Callable[..., object], *arguments: Any) -> None:
    """Call foreign code; whatever it raises, SystemExit too, is logged and affects nothing else."""
    try:
        call(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException:  # noqa: BLE001
        _log.exception(what)
