"""Looking at a realm on PostgreSQL reads as many rows with a long past: those that the server counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.growth.grown import grow
from tests.plugins.forms import scaled
from tests.server.kiosk import handlers, kiosk
from tests.server.served import founded
from worldprotocol import Realm
from worldprotocol.cli.program import run

pytestmark = pytest.mark.slow

SHORT, LONG = 1_000, scaled(20_000, ci=4_000)
MOST = 1.3

COMMANDS = (
    *("log --limit 5", "log --limit 5 --reverse", "log --limit 5 --actor kid", "log --limit 5 --topic world.sealed"),
    *("worlds --limit 5", "worlds --limit 5 --at 100", "inbox", "doctor", "runs", "stuck", "effects", "waits", "state"),
    *(
        "show HEAD",
        "blame orders.n1",
        "trace HEAD",
        "actor list",
        "policy list",
        "rights list",
        "lease list",
    ),
    *("explain {proposal}", "show {proposal}"),
)

READ = """
SELECT (SELECT coalesce(sum(seq_tup_read), 0) FROM pg_stat_user_tables)
  + (SELECT coalesce(sum(idx_tup_read), 0) FROM pg_stat_user_indexes)
"""


def rows_read(address: str) -> int:
    """Return how many rows and entries of indexes were read in a database by connections that have ended."""
    with psycopg.connect(address.partition("#")[0], autocommit=True) as connection:
        [(count,)] = connection.execute(READ).fetchall()
    return int(count)


def looked_at(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return the rows that each command reads, and opening for acting."""
    with psycopg.connect(address.partition("#")[0], autocommit=True) as connection:
        connection.execute("ANALYZE")
    with Realm.open_read_only(address) as world:
        names: dict[str, Any] = {"proposal": world.sealed().created_by}
    found: dict[str, int] = {}
    monkeypatch.chdir(folder)
    for words in COMMANDS:
        before = rows_read(address)
        assert run(words.format(**names).split()) in (0, 1), words
        found[words] = rows_read(address) - before
    before = rows_read(address)
    Realm.open(address, domain=kiosk, effects=handlers, on_change="hold").close()
    return found | {"open": rows_read(address) - before}


def test_looking_reads_as_many_rows_with_a_long_past(
    postgres_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    founded(tmp_path, postgres_database)
    found = []
    for first, count in ((0, SHORT), (SHORT, LONG - SHORT)):
        with Realm.open(postgres_database, domain=kiosk, effects=handlers, on_change="hold") as realm:
            grow(realm, first, count)
        found.append(looked_at(postgres_database, tmp_path, monkeypatch))
    short, long = found
    assert {words: (count, long[words]) for words, count in short.items() if long[words] > MOST * count + 50} == {}
