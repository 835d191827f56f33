"""Damage of every kind, systematically: what alters meaning is found and named, the rest is proven to alter nothing.

A sample runs with the suite. ``make damage`` flips every byte of a small log and of an export, and takes every row.
``WORLDPROTOCOL_DAMAGE`` says how many of each kind: a number, or ``all``.
"""

from __future__ import annotations

import io
import json
import os
import random
import resource
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from world.errors import DamagedLog, Refused, WorldProtocolError
from world.log import open_log
from world.verify import Report, verify
from worldprotocol.cli.run import run
from worldprotocol.proofs.exports import check_export
from worldprotocol.salvage.salvage import salvage
from worldprotocol.transfer import export_log, import_log

WANTED = os.environ.get("WORLDPROTOCOL_DAMAGE", "25")
IS_ALL = WANTED == "all"
EVENTS = 13
"""Events of the small log: a founded realm and one proposal that completed."""

SLOW_S = 30.0
"""No command may take so long with a log that is read in a moment."""

MOST_BYTES = 1 << 31
"""No process may grow so far, whatever a length in a damaged file says."""

READERS = [
    ["log"], ["worlds"], ["replay"], ["state"], ["show", "HEAD"], ["show", "3"], ["blame"], ["runs"], ["inbox"],
    ["stuck"], ["waits"], ["trace", "3"], ["diff", "3", "HEAD"], ["bisect", "--path", "balance", "--becomes", "1"],
    ["doctor"], ["verify"], ["log", "--reverse", "--limit", "3"],
]  # fmt: skip
TABLES = ["wp_event", "wp_head", "wp_chunk", "wp_log", "wp_store", "wp_view", "wp_proposal", "wp_world", "wp_branch"]
T = TypeVar("T")


def sample(every: Iterable[T], salt: int) -> list[T]:
    """Return all of something, or as many by chance as are wanted."""
    whole = list(every)
    return whole if IS_ALL or len(whole) <= int(WANTED) else random.Random(salt).sample(whole, int(WANTED))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in memory, where there is one: the file is written anew for every change."""
    return tmp_path_factory.mktemp("damage")


@pytest.fixture(scope="module")
def exported() -> bytes:
    """The small log as an export."""
    lines = [json.loads(line) for line in (FOLDER / "ledger.jsonl").read_bytes().splitlines()]
    return b"".join(rehashed([*lines[: EVENTS + 1], {"head": {}}]))


@pytest.fixture(scope="module")
def stored(place: Path, exported: bytes) -> bytes:
    """The small log as a SQLite file."""
    import_log(io.BytesIO(exported), str(place / "sound.db"))
    return (place / "sound.db").read_bytes()


def rows(path: Path) -> dict[int, Any] | None:
    """Return the events as SQLite reads them, None where it cannot."""
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = bytes
        with suppress(sqlite3.Error, UnicodeDecodeError):
            return {row[0] & 0xFFFFFFFFFF: row for row in database.execute("SELECT * FROM wp_event")}
    return None


def export_of(path: Path) -> bytes | None:
    """Return the log as an export, None where it is refused."""
    out = io.BytesIO()
    with suppress(WorldProtocolError), open_log(str(path), read_only=True) as log:
        export_log(log, out)
        return out.getvalue()
    return None


def looked_at(path: Path) -> Report | WorldProtocolError:
    """Verify a log; any exception but ours comes through."""
    begun = time.monotonic()
    try:
        with open_log(str(path), read_only=True) as log:
            return verify(log)
    except WorldProtocolError as error:
        return error
    finally:
        assert time.monotonic() - begun < SLOW_S


def check(path: Path, exported: bytes, sound: dict[int, Any], what: object) -> None:
    """Check that a change is found and its event named, or that it altered nothing."""
    found, now = looked_at(path), rows(path)
    if isinstance(found, WorldProtocolError):
        assert isinstance(found, (DamagedLog, Refused)), (what, found)
        assert export_of(path) in (None, exported), what
        return
    codes = {finding.code for finding in found.findings}
    if codes <= {"INDEX_DIFFERS", "FILE_DAMAGED", "EVENT_STRAY"}:
        assert export_of(path) in ((exported,) if not codes else (exported, None)) or "EVENT_STRAY" in codes, (
            what,
            codes,
        )
    if now is not None and now != sound:
        differing = {place for place in now.keys() | sound.keys() if now.get(place) != sound.get(place)}
        named = {finding.position for finding in found.findings}
        assert differing & named or "STORAGE_DAMAGED" in codes, (what, differing, found.findings)


def read_all(path: Path, capsys: pytest.CaptureFixture[str], commands: Iterable[list[str]], what: object) -> None:
    """Run commands on a log; each has to end by itself, with an error of ours where it ends with one."""
    for command in commands:
        begun = time.monotonic()
        capsys.readouterr()
        code = run(["--json", "--log", str(path), *command])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2, 3), (what, command, code)
        assert code == 0 or '"error"' in out + err or command[0] in ("verify", "doctor"), (what, command, out, err)
        assert time.monotonic() - begun < SLOW_S, (what, command)


def changes(data: bytes, salt: int) -> Iterator[tuple[str, int, bytes]]:
    """Yield the data with one byte flipped, and with bytes deleted, inserted, swapped, or cut off."""
    chance = random.Random(salt)
    for at in sample(range(len(data)), salt):
        yield "flip", at, data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
    for at in sample(range(len(data)), salt + 1)[: 4 * EVENTS if not IS_ALL else 2_000]:
        length, other = chance.choice((1, 3, 64)), chance.randrange(len(data))
        yield "delete", at, data[:at] + data[at + length :]
        yield "insert", at, data[:at] + chance.randbytes(length) + data[at:]
        yield "cut", at, data[:at]
        swapped = bytearray(data)
        swapped[at : at + length], swapped[other : other + length] = (
            data[other : other + length],
            data[at : at + length],
        )
        yield "swap", at, bytes(swapped)[: len(data)]


@pytest.mark.requirement("CARD-audit")
def test_every_change_of_bytes_in_a_file_is_found_or_alters_nothing(
    place: Path, stored: bytes, exported: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "bytes.db"
    sound = rows(place / "sound.db")
    assert sound is not None
    for number, (kind, at, data) in enumerate(changes(stored, 1)):
        path.write_bytes(data)
        check(path, exported, sound, (kind, at))
        if number % 3 == 0:
            read_all(path, capsys, [READERS[number // 3 % len(READERS)]], (kind, at))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES


@pytest.mark.requirement("CARD-audit")
def test_every_change_of_bytes_in_an_export_is_found_or_alters_nothing(place: Path, exported: bytes) -> None:
    for kind, at, data in changes(exported, 2):
        try:
            report = check_export(io.BytesIO(data))
        except (Refused, DamagedLog):
            continue
        if report.ok:
            path = place / "imported.db"
            path.unlink(missing_ok=True)
            import_log(io.BytesIO(data), str(path))
            assert export_of(path) == exported, (kind, at)
        else:
            assert report.findings[0].position > 0, (kind, at)


def alterations(path: Path) -> Iterator[tuple[str, str, tuple[Any, ...]]]:
    """Yield statements that delete, duplicate, swap and change the rows of every table."""
    with closing(sqlite3.connect(path)) as database:
        for table in TABLES:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            found = database.execute(f"SELECT rowid, * FROM {table} ORDER BY rowid").fetchall()
            for row, following in zip(found, [*found[1:], *found[:1]], strict=True):
                key, values = row[0], row[1:]
                yield table, f"DELETE FROM {table} WHERE rowid = ?", (key,)
                marks = ", ".join("?" * len(values))
                yield table, f"INSERT OR IGNORE INTO {table} VALUES ({marks})", (*_other(values[:1]), *values[1:])
                for at, column in enumerate(columns):
                    change = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"
                    yield table, change, (following[at + 1], key)
                    yield table, change, (*_other((values[at],)), key)


def _other(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values of the same kind that are others."""
    made: dict[type, Callable[[Any], Any]] = {
        int: lambda one: one + 1,
        str: lambda one: one.replace("1", "7") if "1" in one else one + "x",
        bytes: lambda one: bytes([*one[:-1], one[-1] ^ 1]) if one else b"x",
        type(None): lambda _: 1,
    }
    return tuple(made[type(one)](one) for one in values)


