"""A SQLite log that is renamed, replaced or deleted while it is open acknowledges nothing more (LOG_MOVED)."""

from __future__ import annotations

import os
import shutil
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.pipeline.workshop import a_workshop
from tests.support.patience import PATIENCE_S
from world.errors import WorldProtocolError
from world.log import EventLog, GroupCommit, NewEvent, Pending, open_log


def renamed(path: Path) -> None:
    path.rename(path.with_name("other.db"))


def replaced_by_a_copy(path: Path) -> None:
    copy = path.with_name("copy.db")
    shutil.copyfile(path, copy)
    copy.replace(path)


def deleted(path: Path) -> None:
    path.unlink()


def replaced_by_a_symlink_to_another(path: Path) -> None:
    shutil.copyfile(path, path.with_name("copy.db"))
    path.unlink()
    path.symlink_to("copy.db")


def replaced_by_a_symlink_to_itself(path: Path) -> None:
    elsewhere = path.parent / "elsewhere"
    elsewhere.mkdir()
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)


def moved_with_its_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("moved"))


def replaced_with_its_folder(path: Path) -> None:
    folder = path.parent
    folder.rename(folder.with_name("moved"))
    shutil.copytree(folder.with_name("moved"), folder)


def without_its_wal(path: Path) -> None:
    Path(f"{path}-wal").unlink()


def with_another_wal(path: Path) -> None:
    shutil.copyfile(f"{path}-wal", f"{path}-copy")
    Path(f"{path}-copy").replace(f"{path}-wal")


def without_its_shm(path: Path) -> None:
    Path(f"{path}-shm").unlink()


Move = Callable[[Path], None]
MOVES: list[Move] = [
    renamed, replaced_by_a_copy, deleted, replaced_by_a_symlink_to_another, replaced_by_a_symlink_to_itself,
    moved_with_its_folder, replaced_with_its_folder, without_its_wal, with_another_wal, without_its_shm,
]  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "realm"
    folder.mkdir()
    return folder / "world.db"


def append(log: EventLog, text: str = "x") -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, b'"%s"' % text.encode())])


def append_and_move(log: EventLog, path: Path, move: Move) -> None:
    with log.write() as transaction:
        transaction.append([NewEvent("s", "t", 1, b'"late"')])
        move(path)


def states(path: Path) -> set[str]:
    """Return what another program finds in the file under a name."""
    with closing(sqlite3.connect(f"file:{path}?mode=rw", uri=True)) as database:
        return {state for (state,) in database.execute("SELECT state FROM wp_event")}


def refused(log: EventLog) -> str:
    with pytest.raises(WorldProtocolError) as caught:
        append(log, "late")
    return caught.value.code


@pytest.mark.parametrize("move", MOVES)
def test_nothing_is_stored_or_acknowledged_in_a_log_that_was_moved(path: Path, move: Move) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
        move(path)
        assert refused(log) == "LOG_MOVED"
    files = [one for one in path.parent.parent.rglob("*") if one.is_file()]
    assert files
    assert [one for one in files if b'"late"' in one.read_bytes()] == []


def test_a_writer_of_a_moved_log_refuses_until_it_is_opened_again(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
        other = path.with_name("other.db")
        path.rename(other)
        assert refused(log) == "LOG_MOVED"
        other.rename(path)
        assert refused(log) == "LOG_MOVED"
        with pytest.raises(WorldProtocolError) as caught:
            list(log.read())
        assert caught.value.code == "LOG_MOVED"
    with open_log(str(path)) as log:
        append(log, "again")
        assert log.head().size == 2


@pytest.mark.parametrize("move", MOVES)
def test_a_log_that_is_moved_during_its_commit_is_not_acknowledged(path: Path, move: Move) -> None:
    """The file is moved in the transaction, after the lock was taken."""
    with open_log(str(path), create=True) as log:
        append(log)
        with pytest.raises(WorldProtocolError) as caught:
            append_and_move(log, path, move)
        assert caught.value.code == "LOG_MOVED"


def test_a_path_through_a_symlink_and_another_working_directory_are_the_same_file(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_log(str(path), create=True).close()
    (tmp_path / "link.db").symlink_to(path)
    monkeypatch.chdir(tmp_path)
    with open_log("link.db") as log, open_log("realm/world.db") as same:
        monkeypatch.chdir(path.parent)
        append(log, "one")
        append(same, "two")
        (tmp_path / "link.db").unlink()
        assert refused(log) == "LOG_MOVED"
        append(same, "three")
    assert states(path) == {'"one"', '"two"', '"three"'}


def test_every_caller_of_a_shared_commit_gets_the_error(path: Path) -> None:
    with open_log(str(path), create=True) as log:
        append(log)
        is_full = threading.Event()
        errors: dict[int, str] = {}

        def run(batch: list[Pending[int, None]]) -> None:
            assert is_full.wait(PATIENCE_S)
            with log.write() as transaction:
                transaction.append([NewEvent("s", "t", 1, b"%d" % item.command) for item in batch])
            for item in batch:
                item.succeed(None)

        group: GroupCommit[int, None] = GroupCommit(run)

        def submit(number: int) -> None:
            try:
                group.submit(number)
            except WorldProtocolError as error:
                errors[number] = error.code

        threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        while len(group._queue) < 7:
            threading.Event().wait(0.001)
        renamed(path)
        is_full.set()
        for thread in threads:
            thread.join()
        assert errors == dict.fromkeys(range(8), "LOG_MOVED")


@pytest.mark.parametrize("move", MOVES)
def test_what_was_acknowledged_while_a_log_was_moved_is_in_the_file_under_its_name_then(path: Path, move: Move) -> None:
    """Threads commit without a pause while the file is moved; what each commit was acknowledged in is looked at."""
    acknowledged: list[str] = []
    codes: list[str] = []
    enough = threading.Event()

    def work(log: EventLog, number: int) -> None:
        for count in range(100_000):
            try:
                append(log, f"{number}-{count}")
            except WorldProtocolError as error:
                codes.append(error.code)
                return
            acknowledged.append(f'"{number}-{count}"')
            if len(acknowledged) >= 40:
                enough.set()

    log = open_log(str(path), create=True)
    inode = path.stat().st_ino
    threads = [threading.Thread(target=work, args=(log, number)) for number in range(4)]
    for thread in threads:
        thread.start()
    assert enough.wait(PATIENCE_S)
    move(path)
    for thread in threads:
        thread.join()
    assert codes == ["LOG_MOVED"] * 4
    found = {state.decode() for state in _own_view(log)}
    assert inode == log._store._files._file[1]  # type: ignore[attr-defined]
    assert set(acknowledged) <= found
    log.close()


def _own_view(log: EventLog) -> list[bytes]:
    """Return the states in the file that the log has open, whatever is under its name now."""
    writer = log._store._writer  # type: ignore[attr-defined]
    return [state.encode() for (state,) in writer.execute("SELECT state FROM wp_event")]


def test_a_world_of_a_moved_log_refuses_every_command(path: Path, tmp_path: Path) -> None:
    with a_workshop(str(path), tmp_path / "w") as world:
        world.act("ann", "run", {"steps": []})
        before = states(path)
        renamed(path)
        codes: list[str] = []

        def act() -> None:
            try:
                world.act("ann", "run", {"steps": []})
            except WorldProtocolError as error:
                codes.append(error.code)

        threads = [threading.Thread(target=act) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == ["LOG_MOVED"] * 4
    os.rename(path.with_name("other.db"), path)
    assert states(path) == before
