"""A served realm whose disk is full, or whose database stops: what it answers, and that it recovers by itself."""

from __future__ import annotations

import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.cli.realm import COMMAND, environment
from tests.operations.own_database import Database
from tests.server.served import PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S, until
from tests.telemetry.metric_names import Scrape
from world.audit.verify import verify

pytestmark = pytest.mark.slow

LARGE = {"type": "order.place", "input": {"item": "x" * 60_000}, "scopeProposal": {"allowedPaths": ["orders"]}}


def metrics(served: Served) -> Scrape:
    """Return a scrape."""
    with served.client("ops") as client:
        answer = client.get("/metrics")
    assert answer.status_code == 200, answer.text
    return Scrape(answer.text)


def acknowledged(answers: list[httpx.Response]) -> set[str]:
    """Return the acknowledged proposals; every other answer is 503 with a code, and says when to try again."""
    found = set()
    for answer in answers:
        if answer.status_code in (200, 202):
            found.add(answer.json()["proposalId"])
        else:
            assert answer.status_code == 503, answer.text
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert int(answer.headers["Retry-After"]) > 0
    return found


def check_log(served: Served, proposals: set[str]) -> None:
    """Check that a log is sound and has every proposal that was acknowledged."""
    with served.place.realm() as realm:
        assert verify(realm.log).findings == ()
        for proposal in proposals:
            assert realm.proposal(proposal).proposal_id == proposal


def test_a_full_disk_refuses_writes_until_there_is_room(tmp_path: Path) -> None:
    with serving(founded(tmp_path)) as served:
        first = served.submit("kid")
        files = [Path(f"{served.place.log}{ending}") for ending in ("", "-wal")]
        largest = max(file.stat().st_size for file in files)
        unlimited = resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, (largest + 100_000, unlimited[1]))
        answers = [first, *(served.submit("kid", LARGE, key=f"request-{number}") for number in range(6))]
        refused = [one for one in answers if one.status_code == 503]
        assert {one.json()["code"] for one in refused} == {"STORAGE_FULL"}
        assert refused[-1] is answers[-1]
        with served.client("aud") as client:  # reading goes on
            until(lambda: client.get("/readyz").status_code == 503)
            assert client.get("/readyz").json()["code"] == "STORAGE_FULL"
            assert client.get(f"{PATH}/proposals").status_code == 200
        found = metrics(served)
        assert found.value("worldprotocol_realm_writable", realm="main") == 0
        assert found.value("worldprotocol_write_obstacle", realm="main", code="STORAGE_FULL") == 1
        assert (found.value("worldprotocol_commits_failed_total", realm="main", code="STORAGE_FULL") or 0) >= len(
            refused
        )
        refusals = found.value("worldprotocol_refused_total", operation="intents.submit", code="STORAGE_FULL")
        assert refusals == len(refused) > 0
        resource.prlimit(served.process.pid, resource.RLIMIT_FSIZE, unlimited)
        again = [served.submit("kid", LARGE, key=f"request-{number}") for number in range(6)]
        assert {one.status_code for one in again} <= {200, 202}  # without a restart
        with served.client() as client:
            until(lambda: client.get("/readyz").status_code == 200)
        assert metrics(served).value("worldprotocol_realm_writable", realm="main") == 1
        known = acknowledged(answers)
        check_log(served, known | acknowledged(again))
        assert len(known | acknowledged(again)) == 7  # what was refused was not recorded, and is once


@pytest.fixture
def database() -> Iterator[Database]:
    """Return a server of this test's own."""
    folder = Path(tempfile.mkdtemp(prefix="wp-outage-"))
    found = Database(folder)
    yield found
    found.close()
    shutil.rmtree(folder, ignore_errors=True)


def test_a_database_server_that_stops_is_a_503_until_it_runs_again(database: Database, tmp_path: Path) -> None:
    with serving(founded(tmp_path, database.url)) as served:
        answers = [served.submit("kid", key="before-1")]
        assert (metrics(served).value("worldprotocol_log_bytes", realm="main") or 0) > 100_000
        database.stop()
        with served.client("kid") as client:
            until(lambda: client.get("/readyz").status_code == 503)  # an answer holds for a second
            down = client.get("/readyz")
            assert (down.status_code, down.json()["code"]) == (503, "LOG_UNAVAILABLE")
            assert client.get("/healthz").status_code == 200
            read = client.get(f"{PATH}/proposals")
            assert (read.status_code, read.json()["code"]) == (503, "LOG_UNAVAILABLE")
        answers += [served.submit("kid", key=f"during-{number}") for number in range(3)]
        assert {one.json()["code"] for one in answers[1:]} == {"LOG_UNAVAILABLE"}
        found = metrics(served)  # the caller is verified by the last known state
        assert found.value("worldprotocol_log_available", realm="main") == 0
        assert (found.value("worldprotocol_log_position", realm="main") or 0) > 0
        assert (found.value("worldprotocol_refused_total", operation="server.ready", code="LOG_UNAVAILABLE") or 0) >= 1
        database.start()

        def is_ready() -> bool:
            with served.client() as client:
                return client.get("/readyz").status_code == 200

        until(is_ready)
        answers += [served.submit("kid", key=f"during-{number}") for number in range(3)]
        assert {one.status_code for one in answers[-3:]} <= {200, 202}  # without a restart
        assert metrics(served).value("worldprotocol_log_available", realm="main") == 1
        check_log(served, acknowledged(answers))
        assert len(acknowledged(answers)) == 4


def test_a_server_and_a_worker_are_started_before_their_database(database: Database, tmp_path: Path) -> None:
    place = founded(tmp_path, database.url)
    database.stop()

    def start_when_missed() -> None:
        until(lambda: "Opening the realm main is repeated" in (tmp_path / "server.log").read_text())
        database.start()

    (tmp_path / "server.log").touch()
    starting = threading.Thread(target=start_when_missed)
    starting.start()
    try:
        with serving(place, "--patience", str(PATIENCE_S)) as served:
            assert served.submit("kid", key="first").status_code in (200, 202)
    finally:
        starting.join()
    database.stop()
    impatient = subprocess.run(
        [*COMMAND, "worker", "--once", "--patience", "0"],
        check=False,
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert impatient.returncode == 1
    assert "[LOG_UNAVAILABLE]" in impatient.stderr
    waiting = subprocess.Popen(
        [*COMMAND, "worker", "--once", "--patience", str(PATIENCE_S)],
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert waiting.stderr is not None
    with waiting:
        assert "is repeated until it succeeds" in waiting.stderr.readline()
        database.start()
        assert waiting.wait(PATIENCE_S) == 0
