"""The tables of a store are compared with those that the engine makes: what differs is named, and put right."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.golden.garden import FOLDER
from world.audit.verify import VerificationReport, verify
from world.log import open_log
from world.log.url import parse_address
from worldprotocol.api.bootstrap import rebuild_index
from worldprotocol.cli.program import run
from worldprotocol.export.jsonl import import_log

MENDABLE = [
    [
        ("DROP INDEX wp_proposal_intent", "the index wp_proposal_intent is lost, which belongs to wp_proposal"),
        ("DROP TABLE wp_verdict", "the table wp_verdict is lost"),
        ("ALTER TABLE wp_world ADD COLUMN note TEXT", "the table wp_world has a column note more"),
        ("ALTER TABLE wp_run RENAME COLUMN agent_id TO who", "the table wp_run has lost its column agent_id"),
        ("CREATE UNIQUE INDEX mine ON wp_branch (tip)", "there is an index mine on wp_branch"),
        ("DROP VIEW world_events", "the view world_events is lost"),
    ],
    [
        (
            "DROP VIEW world_events; CREATE VIEW world_events AS SELECT 1 AS position",
            "the view world_events is another",
        ),
        (
            "DROP INDEX wp_world_parent; CREATE INDEX wp_world_parent ON wp_world (parent)",
            "the index wp_world_parent is another than this program makes",
        ),
        (
            "DROP INDEX wp_proposal_open; CREATE INDEX wp_proposal_open ON wp_proposal (log_id, submitted_pos)",
            "the index wp_proposal_open is another than this program makes",
        ),
    ],
]
"""What a rebuild puts right: statements, and what is said of them."""

FOR_GOOD = [
    ("CREATE UNIQUE INDEX mine ON wp_event (topic, id)", "there is an index mine on wp_event"),
    ("ALTER TABLE wp_chunk ADD COLUMN note TEXT", "has a column note more"),
]
"""What nothing but a person puts right."""

REPLACE = "PRAGMA writable_schema=ON; UPDATE sqlite_schema SET sql = replace(sql, '{}', '{}') WHERE name = '{}'"
ON_SQLITE = [
    ("CREATE TRIGGER t AFTER INSERT ON wp_head BEGIN SELECT 1; END", "there is a trigger t on wp_head"),
    (REPLACE.format("frontier BLOB", "frontier TEXT", "wp_chunk"), "has another column frontier"),
    (REPLACE.format("CHECK (id >> 40 = log_id)", "CHECK (1)", "wp_event"), "the table wp_event is another"),
    (REPLACE.format(" STRICT", "", "wp_head"), "the table wp_head is another than this program makes, in its"),
]
ON_POSTGRES = [
    ("ALTER TABLE wp_view ALTER COLUMN version TYPE BIGINT", "has another column version"),
    ("ALTER TABLE wp_head ALTER COLUMN root DROP NOT NULL", "wp_head has another column root"),
    ('ALTER TABLE wp_view ALTER COLUMN name TYPE TEXT COLLATE "POSIX"', "wp_view has another column name"),
    ("ALTER TABLE wp_store ALTER COLUMN version SET DEFAULT 1", "wp_store has another column version"),
    ("ALTER TABLE wp_event DROP CONSTRAINT wp_event_key", "wp_event has lost the constraint wp_event_key"),
    ("ALTER TABLE wp_event DROP CONSTRAINT wp_event_stream", "wp_event has lost the constraint wp_event_stream"),
    ("ALTER TABLE wp_head DROP CONSTRAINT wp_head_pkey", "wp_head has lost the constraint"),
    ("ALTER TABLE wp_event ADD CONSTRAINT c CHECK (version < 99999)", "wp_event has another constraint c"),
    ("ALTER TABLE wp_head SET UNLOGGED", "the table wp_head is not logged"),
    ("ALTER TABLE wp_event ENABLE ROW LEVEL SECURITY", "wp_event shows only some of its rows"),
    ("CREATE TABLE more () INHERITS (wp_chunk)", "wp_chunk is a part of another table, or has parts"),
    ("CREATE RULE r AS ON DELETE TO wp_event DO INSTEAD NOTHING", "there is a rule r on wp_event"),
    ("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'", ""),
    (
        "CREATE TRIGGER t BEFORE DELETE ON wp_event FOR EACH ROW EXECUTE FUNCTION f()",
        "there is a trigger t on wp_event",
    ),
]
FOREIGN = """CREATE TABLE others (id INTEGER PRIMARY KEY, note TEXT); CREATE INDEX others_note ON others (note);
CREATE VIEW their_view AS SELECT note FROM others; CREATE TABLE wp_theirs (id INTEGER PRIMARY KEY)"""


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A log with an index, in a database of its own."""
    where = str(tmp_path / "world.db") if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    with (FOLDER / "ledger.jsonl").open("rb") as lines:
        import_log(lines, where)
    return str(where)


