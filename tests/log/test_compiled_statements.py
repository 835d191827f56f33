"""The file of statements compiled for SQLite has exactly the texts of the statements in SQLAlchemy Core."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import orjson

from bench.realms import BenchRealm
from tests.cli.counter import counter
from tests.compiled_statements import compiled_statements
from world.log.sql.queries import events_query, statements
from world.log.sql.statement import STATEMENTS_FILE
from world.log.statements import Statements, compiled_events_query
from world.read_models.index_sql.index_statements import SOURCES, compiled_statement
from world.read_models.index_sql.queries import statement
from worldprotocol import Realm


def test_the_file_has_the_statements_as_they_are_compiled_now() -> None:
    """``python -m tests.documents`` writes the file again after a change of a statement."""
    stored = orjson.loads(STATEMENTS_FILE.read_bytes())
    expected = {name: [one.sql, list(one.names), dict(one.constants)] for name, one in compiled_statements().items()}
    assert stored == expected


def test_prepared_statements_equal_compiled_ones_on_both_databases() -> None:
    for backend in ("sqlite", "postgresql"):
        for name, compiled in vars(Statements(backend)).items():
            assert getattr(statements(backend), name) == compiled
        for name in SOURCES:
            assert statement(name, backend) == compiled_statement(name, backend)


def test_a_statement_that_is_not_in_the_file_is_compiled() -> None:
    many = 40
    assert events_query("sqlite", topics=many) == compiled_events_query("sqlite", topics=many)


def test_opening_a_realm_reads_open_proposals_by_their_own_index(tmp_path: Path) -> None:
    """Memory and time of opening do not depend on the number of ended proposals."""
    realm = BenchRealm(str(tmp_path / "world.db"))
    realm.grow(20)
    realm.close()
    query = statement("open_proposals", "sqlite")
    with sqlite3.connect(tmp_path / "world.db") as database:
        plan = [row[3] for row in database.execute(f"EXPLAIN QUERY PLAN {query.sql}", query.bind(of_log=1))]
    database.close()
    assert plan == ["SEARCH wp_proposal USING INDEX wp_proposal_open (log_id=?)"]


def test_listing_events_imports_no_large_library_and_no_room(tmp_path: Path) -> None:
    realm = BenchRealm(str(tmp_path / "world.db"))
    realm.grow(20)
    realm.close()
    heavy = (
        "sqlalchemy",
        "pydantic",
        "yaml",
        "host",
        "authority",
        "projections",
        "world.engine",
        "world.core",
        "world.pipeline",
    )
    program = (
        "import sys\nfrom worldprotocol.cli.program import run\n"
        f"code = run(['log', '--log', {str(tmp_path / 'world.db')!r}, '--limit', '5'])\n"
        f"print(code, sorted(set({heavy!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
    assert len(done.stdout.splitlines()) == 7


def test_acting_under_a_policy_file_imports_neither_sqlalchemy_nor_the_command_line_of_cel(tmp_path: Path) -> None:
    rules = 'name = "house"\n[[rules]]\nid = "few"\nverdict = "approve"\nwhen = "intent.input.count < 3"\n'
    (tmp_path / "rules.toml").write_text(rules)
    with Realm.create(tmp_path / "world.db", domain=counter, policies=[tmp_path / "rules.toml"]) as realm:
        realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
    program = (
        "import sys\nfrom tests.cli.counter import counter\nfrom worldprotocol import Realm\n"
        "with Realm.open('world.db', domain=counter, policies=['rules.toml']) as realm:\n"
        "    print(realm.act('bot', 'sell', {'item': 'tea', 'count': 1}).status)\n"
        "print(sorted({'sqlalchemy', 'prompt_toolkit', 'typer', 'cel.cli'} & set(sys.modules)))\n"
        "import cel.cli\nprint(callable(cel.cli.cli_entry))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines() == ["completed", "[]", "True"], done.stderr
