"""The public identity of a realm: by it a program tells the realm that it means from others at the same address."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.server.served import PATH, Served, founded, serving
from world.read_models.decoding import log_id_of


def test_the_identity_of_a_realm_is_the_id_of_its_log_and_needs_no_sign_in(served: Served) -> None:
    with served.place.realm() as realm:
        wanted = log_id_of(realm.log)
    with served.client() as client:
        answer = client.get(f"{PATH}/identity")
    assert (answer.status_code, answer.json()) == (200, {"name": "main", "logId": wanted})
    with served.client("nil") as client, served.client("ann") as reader:
        assert client.get(f"{PATH}/identity").json() == answer.json()
        assert reader.get(PATH).json()["logId"] == wanted


def test_a_realm_that_is_not_served_has_no_identity(served: Served) -> None:
    with served.client() as client:
        answer = client.get("/v1/realms/none/identity")
    assert (answer.status_code, answer.json()["code"]) == (404, "UNKNOWN_REALM")


@pytest.mark.slow
def test_a_copy_of_a_log_has_its_identity_and_another_log_has_another_one(served: Served, tmp_path: Path) -> None:
    for name in ("copy", "other"):
        (tmp_path / name).mkdir()
    copy, other = founded(tmp_path / "copy"), founded(tmp_path / "other")
    with sqlite3.connect(served.place.log) as old, sqlite3.connect(tmp_path / "copied.db") as new:
        old.backup(new)
    shutil.move(tmp_path / "copied.db", copy.log)
    found = []
    for place in (copy, other):
        with serving(place) as running, running.client() as client:
            found.append(client.get(f"{PATH}/identity").json()["logId"])
    with served.client() as client:
        own = client.get(f"{PATH}/identity").json()["logId"]
    assert found[0] == own
    assert found[1] != own


def test_many_requests_of_an_address_for_identities_are_slowed_down(tmp_path: Path) -> None:
    with serving(founded(tmp_path, server="requests_per_second = 1\nburst = 3")) as running:
        with running.client() as client:
            answers = [client.get(f"{PATH}/identity") for _ in range(5)]
        assert answers[0].status_code == 200
        assert {one.status_code for one in answers} == {200, 429}
        with running.client("ann") as reader:
            assert reader.get(PATH).status_code == 200
