"""Running processes of ``worldctl`` follow a move: a worker and a feed go on at the new place."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, environment
from tests.server.kiosk import GATE, handlers, kiosk
from tests.server.served import founded
from tests.support.patience import PATIENCE_S, until
from world.audit.verify import verify
from world.errors import RefusedError
from world.log import EventLog, open_log
from world.state.proposal import Proposal
from worldprotocol import Realm, RealmDirectory, Worker
from worldprotocol.api.remote.event_forms import logged_form

pytestmark = pytest.mark.slow


@contextmanager
def placed(folder: Path, more: str = "") -> Iterator[tuple[RealmDirectory, Realm]]:
    """Found and list a realm; ``more`` is added to its configuration. This process performs no effect."""
    place = founded(folder)
    with (folder / "world.toml").open("a") as file:
        file.write(more)
    with RealmDirectory.found(folder / "realms.db") as directory:
        directory.add("main", place.log)
        with directory.realm("main", domain=kiosk, effects=handlers, execute=False) as realm:
            yield directory, realm


@contextmanager
def running(folder: Path, *arguments: str, ends_with: int = 0) -> Iterator[subprocess.Popen[str]]:
    """Run a command over the directory; it is stopped at the end, with an exit code."""
    options = ["--directory", "realms.db", "--realm", "main", "--config", "world.toml", "--json"]
    with (folder / "errors.txt").open("w") as complaints:
        process = subprocess.Popen(
            [*COMMAND, *options, *arguments],
            cwd=folder,
            env=environment() | {GATE: str(folder / "gate")},
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            text=True,
        )
    try:
        yield process
        process.terminate()
        assert process.wait(PATIENCE_S) == ends_with, (folder / "errors.txt").read_text()
    finally:
        process.kill()
        process.wait()


def pay(realm: Realm, key: str) -> Proposal:
    """Submit an order whose effect is performed by a worker."""
    return realm.submit(realm.issue("kid", "order.pay", {"item": key, "number": key}, scope=["orders"]))


def completed(realm: Realm, orders: Sequence[Proposal]) -> Callable[[], bool]:
    """Return whether all orders are completed."""
    return lambda: all(realm.proposal(one.proposal_id).status == "completed" for one in orders)


def test_a_worker_performs_each_effect_once_before_during_and_after_moves(tmp_path: Path) -> None:
    gate, charged = tmp_path / "gate", tmp_path / "gate.charged"
    with placed(tmp_path) as (directory, realm), running(tmp_path, "worker") as worker:
        orders = [pay(realm, "under-way")]
        until(charged.exists, running=worker)
        orders.append(pay(realm, "offered"))
        directory.move("main", tmp_path / "elsewhere.db", by="ann")
        orders.append(pay(realm, "moved"))
        gate.touch()
        until(completed(realm, orders), running=worker)
        directory.move("main", tmp_path / "again.db", by="ann")  # while the worker waits for effects
        orders.append(pay(realm, "again"))
        until(completed(realm, orders), running=worker)
        assert charged.read_text().split() == ["under-way", "offered", "moved", "again"]
        assert set(realm.data()["orders"]) == {"under-way", "offered", "moved", "again"}
        assert verify(realm.log).findings == ()


def delivered(folder: Path) -> list[Any]:
    """Return the events that the feed has delivered, as it has written them."""
    file = folder / "audit.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_feed_delivers_each_event_once_before_and_after_moves_and_restarts(tmp_path: Path) -> None:
    def has_all(log: EventLog) -> Callable[[], bool]:
        return lambda: len(delivered(tmp_path)) >= log.head().size

    with placed(tmp_path, "[feeds.audit]\nfile = 'audit.jsonl'\nformat = 'json'\n") as (directory, realm):
        with running(tmp_path, "feed", "run") as feeding:
            until(lambda: has_all(realm.log)(), running=feeding)
            for number, place in enumerate(["elsewhere.db", "again.db"]):
                pay(realm, f"before-{number}")
                directory.move("main", tmp_path / place, by="ann")
                pay(realm, f"after-{number}")
                until(lambda: has_all(realm.log)(), running=feeding)
        directory.move("main", tmp_path / "last.db", by="ann")
        pay(realm, "last")
    with open_log(str(tmp_path / "last.db"), read_only=True) as log:  # an open realm records retries whenever it likes
        with running(tmp_path, "feed", "run") as feeding:  # at another place than before
            until(has_all(log), running=feeding)
        assert delivered(tmp_path) == [logged_form(event) for event in log.read()]


def test_a_worker_without_a_directory_ends_with_the_log_of_its_place(tmp_path: Path) -> None:
    with (
        placed(tmp_path) as (directory, _),
        Realm.open(tmp_path / "world.db", domain=kiosk, effects=handlers, execute=False) as old,
        ThreadPoolExecutor(1) as pool,
    ):
        working = pool.submit(Worker(old).run)
        directory.move("main", tmp_path / "elsewhere.db", by="ann")
        with pytest.raises(RefusedError) as caught:
            working.result(PATIENCE_S)
        assert caught.value.code == "LOG_FENCED"
