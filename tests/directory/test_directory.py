"""A directory of realms: what it lists and records, what it refuses, and its realms when they move, on SQLite."""

from __future__ import annotations

import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.cli.inside import Inside
from tests.directory.yard import NAME, create, mail, opened, yard
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.events.verification import UNAUTHENTICATED
from world.events.writer_events import WriterOpened
from world.log import open_log
from world.read_models.decoding import decoded
from worldprotocol import Realm
from worldprotocol.api.lookup.closed_log import closed_at_end
from worldprotocol.directory import moving, writers
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.directory.events import RealmListed
from worldprotocol.directory.writers import open_copy
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting
from worldprotocol.export.archive.manifest import ArchiveFolder


def refused(code: str, call: object, *arguments: object, **options: object) -> RefusedError:
    """Check that a call is refused, and return why."""
    with pytest.raises(RefusedError) as caught:
        call(*arguments, **options)  # type: ignore[operator]
    assert caught.value.code == code, caught.value
    return caught.value


def is_open(place: str | Path) -> bool:
    with Realm.open_read_only(place) as realm:
        return realm.realm().writer.closed is None


def test_a_realm_is_listed_under_its_name_with_what_its_place_holds(directory: RealmDirectory, tmp_path: Path) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        size = realm.log.head().size
    [found] = directory.listed()
    assert found.to_wire() | {"changedAt": 0, "logId": ""} == {
        "name": NAME, "place": f"{tmp_path}/a.db#main", "state": "open", "target": None, "archive": None,
        "events": size, "epoch": 0, "closed": False, "logId": "", "changedAt": 0, "by": "operator", "error": None,
    }  # fmt: skip
    assert [event.TOPIC for _, event in directory.history(NAME)] == ["directory.realm_listed"]
    refused("REALM_LISTED", directory.create, NAME, tmp_path / "b.db", domain=yard)
    refused("REALM_LISTED", directory.add, "other", tmp_path / "a.db")
    refused("INVALID_ADDRESS", directory.create, "inside", f"{tmp_path}/directory.db#inside", domain=yard)
    refused("INVALID_ADDRESS", directory.move, NAME, f"{tmp_path}/directory.db#inside")
    assert directory.add(NAME, tmp_path / "a.db") == directory.entry(NAME)  # it is listed so already
    assert not (tmp_path / "b.db").exists()
    for name in ("", "A", "-a", "a/b", "a" * 64):
        refused("INVALID_NAME", directory.add, name, tmp_path / "a.db")
    assert "yard" in refused("UNKNOWN_REALM", directory.entry, "yrad").message
    refused("UNKNOWN_REALM", directory.history, "yrad")


