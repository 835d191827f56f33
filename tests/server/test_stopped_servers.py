"""A server that is stopped while it holds PostgreSQL's lock, by TCP: another one writes, and nothing is lost."""

from __future__ import annotations

import random
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.plugins.forms import scaled
from tests.server.served import ORDER, Place, Served, founded, serving
from tests.support.patience import until
from world.audit.verify import verify
from worldprotocol.api.realm import Realm

pytestmark = [pytest.mark.slow, pytest.mark.requirement("LIVE-lock")]

STOPS = scaled(20, ci=2)
WRITERS = 4

HOLDER = (
    "SELECT client_port FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE granted AND locktype = 'advisory' "
    "AND application_name LIKE 'worldprotocol unit %'"
)
"""The port of the process whose unit holds the lock; the database has one log."""


class Writers:
    """Callers that have a server place orders, one after another.

    Args:
        served: the server.
        pool: where they run.
    """

    def __init__(self, served: Served, pool: ThreadPoolExecutor) -> None:
        self.acknowledged: list[str] = []
        self._served, self._ended = served, threading.Event()
        self._running = [pool.submit(self._write, number) for number in range(WRITERS)]

    def _write(self, writer: int) -> None:
        for number in count():
            if self._ended.is_set():
                return
            self.acknowledged.append(placed(self._served, f"writer-{writer}-{number}"))

    def end(self) -> None:
        """End when the orders that are placed now are acknowledged."""
        self._ended.set()
        for one in self._running:
            one.result()


def placed(served: Served, number: str) -> str:
    """Have a server place an order, which is not refused, and return the id of its proposal."""
    answer = served.submit("kid", ORDER | {"input": {"item": "tea", "number": number}}, number)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "completed"
    return str(answer.json()["proposalId"])


def units_ended(place: Place) -> int:
    """Return how many units of others a server has ended, as it says."""
    return (place.folder / "server.log").read_text(encoding="utf-8").count("Ended the unit of work of backend")


@contextmanager
def stopped_as_holder(served: Served, url: str) -> Iterator[None]:
    """Stop a server at a moment at which it holds the lock by a connection of TCP, and let it go on at the end."""
    process = psutil.Process(served.process.pid)
    with psycopg.connect(url, autocommit=True) as connection:
        while True:
            time.sleep(random.uniform(0.0, 0.02))
            process.suspend()
            until(lambda: process.status() == psutil.STATUS_STOPPED)
            holder = connection.execute(HOLDER).fetchone()
            ports = {one.laddr.port for one in process.net_connections("tcp")}
            if holder is not None and holder[0] in ports:
                break
            process.resume()
    try:
        yield
    finally:
        served.process.send_signal(signal.SIGCONT)


def test_another_server_writes_while_the_holder_is_stopped_and_nothing_acknowledged_is_lost(
    postgres_tcp_database: str, tmp_path: Path
) -> None:
    """A writer waits for the lock for 15 s at most and is refused then; no order is refused."""
    place = founded(tmp_path, postgres_tcp_database, server="burst = 100000\nrequests_per_second = 100000")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "world.toml").write_text((tmp_path / "world.toml").read_text())
    second = Place(tmp_path / "other", place.log, place.tokens)
    with serving(place) as one, serving(second) as other, ThreadPoolExecutor(WRITERS) as pool:
        writers = Writers(one, pool)
        ours: list[str] = []
        while units_ended(second) < STOPS:  # where the commit was sent before the stop, there is nothing to end
            with stopped_as_holder(one, postgres_tcp_database):
                ours.append(placed(other, f"other-{len(ours)}"))
            enough = len(writers.acknowledged) + WRITERS
            until(lambda: len(writers.acknowledged) > enough)  # noqa: B023 - it is called here
        writers.end()
        acknowledged = [*writers.acknowledged, *ours]
    with Realm.open_read_only(place.log) as realm:
        statuses = {item.proposal_id: item.status for item in realm.proposals()}
        assert {statuses[name] for name in acknowledged} == {"completed"}
        assert len(statuses) == len(set(acknowledged)) == len(acknowledged)
        assert verify(realm.log).ok
