"""The copy of the lease ledger beside the log: an exact round trip, what loads from it, and that it is not trusted."""

from __future__ import annotations

import io
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

import world.read_models.index as index
from tests.pipeline.shop import shop
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.errors import DamagedLogError, RefusedError
from world.events.base import Event
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.ledger_codec import ledger_to_wire, read_ledger
from world.klis.ledger_view import ReadableLedger
from world.klis.manifest import read_manifest
from world.klis.resources.resource_types import STANDARD, ResourceType
from world.klis.settings import KlisSettings
from world.model.canonical_json import canonical_bytes
from worldprotocol import Realm
from worldprotocol.api.bootstrap import rebuild_index
from worldprotocol.export.jsonl import export_log, import_log

AGENTS = st.sampled_from(["ann", "bob", "cleo"])
RESOURCES = st.sampled_from(["FILE:/a", "FILE:/a/b", "FILE:/a/*", "FILE:/b/*", "LAMP:kitchen"])
PREDICATES = st.sampled_from(["PROVIDES", "CONSUMES", "MUTATES", "DELETES", "DEPENDS_ON", "RENAMES"])
LAMPS = STANDARD.with_types(ResourceType("LAMP", "opaque"))
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), AGENTS, RESOURCES, PREDICATES, st.integers(1, 50), st.booleans()),
        st.tuples(st.just("release"), st.integers(0, 99)),
        st.tuples(st.just("beat"), st.integers(0, 99)),
        st.tuples(st.just("withdraw"), st.integers(0, 99)),
        st.tuples(st.just("wait"), st.integers(0, 60)),
        st.tuples(st.just("key"), AGENTS),
    ),
    max_size=40,
)


class Game:
    """Moves at a desk whose events go to any number of ledgers."""

    def __init__(self) -> None:
        self.now = 1_000
        self.ledger = Ledger()
        self.twins: list[Ledger] = []
        self.ids = SequentialIds()
        self.keys = 0
        self.desk = LeaseManager(self.ledger, emit=self.emit, new_id=self.ids.new_id)
        self.desk.configure(KlisSettings(max_hold_ms=100), self.now, by="test", types=LAMPS)

    def emit(self, event: Event) -> None:
        for ledger in (self.ledger, *self.twins):
            ledger.fold(event)

    def move(self, told: tuple[Any, ...]) -> None:
        with suppress(RefusedError):
            getattr(self, told[0])(*told[1:])

    def ask(self, agent: str, resource: str, predicate: str, ttl: int, queue: bool) -> None:
        self.keys += 1
        manifest = {
            "ver": "1.0",
            "session_id": f"s{self.keys % 2}",
            "agent_id": agent,
            "scope": [{"predicate": predicate, "resource": resource, "confidence": 0.6}],
            "nonce": f"n{self.keys}",
        }
        asked = read_manifest(manifest, settings=self.desk.settings, types=LAMPS)
        wait = ttl if ttl % 2 else None
        options = RequestOptions(ttl_ms=ttl, queue=queue, wait_ms=wait)
        self.desk.request(asked, self.now, channel={"kind": "vouched"}, options=options)

    def release(self, number: int) -> None:
        if leases := list(self.ledger.leases.values()):
            lease = leases[number % len(leases)]
            session = lease.session
            self.desk.release([lease.lease_id], self.now, agent_id=session.agent_id, session_id=session.session_id)

    def beat(self, number: int) -> None:
        if leases := list(self.ledger.leases.values()):
            lease = leases[number % len(leases)]
            session = lease.session
            self.desk.heartbeat(lease.lease_id, self.now, agent_id=session.agent_id, session_id=session.session_id)

    def withdraw(self, number: int) -> None:
        if requests := list(self.ledger.requests):
            self.desk.withdraw(requests[number % len(requests)], self.now)

    def wait(self, by: int) -> None:
        self.now += by
        self.desk.advance(self.now)

    def key(self, agent: str) -> None:
        self.keys += 1
        self.desk.register_key(agent, f"k{self.keys}", "cHVibGlj", self.now, by="test")
        if self.keys % 2:
            self.desk.revoke_key(f"k{self.keys}", self.now, by="test", reason="old")


def stored(ledger: ReadableLedger) -> bytes:
    return canonical_bytes(ledger_to_wire(ledger))


@pytest.mark.requirement("CARD-replay")
@given(MOVES, MOVES)
def test_a_stored_ledger_is_the_ledger_and_goes_on_like_it(before: list[Any], after: list[Any]) -> None:
    game = Game()
    for told in before:
        game.move(told)
    twin = read_ledger(orjson.loads(stored(game.ledger)))
    assert stored(twin) == stored(game.ledger)
    assert {name: (one.dies, one.waiting) for name, one in twin.sessions.items()} == {
        name: (one.dies, one.waiting) for name, one in game.ledger.sessions.items()
    }
    other = Game()
    other.now, other.ids, other.keys = game.now, SequentialIds(start=500), game.keys
    game.ids = SequentialIds(start=500)
    game.desk = LeaseManager(game.ledger, emit=game.emit, new_id=game.ids.new_id)
    other.ledger = twin
    other.desk = LeaseManager(twin, emit=other.emit, new_id=other.ids.new_id)
    for told in after:
        game.move(told)
        other.move(told)
        assert stored(game.ledger) == stored(twin)


