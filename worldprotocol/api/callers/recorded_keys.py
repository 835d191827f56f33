"""Requests on leases, actors, rights, keys and policies that may be repeated: the key is in what they recorded.

A repeated request finds these events and records nothing. They are looked for under the log's lock, so that of two
equal requests to different servers one records; equal requests to one process, which may share a commit, take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar
from weakref import WeakValueDictionary

from msgspec import structs

from world.clock import IdSource
from world.engine.commands import Prepare
from world.engine.verified_commands import VerifiedProtocol
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import (
    VerdictGiven,
)
from world.events.verification import Verification
from world.log import EventLog
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

__all__ = ["RequestKeys", "Says", "says_acquire"]

R = TypeVar("R")
Says = Callable[[list[Any]], bool]
"""Whether the events of an earlier request are those of a request."""

_NEEDLE: Final = b'"key":'


class _Turn:
    """The turn of the requests with one key."""

    def __init__(self) -> None:
        self.mutex = threading.Lock()


class _RepeatedError(RefusedError):
    """An earlier request with the same key was recorded; its events."""

    def __init__(self, events: list[Any]) -> None:
        super().__init__(ErrorCode.IDEMPOTENCY_CONFLICT, "The request was recorded before.")
        self.events = events


class _OnceProtocol(VerifiedProtocol):
    """The commands of one request, each of which is refused under the log's lock where its key is recorded.

    Args:
        protocol: the writer.
        ids: source of new ids.
        verified: the caller, with the key.
        recorded: returns the committed events of a caller's key.
    """

    def __init__(
        self, protocol: Writer, ids: IdSource, verified: Verification, recorded: Callable[[Verification], list[Any]]
    ) -> None:
        """Share the writer's archive and ids."""
        super().__init__(protocol, ids, verified)
        self._recorded = recorded

    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command; see ``WorldProtocol.run``."""

        def checked(work: UnitOfWork) -> R:
            events = self._recorded(self._verified)
            if events:
                raise _RepeatedError(events)
            return command(work)

        return super().run(checked, others_too=others_too, prepare=prepare)


class RequestKeys:
    """The keys of the requests in one log that are recorded with events of some topics.

    Args:
        log: the log; its events are read once.
        topics: topics of the events that requests record.
    """

    def __init__(self, log: EventLog, topics: Iterable[str]) -> None:
        """Read nothing yet."""
        self._log = log
        self._topics = sorted(topics)
        self._positions: dict[tuple[str | None, str], list[int]] = {}
        self._upto = 0
        self._mutex = threading.Lock()
        self._turns: WeakValueDictionary[str, _Turn] = WeakValueDictionary()

    def once(
        self,
        realm: Realm,
        caller: Verification,
        run: Callable[[Realm], R],
        *,
        says: Says,
        repeated: Callable[[list[Any]], R],
    ) -> R:
        """Run one command, unless an earlier request with the same key was recorded.

        Args:
            realm: the realm.
            caller: the caller, with the key of the request; without a key the command runs.
            run: the command, on the realm of the caller.
            says: whether the events of the earlier request are those of this one.
            repeated: returns the result of a repeated request from the events of the earlier one.

        Raises:
            RefusedError: ``IDEMPOTENCY_CONFLICT`` where the key was used for another request; what the command refuses.
        """
        as_caller = realm.as_caller(caller)
        if caller.key is None:
            return run(as_caller)
        as_caller._protocol = _OnceProtocol(realm._acting, realm._composed.ids, caller, self._events)
        with self._turn(f"{caller.verified_actor}\n{caller.key}"):
            try:
                return run(as_caller)
            except _RepeatedError as found:
                events = found.events
            if not says(events):
                raise RefusedError(
                    ErrorCode.IDEMPOTENCY_CONFLICT,
                    f"The key {caller.key} was used for another request; use a new key for each request.",
                )
            return repeated([structs.replace(one, verified=None) for one in events])  # as the command returned them

    def _events(self, caller: Verification) -> list[Any]:
        """Return the committed events that have the key of a caller; equal keys of other actors are other keys."""
        with self._mutex:
            upto = self._log.head().size
            for logged in self._log.read(self._upto, upto, topics=self._topics):
                if _NEEDLE in logged.state:
                    event: Any = decoded(logged)
                    if event.verified is not None and event.verified.key is not None:
                        own = event.verified.verified_actor, event.verified.key
                        self._positions.setdefault(own, []).append(logged.position)
            self._upto = max(self._upto, upto)
            positions = self._positions.get((caller.verified_actor, caller.key or ""), [])
        return [decoded(self._log.event_at(one)) for one in positions]

    @contextmanager
    def _turn(self, key: str) -> Iterator[None]:
        """Wait until no other request of this process has the key."""
        with self._mutex:
            turn = self._turns.setdefault(key, _Turn())
        with turn.mutex:
            yield


def says_acquire(manifest: dict[str, Any], session: str | None, ttl_ms: int | None) -> Says:
    """Return whether a verdict answers a request.

    Args:
        manifest: what is requested.
        session: the session that the request names; None where the server began one.
        ttl_ms: the time to live that the request names, in ms; None where it names none.
    """

    def says(events: list[Any]) -> bool:
        [event] = events
        if not isinstance(event, VerdictGiven) or event.manifest is None:
            return False
        wanted = dict(manifest) if session is not None else {**manifest, "session_id": event.session_id}
        return dict(event.manifest) == wanted and (ttl_ms is None or event.ttl_ms in (None, ttl_ms))

    return says
