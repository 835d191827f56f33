"""The table of keys of requests: added to logs of earlier releases, stopped by their writers, and read of cut logs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.counter import counter
from tests.log.test_derived_tables import rows
from tests.log.test_repeated_cuts import archived
from world.audit.sealing import last_commit
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from world.log import NEXT_VERSION, NewEvent, open_log, rebuild_view
from world.log.views import REBUILD_BATCH
from world.read_models.index import KEYS_NAME, VIEW_NAME, WorldIndex
from worldprotocol import Realm
from worldprotocol.export.archive.cutting import CutPlan, cut, open_for_cutting, restore


def caller(key: str | None = None, request: str | None = None, actor: str = "bot") -> Verification:
    return Verification(method="peer", actor_id=actor, uid=1, key=key, request=request)


def sell(realm: Realm, verified: Verification) -> str:
    made = realm.as_caller(verified).act("bot", "sell", {"item": "tea", "count": 1})
    return made.submitted.intent.intent_id


def acquire(realm: Realm, key: str, request: str | None = None) -> None:
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/{key}"}]
    manifest = {"ver": "1.0", "agent_id": "bot", "session_id": f"s-{key}", "scope": scope}
    realm.as_caller(caller(key, request)).leases.desk.request(manifest, by="bot")


def found(realm: Realm, key: str, actor: str = "bot") -> list[type]:
    return [type(one) for one in realm.archive.events_of_key(actor, key)]


class EarlierIndex(WorldIndex):
    """The index of an earlier release, without the keys."""

    beside = ()  # type: ignore[assignment]


def lose_keys(address: str) -> None:
    """Leave a log as an earlier release did."""
    rows(address, "wp_request", "DROP TABLE {table}")
    rows(address, "wp_view", f"DELETE FROM {{table}} WHERE name = '{KEYS_NAME}'")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    where = str(tmp_path / "world.db") if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    with Realm.create(where, domain=counter) as realm:
        realm.register("bot", "agent", binding={"kind": "auto_approve"})
        realm.access.grant("bot", "actor", by="operator")
    return str(where)


@pytest.mark.requirement("CARD-log")
def test_a_log_of_an_earlier_release_gets_the_keys_of_its_events_when_it_is_opened(address: str) -> None:
    with Realm.open(address, domain=counter) as realm:
        acquire(realm, "old")
        submitted = sell(realm, caller())
        acquire(realm, "new", "ab" * 16)
    kept = rows(address, "wp_request", "SELECT * FROM {table}")
    lose_keys(address)
    with Realm.open_read_only(address) as realm:
        assert realm.proposals() is not None
        assert verify(realm.log).findings == ()
    version = rows(address, "wp_view", f"SELECT version FROM {{table}} WHERE name = '{VIEW_NAME}'")
    with Realm.open(address, domain=counter) as realm:
        assert found(realm, "old") == found(realm, "new") == [VerdictGiven]
        assert found(realm, submitted) == [ProposalSubmitted]  # a submission of an earlier release
        assert found(realm, "old", "kid") == found(realm, "none") == []
        [verdict] = realm.archive.events_of_key("bot", "new")
        assert verdict.verified.request == "ab" * 16
        assert verify(realm.log).findings == ()
    assert sorted(rows(address, "wp_request", "SELECT * FROM {table}")) == sorted(kept)
    assert rows(address, "wp_view", f"SELECT version FROM {{table}} WHERE name = '{VIEW_NAME}'") == version


@pytest.mark.requirement("CARD-log")
def test_what_a_writer_of_an_earlier_release_wrote_is_added(address: str) -> None:
    with Realm.open(address, domain=counter) as realm:
        acquire(realm, "one")
    with open_log(address, view=EarlierIndex()) as log, log.write() as transaction:
        realm_event = log.event_at(log.head().size)
        later = NewEvent(
            realm_event.stream, realm_event.topic, realm_event.schema_version, realm_event.state, NEXT_VERSION
        )
        log.insert_events([later], transaction=transaction)
        size = log.head().size
    with open_log(address, read_only=True) as log:
        state = log.view_state(KEYS_NAME)
        assert state is not None
        assert state.position == size
    with open_log(address, view=WorldIndex()) as log:
        state = log.view_state(KEYS_NAME)
        assert state is not None
        assert state.live
    [(first, last)] = rows(address, "wp_request", "SELECT first_pos, last_pos FROM {table}")
    assert (first, last) == (size, size + 1)


def test_a_key_has_one_row_in_whatever_order_its_events_are_applied(address: str) -> None:
    view = WorldIndex.beside[0]
    with Realm.open(address, domain=counter) as realm:
        for number in range(3):
            acquire(realm, f"k{number}", f"{number}" * 32)
        acquire(realm, "k0", "a" * 32)
    kept = sorted(rows(address, "wp_request", "SELECT * FROM {table}"))
    assert len(kept) == 3
    with open_log(address, view=WorldIndex()) as log:
        events = list(log.read())
        assert len(events) < REBUILD_BATCH
        with log.write() as transaction:
            view.clear(transaction.cursor())
            for part in (events[len(events) - 1 :], events[:-1], events):
                view.apply(transaction.cursor(), part)
    assert sorted(rows(address, "wp_request", "SELECT * FROM {table}")) == kept


@pytest.mark.requirement("CARD-audit")
def test_a_changed_key_is_found(address: str) -> None:
    with Realm.open(address, domain=counter) as realm:
        acquire(realm, "one", "1" * 32)
    for change in ("request = NULL", "first_pos = first_pos - 1", "last_pos = 999", "key = 'two'"):
        kept = rows(address, "wp_request", "SELECT * FROM {table}")
        rows(address, "wp_request", f"UPDATE {{table}} SET {change}")
        with open_log(address, read_only=True) as log:
            assert {one.code for one in verify(log).findings} == {"INDEX_DIFFERS"}, change
        values = ", ".join("NULL" if one is None else repr(one) for one in kept[0])
        rows(address, "wp_request", "DELETE FROM {table}")
        rows(address, "wp_request", f"INSERT INTO {{table}} VALUES ({values})")


def test_a_role_that_may_not_make_the_table_is_told_who_may(
    postgres_database: str, request: pytest.FixtureRequest
) -> None:
    with Realm.create(postgres_database, domain=counter) as realm:
        realm.register("bot", "agent", binding={"kind": "auto_approve"})
    lose_keys(postgres_database)
    role = f"writer_{abs(hash(request.node.nodeid)) % 10**9}"
    grants = f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}"
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {role} LOGIN".encode())
        connection.execute(grants.encode())
    address = postgres_database.replace("postgres:", f"{role}:", 1)
    try:
        with pytest.raises(RefusedError) as refused:
            Realm.open(address, domain=counter)
        assert refused.value.code == "LOG_FORMAT"
        assert "`worldctl doctor --rebuild`" in refused.value.message
        assert "wp_request" in refused.value.message
        rebuild_view(postgres_database, WorldIndex())
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(grants.encode())
        Realm.open(address, domain=counter).close()
    finally:
        with psycopg.connect(postgres_database, autocommit=True) as connection:
            connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


@pytest.mark.slow
@pytest.mark.requirement("CARD-log")
def test_a_cut_log_has_the_keys_of_the_events_with_contents(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    with Realm.create(path, domain=counter) as realm:
        realm.register("bot", "agent", binding={"kind": "auto_approve"})
        realm.access.grant("bot", "actor", by="operator")
        acquire(realm, "removed")
        acquire(realm, "gone")
        for _ in range(60):
            realm.act("bot", "sell", {"item": "tea", "count": 0})
        acquire(realm, "removed", "ab" * 16)  # as if it was not known any more
        acquire(realm, "kept")
    with open_for_cutting(str(path)) as log:
        archive = archived(log, tmp_path / "a")
        cut(log, CutPlan((archive,), last_commit(log, 256), 0), by="ann", now_ms=0)
        assert verify(log).findings == ()
        before = rows(str(path), "wp_request", "SELECT * FROM {table}")
    with Realm.open(path, domain=counter) as realm, pytest.raises(RefusedError) as refused:
        realm.archive.events_of_key("bot", "gone")
    assert refused.value.code == "EVENT_ARCHIVED"
    lose_keys(str(path))
    for restored in (False, True):
        with Realm.open(path, domain=counter) as realm:
            assert found(realm, "kept") == [VerdictGiven]
            assert found(realm, "gone") == ([VerdictGiven] if restored else [])
            [again, *_] = realm.archive.events_of_key("bot", "removed")
            assert again.verified.request == (None if restored else "ab" * 16)
            assert verify(realm.log).findings == ()
        if not restored:
            with open_for_cutting(str(path), has_view=False) as log:
                restore(log, [archive])
    assert sorted(rows(str(path), "wp_request", "SELECT * FROM {table}")) == sorted(before)
