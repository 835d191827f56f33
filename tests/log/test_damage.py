"""Damage of every kind, systematically: what alters meaning is found and named, the rest is proven to alter nothing.

A sample runs with the suite. ``make damage`` flips every byte of a small log and of an export, and takes every row.
``WORLDPROTOCOL_DAMAGE`` says how many of each kind: a number, or ``all``; all of them are shared out in parts, which
run beside each other.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import pytest
import yaml

from tests.golden.garden import FOLDER
from tests.golden.generate import rehashed
from world.audit.verify import VerificationReport, verify
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.log import open_log
from world.log.backends.sqlite_pages import rows_of_file
from worldprotocol.cli.program import run
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.export.proofs.exports import ExportReport, check_export
from worldprotocol.export.salvage import salvage as salvaging
from worldprotocol.export.salvage.salvage import salvage

pytestmark = pytest.mark.slow

WANTED = os.environ.get("WORLDPROTOCOL_DAMAGE", "25")
IS_ALL = WANTED == "all"
PARTS = range(64 if IS_ALL else 1)
EVENTS = 13
"""Events of the small log: a founded realm and one proposal that completed."""

ROW_BYTES = 140
"""What stands before the state in the row of an event, at most."""

SLOW_S = 30.0
"""No command may take so much CPU time with a log that is read in a moment; other processes add nothing to it."""

MOST_BYTES = 1 << 31
"""No process may grow so far, whatever a length in a damaged file says."""

READERS = [
    ["log"], ["worlds"], ["replay"], ["state"], ["show", "HEAD"], ["show", "3"], ["blame"], ["runs"], ["inbox"],
    ["stuck"], ["waits"], ["trace", "3"], ["diff", "3", "HEAD"], ["bisect", "--path", "balance", "--becomes", "1"],
    ["doctor"], ["verify"], ["log", "--reverse", "--limit", "3"], ["explain", "{proposal}"], ["recheck"], ["actions"],
    ["show", "{proposal}"], ["policy", "list"], ["actor", "list"], ["lease", "list"], ["branch", "list"],
    ["whatif", "--drop", "{proposal}"], ["report", "--force", "-o", "{folder}/report.html"],
]  # fmt: skip
FINDERS = ("verify", "doctor", "recheck", "whatif")
"""Commands that end with 1 where they found something."""

TABLES = ["wp_event", "wp_head", "wp_chunk", "wp_log", "wp_store", "wp_view", "wp_proposal", "wp_world", "wp_branch"]
T = TypeVar("T")


def sample(every: Iterable[T], salt: int) -> list[T]:
    """Return all of something, or as many by chance as are wanted."""
    whole = list(every)
    return whole if IS_ALL or len(whole) <= int(WANTED) else random.Random(salt).sample(whole, int(WANTED))


def share(every: Sequence[T], part: int) -> Sequence[T]:
    """Return what one of the parts looks at."""
    return every[part :: len(PARTS)]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder in memory, where there is one: the file is written anew for every change."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(tempfile, "tempdir", folder)  # what is read in for a look is written there too
        domain = yaml.safe_load((FOLDER / "ledger.yaml").read_text())
        Path(folder, "ledger.json").write_text(json.dumps(domain))  # which is read faster, thousands of times
        Path(folder, "world.toml").write_text('log = "sound.db"\ndomain = "ledger.json"\n')
        yield Path(folder)


@pytest.fixture(scope="module")
def exported() -> bytes:
    """The small log as an export."""
    lines = [json.loads(line) for line in (FOLDER / "ledger.jsonl").read_bytes().splitlines()]
    return b"".join(rehashed([*lines[: EVENTS + 1], {"head": {}}]))


@pytest.fixture(scope="module")
def stored(place: Path, exported: bytes) -> bytes:
    """The small log as a SQLite file."""
    import_log(io.BytesIO(exported), str(place / "sound.db"))
    (place / "sound.jsonl").write_bytes(exported)
    return (place / "sound.db").read_bytes()


def proposal_in(exported: bytes) -> str:
    """Return the id of the first proposal of an export."""
    submitted = next(line for line in exported.splitlines() if b'"proposal.submitted"' in line)
    return str(json.loads(submitted)["state"]["proposalId"])


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


def looked_at(path: Path) -> VerificationReport | WorldProtocolError:
    """Verify a log; any exception but ours comes through."""
    begun = time.process_time()
    try:
        with open_log(str(path), read_only=True) as log:
            return verify(log)
    except WorldProtocolError as error:
        return error
    finally:
        assert time.process_time() - begun < SLOW_S


def check(path: Path, exported: bytes, sound: dict[int, Any], what: object) -> None:
    """Check that a change is found and its event named, or that it altered nothing."""
    found, now = looked_at(path), rows(path)
    if isinstance(found, WorldProtocolError):
        assert isinstance(found, (DamagedLogError, RefusedError)), (what, found)
        assert export_of(path) in (None, exported), what
        return
    codes = {finding.code for finding in found.findings}
    if codes <= {"INDEX_DIFFERS", "SCHEMA_DIFFERS", "FILE_DAMAGED", "EVENT_STRAY"}:
        assert export_of(path) in ((exported,) if not codes else (exported, None)) or "EVENT_STRAY" in codes, (
            what,
            codes,
        )
    if now is not None and now != sound:
        differing = {place for place in now.keys() | sound.keys() if now.get(place) != sound.get(place)}
        named = {finding.position for finding in found.findings}
        for gap in (finding.details for finding in found.findings if finding.code == "EVENT_MISSING"):
            named |= {place for place in differing if gap["first"] <= place <= gap["last"]}
        assert differing & named or "STORAGE_DAMAGED" in codes, (what, differing, found.findings)


def read_all(path: Path, capsys: pytest.CaptureFixture[str], commands: Iterable[list[str]], what: object) -> None:
    """Run commands on a log; each has to end by itself, with an error of ours where it ends with one."""
    proposal = proposal_in((path.parent / "sound.jsonl").read_bytes())
    for named in commands:
        command = [word.format(proposal=proposal, folder=path.parent) for word in named]
        begun = time.process_time()
        capsys.readouterr()
        code = run(["--json", "--log", str(path), "--config", str(path.parent / "world.toml"), *command])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2, 3), (what, command, code)
        assert code == 0 or '"error"' in out + err or command[0] in FINDERS, (what, command, out, err)
        assert time.process_time() - begun < SLOW_S, (what, command)


def changes(data: bytes, salt: int) -> list[tuple[str, int]]:
    """Return where the data are to be changed: one byte flipped, and bytes deleted, inserted, swapped, or cut off."""
    flips = [("flip", at) for at in sample(range(len(data)), salt)]
    most = 2_000 if IS_ALL else min(4 * EVENTS, int(WANTED))
    places = random.Random(salt + 1).sample(range(len(data)), most)
    return [*flips, *((kind, at) for at in places for kind in ("delete", "insert", "cut", "swap"))]


def reach(data: bytes, kind: str, at: int) -> tuple[int, int]:
    """Return how many bytes a change takes, and with which others a swap exchanges them."""
    chance = random.Random(f"{kind} {at}")
    return 1 if kind == "flip" else chance.choice((1, 3, 64)), chance.randrange(len(data))


def changed(data: bytes, kind: str, at: int) -> bytes:
    """Return the data with one of the changes."""
    length, other = reach(data, kind, at)
    chance = random.Random(at)
    match kind:
        case "flip":
            return data[:at] + bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
        case "delete":
            return data[:at] + data[at + length :]
        case "insert":
            return data[:at] + chance.randbytes(length) + data[at:]
        case "cut":
            return data[:at]
    swapped = bytearray(data)
    swapped[at : at + length], swapped[other : other + length] = data[other : other + length], data[at : at + length]
    return bytes(swapped)[: len(data)]


def touched(data: bytes, kind: str, at: int, begin: int, end: int) -> bool:
    """Tell whether a change takes something of these bytes, or comes between them."""
    length, other = reach(data, kind, at)
    spans = {"insert": [(at, at)], "cut": [(at, len(data))], "swap": [(at, at + length), (other, other + length)]}
    return any(first < end and begin < last for first, last in spans.get(kind, [(at, at + length)]))


def places(stored: bytes, exported: bytes) -> dict[bytes, tuple[int, int]]:
    """Return where the rows of events stand in a file, those that stand in one piece: by their lines in an export."""
    found = {}
    for line in exported.splitlines():
        state = line[line.index(b'"state":') + 8 : line.rindex(b',"stream":')] if b'"state":' in line else b""
        at = stored.find(state)
        if state and at == stored.rfind(state) and at >= 0:
            found[line] = at - ROW_BYTES, at + len(state)
    return found


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("part", PARTS)
def test_every_change_of_bytes_in_a_file_is_found_or_alters_nothing(
    place: Path, stored: bytes, exported: bytes, capsys: pytest.CaptureFixture[str], part: int
) -> None:
    path = place / "bytes.db"
    sound = rows(place / "sound.db")
    assert sound is not None
    for number, (kind, at) in enumerate(share(changes(stored, 1), part), part):
        path.write_bytes(changed(stored, kind, at))
        check(path, exported, sound, (kind, at))
        if number % 3 == 0:
            read_all(path, capsys, [READERS[number // 3 % len(READERS)]], (kind, at))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 < MOST_BYTES


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("part", PARTS)
def test_every_change_of_bytes_in_an_export_is_found_or_alters_nothing(place: Path, exported: bytes, part: int) -> None:
    for kind, at in share(changes(exported, 2), part):
        data = changed(exported, kind, at)
        try:
            report = check_export(io.BytesIO(data))
        except (RefusedError, DamagedLogError):
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
    assert isinstance(found, VerificationReport)
    assert {finding.code for finding in found.findings} == {"INDEX_DIFFERS"}
    assert export_of(path) == exported


def remembered(check: Callable[[IO[bytes]], ExportReport]) -> Callable[[IO[bytes]], ExportReport]:
    """Return a check of exports that looks once at each content: most damage leaves the same to be salvaged."""
    known: dict[bytes, ExportReport | RefusedError] = {}

    def look(source: IO[bytes]) -> ExportReport:
        data = source.read()
        if data not in known:
            try:
                known[data] = check(io.BytesIO(data))
            except RefusedError as refused:
                known[data] = refused
        found = known[data]
        if isinstance(found, RefusedError):
            raise found
        return found

    return look


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("part", PARTS)
def test_what_is_salvaged_of_any_damage_is_what_was_committed(
    place: Path, stored: bytes, exported: bytes, part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salvaging, "check_export", remembered(check_export))
    committed, known = set(exported.splitlines()), dict[bytes, set[bytes]]()
    path, out, rest = place / "rescued.db", place / "rescued.jsonl", place / "rescued.rest"
    every, stand = changes(stored, 4), places(stored, exported)
    assert len(stand) >= EVENTS - 1
    for kind, at in share(every if IS_ALL else random.Random(5).sample(every, 30), part):
        data = changed(stored, kind, at)
        path.write_bytes(data)
        found = repr((data[:16], [*rows_of_file(str(path), 8)])).encode()
        if found not in known:  # a salvage knows nothing of a file but its rows
            known[found] = salvaged(path, out, rest, committed, (kind, at))
        lost = {line for line, (begin, end) in stand.items() if not touched(stored, kind, at, begin, end)}
        assert lost <= known[found], (kind, at, lost - known[found])


def salvaged(path: Path, out: Path, rest: Path, committed: set[bytes], what: object) -> set[bytes]:
    """Salvage, check what is claimed, and return the lines of all events that came out."""
    for file in (out, rest):
        file.unlink(missing_ok=True)
    try:
        done = salvage(str(path), out, rest)
    except (DamagedLogError, RefusedError):
        return set()
    told = done.lost.count + done.changed.count + done.unreadable.count + sum(done.rest.values())
    assert done.head.size + told >= done.expected, what
    came = {line for line in out.read_bytes().splitlines() if b'"leaf"' in line} if out.exists() else set()
    if done.vouched != "none":
        assert came <= committed, what
    for line in rest.read_bytes().splitlines()[1:] if rest.exists() else ():
        proof, bare = json.loads(line)["proof"], re.sub(rb'"proof":"[a-z]+",', b"", line, count=1)
        assert proof == "none" or bare in committed, what
        came.add(bare)
    return came
