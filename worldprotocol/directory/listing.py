"""What the places of listed realms hold now; a place that does not answer delays and hides no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any, ClassVar, Final

from world.error_codes import ErrorCode
from world.errors import WorldProtocolError
from world.log import open_log
from world.model.record import WireForm
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from worldprotocol.directory.state import RealmEntry

__all__ = ["ANSWER_S", "ListedRealm", "look_at"]

ANSWER_S: Final = 10.0
"""Time in which a place has to answer, in seconds."""


@dataclass(frozen=True, slots=True)
class ListedRealm(WireForm):
    """A realm of a directory, and what its place holds.

    Args:
        entry: the directory's entry.
        events: number of events at its place; None where that was not read, or while it is archived.
        epoch: writer epoch at its place.
        is_closed: whether the place is closed to writers.
        error: why the place was not read.
    """

    entry: RealmEntry
    events: int | None = None
    epoch: int | None = None
    is_closed: bool | None = None
    error: WorldProtocolError | None = None
    WIRE: ClassVar = (
        "name=entry.name place state=entry.status target=entry.target archive=entry.archive events=size epoch "
        "closed=is_closed logId=entry.log_id changedAt=entry.at by=entry.by error=failure"
    )

    @property
    def place(self) -> str | None:
        """Where it is; None while it is archived."""
        return None if self.entry.archive else self.entry.place

    @property
    def size(self) -> int | None:
        """Number of its events, as far as it is known."""
        return self.entry.size if self.entry.archive else self.events

    @property
    def failure(self) -> dict[str, Any] | None:
        """Code and sentence of the error."""
        return None if self.error is None else {"code": self.error.code, "message": self.error.message}


def look_at(entries: Iterable[RealmEntry], answer_s: float = ANSWER_S) -> list[ListedRealm]:
    """Return entries with what their places hold, in order of name.

    Args:
        entries: of a directory.
        answer_s: time in which the places have to answer, in seconds.
    """
    found: dict[str, ListedRealm] = {}
    answers: SimpleQueue[ListedRealm] = SimpleQueue()
    asked = {}
    for entry in entries:
        found[entry.name] = ListedRealm(entry)
        if entry.archive is None:
            asked[entry.name] = entry
            # a daemon: a server that never answers would keep the process from ending
            threading.Thread(target=lambda one=entry: answers.put(_look(one)), daemon=True).start()
    end = time.monotonic() + answer_s
    while asked:
        try:
            answer = answers.get(timeout=max(0.0, end - time.monotonic()))
        except Empty:
            break
        found[answer.entry.name] = answer
        del asked[answer.entry.name]
    for name, entry in asked.items():
        why = f"{entry.place} did not answer in {answer_s:g} s."
        found[name] = ListedRealm(entry, error=WorldProtocolError(ErrorCode.LOG_UNAVAILABLE, why))
    return [found[name] for name in sorted(found)]


def _look(entry: RealmEntry) -> ListedRealm:
    try:
        with open_log(entry.place, read_only=True, view=WorldIndex()) as log:
            realm = Archive(log).realm()
            return ListedRealm(entry, realm.position, realm.writer.epoch, realm.writer.closed is not None)
    except WorldProtocolError as error:
        return ListedRealm(entry, error=error)
