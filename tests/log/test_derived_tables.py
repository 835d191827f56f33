"""Every table that is derived from the events can be lost: ``verify`` names it, ``doctor --rebuild`` makes it again."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.workshop import a_workshop, workshop
from tests.test_docs import page, section
from world.clock import ManualClock
from world.events.verification import Verification
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.log.merkle import CHUNK_LEAVES
from world.log.tables import METADATA as LOG_TABLES
from world.read_models import index, index_tables
from worldprotocol.api.realm import Realm
from worldprotocol.cli.program import run

OF_INDEX = {**index_tables.METADATA.tables, **index_tables.KEYS_METADATA.tables}
DERIVED = ["wp_chunk", "wp_view", *sorted(OF_INDEX)]
NOT_DERIVED = ["wp_store", "wp_log", "wp_event", "wp_head"]
LOOKS = [
    ["log"], ["worlds"], ["replay"], ["inbox"], ["branch", "list"], ["lease", "list"], ["runs"], ["state"],
    ["state", "--at", "300"], ["blame", "told"], ["verify"],
]  # fmt: skip
LOOKED_AT = ["tables", "head", "index", "realm"]
"""What doctor finds of the log alone."""

Worldctl = Callable[..., tuple[int, Any]]


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A log whose derived tables all have several rows; it has a database of its own."""
    where = str(tmp_path / "world.db") if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    monkeypatch.setattr(index, "LEDGER_EVERY", 20)
    (tmp_path / "world.toml").write_text("[limits]\ncheckpoint_every = 8\n")  # that of the rebuilt index
    limits = Limits(checkpoint_every=8, klis=KlisSettings(backoff_ms=1, max_backoff_ms=4))
    with a_workshop(where, tmp_path / "w", limits=limits) as world:
        first = world.branch().head
        world.access.grant("ann", "actor", by="operator")
        for key in ("k1", "k2"):
            caller = Verification(method="peer", actor_id="ann", uid=1, key=key, request="ab" * 16)
            world.as_caller(caller).act("ann", "run", {"steps": []})
        for number in range(70):
            world.act("ann", "run", {"steps": []}, branch="side" if number > 60 else None)
            if number == 60:
                world.create_branch("side", first)
        with world.host.session(agent="ann", writes=["/made/**"]):
            (tmp_path / "w" / "made").mkdir()
        assert world.log.head().size > 2 * CHUNK_LEAVES
    return where