@pytest.mark.requirement("CARD-audit")
def test_every_change_of_rows_is_found_or_alters_nothing(
    place: Path, stored: bytes, exported: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "rows.db"
    sound = rows(place / "sound.db")
    assert sound is not None
    for number, (table, statement, values) in enumerate(sample(alterations(place / "sound.db"), 3)):
        path.write_bytes(stored)
        with closing(sqlite3.connect(path)) as database, database, suppress(sqlite3.Error):
            database.execute(statement, values)
        what = table, statement, values
        check(path, exported, sound, what)
        read_all(path, capsys, [READERS[number % len(READERS)]], what)


@pytest.mark.requirement("CARD-audit")
def test_every_table_that_is_lost_is_missed(
    place: Path, stored: bytes, exported: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place / "tables.db"
    for table in TABLES:
        path.write_bytes(stored)
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("DROP VIEW world_events")
            database.execute(f"DROP TABLE {table}")
        found = looked_at(path)
        assert isinstance(found, WorldProtocolError) or not found.ok, table
        assert export_of(path) in (None, exported), table
        read_all(path, capsys, READERS if IS_ALL else READERS[::4], table)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "parent", ["w.world_id", "(SELECT max(world_id) FROM wp_world)", "(SELECT min(world_id) FROM wp_world)"]
)
def test_an_index_that_leads_around_leads_no_reader_around(
    place: Path, stored: bytes, exported: bytes, capsys: pytest.CaptureFixture[str], parent: str
) -> None:
    path = place / "around.db"
    path.write_bytes(stored)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute(f"UPDATE wp_world AS w SET parent = {parent}")
    read_all(path, capsys, READERS, parent)
    found = looked_at(path)
    assert isinstance(found, Report)
    assert {finding.code for finding in found.findings} == {"INDEX_DIFFERS"}
    assert export_of(path) == exported


@pytest.mark.requirement("CARD-audit")
def test_what_is_salvaged_of_any_damage_is_what_was_committed(place: Path, stored: bytes, exported: bytes) -> None:
    committed = set(exported.splitlines())
    path, out, rest = place / "rescued.db", place / "rescued.jsonl", place / "rescued.rest"
    for kind, at, data in sample(changes(stored, 4), 5)[: None if IS_ALL else 30]:
        path.write_bytes(data)
        for file in (out, rest):
            file.unlink(missing_ok=True)
        with suppress(DamagedLog, Refused):
            done = salvage(str(path), out, rest)
            told = done.lost.count + done.changed.count + done.unreadable.count + sum(done.rest.values())
            assert done.head.size + told >= done.expected, (kind, at)
            if done.vouched != "none":
                assert {line for line in out.read_bytes().splitlines() if b'"leaf"' in line} <= committed, (kind, at)