def test_a_directory_is_no_realm_and_a_realm_no_directory(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    refused("NOT_A_DIRECTORY", RealmDirectory.open, tmp_path / "a.db")
    refused("NOT_A_DIRECTORY", RealmDirectory.found, tmp_path / "a.db")
    refused("LOG_NOT_FOUND", RealmDirectory.open, tmp_path / "none.db")
    with pytest.raises(WorldProtocolError):
        Realm.open(tmp_path / "directory.db", domain=yard)
    with pytest.raises(WorldProtocolError):
        directory.add("itself", tmp_path / "directory.db")


def test_a_directory_has_no_passwords(directory: RealmDirectory, tmp_path: Path) -> None:
    for address in (
        "postgresql://ann:secret@db/realms",
        "postgresql://ann@db/realms?password=secret",
        "postgresql://ann@db/realms?sslpassword=secret#main",
        "postgresql://ann%3Asecret@db/realms",
        "postgresql://ann%3asecret@db:5432/realms#main",
    ):
        for call in (directory.add, directory.move):
            error = refused("INVALID_ADDRESS", call, NAME, address) if call == directory.add else None
            assert error is None or ("secret" not in error.message and "PGPASSWORD" in error.message)
        refused("INVALID_ADDRESS", RealmDirectory.found, address)
        refused("INVALID_ADDRESS", directory.create, NAME, address, domain=yard)
    refused("INVALID_ADDRESS", directory.create, NAME, ":memory:", domain=yard)
    create(directory, tmp_path / "a.db").close()
    refused("INVALID_ADDRESS", directory.move, NAME, "postgresql://ann:secret@db/realms")
    assert b"secret" not in b"".join(file.read_bytes() for file in tmp_path.glob("directory.db*"))


@pytest.mark.parametrize("option", ["--log", "--realm"])
def test_the_list_is_of_the_whole_directory(directory: RealmDirectory, tmp_path: Path, option: str) -> None:
    create(directory, tmp_path / "a.db").close()
    cli = Inside(tmp_path)
    address = str(tmp_path / "directory.db")
    assert len(cli("realm", "list", "--json", WORLDCTL_DIRECTORY=address, WORLD_LOG="other.db").json) == 1
    said = cli("realm", "list", option, "shop", code=2, WORLDCTL_DIRECTORY=address).err
    assert f"leave {option} out" in said


def test_the_helps_of_both_archives_name_each_other(tmp_path: Path) -> None:
    cli = Inside(tmp_path)
    assert "`worldctl realm archive`" in " ".join(cli("archive", "--help").out.split())
    assert "`worldctl archive`" in " ".join(cli("realm", "archive", "--help").out.split())


def test_a_place_that_does_not_answer_hides_no_other(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections, and never says a word
        places = {
            "silent": f"postgresql://ann@127.0.0.1:{silent.getsockname()[1]}/realms#main",
            "gone": f"{tmp_path}/gone.db#main",
        }
        with directory.log.change() as change:
            for name, place in places.items():
                change.append(RealmListed(at=change.at, name=name, by="ann", place=place, log_id=name))
        waited = {one.entry.name: one for one in directory.listed(answer_s=0.5)}
        assert set(waited) == {NAME, "silent", "gone"}
        assert waited["silent"].error is not None
        assert "did not answer" in waited["silent"].error.message
    found = {one.entry.name: one for one in directory.listed(answer_s=PATIENCE_S)}  # nothing listens there any more
    assert found[NAME].error is None
    assert found["gone"].error is not None
    assert found["gone"].error.code == "LOG_NOT_FOUND"
    assert found["silent"].error is not None
    assert found["silent"].error.code == "LOG_UNAVAILABLE"


def test_a_moved_realm_goes_on_with_everything_that_was_open(directory: RealmDirectory, tmp_path: Path) -> None:
    """Waiting people, leases, past worlds and intents are as they were; the old place refuses, and says where to go."""
    with create(directory, tmp_path / "a.db") as realm, Realm.open(tmp_path / "a.db", domain=yard) as old:
        before = realm.data()
        realm.leases.desk.register_agent("a0", by="test", priority=1)
        held = realm.leases.acquire(agent="a0", resource="FILE:/a", predicate="MUTATES")
        asked = realm.act("kid", "count", {"who": "kid"})
        intent = realm.issue("a0", "count", {"who": "a0"})
        first = realm.submit(intent)
        steps: list[str] = []
        done = directory.move(NAME, tmp_path / "b.db", by="ann", on_step=steps.append)
        assert steps == ["begun", "copied", "closed", "compared", "moved", "opened"]
        assert done.closed_ms is not None
        assert done.closed_ms > 0
        with open_log(f"{tmp_path}/a.db", read_only=True) as a, open_log(f"{tmp_path}/b.db", read_only=True) as b:
            assert a.head() == done.head == b.root_at(done.head.size)
            assert list(a.read()) == list(b.read(upto=done.head.size))
            assert b.event_at(done.head.size + 1).topic == "writer.opened"
        refusal = refused("LOG_FENCED", old.act, "a0", "count", {"who": "a0"})
        assert "`worldctl verify` of this log names it" in refusal.message
        with open_log(f"{tmp_path}/a.db", read_only=True) as left:
            assert str(closed_at_end(left)).endswith(f"was moved to {tmp_path}/b.db#main and continues there")
        assert old.data() == {**before, "counts": {"a0": 1}}  # what is there may be read
        twice = refused("INTENT_ALREADY_SUBMITTED", realm.submit, intent)  # it has one proposal at every place
        assert twice.details["proposal_id"] == first.proposal_id
        assert realm.log.address.path == str(tmp_path / "b.db")
        assert realm.realm().writer.epoch == 1
        assert [one.session.agent_id for one in realm.realm().klis.leases.values()] == ["a0"]
        realm.leases.acquire(agent="a0", resource="FILE:/b", predicate="MUTATES")
        held.release()
        assert realm.decide(asked.proposal_id, "approve", by="ann").status == "completed"
        assert realm.as_caller(UNAUTHENTICATED).act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.data()["counts"] == {"a0": 2, "kid": 1}
        assert verify(realm.log).findings == ()
    with opened(directory) as again:
        assert again.data()["counts"] == {"a0": 2, "kid": 1}
        assert directory.move(NAME, tmp_path / "b.db").closed_ms is None  # it is there already
        refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "a.db")  # programs may know the place
        directory.move(NAME, tmp_path / "c.db")
        assert again.act("a0", "send", {"text": "hello"}).status == "completed"
        assert again.realm().writer.epoch == 2
        assert verify(again.log).findings == ()
    assert [one.TOPIC for _, one in directory.history(NAME)] == [
        "directory.realm_listed",
        *["directory.work_begun", "directory.realm_moved"] * 2,
    ]


def test_a_target_that_cannot_be_one_is_refused_before_the_old_place_is_closed(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    create(directory, tmp_path / "a.db").close()
    Realm.create(tmp_path / "other.db", domain=yard).close()
    (tmp_path / "later.db").write_bytes((tmp_path / "other.db").read_bytes())
    with closing(sqlite3.connect(tmp_path / "later.db")) as later:
        later.execute("UPDATE wp_store SET version = 99")
        later.commit()
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "other.db")
    refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "a.db")
    refused("LOG_NOT_EMPTY", directory.move, NAME, tmp_path / "link.db")  # the same file by another name
    refused("LOG_NOT_EMPTY", directory.move, NAME, f"{tmp_path}/a.db#second")  # its writers would exclude each other
    refused("LOG_FORMAT", directory.move, NAME, tmp_path / "later.db")
    with pytest.raises(WorldProtocolError):
        directory.move(NAME, tmp_path / "nowhere" / "b.db")
    with pytest.raises(WorldProtocolError) as caught:
        directory.move(NAME, "postgresql://ann@127.0.0.1:1/realms")
    assert caught.value.code == "LOG_UNAVAILABLE"
    assert directory.entry(NAME).status == "open"
    assert is_open(tmp_path / "a.db")
    refused("UNKNOWN_REALM", directory.move, "other", tmp_path / "b.db")


