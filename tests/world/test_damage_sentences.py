"""What verify, doctor and replay say of a damaged log: no sentence ends twice, and every position is one of the log."""

from __future__ import annotations

import json
import random
import re
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.golden.garden import record
from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError, with_single_stops
from world.log import LogFinding, open_log
from world.log.sql.statement import POSITION_MASK
from worldprotocol.cli.program import run

COMMANDS = [["verify"], ["doctor"], ["replay"]]
DAMAGES = [
    "UPDATE wp_event SET id = 10 WHERE id & {mask} = 10",
    "UPDATE wp_event SET id = id - (1 << 41) WHERE id & {mask} = 20",
    "UPDATE wp_event SET id = id + (1 << 41) WHERE id & {mask} = 20",
    "UPDATE wp_event SET log_id = 7 WHERE id & {mask} = 30",
    "UPDATE wp_event SET stream = 'other' WHERE id & {mask} = 30",
    "UPDATE wp_event SET version = 70 WHERE id & {mask} = 30",
    "UPDATE wp_event SET topic = 'no.such' WHERE id & {mask} = 40",
    "UPDATE wp_event SET schema_version = 9 WHERE id & {mask} = 40",
    "UPDATE wp_event SET state = '{{}}' WHERE id & {mask} = 40",
    "UPDATE wp_event SET state = 'x' WHERE id & {mask} = 40",
    "UPDATE wp_event SET leaf = zeroblob(32) WHERE id & {mask} = 50",
    "DELETE FROM wp_event WHERE id & {mask} IN (60, 61)",
    "DELETE FROM wp_event WHERE id & {mask} > 100",
    "DELETE FROM wp_event",
    "UPDATE wp_head SET root = zeroblob(32)",
    "UPDATE wp_head SET id = id - (1 << 41)",
    "DELETE FROM wp_head WHERE id = (SELECT max(id) FROM wp_head)",
    "DELETE FROM wp_head",
    "DELETE FROM wp_log",
    "DELETE FROM wp_store",
    "UPDATE wp_store SET version = 99",
    "DELETE FROM wp_view",
    "DELETE FROM wp_branch",
    "UPDATE wp_world SET position = -5",
    "UPDATE wp_landmark SET position = position + 100000",
    "UPDATE wp_landmark SET position = position - 100000",
    "UPDATE wp_branch SET created_pos = created_pos + 100000",
    "UPDATE wp_proposal SET submitted_pos = -7",
    "DROP TABLE wp_proposal",
    "DROP TABLE wp_head",
    "CREATE INDEX more ON wp_event (topic)",
]
TWICE = re.compile(r"[^.\s/]\.\.(?=\s|$|`)")
FLIPS = 40


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("original") / "world.db"
    record(str(place)).close()
    return place


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)

    def says(address: Path, *arguments: str) -> str:
        capsys.readouterr()
        run([*arguments, "--log", str(address)])
        told = capsys.readouterr()
        return told.out + told.err

    return says


def execute(damaged: Path, statement: str) -> None:
    with closing(sqlite3.connect(damaged)) as database, database:
        database.execute("PRAGMA ignore_check_constraints = ON")
        database.execute(statement)


def positions(told: Any) -> Iterator[int]:
    """Yield all positions that a document names."""
    if isinstance(told, dict):
        for name, value in told.items():
            if name == "position" and value is not None:
                yield value
            else:
                yield from positions(value)
    elif isinstance(told, list):
        for one in told:
            yield from positions(one)


def check(said: Callable[..., str], damaged: Path, size: int, damage: object) -> None:
    """Look at everything that the three commands say of a damaged log."""
    for command in COMMANDS:
        words = said(damaged, *command)
        assert not TWICE.search(words), (damage, words)
        told = said(damaged, command[0], "--json")
        for line in told.splitlines():
            with suppress(json.JSONDecodeError):
                for position in positions(json.loads(line)):
                    assert 0 <= position <= size + 1, (damage, command, line)
        for number in re.findall(r"(?:first bad event is|[Ee]vents?(?: at)?|position) (-?\d+)", words):
            assert 0 <= int(number) <= size + 1, (damage, words)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("damage", DAMAGES)
def test_sentences_and_positions_about_rows_that_were_changed(
    original: Path, tmp_path: Path, said: Callable[..., str], damage: str
) -> None:
    damaged = Path(shutil.copyfile(original, tmp_path / "damaged.db"))
    with open_log(str(damaged), read_only=True) as log:
        size = log.head().size
    execute(damaged, damage.format(mask=POSITION_MASK))
    check(said, damaged, size, damage)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_sentences_and_positions_about_bytes_that_were_changed(
    original: Path, tmp_path: Path, said: Callable[..., str]
) -> None:
    data, chance = original.read_bytes(), random.Random(18)
    with open_log(str(original), read_only=True) as log:
        size = log.head().size
    damaged = tmp_path / "damaged.db"
    for number in range(FLIPS):
        changed = bytearray(data)
        at = chance.randrange(len(data) if number % 4 else 100)
        changed[at] ^= chance.randrange(1, 256)
        damaged.write_bytes(changed)
        check(said, damaged, size, at)
    damaged.write_bytes(data[: len(data) // 2])
    check(said, damaged, size, "half")


@pytest.mark.requirement("CARD-audit")
def test_an_event_whose_key_is_no_position_is_named_as_a_stray(
    original: Path, tmp_path: Path, said: Callable[..., str]
) -> None:
    damaged = Path(shutil.copyfile(original, tmp_path / "damaged.db"))
    execute(damaged, f"UPDATE wp_event SET id = 10 WHERE id & {POSITION_MASK} = 10")
    words = said(damaged, "verify")
    assert "the first bad event is 10" in words
    found = {(one["code"], one["position"]) for one in json.loads(said(damaged, "verify", "--json"))["findings"]}
    assert {("EVENT_MISSING", 10), ("EVENT_STRAY", 0)} <= found


def test_an_error_that_quotes_a_sentence_ends_once() -> None:
    quoted = "The file is damaged. Restore it from a copy."
    for kind in (RefusedError, DamagedLogError):
        assert kind("CODE", f"It failed: {quoted}.").message == f"It failed: {quoted}"
    assert LogFinding(ErrorCode.FILE_DAMAGED, 0, f"It is: {quoted}.").message == f"It is: {quoted}"
    assert str(RefusedError("CODE", "`a`.. Do b.")) == "`a`. Do b."
    for kept in ("and more ...", "the path a/.. is above", "..", "1.5 of 2."):
        assert with_single_stops(kept) == kept
