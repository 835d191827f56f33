"""A running server follows a move of its realm: nothing acknowledged is lost, and no client is started again."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from host import find_effects, handler
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S, until
from world.audit.verify import verify
from world.errors import LogBusyError
from world.log import open_log
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from worldprotocol import RealmDirectory, Worker
from worldprotocol.api.executing.remote_effects import RemoteEffects
from worldprotocol.directory.moving import MoveStep

pytestmark = pytest.mark.slow

CLIENTS = 4
EACH = 5
"""Acknowledged orders of each client before the move, and after it, at least."""

SHIPPED = ORDER | {"type": "order.ship"}

LIMITS = "requests_per_second = 100000\nburst = 100000"


@contextmanager
def placed(folder: Path, more: str = "") -> Iterator[tuple[Served, RealmDirectory]]:
    """Run a server over a directory that lists the realm; ``more`` is added to its configuration."""
    place, address = founded(folder, server=LIMITS), str(folder / "realms.db")
    with (folder / "world.toml").open("a") as file:
        file.write(more)
    with RealmDirectory.found(address) as directory:
        directory.add("main", place.log)
        with serving(place, "--directory", address, "--realm", "main=world.toml", "--socket", "main.sock") as served:
            yield served, directory


class Clients:
    """Clients of a server that submit one order after the other, and a reader of its event stream."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.acknowledged: dict[str, str] = {}
        self.unexpected: list[str] = []
        self.seen: list[int] = []
        self.streams = 0
        self.is_over = False
        self._grown = threading.Condition()

    def write(self, client: int) -> None:
        """Submit orders until it is over; one that the server asks to repeat is repeated with its key."""
        number = 0
        with self.served.client("kid") as kid:
            while not self.is_over and not self.unexpected:
                key = f"c{client}-{number}"
                order = ORDER | {"input": {"item": key, "number": key}, "scopeProposal": {"allowedPaths": ["orders"]}}
                answer = kid.post(f"{PATH}/intents", json=order, headers={"Idempotency-Key": key})
                self._take(key, answer)
                number += answer.status_code == 200

    def _take(self, key: str, answer: httpx.Response) -> None:
        body = answer.json()
        with self._grown:
            if answer.status_code == 200:
                self.acknowledged[key] = body["proposalId"]
            elif answer.status_code != 503 or body["code"] != "REALM_MOVED" or "Retry-After" not in answer.headers:
                self.unexpected.append(answer.text)
            self._grown.notify_all()

    def read(self, upto: threading.Event) -> None:
        """Read the stream of events, and continue after its end, until the newest event was seen at the end."""
        with self.served.client("bot") as bot:
            while not upto.is_set() or self.seen[-1] < bot.get(PATH).json()["position"]:
                after = self.seen[-1] if self.seen else 0
                self.streams += 1
                with bot.stream("GET", f"{PATH}/log/stream", headers={"Last-Event-ID": str(after)}) as stream:
                    for line in stream.iter_lines():
                        if line.startswith("id: "):
                            self.seen.append(int(line[4:]))
                        if line.startswith("data: ") and upto.is_set():
                            break

    def wait_for(self, more: int) -> None:
        """Wait until so many more orders are acknowledged than now."""
        with self._grown:
            wanted = len(self.acknowledged) + more
            assert self._grown.wait_for(lambda: self.unexpected or len(self.acknowledged) >= wanted, PATIENCE_S)
            assert self.unexpected == []


def check(log: str, acknowledged: dict[str, str], served: Served) -> None:
    """Check that a log is sound and that the server has each acknowledged proposal."""
    with open_log(log, read_only=True) as opened:
        assert verify(opened).findings == ()
    with served.client("bot") as bot:
        for key, proposal_id in acknowledged.items():
            found = bot.get(f"{PATH}/proposals/{proposal_id}").json()
            assert (found["status"], found["intent"]["body"]["input"]["item"]) == ("completed", key)


def order(served: Served, key: str) -> httpx.Response:
    """Submit one order."""
    return served.submit("kid", ORDER | {"input": {"item": key, "number": key}}, key)


def test_a_server_follows_a_move_under_load(tmp_path: Path) -> None:
    target = f"{tmp_path}/elsewhere.db"
    with placed(tmp_path) as (served, directory), ThreadPoolExecutor(CLIENTS + 1) as pool:
        clients, upto = Clients(served), threading.Event()
        try:
            reader = pool.submit(clients.read, upto)
            writers = [pool.submit(clients.write, number) for number in range(CLIENTS)]
            clients.wait_for(EACH * CLIENTS)
            directory.move("main", target, by="ann")
            clients.wait_for(EACH * CLIENTS)
            upto.set()
            clients.wait_for(1)
        finally:
            clients.is_over = True
            upto.set()
        for writer in writers:
            writer.result(PATIENCE_S)
        order(served, "last")
        reader.result(PATIENCE_S)
        assert clients.unexpected == []
        assert clients.streams > 1  # the stream of the old place ended
        assert clients.seen == list(range(1, clients.seen[-1] + 1))
        check(target, clients.acknowledged, served)


def opened_files(served: Served) -> set[str]:
    """Return the files that a server has open."""
    return {os.path.realpath(one) for one in Path(f"/proc/{served.process.pid}/fd").iterdir()}


def served_again(served: Served, key: str, meanwhile: tuple[int, str] = (503, "REALM_MOVED")) -> httpx.Response:
    """Submit an order until the server accepts it; until then, every answer is as given."""
    answers = [order(served, key)]

    def is_served() -> bool:
        if answers[-1].status_code == 200:
            return True
        assert (answers[-1].status_code, answers[-1].json()["code"]) == meanwhile, answers[-1].text
        answers.append(order(served, key))
        return False

    until(is_served)
    return answers[-1]


