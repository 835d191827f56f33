"""The log of a directory: its entries as of now, and changes of them under its lock.

A process opens a realm to writers, or records that it is at another place, only while it holds this lock, so that no
two places of a realm are open at once. The log holds a few events for each realm and change, and is read as a whole.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from world.clock import Clock, SystemClock, SystemIds
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.log import EventLog, Transaction, open_log, parse_address
from world.log.url import MEMORY
from world.masking import masked
from worldprotocol.directory.events import (
    DirectoryFounded,
    RealmEvent,
    decode_directory_event,
    new_directory_event,
)
from worldprotocol.directory.state import DirectoryState

__all__ = ["DirectoryChange", "DirectoryLog", "recorded_address"]


class DirectoryChange:
    """The directory while its lock is held.

    Args:
        log: the directory's log.
        transaction: the write that holds the lock.
        state: the entries under the lock.
        at: time of the change, ms since 1970; never before an earlier one.
    """

    def __init__(self, log: EventLog, transaction: Transaction, state: DirectoryState, at: int) -> None:
        self._log = log
        self._transaction = transaction
        self.state = state
        self.at = at

    def append(self, event: DirectoryFounded | RealmEvent) -> None:
        """Append an event, which is committed when the lock is released."""
        logged = self._log.insert_events([new_directory_event(event)], transaction=self._transaction)
        self.state.apply(logged[-1], event)


class DirectoryLog:
    """An open directory; safe to use from many threads.

    Args:
        log: its log.
        clock: source of the times that its events record.
    """

    def __init__(self, log: EventLog, clock: Clock) -> None:
        """Take over an open log; ``open`` and ``found`` are the ways in."""
        self._log = log
        self._clock = clock
        self._state = DirectoryState()
        self._last_ms = 0
        self._reading = threading.RLock()

    @classmethod
    def open(cls, address: str, *, read_only: bool = False, clock: Clock | None = None) -> DirectoryLog:
        """Open a directory.

        Args:
            address: of its log.
            read_only: change no byte.
            clock: source of recorded times; None is the system's clock.

        Raises:
            RefusedError: ``NOT_A_DIRECTORY`` for the log of a realm; ``LOG_NOT_FOUND``, ``NOT_A_LOG`` and others of
                ``world.log.open_log``.
        """
        opened = cls(open_log(address, read_only=read_only), clock or SystemClock())
        try:
            opened._check_kind(may_be_empty=False)
        except BaseException:
            opened.close()
            raise
        return opened

    @classmethod
    def found(cls, address: str, *, by: str, clock: Clock | None = None) -> DirectoryLog:
        """Open a directory, and create it first where its log does not exist or is empty.

        Args:
            address: of its log; a password in it is refused, so that the same text may be used by every process.
            by: who creates it, for the record.
            clock: source of recorded times; None is the system's clock.

        Raises:
            RefusedError: as ``open``, and ``INVALID_ADDRESS``.
        """
        opened = cls(open_log(recorded_address(address), create=True), clock or SystemClock())
        try:
            opened._check_kind(may_be_empty=True)
            with opened.change() as change:
                if change.state.position == 0:
                    change.append(DirectoryFounded(at=change.at, directory_id=SystemIds().new_id(), by=by))
        except BaseException:
            opened.close()
            raise
        return opened

    @property
    def log(self) -> EventLog:
        """The log itself, for proofs of its history."""
        return self._log

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the log; closing twice does nothing."""
        self._log.close()

    def check_place(self, place: str) -> None:
        """Refuse a place whose lock is that of the directory, which is held while a realm is opened.

        Args:
            place: address of a realm, as ``recorded_address`` returns it.

        Raises:
            RefusedError: ``INVALID_ADDRESS``.
        """
        own, file = self._log.address.path, parse_address(place).path
        if own and file and os.path.realpath(own) == os.path.realpath(file):
            raise RefusedError(
                ErrorCode.INVALID_ADDRESS,
                f"{file} is the file of the directory; a realm needs a file of its own, or a server.",
            )

    def state(self) -> DirectoryState:
        """Return the entries as of now; the value does not change with later events.

        Raises:
            DamagedLogError: an event is damaged, or contradicts those before it.
        """
        with self._reading:
            self._follow((one.position, decode_directory_event(one)) for one in self._log.read(self._state.position))
            return DirectoryState(self._state.position, dict(self._state.realms))

    def history(self, name: str) -> list[tuple[int, RealmEvent]]:
        """Return the events of a realm with their positions, oldest first.

        Raises:
            RefusedError: ``UNKNOWN_REALM``.
        """
        self.state().entry(name)
        decoded = ((one.position, decode_directory_event(one)) for one in self._log.read(stream=f"realm/{name}"))
        return [(position, event) for position, event in decoded if isinstance(event, RealmEvent)]

    @contextmanager
    def change(self) -> Iterator[DirectoryChange]:
        """Take the directory's lock, give its entries as of now, and commit what was appended.

        Raises:
            LogBusyError: ``LOG_BUSY`` when another process kept the lock too long.
            RefusedError: ``LOG_READ_ONLY``; and others of ``EventLog.write``.
        """
        with self._reading, self._log.write() as transaction:
            others = transaction.new_events(self._state.position)
            self._follow((one.position, decode_directory_event(one)) for one in others)
            under_lock = DirectoryState(self._state.position, dict(self._state.realms))
            yield DirectoryChange(self._log, transaction, under_lock, max(self._clock.now_ms(), self._last_ms))

    def _follow(self, events: Iterator[tuple[int, Event]]) -> None:
        for position, event in events:
            self._state.apply(position, event)
            self._last_ms = event.at

    def _check_kind(self, *, may_be_empty: bool) -> None:
        size = self._log.head().size
        if size == 0 and may_be_empty:
            return
        if size == 0 or self._log.event_at(1).topic != DirectoryFounded.TOPIC:
            what = "is empty" if size == 0 else "is the log of a realm, or of another program"
            raise RefusedError(
                ErrorCode.NOT_A_DIRECTORY,
                f"{self._log.address} {what}; a directory of realms has a log of its own, which `worldctl realm "
                "create` and `worldctl realm add` create.",
            )


def recorded_address(text: str) -> str:
    """Return an address as a directory records it: a file with its whole path, and the name of the log.

    Args:
        text: the address of a log.

    Raises:
        RefusedError: ``INVALID_ADDRESS``, also for an address with a password, and for a log in memory.
    """
    address = parse_address(text)
    if masked(text) != text:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS,
            f"{masked(text)!r} holds a password, or an option that may be one, and a directory is read by many. Leave "
            "it out, and give the password in PGPASSWORD, in a password file (~/.pgpass), or by a service "
            "(`postgresql:///?service=NAME`).",
        )
    if address.path == MEMORY:
        raise RefusedError(
            ErrorCode.INVALID_ADDRESS, f"{text!r} is a log in memory, which no other process can open; name a file."
        )
    if address.path:
        return f"{os.path.abspath(address.path)}#{address.name}"
    base, mark, _ = text.rpartition("#")
    return f"{base if mark else text}#{address.name}"