@pytest.mark.requirement("CARD-replay")
def test_a_renewed_lease_expires_in_its_new_place_whether_or_not_the_ledger_was_stored() -> None:
    game = Game()
    game.ask("ann", "FILE:/a", "PROVIDES", 2, False)
    game.wait(1)
    game.beat(0)
    game.ask("ann", "FILE:/b", "PROVIDES", 1, False)
    game.key("ann")
    twin = read_ledger(orjson.loads(stored(game.ledger)))
    for part in ("agents", "keys", "signed_from"):
        assert getattr(twin, part) == getattr(game.ledger, part)
    first, second = (lease.lease_id for lease in game.ledger.leases.values())
    for ledger in (game.ledger, twin):
        assert [lease.lease_id for lease in ledger.expired(game.now + 10)] == [second, first]


@pytest.mark.parametrize("wrong", [{}, {"settings": None}, [], "text"])
def test_what_is_no_stored_ledger_is_damage(wrong: Any) -> None:
    with pytest.raises(DamagedLogError) as damaged:
        read_ledger(wrong)
    assert damaged.value.code == "INDEX_DAMAGED"


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep a copy after every few events."""
    monkeypatch.setattr(index, "LEDGER_EVERY", 5)


def play(world: Realm, rounds: int) -> None:
    desk = world.leases.desk
    for number in range(rounds):
        scope = [{"predicate": "MUTATES", "resource": f"FILE:/f{number % 7}"}]
        told = {"ver": "1.0", "session_id": f"s{number}", "agent_id": f"a{number % 3}", "scope": scope}
        desk.request(told, by=f"a{number % 3}", queue=True)
        if number % 3 == 0:
            held = next(iter(world.realm().klis.leases.values()))
            session = held.session
            desk.release([held.lease_id], agent_id=session.agent_id, session_id=session.session_id)


@pytest.mark.requirement("CARD-replay")
def test_a_realm_is_loaded_from_the_copy_and_the_events_since(shared_log_url: str, often: None) -> None:
    with Realm.create(shared_log_url, domain=shop, clock=ManualClock(1), ids=SequentialIds()) as world:
        play(world, 30)
        position, version = world.archive.ledger_position()
        assert 0 < position < world.log.head().size
        folded = world.archive.fold_realm()
        assert 0 < version <= folded.klis_version
    with Realm.open_read_only(shared_log_url) as world:
        loaded = world.archive.load_realm()
        assert stored(loaded.klis) == stored(folded.klis)
        assert loaded.klis_version == folded.klis_version
        assert verify(world.log).ok
    with Realm.open(shared_log_url, domain=shop, clock=ManualClock(2), ids=SequentialIds("two")) as world:
        play(world, 10)
        assert verify(world.log).ok


@pytest.mark.requirement("CARD-replay")
def test_an_imported_log_has_the_ledger_of_its_events(tmp_path: Path, shared_log_url: str, often: None) -> None:
    with Realm.create(tmp_path / "w.db", domain=shop, clock=ManualClock(1), ids=SequentialIds()) as world:
        play(world, 30)
        before = stored(world.realm().klis)
        export_log(world.log, exported := io.BytesIO())
    import_log(io.BytesIO(exported.getvalue()), shared_log_url)
    with Realm.open(shared_log_url, domain=shop, clock=ManualClock(2), ids=SequentialIds("two")) as world:
        assert world.archive.ledger_position()[0] > 0
        assert stored(world.realm().klis) == before
        play(world, 10)
        assert verify(world.log).ok


def test_a_rebuilt_index_has_a_copy_and_the_same_ledger(tmp_path: Path, often: None) -> None:
    path = tmp_path / "w.db"
    with Realm.create(path, domain=shop, clock=ManualClock(1), ids=SequentialIds()) as world:
        play(world, 30)
        before = stored(world.realm().klis)
    rebuild_index(str(path))
    with Realm.open_read_only(path) as world:
        assert 0 < world.archive.ledger_position()[0] <= world.log.head().size
        assert stored(world.archive.load_realm().klis) == before
        assert verify(world.log).ok
    with Realm.open(path, domain=shop, clock=ManualClock(2), ids=SequentialIds("two")) as world:
        play(world, 10)
        assert world.archive.ledger_position()[0] > 0
        assert verify(world.log).ok


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE wp_ledger SET state = replace(state, 'FILE:/f1', 'FILE:/f9')",
        "UPDATE wp_ledger SET position = position + 1",
        "UPDATE wp_ledger SET position = 1000000",
        "UPDATE wp_verdict SET status = 'Granted' WHERE status != 'Granted'",
        "DELETE FROM wp_verdict WHERE position = (SELECT max(position) FROM wp_verdict)",
        "DELETE FROM wp_ledger",
    ],
)
def test_a_copy_that_says_something_else_is_found(tmp_path: Path, often: None, damage: str) -> None:
    path = tmp_path / "w.db"
    with Realm.create(path, domain=shop, clock=ManualClock(1), ids=SequentialIds()) as world:
        play(world, 30)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    with Realm.open_read_only(path) as world:
        assert {finding.code for finding in verify(world.log).findings} == {"INDEX_DIFFERS"}
    rebuild_index(str(path))
    with Realm.open_read_only(path) as world:
        assert verify(world.log).ok


def test_the_ledger_of_many_events_is_kept_without_being_asked(tmp_path: Path) -> None:
    with Realm.create(tmp_path / "w.db", domain=shop, durability="normal") as world:
        desk = world.leases.desk
        lease = (
            desk.request(
                {
                    "ver": "1.0",
                    "session_id": "s",
                    "agent_id": "a",
                    "scope": [{"predicate": "MUTATES", "resource": "FILE:/a"}],
                },
                by="a",
            )
            .leases[0]
            .lease_id
        )
        for _ in range(3):
            desk.heartbeat([lease] * 800, agent_id="a", session_id="s")
        assert world.archive.ledger_position()[1] > index.LEDGER_EVERY
        assert verify(world.log).ok