def sql(address: str, statements: str) -> None:
    """Change the database behind the engine's back."""
    where = parse_address(address)
    if where.scheme == "sqlite":
        with closing(sqlite3.connect(where.path)) as database:
            database.executescript(statements)
        return
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(statements.encode())


def verified(address: str) -> VerificationReport:
    with open_log(address, read_only=True) as log:
        return verify(log)


def told(address: str) -> tuple[str, ...]:
    """Return what is found of the tables."""
    return tuple(one.message for one in verified(address).findings if one.code == "SCHEMA_DIFFERS")


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_tables_that_differ_are_named_and_a_rebuild_puts_the_index_right(address: str) -> None:
    assert verified(address).ok
    sql(address, FOREIGN)
    sql(address, "ANALYZE")
    assert verified(address).ok  # the tables of others are no concern of ours
    for changes in MENDABLE:
        for statements, _ in changes:
            sql(address, statements)
        found = told(address)
        for _, words in changes:
            assert any(words in message for message in found), (words, found)
        assert len(found) == len(changes)
        rebuild_index(address)
        assert verified(address).ok


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_what_differs_in_the_tables_of_the_log_is_named_with_a_way_out(address: str) -> None:
    changes = [*FOR_GOOD, *(ON_SQLITE if parse_address(address).scheme == "sqlite" else ON_POSTGRES)]
    for statements, _ in changes:
        sql(address, statements)
    found = told(address)
    for _, words in changes:
        assert any(words in message for message in found), (words, found)
    assert all("remove it with `DROP" in one or "worldctl import" in one for one in found)
    rebuild_index(address)
    assert told(address) == found


@pytest.mark.requirement("CARD-audit")
def test_doctor_says_how_to_put_each_table_right_and_rebuild_does_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = str(tmp_path / "world.db")
    with (FOLDER / "ledger.jsonl").open("rb") as lines:
        import_log(lines, place)

    def worldctl(*words: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run(["--json", "--log", place, *words])
        return code, json.loads(capsys.readouterr().out)

    def tables(*words: str) -> dict[str, Any]:
        [check] = [one for one in worldctl("doctor", *words)[1]["checks"] if one["check"] == "tables"]
        return dict(check)

    sql(place, "DROP INDEX wp_proposal_key")
    code, report = worldctl("verify")
    assert (code, [one["code"] for one in report["findings"]]) == (1, ["SCHEMA_DIFFERS"])
    found = tables()
    assert "wp_proposal_key is lost" in found["found"]
    assert "doctor --rebuild" in found["advice"]
    assert tables("--rebuild")["ok"]
    sql(place, 'CREATE INDEX "my own" ON wp_event (topic)')
    assert (worldctl("verify")[0], worldctl("doctor")[0]) == (3, 3)
    sql(place, tables()["advice"].split("`")[1])
    assert worldctl("verify")[0] == 0
