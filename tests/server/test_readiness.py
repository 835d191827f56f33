"""A server says of each realm whether it would accept a write now, and why not: real processes in the way."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import COMMAND, environment
from tests.log.test_sqlite_lock_holder import holding, is_stopped
from tests.server.served import ORDER, Place, Served, founded, serving
from tests.support.patience import until
from tests.telemetry.metric_names import Scrape
from worldprotocol.directory.directory import RealmDirectory

pytestmark = [pytest.mark.slow, pytest.mark.requirement("LIVE-probe")]


def ready(served: Served, **query: str) -> tuple[int, dict[str, Any]]:
    """Return the status and the body of ``/readyz``, for a caller without credentials."""
    with served.client() as client:
        answer = client.get("/readyz", params=query)
    body: dict[str, Any] = answer.json()
    return answer.status_code, body


def realms_in(body: dict[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = body["realms"] if "realms" in body else body["details"]["realms"]
    return listed


def metric(served: Served, name: str, **labels: str) -> float | None:
    with served.client("ops") as client:
        return Scrape(client.get("/metrics").text).value(name, **labels)


def doctor(place: Place) -> dict[str, Any]:
    done = subprocess.run(
        [*COMMAND, "doctor", "--json"], cwd=place.folder, env=environment(), capture_output=True, text=True, check=False
    )
    checks: list[dict[str, Any]] = json.loads(done.stdout)["checks"]
    return next(one for one in checks if one["check"] == "writable")


def test_a_server_whose_realms_accept_writes_is_ready_and_records_nothing_for_that(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place, "--realm", f"main={place.log}", "--realm", f"other={place.log}") as served:
        with place.realm() as realm:
            size = realm.log.head().size
        for query in ({}, {"realm": "other"}):
            status, body = ready(served, **query)
            assert (status, body["status"]) == (200, "ok")
            names = [query["realm"]] if query else ["main", "other"]
            assert body["realms"] == [{"name": name, "ready": True} for name in names]
        assert ready(served, realm="third")[0] == 404
        assert metric(served, "worldprotocol_realm_writable", realm="main") == 1
        assert metric(served, "worldprotocol_write_obstacle", realm="main") is None
        assert doctor(place) == {"check": "writable", "ok": True, "found": "a command would be accepted now"}
        with place.realm() as realm:
            assert realm.log.head().size == size
        assert served.submit("kid").status_code in (200, 202)


def test_two_servers_name_the_stopped_process_that_holds_the_lock_and_are_ready_without_it(tmp_path: Path) -> None:
    place = founded(tmp_path)
    first_folder, second_folder = place.folder, tmp_path / "second"
    second_folder.mkdir()
    other = Place(second_folder, place.log, place.tokens)
    (second_folder / "world.toml").write_text((first_folder / "world.toml").read_text())
    with serving(place) as one, serving(other, "--socket", str(second_folder / "s.sock")) as two:
        assert [ready(served)[0] for served in (one, two)] == [200, 200]
        with holding(Path(place.log)) as process:
            process.send_signal(signal.SIGSTOP)
            until(lambda: is_stopped(Path(place.log)))
            for served in (one, two):
                until(lambda served=served: ready(served)[0] == 503)  # type: ignore[misc]
                status, body = ready(served)
                assert (status, body["status"], body["code"]) == (503, 503, "LOG_BUSY")
                [main] = realms_in(body)
                assert (main["name"], main["ready"], main["code"]) == ("main", False, "LOG_BUSY")
                holder = main["holder"]
                assert (holder["pid"], holder["isStopped"], holder["heldMs"] >= 0) == (process.pid, True, True)
                assert str(tmp_path) not in json.dumps(body)  # anyone may ask
            assert metric(one, "worldprotocol_realm_writable", realm="main") == 0
            assert metric(one, "worldprotocol_write_obstacle", realm="main", code="LOG_BUSY") == 1
            found = doctor(place)
            assert found["ok"] is False
            assert f"process {process.pid} (" in found["found"]
            assert "which is stopped" in found["found"]
            with one.client() as client:
                assert client.get("/healthz").status_code == 200
        for served in (one, two):
            until(lambda served=served: ready(served)[0] == 200)  # type: ignore[misc]
        two.process.send_signal(signal.SIGSTOP)  # a server that is stopped without the lock is in nobody's way
        try:
            assert one.submit("kid", ORDER).status_code in (200, 202)
            assert ready(one)[0] == 200
        finally:
            two.process.send_signal(signal.SIGCONT)
    told = (first_folder / "server.log").read_text()
    assert f"The realm main would not accept a write: Another writer keeps {place.log} locked: process" in told
    assert "The realm main would accept a write again." in told


def limit_units(place: Place, max_unit_ms: int) -> None:
    with (place.folder / "world.toml").open("a") as file:
        file.write(f"[limits]\nmax_unit_ms = {max_unit_ms}\n")


def test_a_server_is_ready_while_a_unit_holds_the_lock_for_as_long_as_it_may(tmp_path: Path) -> None:
    place = founded(tmp_path)
    limit_units(place, 10**9)
    with serving(place) as served, holding(Path(place.log)) as process:
        for _ in range(2):
            status, body = ready(served)
            [main] = realms_in(body)
            assert (status, main["ready"], main["busy"]) == (200, True, True)
            assert (main["holder"]["pid"], main["holder"]["isStopped"]) == (process.pid, False)
        assert metric(served, "worldprotocol_realm_writable", realm="main") == 1
        assert metric(served, "worldprotocol_write_obstacle", realm="main", code="LOG_BUSY") is None


def test_doctor_and_server_name_who_holds_the_lock_for_longer_than_a_unit_may(tmp_path: Path) -> None:
    place = founded(tmp_path)
    limit_units(place, 1)
    with serving(place) as served, holding(Path(place.log)) as process:
        until(lambda: ready(served)[0] == 503)
        [main] = realms_in(ready(served)[1])
        assert (main["code"], main["holder"]["pid"]) == ("LOG_BUSY", process.pid)
        assert main["holder"]["heldMs"] > 1
        found = doctor(place)
        assert found["ok"] is False
        assert f"process {process.pid} (" in found["found"]
        assert "It has been held for " in found["found"]


def test_a_file_that_was_moved_away_is_named(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with serving(place) as served:
        Path(place.log).rename(tmp_path / "away.db")
        until(lambda: ready(served)[0] == 503)
        assert realms_in(ready(served)[1])[0]["code"] == "LOG_MOVED"
        refused = served.submit("kid")
        assert (refused.status_code, refused.json()["code"]) == (503, "LOG_MOVED")


def test_a_moved_realm_that_cannot_be_opened_where_it_is_makes_the_server_unready(tmp_path: Path) -> None:
    place, directory = founded(tmp_path), str(tmp_path / "realms.db")
    new, away = tmp_path / "new.db", tmp_path / "away.db"
    with RealmDirectory.found(directory, by="ann") as listed:
        listed.add("main", place.log)
    with serving(place, "--directory", directory, "--realm", "main=world.toml") as served:
        assert ready(served)[0] == 200
        served.process.send_signal(signal.SIGSTOP)
        with RealmDirectory.open(directory) as listed:
            listed.move("main", new, by="ann")
        new.rename(away)
        served.process.send_signal(signal.SIGCONT)
        until(lambda: ready(served)[0] == 503)
        status, body = ready(served)
        assert (status, body["code"], realms_in(body)[0]["code"]) == (503, "LOG_NOT_FOUND", "LOG_NOT_FOUND")
        assert str(tmp_path) not in json.dumps(body)
        assert metric(served, "worldprotocol_write_obstacle", realm="main", code="LOG_NOT_FOUND") == 1
        away.rename(new)
        until(lambda: ready(served)[0] == 200)
        assert served.submit("kid").status_code in (200, 202)


def test_a_realm_that_was_archived_on_purpose_is_left_out(tmp_path: Path) -> None:
    place = founded(tmp_path)
    (tmp_path / "kept").mkdir()
    kept = founded(tmp_path / "kept")
    directory = str(tmp_path / "realms.db")

    with RealmDirectory.found(directory, by="ann") as listed:
        listed.add("main", place.log)
        listed.add("kept", kept.log)
    arguments = ("--directory", directory, "--realm", "main=world.toml", "--realm", "kept=kept/world.toml")
    with serving(place, *arguments) as served:
        assert ready(served)[0] == 200
        with RealmDirectory.open(directory) as listed:
            listed.archive("main", tmp_path / "archive")
        until(lambda: ready(served, realm="main")[0] == 503)
        status, body = ready(served)
        assert status == 200
        assert {one["name"]: (one["ready"], one.get("code")) for one in realms_in(body)} == {
            "main": (False, "LOG_FENCED"),
            "kept": (True, None),
        }
        assert realms_in(ready(served, realm="main")[1])[0]["code"] == "LOG_FENCED"
