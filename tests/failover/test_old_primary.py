"""An old primary that could not be stopped: what is acknowledged is not lost, and running programs leave it."""

from __future__ import annotations

import itertools
import threading
from pathlib import Path

import pytest

from tests.failover.cluster import Cluster, running_cluster
from tests.failover.test_failover import PROCESSES, check_round, end_all, running_writers
from tests.failover.writing import WRITERS, bank
from tests.plugins.forms import scaled
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.patience import until
from world.audit.verify import verify
from world.errors import WorldProtocolError
from world.log import EventLog, NewEvent, open_log
from world.log.backends import postgres_hosts
from worldprotocol import Realm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

NAMES = ("a", "b", "c", "d")
EACH = scaled(16, ci=4)
"""Intents that one writer submits."""


def append(log: EventLog, what: str = "happened") -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("realm", f"test.{what}", 1, b"{}")])


def promote_too_early(cluster: Cluster) -> None:
    """Promote a standby while another one still follows the old primary, so that both acknowledge commits."""
    cluster["d"].detach()
    cluster["b"].promote()
    cluster.primary = cluster["b"]
    cluster.have_followed([cluster["d"]])
    assert cluster["a"].has_standby("c")


def test_nothing_acknowledged_is_lost_by_the_documented_order_though_the_old_primary_runs_on(tmp_path: Path) -> None:
    with running_cluster() as cluster:
        address = cluster.url(cluster.database())
        with Realm.create(address, domain=bank) as realm:
            realm.register("ann", "human")
            realm.register("bot", "agent", binding={"kind": "auto_approve"})
        share = PROCESSES * WRITERS * EACH
        with running_writers(address, tmp_path) as writers:
            writers.start(EACH)
            until(lambda: len(writers.lines("acknowledged")) >= share // 4)
            old = cluster.fail_over()
            writers.wait()
            assert old.is_running
            end_all(address, tmp_path, set())
            assert check_round(address, writers, share) == 1


@pytest.mark.parametrize("others", [0, 5])
def test_a_running_writer_and_a_follower_leave_an_old_primary_that_acknowledges_commits(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    may_compare, compare = threading.Event(), postgres_hosts.PostgresHosts.compare

    def gated(hosts: postgres_hosts.PostgresHosts) -> None:
        if may_compare.wait(0):
            compare(hosts)

    monkeypatch.setattr(postgres_hosts, "COMPARE_S", 0.05)
    monkeypatch.setattr(postgres_hosts.PostgresHosts, "compare", gated)
    with running_cluster(NAMES) as cluster:
        address = cluster.url(cluster.database())
        with open_log(address, create=True) as log, log.follow() as follower:
            append(log)
            promote_too_early(cluster)
            append(log, "lost")  # acknowledged by the old primary
            assert [next(follower).position for _ in range(2)] == [1, 2]
            with open_log(address) as again:
                for _ in range(others):
                    append(again)
                may_compare.set()
                assert until(lambda: code_of(log) == "LOG_SHRUNK")
                assert again.head().size == 1 + others
                if others == 0:
                    with pytest.raises(WorldProtocolError) as shrunk:
                        next(follower)
                    assert shrunk.value.code == "LOG_SHRUNK"
                append(again)


def code_of(log: EventLog) -> str | None:
    """Append an event, and return the code of the error; None for a commit that was acknowledged."""
    try:
        append(log)
    except WorldProtocolError as error:
        return error.code
    return None


def test_a_server_opens_a_realm_again_whose_log_lacks_commits_that_it_has_seen(tmp_path: Path) -> None:
    with running_cluster(NAMES) as cluster:
        place = founded(tmp_path, cluster.url(cluster.database()))
        with serving(place) as served:
            assert order(served, "kept") == 200
            promote_too_early(cluster)
            order(served, "lost")
            numbers = itertools.count()

            def is_kept() -> bool:
                name = f"later-{next(numbers)}"
                with place.realm() as realm:
                    return order(served, name) == 200 and name in realm.data()["orders"]

            until(is_kept)
            with served.client("ann") as ann, place.realm() as realm:
                assert ann.get(PATH).json()["position"] == realm.log.head().size
                assert "kept" in realm.data()["orders"]
                assert verify(realm.log).findings == ()


def order(served: Served, key: str) -> int:
    """Order something with a key of its own, and return the HTTP status."""
    body = ORDER | {"input": {"item": key, "number": key}}
    with served.client("kid") as kid:
        return kid.post(f"{PATH}/intents", json=body, headers={"Idempotency-Key": key}).status_code