def test_writers_are_asked_to_repeat_and_readers_go_on_until_the_realm_is_open(tmp_path: Path) -> None:
    refused: list[httpx.Response] = []

    with placed(tmp_path) as (served, directory), served.client("bot") as bot:

        def on_step(step: MoveStep) -> None:
            if step in ("closed", "compared"):
                refused.append(order(served, "early"))
                assert bot.get(f"{PATH}/log").status_code == 200

        directory.move("main", tmp_path / "elsewhere.db", by="ann", on_step=on_step)
        assert [answer.status_code for answer in refused] == [503, 503]
        assert {answer.headers["Retry-After"] for answer in refused} == {"1"}
        assert {answer.json()["code"] for answer in refused} == {"REALM_MOVED"}
        made = served_again(served, "early")
        assert order(served, "early").json()["proposalId"] == made.json()["proposalId"]
        directory.move("main", tmp_path / "again.db", by="ann")
        served_again(served, "late")
        with directory.read_only("main") as realm:
            assert set(realm.data()["orders"]) == {"early", "late"}
        for left in (served.place.log, f"{tmp_path}/elsewhere.db"):
            until(lambda left=left: left not in opened_files(served))  # type: ignore[misc]
    with open_log(str(tmp_path / "again.db"), read_only=True) as log:
        assert verify(log).findings == ()


class StoppedError(Exception):
    """The mover ends."""


def test_a_server_stays_where_a_move_is_abandoned(tmp_path: Path) -> None:
    def on_step(step: MoveStep) -> None:
        if step == "closed":
            raise StoppedError

    with placed(tmp_path) as (served, directory):
        with pytest.raises(StoppedError):
            directory.move("main", tmp_path / "elsewhere.db", by="ann", on_step=on_step)
        assert order(served, "one").status_code == 503
        directory.abandon("main", "move")
        served_again(served, "one")
        assert directory.place("main") == f"{served.place.log}#main"
        with served.place.realm() as realm:
            assert realm.data()["orders"] == {"one": "one"}


def test_a_server_follows_an_archived_realm_once_it_is_restored(tmp_path: Path) -> None:
    with placed(tmp_path) as (served, directory):
        directory.archive("main", tmp_path / "kept", by="ann")
        refused = order(served, "one")
        assert (refused.status_code, refused.json()["code"]) == (409, "LOG_FENCED")
        directory.restore("main", tmp_path / "restored.db", by="ann")
        served_again(served, "one", (409, "LOG_FENCED"))
        with directory.read_only("main") as realm:
            assert realm.data()["orders"] == {"one": "one"}


def test_a_new_place_that_cannot_be_opened_is_said_and_tried_again(tmp_path: Path) -> None:
    workspace, hidden = tmp_path / "files", tmp_path / "hidden"
    workspace.mkdir()
    with placed(tmp_path, more="[workspace]\nroot = 'files'\n") as (served, directory):
        workspace.rename(hidden)
        directory.move("main", tmp_path / "elsewhere.db", by="ann")
        until(lambda: "cannot be opened" in order(served, "one").json()["detail"])
        refused = order(served, "one")
        assert (refused.status_code, refused.json()["code"]) == (503, "REALM_MOVED")
        assert "files" in refused.json()["detail"]
        with served.client("bot") as bot:
            assert bot.get(PATH).status_code == 200
        hidden.rename(workspace)
        served_again(served, "one")


def test_a_remote_worker_reports_at_the_new_place_what_it_did_at_the_old_one(tmp_path: Path) -> None:
    shipped: list[str] = []
    reached, may_end, was_refused = threading.Event(), threading.Event(), threading.Event()

    def ship(params: Any, _call: Any) -> str:
        shipped.append(params["number"])
        reached.set()
        assert may_end.wait(PATIENCE_S)
        return "gone"

    class Effects(RemoteEffects):
        def complete(self, claim: EffectClaim, performed: Performed) -> bool:
            try:
                return super().complete(claim, performed)
            except LogBusyError:
                was_refused.set()
                raise

    def on_step(step: MoveStep) -> None:
        if step == "closed":
            may_end.set()
            assert was_refused.wait(PATIENCE_S)

    effects = find_effects(entry_points=False)
    effects.add(handler("cart.ship", time_limit_ms=600_000)(ship))
    with (
        placed(tmp_path) as (served, directory),
        Effects(served.url, "main", served.place.tokens["mule"], effects) as source,
        ThreadPoolExecutor(1) as pool,
    ):
        worker = Worker(source, types=["cart.ship"], name="mule-1")
        working = pool.submit(worker.run)
        one = served.submit("kid", SHIPPED | {"input": {"item": "tea", "number": "one"}}).json()["proposalId"]
        assert reached.wait(PATIENCE_S)
        directory.move("main", tmp_path / "elsewhere.db", by="ann", on_step=on_step)
        until(lambda: is_completed(served, one))
        two = served.submit("kid", SHIPPED | {"input": {"item": "tea", "number": "two"}}).json()["proposalId"]
        until(lambda: is_completed(served, two))
        worker.stop()
        assert working.result(PATIENCE_S).completed == 2
    assert shipped == ["one", "two"]


def is_completed(served: Served, proposal_id: str) -> bool:
    """Return whether a proposal is completed."""
    with served.client("bot") as bot:
        return bool(bot.get(f"{PATH}/proposals/{proposal_id}").json()["status"] == "completed")
