"""What is sound in a damaged log stays readable, and nothing is called proven that is not."""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.golden.garden import FOLDER, record
from world.errors import DamagedLogError, RefusedError
from world.log import NewEvent, TreeHead, event_leaf, open_log
from world.log.backends.sqlite_pages import rows_of_file
from world.model.canonical_json import canonical_bytes
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.export.proofs.exports import check_export
from worldprotocol.export.salvage.salvage import Salvaged, salvage

DELETE = "DELETE FROM wp_event WHERE id & 1099511627775"


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of two logs, of which the second has the events of the golden one."""
    place = tmp_path_factory.mktemp("salvage") / "world.db"
    with (FOLDER / "harbour.jsonl").open("rb") as lines:
        import_log(lines, f"{place}#other")
    with record(f"{place}#main") as world, (place.parent / "whole.jsonl").open("wb") as out:
        export_log(world.log, out)
    return place


@pytest.fixture(scope="module")
def whole(original: Path) -> bytes:
    """The second log as an export."""
    return (original.parent / "whole.jsonl").read_bytes()


@pytest.fixture(scope="module")
def committed(original: Path) -> dict[int, dict[str, Any]]:
    """The events as they were committed, by position."""
    return {line["position"]: line for line in events_of(original.parent / "whole.jsonl")}


@pytest.fixture
def place(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copyfile(original, tmp_path / "world.db"))


def sql(place: Path, *statements: str) -> None:
    with closing(sqlite3.connect(place)) as database, database:
        for statement in statements:
            database.execute(statement)


def vacuum(place: Path) -> None:
    """Let nothing stay of what was deleted."""
    with closing(sqlite3.connect(place, isolation_level=None)) as database:
        database.execute("VACUUM")


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def events_of(path: Path) -> list[dict[str, Any]]:
    """Return the events in a file that a salvage wrote, none where it wrote none."""
    lines = path.read_text(encoding="utf-8").split("\n")[:-1] if path.exists() else []
    return [line for line in map(json.loads, lines) if "position" in line]


def rescue(
    source: Path | str, committed: dict[int, dict[str, Any]], folder: Path, *against: TreeHead
) -> tuple[Salvaged, dict[int, dict[str, Any]]]:
    """Salvage, check that everything it claims holds, and return the report with the events beside the prefix."""
    out, rest = folder / "saved.jsonl", folder / "saved.jsonl.rest.jsonl"
    for path in (out, rest):
        path.unlink(missing_ok=True)
    done = salvage(str(source), out, rest, against=against)
    prefix = events_of(out)
    others = {line["position"]: line for line in events_of(rest)}
    assert [line["position"] for line in prefix] == list(range(1, done.head.size + 1))
    assert out.exists() is bool(done.head.size)
    assert rest.exists() is bool(others)
    if prefix:
        with out.open("rb") as lines:
            assert check_export(lines).ok
    for line in prefix if done.vouched != "none" else ():
        assert line == committed[line["position"]]
    for position, line in others.items():
        if line.pop("proof") != "none":
            assert line == committed[position]
    told = [
        set(range(first, last + 1)) for one in (done.lost, done.changed, done.unreadable) for first, last in one.spans
    ]
    assert sum(map(len, told)) + done.head.size + len(others) >= done.expected  # nothing is passed over in silence
    assert not set().union(*told) & (others.keys() | set(range(1, done.head.size + 1)))
    return done, others


@pytest.mark.requirement("CARD-audit")
def test_of_a_sound_log_everything_is_saved_byte_for_byte(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]]
) -> None:
    with open_log(str(place), read_only=True) as log:
        export_log(log, out := io.BytesIO(), every_head=True)
    before = digests(tmp_path)
    done, others = rescue(place, committed, tmp_path)
    assert done.is_whole
    assert not others
    assert (tmp_path / "saved.jsonl").read_bytes() == out.getvalue()
    assert digests(tmp_path) | before == digests(tmp_path)


@pytest.mark.requirement("CARD-audit")
def test_what_is_intact_behind_a_changed_event_is_proven_by_the_tree_heads(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]]
) -> None:
    sql(place, """UPDATE wp_event SET state = replace(state, '1', '2') WHERE id & 1099511627775 = 60 AND log_id = 2""")
    done, others = rescue(place, committed, tmp_path)
    assert (done.changed.spans, done.lost.count, done.vouched) == ([(60, 60)], 0, "stored")
    assert done.head.size < 60
    assert done.rest["stored"] == len(others) == done.expected - done.head.size - 1
    with open_log(str(place), read_only=True) as log:
        saved = log.root_at(100)
    done, _ = rescue(place, committed, tmp_path, saved)
    assert (done.vouched, done.rest["saved"]) == ("saved", 100 - done.head.size - 1)


@pytest.mark.requirement("CARD-audit")
def test_lost_events_are_named_and_what_follows_stands_on_its_own_hash_alone(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]]
) -> None:
    sql(place, f"{DELETE} BETWEEN 60 AND 63 AND log_id = 2")
    vacuum(place)
    done, others = rescue(place, committed, tmp_path)
    assert done.lost.spans == [(60, 63)]
    assert done.rest["none"] == len(others) > 100


@pytest.mark.requirement("CARD-audit")
def test_stored_parts_of_the_tree_prove_what_stands_behind_a_gap(tmp_path: Path) -> None:
    place = tmp_path / "world.db"
    with open_log(str(place), create=True) as log:
        for number in range(0, 700, 7):
            with log.write() as transaction:
                transaction.append(chosen(number + one) for one in range(7))
    sql(place, f"{DELETE} = 300")
    vacuum(place)
    out, rest = tmp_path / "new.jsonl", tmp_path / "rest.jsonl"
    done = salvage(str(place), out, rest)
    assert (done.head.size, done.lost.spans) == (294, [(300, 300)])
    proven = {line["position"]: line["proof"] for line in events_of(rest)}
    assert {position for position, proof in proven.items() if proof == "none"} == {*range(295, 513)} - {300}
    with open_log(str(place), read_only=True) as log:
        saved = TreeHead(*next((head.size, head.root) for head in log.heads() if head.size == 602))
    done = salvage(str(place), out, rest, against=[saved])
    assert done.rest == {"none": 217, "saved": 602 - 512, "stored": 98}
    sql(place, "UPDATE wp_chunk SET root = zeroblob(32) WHERE id & 255 = 1")
    assert salvage(str(place), out, rest).rest["stored"] == 0


def founding() -> NewEvent:
    """Return the event with which every log begins."""
    founded = json.loads((FOLDER / "ledger.jsonl").read_text().split("\n")[1])
    return NewEvent(founded["stream"], founded["topic"], founded["schemaVersion"], canonical_bytes(founded["state"]))


def chosen(number: int) -> NewEvent:
    """Return an event that needs only that the log was founded, which the first one does."""
    if number == 0:
        return founding()
    state = canonical_bytes({"at": number, "by": "x", "enforcement": "enforcing"})
    return NewEvent("realm", "enforcement.chosen", 1, state)


@pytest.mark.requirement("CARD-audit")
def test_a_wrong_leaf_hash_beside_a_right_event_loses_nothing(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]]
) -> None:
    sql(place, "UPDATE wp_event SET leaf = zeroblob(32) WHERE id & 1099511627775 = 60 AND log_id = 2")
    done, _ = rescue(place, committed, tmp_path)
    assert done.is_whole


def test_a_tree_head_kept_elsewhere_ends_the_prefix_where_it_is_contradicted(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]]
) -> None:
    with open_log(str(place), read_only=True) as log:
        good = log.root_at(50)
    done, _ = rescue(place, committed, tmp_path, good, TreeHead(120, bytes(32)))
    assert [head.size for head in done.contradicted] == [120]
    assert (done.head, done.vouched) == (good, "saved")
    assert done.rest["stored"] == done.expected - 50
    assert not done.is_whole


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("table", ["wp_event", "wp_head", "wp_chunk", "wp_store", "wp_log"])
def test_without_a_table_the_rest_is_still_read(
    place: Path, tmp_path: Path, committed: dict[int, dict[str, Any]], table: str
) -> None:
    sql(place, "PRAGMA secure_delete=ON", "DROP VIEW world_events", f"DROP TABLE {table}")
    if table == "wp_event":
        with pytest.raises(DamagedLogError) as caught:
            salvage(str(place), tmp_path / "new.jsonl", tmp_path / "rest.jsonl")
        assert caught.value.code == "NOTHING_TO_SALVAGE"
        return
    if table == "wp_log":
        with pytest.raises(RefusedError) as refused:
            salvage(str(place), tmp_path / "new.jsonl", tmp_path / "rest.jsonl")
        assert refused.value.details["numbers"] == [1, 2]
        done, _ = rescue(f"{place}#2", committed, tmp_path)
        assert done.is_whole
        return
    done, _ = rescue(place, committed, tmp_path)
    assert done.head.size == len(committed)
    assert (done.vouched, done.is_whole) == (("none", False) if table == "wp_head" else ("stored", True))


@pytest.mark.requirement("CARD-audit")
def test_a_forged_event_with_fitting_hashes_ends_the_prefix(tmp_path: Path) -> None:
    out = tmp_path / "saved.jsonl"
    done = salvage(str(FOLDER / "garden-forged.jsonl"), out, tmp_path / "rest.jsonl")
    bad = json.loads((FOLDER / "garden-forged.summary.json").read_text())["firstBadEvent"]
    assert done.head.size < bad
    assert len(done.cut) == 1
    assert str(bad) in done.cut[0]


def crashed(tmp_path: Path) -> Path:
    """Return the file of a log whose writer died, so that its events stand in the write-ahead log."""
    place = tmp_path / "wal" / "world.db"
    place.parent.mkdir()
    crash = (
        "import os, sys; from tests.log.test_salvage import chosen; from world.log import open_log\n"
        "log = open_log(sys.argv[1], create=True)\n"
        "for n in range(40):\n"
        "    with log.write() as t: t.append([chosen(n)])\n"
        "os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", crash, str(place)], check=False)
    return place


@pytest.mark.slow
def test_events_that_only_the_write_ahead_log_holds_are_found_and_it_stays_as_it_is(tmp_path: Path) -> None:
    place = crashed(tmp_path)
    before = digests(place.parent)
    assert "world.db-wal" in before
    done = salvage(str(place), tmp_path / "saved.jsonl", tmp_path / "rest.jsonl")
    assert done.expected == 40
    assert done.head.size + sum(done.rest.values()) == 40
    assert digests(place.parent) == before


# Pages


PAGE = 4096
OVERFLOWING = 6000
"""Characters of a name with which an event goes on on overflow pages."""


def long(number: int) -> NewEvent:
    """Return an event as ``chosen`` does, every third too long for a page."""
    if number == 0:
        return founding()
    by = "x" * (OVERFLOWING if number % 3 == 0 else 40)
    state = canonical_bytes({"at": number, "by": f"{by}{number}", "enforcement": "enforcing"})
    return NewEvent("realm", "enforcement.chosen", 1, state)


@pytest.fixture(scope="module")
def paged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 300 events with interior pages, overflow pages and pages that were freed."""
    place = tmp_path_factory.mktemp("pages") / "world.db"
    with open_log(str(place), create=True) as log:
        for number in range(0, 300, 10):
            with log.write() as transaction:
                transaction.append(long(number + one) for one in range(10))
        with (place.parent / "whole.jsonl").open("wb") as out:
            export_log(log, out)
    with closing(sqlite3.connect(place)) as database, database:
        database.execute("CREATE TABLE junk AS SELECT zeroblob(5000) AS data FROM wp_event")
        database.execute("DROP TABLE junk")
    return place


