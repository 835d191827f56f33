"""Roles of PostgreSQL with least rights: the engine's role does all that a realm needs, and cannot change an event."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.realm import CliRealm
from tests.pipeline.shop import Bank, house, open_shop, shop
from tests.server.served import ORDER, PATH, founded, serving, stopped
from world.audit.database_server import role_rights
from world.audit.verify import verify
from worldprotocol import Policy, Realm, external
from worldprotocol.api.executing.worker import Worker

pytestmark = pytest.mark.slow

ROLES = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "postgresql-roles.sql"


@dataclass
class Database:
    """A database with the roles.

    Args:
        url: its URL as a superuser.
    """

    url: str

    def of(self, role: str) -> str:
        """Return the URL for a role."""
        assert "//postgres:@" in self.url
        return self.url.replace("//postgres:@", f"//{role}:@")

    def grant(self) -> None:
        """Run the file of the roles."""
        with psycopg.connect(self.url) as connection:
            connection.execute(ROLES.read_text(encoding="utf-8").encode())


@pytest.fixture
def database(postgres_database: str) -> Iterator[Database]:
    """Return a database in which a shop was founded by its owner."""
    found = Database(postgres_database)
    found.grant()
    with open_shop(found.of("world_owner")):
        pass
    found.grant()
    yield found
    with psycopg.connect(postgres_database) as connection:
        for role in ("world_engine", "world_reader", "world_owner"):
            connection.execute(f"DROP OWNED BY {role} CASCADE".encode())


def opened(address: str, **parts: Any) -> Realm:
    return Realm.open(address, domain=shop, **{"policies": [house], "effects": [Bank().handler()], **parts})


def test_the_whole_life_of_a_realm_works_with_the_role_of_the_engine(database: Database) -> None:
    address = database.of("world_engine")
    with opened(address) as realm:
        realm.register("eve", "human", binding={"kind": "auto_approve"})
        assert realm.act("eve", "sell", {"item": "tea"}).status == "completed"
        assert realm.act("ann", "charge", {"amount": 3, "times": 2}).status == "completed"
        waiting = realm.act("bot", "sell", {"item": "tea", "count": 3})
        assert realm.decide(waiting.proposal_id, "approve", by="ann").status == "completed"
        with realm.leases.acquire(agent="max", resource="FILE:/a") as held:
            assert held.is_active
        realm.create_branch("trial", realm.realm().branches["main"].head, by="ann")
        realm.switch_branch("trial", by="ann")
        realm.access.grant("eve", "reader", by="operator")
        realm.access.create_token("eve", by="operator")
        assert verify(realm.log).findings == ()
    with opened(address, policies=[Policy("house", [])]) as changed:
        assert changed.adopt_policy("house")
    with opened(address, policies=[Policy("house", [])], effects=[external("bank.charge", idempotent=True)]) as realm:
        offered = realm.act("ann", "charge", {"amount": 1})
        assert offered.status == "executing"
    with opened(address, policies=[Policy("house", [])], execute=False) as realm:
        assert Worker(realm).run(once=True).completed == 1
        assert realm.proposal(offered.proposal_id).status == "completed"
    with Realm.open_read_only(database.of("world_reader")) as reader:
        assert verify(reader.log).findings == ()


REFUSED = (
    "UPDATE wp_event SET topic = 'x'",
    "DELETE FROM wp_event",
    "TRUNCATE wp_event",
    "UPDATE wp_head SET root = ''",
    "DELETE FROM wp_head",
    "TRUNCATE wp_head",
    "UPDATE wp_log SET name = 'x'",
    "DELETE FROM wp_log",
    "UPDATE wp_store SET version = 0",
    "DROP TABLE wp_event",
    "ALTER TABLE wp_event ADD COLUMN x int",
    "ALTER TABLE wp_event DISABLE TRIGGER ALL",
    "CREATE INDEX ON wp_event (topic)",
    "CREATE TABLE other (a int)",
    "CREATE TEMPORARY TABLE other (a int)",
    "CREATE TABLE public.other (a int)",
    "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "SET ROLE world_owner",
)


def test_neither_role_can_change_what_was_appended(database: Database) -> None:
    for role in ("world_engine", "world_reader"):
        with psycopg.connect(database.of(role), autocommit=True) as connection:
            for statement in REFUSED:
                with pytest.raises((psycopg.errors.InsufficientPrivilege, psycopg.errors.ReadOnlySqlTransaction)):
                    connection.execute(statement.encode())
    with psycopg.connect(database.of("world_reader"), autocommit=True) as reader:
        reader.execute("SET default_transaction_read_only = off")
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            reader.execute("INSERT INTO wp_event SELECT * FROM wp_event")


def test_the_file_of_the_roles_may_be_run_again_and_grants_nothing_else(database: Database) -> None:
    with psycopg.connect(database.url) as connection:
        connection.execute("GRANT UPDATE, DELETE ON world.wp_event TO world_engine")
    with opened(database.of("world_engine")) as realm:
        rights = role_rights(realm.log)
        assert rights is not None
        assert rights.surplus == ("wp_event UPDATE", "wp_event DELETE")
    database.grant()
    with opened(database.of("world_engine")) as realm:
        rights = role_rights(realm.log)
        assert rights is not None
        assert (rights.name, rights.surplus) == ("world_engine", ())


def test_doctor_says_whether_the_role_has_more_rights_than_it_needs(database: Database, tmp_path: Path) -> None:
    found = {}
    superuser = f"{database.url}&options=-c%20search_path%3Dworld"
    for role in ("world_engine", "world_owner", "postgres"):
        told = CliRealm(tmp_path)(
            "--log", superuser if role == "postgres" else database.of(role), "--json", "doctor", code=1
        ).json
        found[role] = next(one for one in told["checks"] if one["check"] == "role")
    assert found["world_engine"] == {
        "check": "role",
        "ok": True,
        "found": "world_engine appends events and cannot change them",
    }
    assert found["world_owner"]["ok"] is False
    assert "owns the tables, creates tables, wp_event UPDATE" in found["world_owner"]["found"]
    assert "docs/deploy/postgresql-roles.sql" in found["world_owner"]["advice"]
    assert found["postgres"]["found"] == "postgres has more rights than it needs: superuser"


def test_a_log_in_a_file_has_no_role(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "shop.db")) as realm:
        assert role_rights(realm.log) is None


def test_a_server_runs_with_the_role_of_the_engine(postgres_database: str, tmp_path: Path) -> None:
    database = Database(postgres_database)
    database.grant()
    place = founded(tmp_path, database.of("world_owner"))
    database.grant()
    config = tmp_path / "world.toml"
    config.write_text(config.read_text().replace("world_owner", "world_engine"))
    with serving(place) as served:
        assert served.submit("kid", ORDER).json()["status"] == "completed"
        asked = served.submit("bot", ORDER).json()["proposalId"]
        with served.client("ann") as ann, served.client("aud") as aud:
            told = ann.post(f"{PATH}/proposals/{asked}:answer", json={"choice": "approve"})
            assert told.json()["status"] == "completed", told.text
            assert aud.get("/readyz").status_code == 200
            assert aud.get("/metrics").status_code == 200
        assert stopped(served) == 0
    with Realm.open_read_only(database.of("world_reader")) as reader:
        assert verify(reader.log).findings == ()
    with psycopg.connect(postgres_database) as connection:
        for role in ("world_engine", "world_reader", "world_owner"):
            connection.execute(f"DROP OWNED BY {role} CASCADE".encode())
