"""Who listens to governance events: told in causal order after the commit, each on its own (WP-events).

A handler cannot change the world: commands from inside one are refused. It may schedule reactions, which run after
all handlers were told. What handlers raise is kept for the operator and disturbs nobody.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from world.errors import Refused
from world.events import Event

Reaction = Callable[[], None]
Schedule = Callable[[Reaction], None]
Handler = Callable[[int, Event, Schedule], None]

_log = logging.getLogger("world.subscribers")


class Subscribers:
    """Handlers of one protocol, in the order of their subscription."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._handlers: list[Handler] = []
        self._reactions: deque[Reaction] = deque()
        self._telling = threading.local()

    def subscribe(self, handler: Handler) -> Callable[[], None]:
        """Add a handler ``(position, event, schedule)`` and return what removes it again."""
        self._handlers.append(handler)

        def unsubscribe() -> None:
            if handler in self._handlers:
                self._handlers.remove(handler)

        return unsubscribe

    def tell(self, events: Sequence[tuple[int, Event]]) -> None:
        """Tell every handler every event, in log order."""
        if not self._handlers:
            return
        self._telling.now = True
        try:
            for position, event in events:
                for handler in tuple(self._handlers):
                    self._tell_one(handler, position, event)
        finally:
            self._telling.now = False

    def refuse_inside_handler(self) -> None:
        """Refuse a command that comes from inside a handler.

        Raises:
            Refused: ``CALL_FROM_HANDLER``.
        """
        if getattr(self._telling, "now", False):
            raise Refused(
                "CALL_FROM_HANDLER",
                "A handler cannot change the world while it is told an event; give the change to schedule().",
            )

    def react(self) -> None:
        """Run the scheduled reactions, one after the other, those that they schedule in turn included."""
        if getattr(self._telling, "reacting", False):
            return  # a reaction's own commands leave what they schedule to the loop below
        self._telling.reacting = True
        try:
            while self._reactions:
                reaction = self._reactions.popleft()
                try:
                    reaction()
                except Exception:  # noqa: BLE001  # it is written down and disturbs nobody
                    _log.exception("a scheduled reaction failed")
        finally:
            self._telling.reacting = False

    def _tell_one(self, handler: Handler, position: int, event: Event) -> None:
        try:
            handler(position, event, self._reactions.append)
        except Exception:  # noqa: BLE001  # it is written down and disturbs nobody
            _log.exception("a subscriber failed on event %d (%s)", position, event.TOPIC)
