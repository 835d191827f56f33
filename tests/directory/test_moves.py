"""Moves between two real PostgreSQL servers and SQLite: under load of other processes, and with killed movers."""

from __future__ import annotations

import io
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.directory.yard import NAME, create, opened, process, yard
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import RefusedError
from world.log import EventLog, open_log
from worldprotocol import Realm
from worldprotocol.directory import moving
from worldprotocol.directory.directory import RealmDirectory
from worldprotocol.directory.events import RealmMoved
from worldprotocol.directory.writers import open_copy, writer_at
from worldprotocol.export.jsonl import export_log, import_log

pytestmark = pytest.mark.slow

EACH = 5
"""Acknowledged intents of each writer, at least, before and after the move."""


class Writer:
    """A process that counts, and what it said: the intents that were acknowledged."""

    def __init__(self, directory: str, number: int) -> None:
        self.actor = f"a{number}"
        self.process = process("count", directory, NAME, self.actor)
        self.acknowledged: list[str] = []
        self._grown = threading.Condition()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._grown:
                self.acknowledged.append(line.strip())
                self._grown.notify_all()

    def wait_for(self, more: int) -> None:
        """Wait until so many more intents were acknowledged than when this is called."""
        with self._grown:
            wanted = len(self.acknowledged) + more
            assert self._grown.wait_for(lambda: len(self.acknowledged) >= wanted, PATIENCE_S)

    def stop(self) -> None:
        """Let the process end after the present call."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def join(self) -> None:
        """Wait for the end of the process."""
        assert self.process.wait(PATIENCE_S) == 0
        self._reading.join(PATIENCE_S)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.mark.parametrize(("at", "number"), [("servers", scaled(8, ci=4)), ("file", 2)])
def test_a_move_under_load_loses_nothing(tmp_path: Path, places: tuple[str, str], at: str, number: int) -> None:
    """Each acknowledged intent is there exactly once; both places have one tree head; the old place refuses."""
    source, target = (places[0] if at == "servers" else f"{tmp_path}/yard.db"), places[1]
    address = f"{places[0]}#directory"
    with RealmDirectory.found(address) as directory:
        create(directory, source, actors=number).close()
        writers = [Writer(address, one) for one in range(number)]
        for writer in writers:
            writer.wait_for(EACH)
        done = directory.move(NAME, target, by="ann")
        for writer in writers:
            writer.wait_for(EACH)
        for writer in writers:
            writer.stop()
        for writer in writers:
            writer.join()
        with open_log(source, read_only=True) as old, open_log(target, read_only=True) as new:
            assert old.head() == done.head == new.root_at(done.head.size)
            assert list(old.heads()) == list(new.heads(0, done.head.size))
            assert [event.leaf for event in old.read()] == [event.leaf for event in new.read(upto=done.head.size)]
        with pytest.raises(RefusedError) as caught:
            Realm.open(source, domain=yard)
        assert caught.value.code == "LOG_FENCED"
        with opened(directory) as realm:
            submitted = [one.intent.intent_id for one in realm.proposals(status="completed")]
            acknowledged = [intent for writer in writers for intent in writer.acknowledged]
            assert len(set(submitted)) == len(submitted)
            assert set(acknowledged) <= set(submitted)
            counts = {writer.actor: len(writer.acknowledged) for writer in writers}
            assert all(realm.data()["counts"][actor] >= count for actor, count in counts.items())
            assert sum(realm.data()["counts"].values()) == len(submitted)
            assert verify(realm.log).findings == ()


@pytest.mark.parametrize("step", ["begun", "copied", "closed", "compared", "moved", "opened"])
def test_a_move_whose_process_is_killed_is_continued(tmp_path: Path, places: tuple[str, str], step: str) -> None:
    """Wherever the mover ends, the same command finishes the move, and a writer goes on in between if it can."""
    source, target = places
    address = f"{tmp_path}/directory.db"
    with RealmDirectory.found(address) as directory, create(directory, source) as realm:
        with process("move", address, NAME, target, step) as mover:
            assert mover.stdout is not None
            while mover.stdout.readline().strip() != step:
                assert mover.poll() is None
            mover.send_signal(signal.SIGKILL)
            assert mover.wait(PATIENCE_S) == -signal.SIGKILL
        is_fenced = step in ("closed", "compared")
        if not is_fenced:
            assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        directory.move(NAME, target, by="ann")
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.data()["counts"] == {"a0": 1 if is_fenced else 2}
        assert realm.realm().writer.epoch == 1
        assert directory.entry(NAME).place == f"{target}#main"
        assert verify(realm.log).findings == ()


def test_an_effect_in_doubt_is_carried_over(places: tuple[str, str]) -> None:
    source, target = places
    address = f"{source}#directory"
    with RealmDirectory.found(address) as directory:
        create(directory, source).close()
        with process("crash", address, NAME) as crashing:
            assert crashing.wait(PATIENCE_S) == 3
        directory.move(NAME, target)
        with opened(directory) as realm:
            [doubt] = realm.host.stuck()
            realm.host.resolve(
                doubt["proposalId"], "happened", by="ann", reason="it is in the outbox", value={"ok": True}
            )
            assert realm.data()["sent"] == ["crash"]
            assert verify(realm.log).findings == ()


def test_a_copy_on_another_server_is_opened_only_when_an_operator_says_so(
    tmp_path: Path, places: tuple[str, str]
) -> None:
    """In the first writer epoch too; the original goes on, and refuses nobody."""
    source, target = places
    with RealmDirectory.found(f"{tmp_path}/directory.db") as directory, create(directory, source) as realm:
        exported = io.BytesIO()
        export_log(realm.log, exported)
        exported.seek(0)
        import_log(exported, target)
        with pytest.raises(RefusedError) as caught:
            Realm.open(target, domain=yard)
        assert caught.value.code == "WRITER_FENCED"
        assert "a copy" in caught.value.message
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.realm().writer.epoch == 0
        assert open_copy(target, "ann") == 1
        with Realm.open(target, domain=yard) as copy:
            assert copy.act("a0", "count", {"who": "a0"}).status == "completed"
            assert verify(copy.log).findings == ()


def test_two_movers_at_once_move_once(tmp_path: Path, places: tuple[str, str]) -> None:
    source, target = places
    address = f"{tmp_path}/directory.db"
    with RealmDirectory.found(address) as directory:
        with create(directory, source) as realm:
            for _ in range(20):
                realm.act("a0", "count", {"who": "a0"})
        movers = [process("move", address, NAME, target, "never") for _ in range(2)]
        ended = [mover.communicate(timeout=PATIENCE_S)[0].split() for mover in movers]
        assert [mover.returncode for mover in movers] == [0, 0]
        assert any("moved" in said for said in ended)  # the other finds the move ended, at whatever step it is
        assert [one.TOPIC for _, one in directory.history(NAME)] == [
            "directory.realm_listed", "directory.work_begun", "directory.realm_moved",
        ]  # fmt: skip
        with opened(directory) as realm:
            assert realm.realm().writer.epoch == 1
            assert verify(realm.log).findings == ()


def test_an_archive_of_one_server_is_restored_on_another(tmp_path: Path, places: tuple[str, str]) -> None:
    with RealmDirectory.found(f"{places[0]}#directory") as directory, create(directory, places[0]) as realm:
        realm.act("a0", "count", {"who": "a0"})
        head = directory.archive(NAME, tmp_path / "archive")
        assert directory.restore(NAME, places[1]) == head
        assert realm.act("a0", "count", {"who": "a0"}).status == "completed"
        assert realm.data()["counts"] == {"a0": 2}
        assert verify(realm.log).findings == ()


def test_the_command_line_acts_where_the_realm_is(tmp_path: Path, places: tuple[str, str]) -> None:
    """A realm is created, used, moved, archived and restored by commands alone, which name it and the directory."""
    from tests.cli.realm import COUNTER, CliRealm

    cli = CliRealm(tmp_path)
    directory: Any = {"WORLDCTL_DIRECTORY": f"{tmp_path}/directory.db"}
    at_realm = ["--realm", "shop", "--config", "shop/world.toml"]
    founding = ["--domain", f"{COUNTER}:counter", "--policy", f"{COUNTER}:house"]
    made = cli("realm", "create", "shop", "--place", places[0], *founding, "--json", **directory).json
    assert made["place"] == f"{places[0]}#main"
    cli(*at_realm, "actor", "add", "ann", "--kind", "human", "--auto-approve", **directory)
    sale = ["submit", "sell", "--actor", "ann", "--input", '{"item": "tea", "count": 1}']
    cli(*at_realm, *sale, **directory)
    moved = cli("realm", "move", "shop", "--to", places[1], "--json", **directory).json
    assert moved["place"] == f"{places[1]}#main"
    assert moved["closedMs"] > 0
    cli(*at_realm, *sale, **directory)
    assert "LOG_FENCED" in cli("--config", "shop/world.toml", *sale, code=1).err  # world.toml names the old place
    assert cli(*at_realm, "state", "sold", **directory).out.strip() == "2"
    [listed] = cli("realm", "list", "--json", **directory).json
    assert (listed["state"], listed["epoch"], listed["place"]) == ("open", 1, f"{places[1]}#main")
    assert "no answer" not in cli("realm", "list", **directory).out
    serving = ["serve", "--realm", "shop=shop/world.toml", "--port", "0", "--socket", "shop.sock", "--json"]
    with cli.start("--directory", f"{tmp_path}/directory.db", *serving) as server:
        assert server.stdout is not None
        assert json.loads(server.stdout.readline())["realms"] == ["shop"]  # opened for acting, so at its place
        server.send_signal(signal.SIGTERM)
        assert server.wait(PATIENCE_S) == 0
    archived = cli("realm", "archive", "shop", "kept", "--json", **directory).json
    assert Path(tmp_path, archived["files"][0]).exists()
    assert "REALM_ARCHIVED" in cli(*at_realm, "verify", code=1, **directory).err
    cli("realm", "restore", "shop", "--place", f"{tmp_path}/shop.db", **directory)
    cli(*at_realm, *sale, **directory)
    assert "sound" in cli(*at_realm, "verify", **directory).out
    assert "realm moved" in cli("realm", "history", "shop", **directory).out
    assert "NOTHING_TO_ABANDON" in cli("realm", "move", "shop", "--abandon", code=1, **directory).err
    assert "directory" in cli("realm", "list", code=2).err
    assert "--realm" in cli("verify", "--directory", "directory.db", code=2).err
    assert "contradict" in cli("--log", "x.db", "--directory", "y.db", "--realm", "shop", "verify", code=2).err


def test_a_move_ends_with_the_report_of_one_that_has_renamed_the_copy_and_not_recorded_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, target = f"{tmp_path}/directory.db", f"{tmp_path}/b.db"
    renamed, refused = threading.Event(), threading.Event()
    rename = EventLog.rename

    def rename_and_wait(log: EventLog, name: str) -> None:
        rename(log, name)
        renamed.set()
        assert refused.wait(PATIENCE_S)

    @contextmanager
    def noticed(place: Any) -> Iterator[Any]:
        try:
            with writer_at(place) as writer:
                yield writer
        except RefusedError:
            refused.set()
            raise

    monkeypatch.setattr(EventLog, "rename", rename_and_wait)
    monkeypatch.setattr(moving, "writer_at", noticed)
    with RealmDirectory.found(address) as directory, RealmDirectory.open(address) as other:
        create(directory, tmp_path / "a.db").close()
        first = threading.Thread(target=lambda: other.move(NAME, target, by="first"))

        def on_step(step: str) -> None:
            if step == "copied":
                first.start()
                assert renamed.wait(PATIENCE_S)

        report = directory.move(NAME, target, by="second", on_step=on_step)
        first.join(PATIENCE_S)
        assert refused.is_set()
        (moved,) = [one for _, one in directory.history(NAME) if isinstance(one, RealmMoved)]
        assert (moved.by, moved.root) == ("first", report.head.root_hex)