@pytest.fixture
def worldctl(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Worldctl:
    monkeypatch.chdir(tmp_path)

    def runs(address: str, *arguments: str) -> tuple[int, Any]:
        capsys.readouterr()
        code = run(["--json", "--log", address, *arguments])
        return code, [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return runs


def rows(address: str, table: str, statement: str) -> Any:
    """Run a statement about a table in the database of a log, and return what it finds."""
    sql = statement.format(table=table)
    if "://" in address:
        import psycopg

        with psycopg.connect(address, autocommit=True) as connection:
            found = connection.execute(sql.encode())
            return found.fetchall() if found.description else None
    with closing(sqlite3.connect(address)) as database, database:
        return database.execute(sql).fetchall()


def ends(table: str) -> list[str]:
    """Return statements that remove the first row of a table, and the last one."""
    if table == "wp_view":
        return ["DELETE FROM wp_view WHERE log_id = 0", "DELETE FROM wp_view WHERE log_id <> 0"]
    keys = ["id"] if table == "wp_chunk" else [column.name for column in OF_INDEX[table].primary_key]
    key = keys[-1]
    return [
        f"DELETE FROM {table} WHERE {key} = (SELECT {end}({key}) FROM {table})" for end in ("min", "max")
    ]  # fmt: skip


@pytest.mark.requirement("CARD-audit", "CARD-log")
@pytest.mark.slow
def test_each_derived_table_is_missed_by_verify_and_made_again(address: str, worldctl: Worldctl) -> None:
    content = {table: _content(address, table) for table in DERIVED}
    assert [table for table, found in content.items() if not found] == []
    before = [worldctl(address, *look) for look in LOOKS]
    assert {code for code, _ in before} == {0}
    for table in DERIVED:
        for statement in ends(table):
            rows(address, table, statement)
            _is_named(worldctl, address, statement)
            worldctl(address, "doctor", "--rebuild")
            assert worldctl(address, "verify")[0] == 0, statement
        rows(address, table, "DELETE FROM {table}")
        _is_named(worldctl, address, table)
        _is_mended(worldctl, address, before)
        assert _content(address, table) == content[table], table


@pytest.mark.requirement("CARD-audit", "CARD-log")
@pytest.mark.slow
def test_each_derived_table_that_was_dropped_is_made_again(address: str, worldctl: Worldctl) -> None:
    before = [worldctl(address, *look) for look in LOOKS]
    for table in DERIVED:
        rows(address, table, "DROP TABLE {table}")
        assert worldctl(address, "verify")[0] != 0, table
        _is_mended(worldctl, address, before)


@pytest.mark.requirement("CARD-audit", "CARD-log")
@pytest.mark.slow
def test_all_derived_tables_lost_together_are_made_again(address: str, worldctl: Worldctl) -> None:
    content = {table: _content(address, table) for table in DERIVED}
    before = [worldctl(address, *look) for look in LOOKS]
    for table in DERIVED:
        rows(address, table, "DELETE FROM {table}")
    _is_named(worldctl, address, "all")
    _is_mended(worldctl, address, before)
    assert {table: _content(address, table) for table in DERIVED} == content


def _content(address: str, table: str) -> Any:
    """Return the rows of a table; of the copy of the lease ledger, which may be of any event, that there is one."""
    columns = "log_id" if table == "wp_ledger" else "*"
    return sorted(rows(address, table, f"SELECT {columns} FROM {{table}}"), key=repr)


def _is_named(worldctl: Worldctl, address: str, lost: str) -> None:
    """Check that a verification names what is lost, and says what to do."""
    code, [report] = worldctl(address, "verify")
    assert code == 1, (lost, report)
    assert report["findings"], lost
    for finding in report["findings"]:
        assert finding["code"] in ("INDEX_DIFFERS", "CHUNK_CHANGED"), lost
        assert "`worldctl doctor --rebuild`" in finding["message"], lost


def _is_mended(worldctl: Worldctl, address: str, before: list[tuple[int, Any]]) -> None:
    _, [told] = worldctl(address, "doctor", "--rebuild")
    assert {one["check"]: one["ok"] for one in told["checks"] if one["check"] in LOOKED_AT} == dict.fromkeys(
        LOOKED_AT, True
    )
    assert [worldctl(address, *look) for look in LOOKS] == before


@pytest.mark.requirement("CARD-audit")
def test_chunks_are_not_made_of_leaves_that_do_not_give_the_tree_head(tmp_path: Path, worldctl: Worldctl) -> None:
    where = str(tmp_path / "world.db")
    with a_workshop(where, tmp_path / "w") as world:
        for _ in range(40):
            world.act("ann", "run", {"steps": []})
    with closing(sqlite3.connect(where)) as database, database:
        database.execute("UPDATE wp_event SET leaf = zeroblob(32) WHERE id & 1023 = 100")
    chunks = _content(where, "wp_chunk")
    assert chunks
    worldctl(where, "doctor", "--rebuild")
    assert _content(where, "wp_chunk") == chunks
    code, [report] = worldctl(where, "verify")
    assert code == 3
    assert "EVENT_CHANGED" in [one["code"] for one in report["findings"]]


@pytest.mark.requirement("CARD-log")
def test_the_recorded_interval_of_checkpoints_stays_until_the_index_is_rebuilt(
    tmp_path: Path, worldctl: Worldctl
) -> None:
    where = str(tmp_path / "world.db")
    with a_workshop(where, tmp_path / "w", limits=Limits(checkpoint_every=8)) as world:
        for _ in range(20):
            world.act("ann", "run", {"steps": []})
    given: dict[str, Any] = {"limits": Limits(checkpoint_every=3), "clock": ManualClock(2_000, 1)}
    with Realm.open(where, domain=workshop, workspace=tmp_path / "w", **given) as world:
        for _ in range(20):
            world.act("ann", "run", {"steps": []})
        heights = sorted(
            world.archive.sealed(name).height for (name, *_) in rows(where, "wp_checkpoint", _CHECKPOINTED)
        )
    assert heights == [0, 8, 16, 24, 32, 40]
    assert worldctl(where, "verify")[0] == 0


_CHECKPOINTED = "SELECT world_id FROM {table}"


def test_the_page_on_the_format_says_of_every_table_whether_it_is_derived() -> None:
    told = section(page("reference/log-format.md"), "### What is derived")
    assert sorted({*DERIVED, *NOT_DERIVED}) == sorted({*LOG_TABLES.tables, *OF_INDEX})
    derived, _, kept = told.partition("Not derived")
    for table in DERIVED:
        assert f"`{table}`" in derived
    for table in NOT_DERIVED:
        assert f"`{table}`" in kept


@pytest.mark.requirement("CARD-audit", "CARD-log")
@pytest.mark.parametrize(
    ("statement", "code", "named"),
    [
        ("DELETE FROM wp_event", 3, "LOG_TRUNCATED"),
        ("DELETE FROM wp_event WHERE id = (SELECT max(id) FROM wp_event)", 3, "LOG_TRUNCATED"),
        ("DELETE FROM wp_event WHERE id = (SELECT max(id) - 5 FROM wp_event)", 3, "EVENT_MISSING"),
        ("DELETE FROM wp_head", 3, "EVENT_UNSEALED"),
        ("DELETE FROM wp_head WHERE id = (SELECT max(id) FROM wp_head)", 3, "EVENT_UNSEALED"),
        ("DELETE FROM wp_log", 2, "LOG_NOT_FOUND"),
        ("DELETE FROM wp_store", 3, "LOG_DAMAGED"),
    ],
)
def test_what_is_not_derived_is_missed_and_not_made_again(
    tmp_path: Path, worldctl: Worldctl, statement: str, code: int, named: str
) -> None:
    where = str(tmp_path / "world.db")
    with a_workshop(where, tmp_path / "w") as world:
        world.act("ann", "run", {"steps": []})
    rows(where, "", statement)
    for _ in range(2):
        found, [told] = worldctl(where, "verify")
        assert (found, named in json.dumps(told)) == (code, True), told
        worldctl(where, "doctor", "--rebuild")
