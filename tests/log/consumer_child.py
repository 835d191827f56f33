"""An event consumer in a process of its own, which waits at a place where a test kills it.

``consumer_child.py ADDRESS MODE STOP_AT``, with the settings of the view's database in the environment. It prints the
position of every event, and at the event number STOP_AT (counted from 1; 0 is never) prints ``waiting`` and waits:

- ``after``: after the transaction that stores the event and its position;
- ``inside``: within that transaction, with everything written and nothing committed;
- ``apart``: between two transactions, one for the event and one for its position (what a consumer must not do).
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from eventsourcing.persistence import Tracking, TrackingRecorder
from eventsourcing.postgres import PostgresTrackingRecorder
from eventsourcing.projection import Projection
from eventsourcing.sqlite import SQLiteTrackingRecorder
from psycopg.sql import SQL

from worldprotocol.api.consumers import run_consumer

ADDRESS, MODE, STOP_AT = sys.argv[1], sys.argv[2], int(sys.argv[3])


def say(line: str) -> None:
    """Print a line that the test reads at once."""
    print(line, flush=True)


class Stop:
    """Counts the events, and stops at one of them for good."""

    count = 0

    def __call__(self, place: str) -> None:
        if place == MODE and self.count == STOP_AT:
            say("waiting")
            threading.Event().wait()


stop = Stop()


class SqliteSeen(SQLiteTrackingRecorder):
    """A table of the events that were processed, which would hold one twice that was processed twice."""

    def construct_create_table_statements(self) -> list[str]:
        return [
            *super().construct_create_table_statements(),
            "CREATE TABLE IF NOT EXISTS seen (position BIGINT, topic TEXT)",
        ]

    @contextmanager
    def transaction(self) -> Iterator[tuple[Callable[[Any, Any], Any], Callable[[Tracking], None]]]:
        """Yield what stores an event and what stores a position, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            insert = "INSERT INTO seen VALUES (?, ?)"
            yield lambda *row: cursor.execute(insert, row), lambda tracking: self._insert_tracking(cursor, tracking)


class PostgresSeen(PostgresTrackingRecorder):
    """The same on PostgreSQL."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sql_create_statements.append(SQL("CREATE TABLE IF NOT EXISTS seen (position BIGINT, topic TEXT)").format())

    @contextmanager
    def transaction(self) -> Iterator[tuple[Callable[[Any, Any], Any], Callable[[Tracking], None]]]:
        """Yield what stores an event and what stores a position, in one transaction."""
        with self.datastore.transaction(commit=True) as cursor:
            insert = "INSERT INTO seen VALUES (%s, %s)"
            yield lambda *row: cursor.execute(insert, row), lambda tracking: self._insert_tracking(cursor, tracking)


class Seen(Projection[Any]):
    """Stores every event that it is given."""

    def process_event(self, domain_event: Any, tracking: Tracking) -> None:
        stop.count += 1
        position = tracking.notification_id
        if MODE == "apart":
            with self.view.transaction() as (add, _):
                add(position, domain_event.TOPIC)
            stop("apart")
            self.view.insert_tracking(tracking)
        else:
            with self.view.transaction() as (add, track):
                add(position, domain_event.TOPIC)
                track(tracking)
                stop("inside")
        say(str(position))
        stop("after")


view: type[TrackingRecorder] = SqliteSeen if "sqlite" in os.environ["SEEN_PERSISTENCE_MODULE"] else PostgresSeen
with run_consumer(ADDRESS, Seen, view, {}) as runner:
    sys.stdin.read()  # the test closes it when it has read enough
    runner.stop()
