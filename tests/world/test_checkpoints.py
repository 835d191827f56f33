"""An index that is rebuilt or imported has the same checkpoints, so that every past world is a few patches away."""

from __future__ import annotations

import io
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from bench.realms import BenchRealm
from tests.golden.garden import record
from world.audit.verify import verify
from world.events.codec import decode_event
from world.events.realm_events import WorldSealed
from world.log import EventLog, open_log
from world.log.sql.statement import POSITION_MASK
from world.model.canonical_json import canonical_text
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from world.read_models.index_tables import METADATA
from worldprotocol.export.jsonl import export_log, import_log

EVENTS = 2_600
EVERY = 128
"""Worlds between two checkpoints, unless the operator chose otherwise."""

TABLES = sorted(METADATA.tables)


class CountingArchive(Archive):
    """Counts the events that restoring a world reads."""

    steps = 0

    def sealed(self, world_id: str) -> WorldSealed:
        """Return the event that sealed a world."""
        self.steps += 1
        return super().sealed(world_id)


@pytest.fixture(scope="module")
def long_line(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the address of a log with several checkpoints on one line of descent."""
    address = str(tmp_path_factory.mktemp("long") / "world.db")
    realm = BenchRealm(address, durability="normal")
    realm.grow(EVENTS)
    realm.close()
    return address


def index_rows(path: str) -> dict[str, list[Any]]:
    database = sqlite3.connect(path)
    try:
        return {table: sorted(database.execute(f"SELECT * FROM {table}"), key=repr) for table in TABLES}
    finally:
        database.close()


def exported(address: str) -> bytes:
    out = io.BytesIO()
    with open_log(address, read_only=True) as log:
        export_log(log, out)
    return out.getvalue()


def copied(address: str, folder: Path) -> str:
    copy = str(folder / "copy.db")
    with sqlite3.connect(address) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    return copy


def sealed_worlds(log: EventLog) -> Iterator[WorldSealed]:
    for logged in log.read(topics=[WorldSealed.TOPIC]):
        event = decode_event(logged.topic, logged.schema_version, logged.state, logged.position)
        assert isinstance(event, WorldSealed)
        yield event


def most_steps(address: str, worlds: Sequence[str]) -> int:
    """Return the most events read to restore one of the worlds, each by an archive that remembers nothing."""
    with open_log(address, read_only=True) as log:
        counts = []
        for world_id in worlds:
            archive = CountingArchive(log)
            archive.checked_state(world_id)
            counts.append(archive.steps - 1)  # the world's own event is read once more for its hash
        return max(counts)


@pytest.mark.requirement("WP-restore")
def test_a_rebuilt_index_has_the_same_rows_and_checkpoints(long_line: str, tmp_path: Path) -> None:
    before = index_rows(long_line)
    assert len(before["wp_checkpoint"]) == (EVENTS // 6) // EVERY + 1
    copy = copied(long_line, tmp_path)
    told: list[tuple[int, int]] = []
    with open_log(copy, view=WorldIndex()) as log:
        log.rebuild_view(lambda done, of: told.append((done, of)))
        size = log.head().size
    assert index_rows(copy) == before
    assert told[-1] == (size, size)
    assert len(told) > 1


@pytest.mark.requirement("WP-restore")
def test_an_imported_log_has_the_same_rows_and_checkpoints(long_line: str, tmp_path: Path) -> None:
    copy = str(tmp_path / "copy.db")
    told: list[tuple[int, int]] = []
    import_log(io.BytesIO(exported(long_line)), copy, progress=lambda done, of: told.append((done, of)))
    assert index_rows(copy) == index_rows(long_line)
    assert told == sorted(told)
    with open_log(copy, read_only=True) as log:
        report = verify(log)
    assert (report.ok, report.index) == (True, "whole")


@pytest.mark.requirement("WP-restore")
@pytest.mark.slow
def test_any_past_world_is_restored_in_a_bounded_number_of_steps(long_line: str, tmp_path: Path) -> None:
    with open_log(long_line, read_only=True) as log:
        worlds = [event.world_id for event in sealed_worlds(log)][::7]
    copy = copied(long_line, tmp_path)
    with open_log(copy, view=WorldIndex()) as log:
        log.rebuild_view()
    assert most_steps(copy, worlds) <= EVERY
    assert most_steps(long_line, worlds) <= EVERY


def test_what_was_appended_without_the_index_gets_its_checkpoints_when_it_is_opened(
    long_line: str, tmp_path: Path
) -> None:
    copy = copied(long_line, tmp_path)
    database = sqlite3.connect(copy)
    with database:
        database.execute("UPDATE wp_view SET position = 1500 WHERE log_id <> 0")
        for statement in (
            "DELETE FROM wp_world WHERE position > 1500",
            "DELETE FROM wp_checkpoint WHERE world_id NOT IN (SELECT world_id FROM wp_world)",
            "DELETE FROM wp_proposal WHERE submitted_pos > 1500",
            "DELETE FROM wp_verdict WHERE position > 1500",
            "DELETE FROM wp_ledger WHERE position > 1500",
        ):
            database.execute(statement)
    left = database.execute("SELECT count(*) FROM wp_checkpoint").fetchone()[0]
    database.close()
    open_log(copy, view=WorldIndex()).close()
    assert 0 < left < len(index_rows(copy)["wp_checkpoint"])
    assert index_rows(copy)["wp_checkpoint"] == index_rows(long_line)["wp_checkpoint"]


@pytest.mark.requirement("WP-restore", "WP-lineage")
@pytest.mark.slow
def test_checkpoints_of_all_branches_and_failures_hold_what_was_sealed(shared_log_url: str) -> None:
    with record(shared_log_url) as world:
        expected = {
            event.world_id: canonical_text(world.data(event.world_id))
            for event in sealed_worlds(world.log)
            if event.height % 3 == 0
        }
        assert {world.sealed(world_id).outcome for world_id in expected} == {"completed", "failed"}
    with open_log(shared_log_url, view=WorldIndex(checkpoint_every=3)) as log:
        log.rebuild_view()
        archive = Archive(log)
        assert {name: archive.rows("checkpoint", {"of_world": name})[0][0] for name in expected} == expected
        assert verify(log).ok


def test_from_a_damaged_world_on_there_are_no_checkpoints(long_line: str, tmp_path: Path) -> None:
    copy = copied(long_line, tmp_path)
    database = sqlite3.connect(copy)
    [(position,)] = database.execute("SELECT position FROM wp_world WHERE height = 200")
    with database:
        changed = database.execute(
            "UPDATE wp_event SET state = replace(state, 'counters.c', 'broken.c') WHERE (id & ?) = ?",
            (POSITION_MASK, position),
        )
        assert changed.rowcount == 1
    database.close()
    with open_log(copy, view=WorldIndex()) as log:
        log.rebuild_view()
    rows = index_rows(copy)
    made = {row[1] for row in rows["wp_checkpoint"]}
    assert {row[3] for row in rows["wp_world"] if row[1] in made} == {0, EVERY}
