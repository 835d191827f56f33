"""Subscribers of the events of a realm on a server: those of ``world.engine.event_bus``, fed by an event stream.

One thread reads the stream (SSE). A stream that is cut is begun again after the last event that was delivered, so
each event is delivered once, and none is left out.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, cast

import httpx
import orjson

from world.engine.event_bus import Handler, Reaction, Subscribers
from world.errors import WorldProtocolError
from world.log import TreeHead
from worldprotocol.api.remote.connection import ServerConnection, may_pass
from worldprotocol.api.remote.event_forms import read_logged

if TYPE_CHECKING:
    from world.read_models.archive import Archive

__all__ = ["RemoteSubscribers"]

AGAIN_S: Final = 0.2
"""Time until a stream that was cut is begun again, in seconds."""

CLOSE_S: Final = 2.0
"""How long closing waits for a handler, in seconds."""

_LOGGER: Final = logging.getLogger("worldprotocol.api.remote")


class _StreamedLog:
    """What ``Subscribers`` reads of a log: its size, which grows with the events that were delivered."""

    def __init__(self) -> None:
        self.position = 0

    @property
    def log(self) -> _StreamedLog:
        """Itself, in the place of an archive's log."""
        return self

    def head(self) -> TreeHead:
        """Return the size; the root is not known."""
        return TreeHead(self.position, b"")

    def read(self, _after: int, _upto: int) -> Iterator[Any]:
        """Yield nothing: all events come by the stream."""
        return iter(())


class RemoteSubscribers:
    """Handlers of the events of one realm on a server.

    Args:
        connection: the client of the realm.
    """

    def __init__(self, connection: ServerConnection) -> None:
        """Begin without subscribers; the first one begins the stream."""
        self._connection = connection
        self._log = _StreamedLog()
        self._subscribers = Subscribers(cast("Archive", self._log))
        self._mutex = threading.Lock()
        self._delivering = threading.Lock()
        self._count = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        connection.before_write = self._subscribers.refuse_inside_handler

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Add a handler of what is committed from now on; see ``RemoteRealm.subscribe``.

        Raises:
            RefusedError: ``RIGHT_MISSING``, and what the server refuses.
        """
        with self._mutex:
            if self._count == 0:
                self._connection.get("/log", {"after": 2**53, "limit": 1})  # the right to read the log
                position = self._connection.get("")["position"]
                with self._delivering:
                    self._log.position = position
            end = self._subscribers.subscribe(handler)
            self._count += 1
            if self._count == 1:
                self._stop = threading.Event()
                self._thread = threading.Thread(
                    target=self._read, args=(self._stop,), name="worldprotocol-stream", daemon=True
                )
                self._thread.start()
        is_over = threading.Event()

        def unsubscribe() -> None:
            end()
            with self._mutex:
                if not is_over.is_set():
                    is_over.set()
                    self._count -= 1
                    if self._count == 0:
                        self._stop.set()
                        self._connection.cut_streams()

        return unsubscribe

    def schedule(self, reaction: Reaction) -> None:
        """Run a reaction after the current handler calls, or at once outside of them."""
        self._subscribers.schedule(reaction)

    def close(self) -> None:
        """End the stream, whose connection is closed."""
        self._stop.set()
        self._subscribers.close()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_S)

    def _read(self, stop: threading.Event) -> None:
        """Deliver events until it is stopped."""
        while not stop.is_set():
            try:
                with self._connection.stream("/log/stream", self._log.position) as events:
                    for _, data in events:
                        self._deliver(orjson.loads(data), stop)
                        if stop.is_set():
                            return
            except WorldProtocolError as error:
                if stop.is_set() or self._connection.is_closed:
                    return
                _LOGGER.warning("The events of %s cannot be followed: %s", self._connection.address.text, error)
                if not may_pass(error):
                    return
            except (httpx.HTTPError, httpx.StreamError, RuntimeError, ValueError) as error:
                _LOGGER.debug("The event stream was cut and is begun again: %r", error)
            stop.wait(AGAIN_S)

    def _deliver(self, form: dict[str, Any], stop: threading.Event) -> None:
        """Deliver an event, unless it was delivered before, or the stream was ended."""
        position: int = form["position"]
        with self._delivering:
            if position <= self._log.position or stop.is_set():
                return
            self._subscribers.committed([(position, read_logged(form))])  # type: ignore[list-item]  # or a HiddenEvent
            self._log.position = position
            self._subscribers.tell(position)
        self._subscribers.react()
