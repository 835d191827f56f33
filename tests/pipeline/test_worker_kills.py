"""Workers that are killed with SIGKILL at counted points: each effect is made once, or is in doubt; none is lost."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.posting import POINTS, Outside, declared, post, poster
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.clock import SystemClock
from world.state.proposal import Proposal
from worldprotocol import Realm, Worker

pytestmark = [pytest.mark.slow, pytest.mark.requirement("HC-journal", "WP-exec")]

CHECKOUT = Path(__file__).resolve().parents[2]


class Ahead(SystemClock):
    """A clock that is a minute ahead: every claim of a worker that was killed has lapsed by it."""

    def now_ms(self) -> int:
        return super().now_ms() + 60_000


def founded(address: str, kind: str, letters: int) -> None:
    """Found a realm with proposals whose letters are offered to workers."""
    with Realm.create(address, domain=post, effects=[declared(kind)], durability="normal") as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        for number in range(letters):
            assert realm.act("ann", "send", {"number": number}, scope=[]).status == "executing"
        assert len(realm.offered_effects()) == letters


def started(address: str, outside: Path, kind: str, point: str, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.pipeline.posting", address, str(outside), kind, point, str(count)]
    return subprocess.Popen(command, cwd=CHECKOUT)


def run_with_kills(address: str, outside: Path, kind: str, *, processes: int, kills: Iterator[tuple[str, int]]) -> int:
    """Keep so many workers running, each killed as the next of ``kills`` says; return how many were killed."""
    killed = 0
    running: list[subprocess.Popen[bytes]] = []
    try:
        running = [started(address, outside, kind, *next(kills)) for _ in range(processes)]
        while running:
            worker = running.pop(0)
            ended = worker.wait(PATIENCE_S)
            assert ended in (0, -9), ended
            killed += ended == -9
            if ended == -9:
                running.append(started(address, outside, kind, *next(kills, ("never", 0))))
    finally:
        for worker in running:
            worker.kill()
            worker.wait()
    return killed


def check(address: str, outside: Outside, kind: str, letters: int) -> Counter[str]:
    """Compare the log with the outside: each letter was made once, or is in doubt; none is lost."""
    posts = outside.posts()
    with Realm.open_read_only(address) as realm:
        doubtful = {
            f"{one.submitted.intent.intent_id}:{name}"
            for one in realm.realm().proposals.values()
            for name in one.in_doubt
        }
        ended: Counter[str] = Counter(one.status for _, one in proposals(realm))
        keys = {f"{one.submitted.intent.intent_id}:{name}" for _, one in proposals(realm) for name in one.journal}
        assert verify(realm.log).ok
    assert sum(ended.values()) == letters
    assert ended["completed"] + len(doubtful) == letters, ended  # none is lost
    assert ended["completed"] == ended.total() - ended["executing"]
    assert keys <= posts.keys()  # what is recorded as made was made
    assert posts.keys() <= keys | doubtful  # and what was made is recorded, or in doubt
    if kind == "single":
        assert set(posts.values()) == {1}  # once
    else:
        assert not doubtful
        assert outside.letters() == letters  # by its key, the outside has each once
    return ended


def proposals(realm: Realm) -> Iterator[tuple[str, Proposal]]:
    for logged in realm.log.read(topics=["proposal.submitted"]):
        yield logged.stream, realm.proposal(logged.stream)


@pytest.mark.parametrize("kind", ["single", "idempotent"])
def test_a_worker_killed_at_each_point_loses_no_effect(tmp_path: Path, kind: str) -> None:
    address, path = str(tmp_path / "w.db"), tmp_path / "outside.db"
    founded(address, kind, 9)
    outside = Outside(path)
    workers = [started(address, path, kind, point, 2) for point in POINTS]
    assert [one.wait(PATIENCE_S) for one in workers] == [-9, -9, -9]
    with Realm.open(
        address, domain=post, effects=[poster(kind, outside)], execute=False, clock=Ahead(), durability="normal"
    ) as realm:
        Worker(realm).run(once=True)
    ended = check(address, outside, kind, 9)
    assert ended["executing"] == (2 if kind == "single" else 0)  # killed before and after the handler, not completed


@pytest.mark.parametrize("kind", ["single", "idempotent"])
def test_hundreds_of_effects_over_four_killed_processes_are_each_made_once_or_in_doubt(
    tmp_path: Path, kind: str
) -> None:
    address, path = str(tmp_path / "w.db"), tmp_path / "outside.db"
    effects, kills = scaled(1_000, ci=250), scaled(24, ci=6)  # enough effects that each worker is killed amid them
    founded(address, kind, effects)
    killed = run_with_kills(address, path, kind, processes=4, kills=kills_of(kills))
    assert killed == kills
    finish(address, path, kind)
    ended = check(address, Outside(path), kind, effects)
    assert ended["executing"] == (kills * 2 // 3 if kind == "single" else 0)


@pytest.mark.parametrize("kind", ["single", "idempotent"])
def test_effects_over_killed_processes_are_each_made_once_or_in_doubt_on_postgres(
    tmp_path: Path, kind: str, postgres_database: str
) -> None:
    path = tmp_path / "outside.db"
    founded(postgres_database, kind, 120)
    killed = run_with_kills(postgres_database, path, kind, processes=4, kills=kills_of(9))
    assert killed == 9
    finish(postgres_database, path, kind)
    ended = check(postgres_database, Outside(path), kind, 120)
    assert ended["executing"] == (6 if kind == "single" else 0)


def kills_of(number: int) -> Iterator[tuple[str, int]]:
    """Return so many kills: at every point in turn, after 1 to 13 letters of the process."""
    return iter([(point, 1 + 5 * at % 13) for at, point in zip(range(number), itertools.cycle(POINTS))])


def finish(address: str, path: Path, kind: str) -> None:
    """Perform what claims of killed workers left, where they have lapsed."""
    with Realm.open(
        address, domain=post, effects=[poster(kind, Outside(path))], execute=False, clock=Ahead(), durability="normal"
    ) as realm:
        Worker(realm).run(once=True)
