"""Copies of moves and restorations until they are complete: only their own work can open them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.directory.test_directory import Stopped, is_open, refused, stop_at
from tests.directory.yard import NAME, create, yard
from world.audit.verify import verify
from world.log import EventLog, list_logs, open_log
from worldprotocol import Realm
from worldprotocol.api.lookup.closed_log import closed_at_end
from worldprotocol.directory import archiving, moving, writers
from worldprotocol.directory.directory import RealmDirectory


def stop(*_: Any, **__: Any) -> Any:
    raise Stopped


@pytest.mark.parametrize("step", ["begun", "copied", "closed", "compared"])
def test_an_unfinished_copy_accepts_nobody_but_the_move(directory: RealmDirectory, tmp_path: Path, step: str) -> None:
    create(directory, tmp_path / "a.db").close()
    stop_at(directory, tmp_path / "b.db", step)
    refused("LOG_NOT_FOUND", Realm.open, tmp_path / "b.db", domain=yard)
    refused("LOG_NOT_FOUND", writers.open_copy, str(tmp_path / "b.db"), "ann")
    refused("LOG_NOT_FOUND", directory.add, "other", tmp_path / "b.db")
    [copy] = list_logs(f"{tmp_path}/b.db")
    refused("INVALID_ADDRESS", Realm.open, f"{tmp_path}/b.db#{copy}", domain=yard)
    with open_log(f"{tmp_path}/a.db", read_only=True) as left:
        closed = closed_at_end(left)
    assert (closed is not None) == (step in ("closed", "compared"))
    if closed is not None:
        assert closed.to_wire() == {"epoch": 0, "reason": "move", "hasEnded": False}
    directory.move(NAME, tmp_path / "b.db")
    assert list_logs(f"{tmp_path}/b.db") == ["main"]
    assert is_open(tmp_path / "b.db")


@pytest.mark.parametrize("is_given_up", [True, False])
def test_a_copy_that_has_its_name_before_the_directory_records_it_is_closed_to_writers(
    directory: RealmDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_given_up: bool
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        with monkeypatch.context() as patch:
            patch.setattr(moving, "RealmMoved", stop)
            with pytest.raises(Stopped):
                directory.move(NAME, tmp_path / "b.db")
        refused("LOG_FENCED", Realm.open, tmp_path / "b.db", domain=yard)
        if is_given_up:
            directory.abandon(NAME, "move")
            assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
            refused("LOG_FENCED", Realm.open, tmp_path / "b.db", domain=yard)
            refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "b.db")
        else:
            directory.move(NAME, tmp_path / "b.db")
            assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
            assert verify(realm.log).findings == ()


def test_a_move_to_a_place_where_another_log_is_founded_meanwhile_can_be_given_up(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    def on_step(step: str) -> None:
        if step == "copied":
            Realm.create(tmp_path / "b.db", domain=yard).close()

    with create(directory, tmp_path / "a.db") as realm:
        refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "b.db", on_step=on_step)
        assert is_open(tmp_path / "b.db")  # the other realm
        directory.abandon(NAME, "move")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


def test_an_empty_log_at_the_target_makes_room(directory: RealmDirectory, tmp_path: Path) -> None:
    open_log(f"{tmp_path}/b.db", create=True).close()
    with create(directory, tmp_path / "a.db") as realm:
        directory.move(NAME, tmp_path / "b.db")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


@pytest.mark.parametrize("at", ["rename", "RealmRestored"])
def test_an_unfinished_restoration_accepts_nobody_and_is_repeated(
    directory: RealmDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        directory.archive(NAME, tmp_path / "kept")
        with monkeypatch.context() as patch:
            patch.setattr(EventLog if at == "rename" else archiving, at, stop)
            with pytest.raises(Stopped):
                directory.restore(NAME, tmp_path / "b.db")
        code = "LOG_NOT_FOUND" if at == "rename" else "LOG_FENCED"
        refused(code, Realm.open, tmp_path / "b.db", domain=yard)
        directory.restore(NAME, tmp_path / "b.db")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert verify(realm.log).findings == ()
