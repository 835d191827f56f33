"""Founding a realm: in an empty database, beside other realms, without rights, and by several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from tests.cli.counter import counter, house
from tests.cli.realm import COUNTER, ROOT, CliRealm
from world.errors import RefusedError
from world.log import list_logs
from worldprotocol import Realm

FOUNDER = """
import sys
from tests.cli.counter import counter, house
from worldprotocol import Realm
print("ready", flush=True)
sys.stdin.readline()
with Realm.open_or_create(sys.argv[1], domain=counter, policies=[house]) as world:
    world.register(sys.argv[2], "agent", binding={"kind": "policy_rules", "policy": "house"})
    print(world.act(sys.argv[2], "sell", {"item": "tea"}).status, flush=True)
"""


def refused(call: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value


def role_url(url: str, schema: str) -> str:
    """Return the URL of a database for a role without rights, with one schema in its search path."""
    poor = make_url(url).set(username="poor").update_query_dict({"options": f"-c search_path={schema}"})
    return poor.render_as_string(hide_password=False)


@pytest.fixture
def poor_database(postgres_database: str) -> Any:
    """Return the URL of a database with a role ``poor`` that may use the schema ``nothing`` and make nothing in it."""
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE ROLE poor LOGIN")
        connection.execute("CREATE SCHEMA closed")
        connection.execute("CREATE SCHEMA nothing")
        connection.execute("GRANT USAGE ON SCHEMA nothing TO poor")
    yield postgres_database
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("DROP OWNED BY poor")
        connection.execute("DROP ROLE poor")


def test_open_or_create_founds_a_realm_in_an_empty_postgres_database_and_goes_on_from_then(postgres_database: str):
    for sold in (1, 2):
        with Realm.open_or_create(postgres_database, domain=counter, policies=[house]) as world:
            world.register("ann", "human", binding={"kind": "auto_approve"})
            assert world.act("ann", "sell", {"item": "tea"}).status == "completed"
            assert world.data()["sold"] == sold
            assert list(world.realm().policies) == ["house"]


def test_open_or_create_founds_each_named_log_of_one_postgres_database(postgres_database: str):
    for name in ("#one", "#two"):
        with Realm.open_or_create(postgres_database + name, domain=counter, data={"sold": len(name)}) as world:
            assert world.data()["sold"] == len(name)
    assert list_logs(postgres_database) == ["one", "two"]
    assert refused(lambda: Realm.open(postgres_database, domain=counter)).code == "LOG_NOT_FOUND"


def test_open_or_create_founds_a_realm_beside_the_tables_of_others(postgres_database: str):
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE customers (id INT)")
    with Realm.open_or_create(postgres_database, domain=counter) as world:
        assert world.data()["sold"] == 0


def test_open_or_create_founds_a_realm_in_an_empty_file(tmp_path: Path):
    (tmp_path / "empty.db").touch()
    with Realm.open_or_create(tmp_path / "empty.db", domain=counter) as world:
        assert world.data()["sold"] == 0


def test_open_or_create_leaves_a_file_that_holds_something_else_as_it_is(tmp_path: Path):
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader, this is a letter and no log at all.\n" * 200)
    before = letter.read_bytes()
    assert refused(lambda: Realm.open_or_create(letter, domain=counter)).code == "NOT_A_LOG"
    assert letter.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letter.txt"]


def test_an_empty_postgres_database_says_how_a_realm_is_founded(postgres_database: str):
    for way_in in (
        lambda: Realm.open_read_only(postgres_database),
        lambda: Realm.open(postgres_database, domain=counter),
    ):
        error = refused(way_in)
        assert error.code == "NOT_A_LOG"
        assert "`worldctl init` (Realm.create)" in error.message


def test_a_role_that_may_not_make_tables_is_refused_with_what_it_lacks(poor_database: str):
    url = role_url(poor_database, "nothing")
    for way_in in (Realm.open_or_create, Realm.create):
        error = refused(lambda way_in=way_in: way_in(url, domain=counter))
        assert error.code == "LOG_READ_ONLY"
        assert "permission denied for schema nothing" in error.message
        assert "Grant" in error.message
        assert "\n" not in error.message


@pytest.mark.parametrize("schema", ["closed", "absent"])
def test_a_search_path_without_a_schema_that_the_role_may_use_is_refused_by_name(poor_database: str, schema: str):
    url = role_url(poor_database, schema)
    error = refused(lambda: Realm.open_or_create(url, domain=counter))
    assert error.code == "LOG_UNAVAILABLE"
    assert "no schema of its search_path exists" in error.message
    assert "\n" not in error.message


def test_a_realm_is_founded_with_its_policies_in_one_commit(log_url: str):
    with Realm.create(log_url, domain=counter, policies=[house]) as world:
        assert [head.size for head in world.log.heads()] == [world.log.head().size]
        assert list(world.realm().policies) == ["house"]


@pytest.mark.slow
def test_processes_that_found_one_realm_together_all_go_on_with_it(shared_log_url: str):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", FOUNDER, shared_log_url, f"agent-{number}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
        )
        for number in range(3)
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=120) for process in processes]
    assert said == [("completed\n", "")] * 3
    with Realm.open_read_only(shared_log_url) as world:
        topics = [event.topic for event in world.log.read()]
        assert topics.count("log.founded") == topics.count("policy.adopted") == 1
        assert world.data()["sold"] == 3


@pytest.mark.slow
def test_worldctl_init_founds_realms_in_postgres_by_name_and_only_once(postgres_database: str, tmp_path: Path):
    realm = CliRealm(tmp_path)
    for name in ("", "#audit"):
        founding = ["--log", postgres_database + name, "init", f"realm{len(name)}", "--domain", f"{COUNTER}:counter"]
        realm(*founding)
        assert "ALREADY_FOUNDED" in realm(*founding, "--force", code=1).err
        assert realm("--log", postgres_database + name, "--json", "state").json["data"]["sold"] == 0
    assert list_logs(postgres_database) == ["audit", "main"]


def test_worldctl_init_in_a_schema_without_rights_says_so_and_writes_nothing(poor_database: str, tmp_path: Path):
    url = role_url(poor_database, "nothing")
    said = CliRealm(tmp_path)("--log", url, "init", "realm", "--domain", f"{COUNTER}:counter", code=1)
    assert "permission denied for schema nothing" in said.err
    assert not (tmp_path / "realm").exists()
