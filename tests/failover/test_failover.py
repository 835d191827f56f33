"""The primary is killed under sixteen writers, ten times: nothing acknowledged is lost, no effect is made twice."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from tests.failover.cluster import Cluster, Server, running_cluster
from tests.failover.writing import WRITERS, bank, transfers
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S, until
from world.audit.verify import verify
from world.errors import WorldProtocolError
from world.log import NewEvent, open_log
from world.state.proposal import Proposal
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]  # a round has many waits, each of which may be long

CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = scaled(10, ci=2)
PROCESSES = 4
EACH = 4
"""Intents that one writer submits in a round; the primary is killed after a quarter of all."""


@dataclass
class Writers:
    """Processes of writers, which live through all rounds.

    Args:
        folder: of what they acknowledge and of the effects they make.
        processes: the processes.
    """

    folder: Path
    processes: list[subprocess.Popen[str]]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of theirs."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def start(self, each: int = EACH) -> None:
        """Have each writer submit so many intents."""
        for one in self.processes:
            assert one.stdin is not None
            one.stdin.write(f"{each}\n")
            one.stdin.flush()

    def wait(self) -> list[str]:
        """Wait until all are acknowledged; return what was repeated, by process."""
        answers = []
        for one in self.processes:
            assert one.stdout is not None
            answers.append(one.stdout.readline())
            assert answers[-1].startswith("done"), one.poll()
        return answers


@contextlib.contextmanager
def running_writers(address: str, folder: Path) -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.failover.writing", address, str(folder)]
    processes: list[subprocess.Popen[str]] = []
    try:
        processes += [
            subprocess.Popen(
                [*command, f"p{number}"], cwd=CHECKOUT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            for number in range(PROCESSES)
        ]
        for one in processes:
            assert one.stdout is not None
            assert one.stdout.readline() == "open\n"
        yield Writers(folder, processes)
        for one in processes:
            one.communicate(timeout=PATIENCE_S)
            assert one.returncode == 0
    finally:
        for one in processes:
            one.kill()
            one.wait()


def proposals(realm: Realm) -> dict[str, Proposal]:
    """Return all proposals by the id of their intent."""
    streams = [logged.stream for logged in realm.log.read(topics=["proposal.submitted"])]
    return {one.submitted.intent.intent_id: one for one in map(realm.proposal, streams)}


def end_all(address: str, folder: Path, acknowledged: set[str]) -> int:
    """Wait until all proposals have ended; return how many effects in doubt had to be resolved for it.

    Of each effect in doubt the file says whether it was made, as a person does who asks the other system.

    Args:
        address: of the log.
        folder: of what the writers acknowledge and of the effects they make.
        acknowledged: ids of the intents that were acknowledged as completed before the primary was killed.
    """
    doubts = 0

    def is_done(realm: Realm) -> bool:
        nonlocal doubts
        made = set((folder / "effects").read_text().splitlines())
        realm.settle()
        for proposal in list(realm.realm().proposals.values()):
            intent = proposal.submitted.intent
            assert intent.intent_id not in acknowledged
            for name in list(proposal.in_doubt):
                happened = f"{intent.intent_id}:{name}" in made
                value = {"number": intent.body.input["amount"]} if happened else None
                choice: Any = "happened" if happened else "retry"
                realm.host.resolve(proposal.proposal_id, choice, by="ann", reason="file", effect=name, value=value)
                doubts += 1
        return not realm.realm().proposals

    with Realm.open(address, domain=bank, effects=[transfers(folder)]) as realm:
        until(lambda: is_done(realm))
    return doubts


def check_round(address: str, writers: Writers, issued: int) -> int:
    """Compare the log with what was acknowledged and with the effects; return the writer epoch."""
    acknowledged = dict(line.split() for line in writers.lines("acknowledged"))
    made = Counter(writers.lines("effects"))
    assert len(acknowledged) == issued
    assert [key for key, count in made.items() if count > 1] == []
    with open_to_recheck(address, domain=bank) as realm:
        assert verify(realm.log).findings == ()
        assert recheck(realm).first is None
        found = proposals(realm)
        assert set(found) == set(acknowledged)  # each was repeated until it was acknowledged
        assert Counter(one.status for one in found.values()) == {"completed": issued}
        assert set(made) == {f"{intent}:{name}" for intent, one in found.items() for name in one.journal}
        return realm.realm().writer.epoch


def check_completed(address: str, acknowledged: set[str]) -> None:
    """Check that no effect of an intent was requested, begun or in doubt after the intent was completed.

    Args:
        address: of the log.
        acknowledged: ids of the intents that were acknowledged as completed before the primary was killed.
    """
    assert acknowledged
    with open_to_recheck(address, domain=bank) as realm:
        found = proposals(realm)
        for key in acknowledged:
            name = found[key].proposal_id
            topics = [logged.topic for logged in realm.log.stream(name)]
            assert topics.count("effect.fulfilled") == 1, topics
            afterwards = topics[topics.index("proposal.completed") + 1 :]
            assert set(afterwards) <= {"effect.dropped"}, topics  # a result whose first commit was unknown
            assert not {"effect.in_doubt", "effect.resolved"}.intersection(topics), topics


class Flipping:
    """A long-lived program whose address is one name that leads to one server or another, as a virtual address does."""

    def __init__(self, cluster: Cluster, database: str) -> None:
        self._cluster = cluster
        self._name = cluster.root / "vip"
        self._database = database
        self.lead_to(cluster.primary)
        self.realm = Realm.open(
            f"postgresql://postgres@/{database}?host={self._name}&application_name=flipping", domain=bank
        )
        self._numbers = itertools.count()

    def lead_to(self, server: Server) -> None:
        """Have the name lead to a server; connections to another one break."""
        self._name.unlink(missing_ok=True)
        self._name.symlink_to(server.socket)
        for one in (self._cluster.primary, *self._cluster.standbys):
            one.ask("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'flipping'")

    def write(self) -> None:
        """Record something."""
        self.realm.register(f"visitor-{next(self._numbers)}", "human")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.realm.close()


def check_old_primary(cluster: Cluster, old: Server, database: str, flipping: Flipping) -> None:
    """Try to write to a server that was primary before, as it returns: it is refused, or never acknowledged.

    Args:
        cluster: with the new primary.
        old: the server.
        database: the database of the log.
        flipping: a program that was led to the new primary.
    """
    standby = next(one for one in cluster.standbys if one is not old)
    with pytest.raises(WorldProtocolError) as fenced:
        open_log(cluster.url(database, old.name, standby.name))
    assert fenced.value.code == "WRITER_FENCED"
    flipping.lead_to(old)
    with pytest.raises(WorldProtocolError) as fenced:
        flipping.write()
    assert fenced.value.code == "WRITER_FENCED"
    flipping.lead_to(cluster.primary)
    flipping.write()
    # a program that knows of no other server: no standby follows this one, so no commit is acknowledged
    with open_log(cluster.url(database, old.name), busy_timeout_ms=300) as log:
        with pytest.raises(WorldProtocolError) as unknown, log.write() as transaction:
            transaction.append([NewEvent("realm", "test.lost", 1, b"{}")])
        assert unknown.value.code == "COMMIT_UNKNOWN"


def kill(cluster: Cluster, *, amid_a_commit: bool) -> None:
    """Kill the primary as it comes, or while a commit that it has stored waits for standbys."""
    with contextlib.ExitStack() as stack:
        if amid_a_commit:
            for one in cluster.standbys:
                stack.enter_context(one.receiving_nothing())
            until(lambda: cluster.primary.has_waiting_commit)
        cluster.primary.kill()


def test_the_primary_is_killed_under_writers_again_and_again(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        database = cluster.database()
        address = cluster.url(database)
        with Realm.create(address, domain=bank) as realm:
            realm.register("ann", "human")
            realm.register("bot", "agent", binding={"kind": "auto_approve"})
        with running_writers(address, tmp_path) as writers, Flipping(cluster, database) as flipping:
            share = PROCESSES * WRITERS * EACH
            for number in range(ROUNDS):
                begun = len(writers.lines("acknowledged"))
                writers.start()
                enough = begun + share // 4
                until(lambda: len(writers.lines("acknowledged")) >= enough)  # noqa: B023 - it is called here
                completed = {
                    key for key, status in map(str.split, writers.lines("acknowledged")) if status == "completed"
                }
                kill(cluster, amid_a_commit=number % 2 == 1)
                unacknowledged = begun + share - len(writers.lines("acknowledged"))
                lost = cluster.fail_over()
                repeated = writers.wait()
                doubts = end_all(address, tmp_path, completed)
                check_completed(address, completed)
                assert check_round(address, writers, (number + 1) * share) == number + 1
                flipping.lead_to(cluster.primary)
                flipping.write()
                lost.start()
                check_old_primary(cluster, lost, database, flipping)
                lost.stop()
                lost.copy(cluster.primary)
                cluster.have_followed([lost])
                print(f"round {number + 1}: {unacknowledged} not acknowledged, {doubts} in doubt, repeated: {repeated}")