class Stopped(Exception):
    """A move ended at a step."""


def stop_at(directory: RealmDirectory, target: Path, at: str) -> None:
    def on_step(step: str) -> None:
        if step == at:
            raise Stopped

    with pytest.raises(Stopped):
        directory.move(NAME, target, by="ann", on_step=on_step)


@pytest.mark.parametrize("step", ["begun", "copied", "closed", "compared", "moved", "opened"])
def test_a_mover_that_another_one_overtakes_ends_with_the_same_move(
    directory: RealmDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    open_target = vars(moving)["open_target"]

    def overtaken(*arguments: Any) -> Any:
        monkeypatch.setattr(moving, "open_target", open_target)
        stop_at(directory, tmp_path / "b.db", step)
        return open_target(*arguments)

    with create(directory, tmp_path / "a.db") as realm:
        monkeypatch.setattr(moving, "open_target", overtaken)
        directory.move(NAME, tmp_path / "b.db", by="ann")
        assert [event.TOPIC for _, event in directory.history(NAME)] == [
            "directory.realm_listed", "directory.work_begun", "directory.realm_moved",
        ]  # fmt: skip
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.realm().writer.epoch == 1
        assert verify(realm.log).findings == ()


@pytest.mark.parametrize("step", ["begun", "copied", "closed", "compared"])
def test_a_move_is_given_up_until_the_directory_records_the_new_place(
    directory: RealmDirectory, tmp_path: Path, step: str
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        stop_at(directory, tmp_path / "b.db", step)
        error = refused("REALM_IN_WORK", directory.move, NAME, tmp_path / "c.db")
        assert error.details["target"] == f"{tmp_path}/b.db#main"
        refused("REALM_IN_WORK", directory.archive, NAME, tmp_path / "archive")
        refused("NOTHING_TO_ABANDON", directory.abandon, NAME, "archive")
        assert directory.abandon(NAME, "move", by="ann").place == f"{tmp_path}/a.db#main"
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        refused("NOTHING_TO_ABANDON", directory.abandon, NAME, "move")
        assert directory.move(NAME, tmp_path / "b.db").closed_ms is not None  # it continues the copy
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert verify(realm.log).findings == ()
        refused("NOTHING_TO_ABANDON", directory.abandon, NAME, "move")


@pytest.mark.parametrize("work", ["move", "archive"])
def test_a_log_that_is_cut_while_work_is_prepared_stays_where_it_is(
    directory: RealmDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    close = writers.close_place

    def cut_before(*arguments: Any) -> Any:
        with open_for_cutting(f"{tmp_path}/a.db") as log:
            archive = cast(ArchiveFolder, SimpleNamespace(digest="0" * 64))
            cut(log, CutPlan((archive,), 5, 0), by="operator", now_ms=0)
        return close(*arguments)

    with create(directory, tmp_path / "a.db") as realm:
        for _ in range(3):
            realm.act("a0", "count", {"who": "a0"})
        monkeypatch.setattr(moving, "close_place", cut_before)
        refused("EVENT_ARCHIVED", getattr(directory, work), NAME, tmp_path / "b.db")
        assert directory.entry(NAME).status == "open"
        assert not (tmp_path / "b.db" / f"{NAME}.jsonl").exists()
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        if work == "move":
            refused("LOG_NOT_FOUND", Realm.open, tmp_path / "b.db", domain=yard)


def test_a_mover_whose_move_was_given_up_opens_what_it_closed(directory: RealmDirectory, tmp_path: Path) -> None:
    def on_step(step: str) -> None:
        if step == "copied":
            with RealmDirectory.open(tmp_path / "directory.db") as other:
                other.abandon(NAME, "move", by="bob")

    with create(directory, tmp_path / "a.db") as realm:
        refused("WORK_ABANDONED", directory.move, NAME, tmp_path / "b.db", on_step=on_step)
        assert is_open(tmp_path / "a.db")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.log.address.path == str(tmp_path / "a.db")


def test_what_was_recorded_and_not_opened_is_opened_by_the_next_process(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        stop_at(directory, tmp_path / "b.db", "moved")
        assert not is_open(tmp_path / "b.db")
        refused("NOTHING_TO_ABANDON", directory.abandon, NAME, "move")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert is_open(tmp_path / "b.db")
        assert not is_open(tmp_path / "a.db")
        with opened(directory) as again:
            assert again.realm().writer.epoch == 1


def test_a_place_that_cannot_be_opened_after_a_move_is_tried_again(directory: RealmDirectory, tmp_path: Path) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        directory.move(NAME, tmp_path / "b.db")
        (tmp_path / "b.db").rename(tmp_path / "unreachable.db")
        refused("LOG_NOT_FOUND", realm.act, "a0", "count", {"who": "a0"})
        refused("LOG_NOT_FOUND", realm.act, "a0", "count", {"who": "a0"})
        (tmp_path / "unreachable.db").rename(tmp_path / "b.db")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ("UPDATE wp_event SET state = replace(state, 'kid', 'kim')", "EVENT_CHANGED"),
        ("UPDATE wp_event SET leaf = zeroblob(32) WHERE id = (SELECT max(id) FROM wp_event)", "TREE_DAMAGED"),
    ],
)
def test_a_copy_that_is_altered_on_the_way_is_found(
    directory: RealmDirectory, tmp_path: Path, change: str, code: str
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        stop_at(directory, tmp_path / "b.db", "copied")
        with closing(sqlite3.connect(tmp_path / "b.db")) as copy:
            copy.execute(change)
            copy.commit()
        with pytest.raises(DamagedLogError) as caught:
            directory.move(NAME, tmp_path / "b.db")
        assert caught.value.code == code
        assert is_open(tmp_path / "a.db")  # found before the old place was closed
        directory.abandon(NAME, "move")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


def test_a_copy_with_other_events_in_a_sound_tree_is_found(
    directory: RealmDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the events are changed before they are stored, content and leaves agree, and the tree head differs."""
    from world.log import NewEvent

    def altered(stream: str, topic: str, schema: int, state: bytes, version: int) -> NewEvent:
        return NewEvent(stream, topic, schema, state.replace(b'"kid"', b'"kim"'), version)

    create(directory, tmp_path / "a.db").close()
    monkeypatch.setattr("worldprotocol.export.jsonl.NewEvent", altered)
    with pytest.raises(DamagedLogError) as caught:
        directory.move(NAME, tmp_path / "b.db")
    assert caught.value.code == "TREE_MISMATCH"
    assert is_open(tmp_path / "a.db")


def test_an_archive_is_whole_and_is_restored_under_the_same_tree_head(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        realm.act("a0", "count", {"who": "a0"})
        refused("REALM_NOT_ARCHIVED", directory.restore, NAME, tmp_path / "b.db")
        head = directory.archive(NAME, tmp_path / "archive", by="ann")
        refused("LOG_FENCED", realm.act, "a0", "count", {"who": "a0"})
        refused("REALM_ARCHIVED", directory.read_only, NAME)
        refused("REALM_ARCHIVED", directory.move, NAME, tmp_path / "b.db")
        refused("REALM_ARCHIVED", directory.archive, NAME, tmp_path / "archive")
        refused("LOG_FENCED", opened, directory)
        [listed] = directory.listed()
        assert (listed.to_wire()["archive"], listed.to_wire()["events"]) == (str(tmp_path / "archive"), head.size)
        assert str(head.size) in (tmp_path / "archive" / "yard.checkpoint").read_text()
        with open_log(f"{tmp_path}/a.db", read_only=True) as log:
            assert log.head() == head

        (tmp_path / "a.db").unlink()  # the place is dropped
        assert directory.restore(NAME, tmp_path / "b.db", by="ann") == head
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.data()["counts"] == {"a0": 2}
        assert verify(realm.log).findings == ()
        assert directory.restore(NAME, tmp_path / "b.db") == head  # it is there already


def test_another_archive_is_not_restored(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    directory.archive(NAME, tmp_path / "archive")
    file = tmp_path / "archive" / "yard.jsonl"
    whole = file.read_bytes()
    with RealmDirectory.found(tmp_path / "second.db") as second:
        create(second, tmp_path / "other.db").close()
        second.archive(NAME, tmp_path / "otherwise")
    file.write_bytes((tmp_path / "otherwise" / "yard.jsonl").read_bytes())
    with pytest.raises(DamagedLogError) as caught:
        directory.restore(NAME, tmp_path / "b.db")
    assert caught.value.code == "TREE_MISMATCH"
    file.write_bytes(whole[: len(whole) // 2])
    refused("BAD_EXPORT", directory.restore, NAME, tmp_path / "b.db")
    file.unlink()
    refused("FILE_UNREADABLE", directory.restore, NAME, tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()
    assert directory.entry(NAME).status == "archived"
    file.write_bytes(whole)
    directory.restore(NAME, tmp_path / "a.db")  # where it was, and still is
    assert is_open(tmp_path / "a.db")


def test_an_archiving_and_a_restoration_are_given_up(directory: RealmDirectory, tmp_path: Path) -> None:
    def broken(done: int, total: int) -> None:
        raise Stopped

    with create(directory, tmp_path / "a.db") as realm:
        with pytest.raises(Stopped):
            directory.archive(NAME, tmp_path / "archive", progress=broken)
        assert not is_open(tmp_path / "a.db")
        refused("REALM_IN_WORK", directory.move, NAME, tmp_path / "b.db")
        directory.abandon(NAME, "archive")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        directory.archive(NAME, tmp_path / "archive")
        Realm.create(tmp_path / "b.db", domain=yard).close()
        refused("LOG_NOT_EMPTY", directory.restore, NAME, tmp_path / "b.db")
        assert directory.entry(NAME).status == "restoring"
        assert directory.abandon(NAME, "restore").status == "archived"
        refused("LOG_FENCED", realm.act, "a0", "count", {"who": "a0"})
        directory.restore(NAME, tmp_path / "c.db")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


def test_a_folder_that_cannot_be_written_is_refused_before_the_realm_is_closed(
    directory: RealmDirectory, tmp_path: Path
) -> None:
    create(directory, tmp_path / "a.db").close()
    (tmp_path / "file").write_text("")
    refused("INVALID_TARGET", directory.archive, NAME, tmp_path / "file" / "archive")
    assert is_open(tmp_path / "a.db")
    assert directory.entry(NAME).status == "open"


def test_the_log_of_a_directory_is_verified(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    saved = directory.log.log.head()
    directory.move(NAME, tmp_path / "b.db")
    assert directory.verify([saved]) == []
    directory.close()
    with closing(sqlite3.connect(tmp_path / "directory.db")) as file:
        file.execute("UPDATE wp_event SET state = replace(state, 'b.db', 'c.db')")
        file.commit()
    with RealmDirectory.open(tmp_path / "directory.db", read_only=True) as again:
        assert "EVENT_CHANGED" in {one.code for one in again.verify()}
        with pytest.raises(DamagedLogError):
            again.entries()


def test_a_copy_is_opened_only_where_its_log_was_not_closed(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    assert open_copy(f"{tmp_path}/a.db", "ann") == 1
    directory.move(NAME, tmp_path / "b.db")
    refused("LOG_FENCED", open_copy, f"{tmp_path}/a.db", "ann")
    with opened(directory) as realm:
        assert realm.realm().writer.epoch == 2


def test_callers_may_give_iterators_that_are_read_at_every_place(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    with directory.realm(NAME, domain=yard, effects=iter([mail])) as realm:
        directory.move(NAME, tmp_path / "b.db")
        assert realm.act("ann", "send", {"text": "hello"}).status == "completed"


def test_a_caller_of_a_realm_reads_and_acts_at_the_new_place(directory: RealmDirectory, tmp_path: Path) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        caller = realm.as_caller(UNAUTHENTICATED)
        caller.act("ann", "count", {"who": "ann"})
        directory.move(NAME, tmp_path / "b.db", by="ann")
        later = caller.act("ann", "count", {"who": "ann"})
        assert caller._acting.archive is realm._placement.current.archive
        assert caller._acting.archive.proposal(later.proposal_id).status == "completed"


def test_a_directory_that_does_not_know_of_a_move_opens_nothing(directory: RealmDirectory, tmp_path: Path) -> None:
    """A restored backup of a directory, another directory, and a new one leave the old place closed."""
    create(directory, tmp_path / "a.db").close()
    backup = tmp_path / "backup.db"
    with closing(sqlite3.connect(tmp_path / "directory.db")) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    with RealmDirectory.found(tmp_path / "second.db", by="bob") as second:
        second.add(NAME, tmp_path / "a.db")
        directory.move(NAME, tmp_path / "b.db")
        refused("LOG_FENCED", second.realm, NAME, domain=yard)
        refused("LOG_FENCED", second.move, NAME, tmp_path / "c.db")
    with RealmDirectory.open(backup) as old:
        refused("LOG_FENCED", old.realm, NAME, domain=yard)
    with RealmDirectory.found(tmp_path / "third.db", by="bob") as third:
        refused("LOG_FENCED", third.add, NAME, tmp_path / "a.db")
    assert not is_open(tmp_path / "a.db")
    with opened(directory) as realm:
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"


def test_workers_of_a_realm_live_on_when_a_move_was_abandoned(directory: RealmDirectory, tmp_path: Path) -> None:
    with create(directory, tmp_path / "a.db") as realm:
        stop_at(directory, tmp_path / "b.db", "closed")
        directory.abandon(NAME, "move", by="ann")
        opening = [decoded(one) for one in realm.log.read(topics=[WriterOpened.TOPIC])]
        assert [(one.reason, one.left) for one in opening if isinstance(one, WriterOpened)] == [("abandon", None)]
        assert realm.realm().writer.left == frozenset()


def test_an_archive_of_another_realm_is_not_replaced(directory: RealmDirectory, tmp_path: Path) -> None:
    create(directory, tmp_path / "a.db").close()
    directory.archive(NAME, tmp_path / "kept")
    before = (tmp_path / "kept" / f"{NAME}.jsonl").read_bytes()
    with RealmDirectory.found(tmp_path / "second.db", by="bob") as second:
        create(second, tmp_path / "other.db").close()
        refused("INVALID_TARGET", second.archive, NAME, tmp_path / "kept")
        assert second.entry(NAME).status == "open"
        assert is_open(tmp_path / "other.db")
    assert (tmp_path / "kept" / f"{NAME}.jsonl").read_bytes() == before