def whereabouts(data: bytes, committed: dict[int, dict[str, Any]]) -> dict[int, set[int]]:
    """Return on which pages each event stands: by its text, which says its number, and the chain of its pages."""
    found = {}
    for position, line in committed.items():
        if position == 1:
            continue
        text = b'{"at":%d,"by":"' % line["state"]["at"]
        page = data.index(text) // PAGE
        found[position] = {page}
        if len(line["state"]["by"]) > OVERFLOWING:
            end = data.index(b"x%d" % line["state"]["at"] + b'","enforcement"') // PAGE
            found[position].add(end)
    return found


def came_out(place: Path, events: dict[int, dict[str, Any]], folder: Path) -> tuple[Salvaged, set[int]]:
    """Salvage, check every claim, and return which events came out as they were committed."""
    try:
        done, others = rescue(place, events, folder)
    except DamagedLogError:
        return Salvaged("main"), set()
    out = {line["position"]: line for line in events_of(folder / "saved.jsonl")} | others
    return done, {position for position, line in out.items() if line == events[position]}


@pytest.mark.requirement("CARD-audit")
def test_events_on_pages_that_nothing_leads_to_any_more_come_out(paged: Path, tmp_path: Path) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    data, place = bytearray(paged.read_bytes()), tmp_path / "world.db"
    starts = range(PAGE, len(data), PAGE)
    interior = [at for at in starts if data[at] in (2, 5)]
    leaves = [at for at in starts if data[at] == 13]
    assert interior
    for at in interior:  # no leaf is found from the root
        data[at : at + PAGE] = bytes(PAGE)
    data[:PAGE] = bytes(PAGE)  # no table has a root, and there is no header
    place.write_bytes(data)
    assert came_out(place, events, tmp_path)[1] == events.keys()
    for at in leaves:  # no page says where its rows are
        data[at : at + 64] = random.Random(at).randbytes(64)
    place.write_bytes(data)
    assert came_out(place, events, tmp_path)[1] == events.keys()


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_of_a_file_cut_anywhere_every_event_before_the_cut_comes_out(paged: Path, tmp_path: Path) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    data, place = paged.read_bytes(), tmp_path / "world.db"
    pages = whereabouts(data, events)
    for size in range(PAGE * 7, len(data), len(data) // 5):
        place.write_bytes(data[:size])
        done, out = came_out(place, events, tmp_path)
        assert out >= {position for position, on in pages.items() if (max(on) + 1) * PAGE <= size}, size
        assert done.head.size == 0 or done.vouched == "stored"


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("length", [1, 64, 5000])
def test_events_come_out_where_bytes_were_inserted_or_are_missing(paged: Path, tmp_path: Path, length: int) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    data, place, chance = paged.read_bytes(), tmp_path / "world.db", random.Random(length)
    pages = whereabouts(data, events)
    for is_more in (True, False):
        at = chance.randrange(len(data) // 3, 2 * len(data) // 3)
        place.write_bytes(data[:at] + (chance.randbytes(length) + data[at:] if is_more else data[at + length :]))
        gone = set(range(at // PAGE, (at + length) // PAGE + 1))
        _, out = came_out(place, events, tmp_path)
        apart = {position for position, on in pages.items() if min(on) < at // PAGE <= max(on)}  # on both sides
        assert out >= {position for position, on in pages.items() if not on & gone} - apart, (at, is_more)


@pytest.mark.requirement("CARD-audit")
def test_a_damaged_overflow_page_loses_its_event_alone(paged: Path, tmp_path: Path) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    data, place = bytearray(paged.read_bytes()), tmp_path / "world.db"
    end = data.index(b'x150","enforcement"')
    data[end // PAGE * PAGE + 4 : end] = bytes(end % PAGE - 4)
    place.write_bytes(data)
    done, out = came_out(place, events, tmp_path)
    assert out == events.keys() - {151}
    assert (done.changed.spans, done.head.size, done.vouched) == ([(151, 151)], 150, "stored")
    assert done.rest["stored"] == 149  # its leaf hash is there, so that the tree goes on behind it
    data[end // PAGE * PAGE : end // PAGE * PAGE + 4] = (end // PAGE + 1).to_bytes(4, "big")  # a chain in a circle
    place.write_bytes(data)
    assert came_out(place, events, tmp_path)[1] == out


@pytest.mark.requirement("CARD-audit")
def test_events_of_a_dropped_table_come_out_of_the_pages_that_were_freed(paged: Path, tmp_path: Path) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    place = Path(shutil.copyfile(paged, tmp_path / "world.db"))
    sql(place, "PRAGMA secure_delete=OFF", "DROP VIEW world_events", "DROP TABLE wp_event")
    _, out = came_out(place, events, tmp_path)
    trunk = 2  # a page on which the list of free pages stands is written over
    pages = whereabouts(paged.read_bytes(), events)
    most = max(sum(page in on for on in pages.values()) for page in range(len(paged.read_bytes()) // PAGE))
    assert len(out) >= len(events) - trunk * most


@pytest.mark.requirement("CARD-audit")
def test_a_forged_copy_on_a_freed_page_is_not_taken_for_the_event(paged: Path, tmp_path: Path) -> None:
    events = {line["position"]: line for line in events_of(paged.parent / "whole.jsonl")}
    place = Path(shutil.copyfile(paged, tmp_path / "world.db"))
    with closing(sqlite3.connect(place)) as database, database:
        [row] = database.execute("SELECT * FROM wp_event WHERE id & 1099511627775 = 150").fetchall()
        key, log, stream, version, topic, schema_version, _, state = row
        forged = state.replace("enforcing", "trusting")
        leaf = event_leaf(stream, version, topic, schema_version, forged.encode())
        database.execute("PRAGMA secure_delete=OFF")
        made = database.execute("SELECT sql FROM sqlite_schema WHERE name = 'wp_event'").fetchone()[0]
        database.execute(made.replace("wp_event", "forged", 1).replace("CONSTRAINT wp_event_stream", ""))
        values = (key, log, stream, version, topic, schema_version, leaf, forged)
        database.execute("INSERT INTO forged VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        database.execute("DROP TABLE forged")
    assert b"trusting" in place.read_bytes()
    done, out = came_out(place, events, tmp_path)
    assert done.is_whole
    assert out == events.keys()
    sql(place, "PRAGMA secure_delete=ON", f"{DELETE} = 150")  # the forged one is all there is
    done, out = came_out(place, events, tmp_path)
    assert out == events.keys() - {150}
    proven = 300 - 256  # up to the next stored part of the tree, nothing behind it is
    assert (done.head.size, done.rest["stored"]) == (140, proven)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_what_was_committed_to_a_damaged_write_ahead_log_comes_out(tmp_path: Path) -> None:
    place = crashed(tmp_path)
    wal = place.with_name("world.db-wal")
    data = wal.read_bytes()
    step, out, rest = 24 + PAGE, tmp_path / "saved.jsonl", tmp_path / "rest.jsonl"
    last = 32 + (len(data) - 32) // step * step - step
    for damage in (
        bytes(32) + data[32:],  # its header
        data[:last] + bytes(24) + data[last + 24 :],  # the header of its last page: nothing says that it was committed
        data[: last - step + 24] + bytes(PAGE) + data[last:],  # the newest version of a page
        data[: last + 100],
    ):
        wal.write_bytes(damage)
        done = salvage(str(place), out, rest)
        assert done.head.size + sum(done.rest.values()) >= 39, damage[:40]
        assert done.vouched == "stored"


# Chance


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the data after one accident."""
    at, length = chance.randrange(len(data)), chance.choice((1, 1, 8, 300, 5000))
    junk = chance.randbytes(length)
    return chance.choice(
        (
            data[:at] + junk + data[at + length :],
            data[:at] + bytes(length) + data[at + length :],
            data[:at],
            data[:at] + data[at + length :],
            data[:at] + junk + data[at:],
        )
    )


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.slow
def test_whatever_happened_to_a_file_every_claim_holds(
    original: Path, tmp_path: Path, committed: dict[int, dict[str, Any]], seed: int
) -> None:
    chance, data, place = random.Random(seed), original.read_bytes(), tmp_path / "damaged.db"
    for _ in range(5):
        place.write_bytes(damaged(data, chance))
        with suppress(DamagedLogError):
            rescue(f"{place}#2", committed, tmp_path)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("seed", range(3))
def test_whatever_happened_to_an_export_every_claim_holds(
    tmp_path: Path, committed: dict[int, dict[str, Any]], whole: bytes, seed: int
) -> None:
    chance, data, place = random.Random(seed), whole, tmp_path / "damaged.jsonl"
    for _ in range(5):
        place.write_bytes(damaged(data, chance))
        with suppress(DamagedLogError):
            rescue(place, committed, tmp_path)


def test_an_export_without_a_line_says_which_event_is_lost(
    tmp_path: Path, committed: dict[int, dict[str, Any]], whole: bytes
) -> None:
    lines = whole.splitlines(keepends=True)
    place = tmp_path / "bad.jsonl"
    place.write_bytes(b"".join([*lines[:100], b"{]\n", *lines[101:]]))
    done, others = rescue(place, committed, tmp_path)
    assert (done.bad_lines, done.lost.spans) == ([101], [(100, 100)])
    assert (done.head.size, len(others)) == (0, done.expected - 1)  # there is no tree head before the one at its end
    out, rest = tmp_path / "more.jsonl", tmp_path / "more.rest"
    done = salvage(str(place), out, rest, unproven=True)
    assert (done.head.size, done.vouched, done.is_whole) == (99, "none", False)
    assert events_of(out) == list(committed.values())[:99]


def test_junk_holds_no_rows(tmp_path: Path) -> None:
    place = tmp_path / "junk"
    for seed in range(20):
        place.write_bytes(random.Random(seed).randbytes(20_000))
        assert all(isinstance(columns, tuple) for _, columns in rows_of_file(str(place)))
        with pytest.raises((DamagedLogError, RefusedError)):
            salvage(str(place), tmp_path / "new.jsonl", tmp_path / "rest.jsonl")


# A server


def test_rows_that_a_server_lost_are_named(
    postgres_database: str, tmp_path: Path, committed: dict[int, dict[str, Any]], whole: bytes
) -> None:
    import_log(io.BytesIO(whole), postgres_database)
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"{DELETE} IN (90, 91)")
    done, _ = rescue(postgres_database, committed, tmp_path)
    assert done.lost.spans == [(90, 91)]
    assert (done.head.size, done.rest["none"]) == (0, done.expected - 2)  # an import has few tree heads
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("DROP TABLE wp_chunk")
    assert rescue(postgres_database, committed, tmp_path)[0].lost.spans == [(90, 91)]
