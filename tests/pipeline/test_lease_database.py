"""The lease ledger in a database says what the simple one in memory says, move by move, and reads back the same."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.klis.lease_game import AGENTS, SETTINGS, Ask, Game, Move, contended_moves, fingerprint, moves
from tests.pipeline.shop import shop
from world.clock import ManualClock
from world.events.lease_events import VerdictGiven
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import KLIS_EVENTS
from world.klis.manifest import Manifest
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol import Realm

LIMITS = Limits(klis=SETTINGS)
_logs = count()


class StoredDesk:
    """A desk whose commands are made on a log; time passes in a commit before each."""

    def __init__(self, game: StoredGame) -> None:
        self._game = game
        self._leasing = game.world.leases.desk

    def request(
        self,
        manifest: Manifest,
        now: int,
        *,
        channel: Mapping[str, Any],
        options: RequestOptions,
    ) -> VerdictGiven:
        self.advance(now)
        wire, by = manifest.to_wire(), manifest.agent_id
        verdict = self._leasing.request(
            wire, by=by, ttl_ms=options.ttl_ms, queue=options.queue, wait_ms=options.wait_ms
        )
        self._game.catch_up()
        return verdict

    def heartbeat(self, lease_id: str, now: int, *, agent_id: str, session_id: str, ttl_ms: int | None = None) -> Any:
        self.advance(now)
        renewed = self._leasing.heartbeat([lease_id], agent_id=agent_id, session_id=session_id, ttl_ms=ttl_ms)
        self._game.catch_up()
        return renewed[0]

    def release(self, lease_ids: Iterable[str], now: int, *, agent_id: str, session_id: str) -> dict[str, str]:
        self.advance(now)
        states = self._leasing.release(lease_ids, agent_id=agent_id, session_id=session_id)
        self._game.catch_up()
        return states

    def revoke(self, lease_ids: Iterable[str], now: int, *, by: str, reason: str) -> dict[str, str]:
        self.advance(now)
        states = self._leasing.revoke(lease_ids, by=by, reason=reason)
        self._game.catch_up()
        return states

    def withdraw(self, request_id: str, now: int) -> bool:
        self.advance(now)
        waited = self._leasing.withdraw(request_id)
        self._game.catch_up()
        return waited

    def advance(self, now: int) -> None:
        self._game.clock.advance(now - self._game.clock.now_ms())
        self._leasing.withdraw("nothing")
        self._game.catch_up()


class StoredGame(Game):
    """The game on a log: ``ledger`` and ``twin`` are folded from what it stores."""

    def __init__(self, priorities: Iterable[int], address: str) -> None:
        """Found a realm and register the agents."""
        ages = list(priorities)
        super().__init__(())
        self.ledger, self.twin = type(self.ledger)(), type(self.twin)()
        self.events.clear()
        self.clock = ManualClock(self.now)
        self.position = 0
        self.world = Realm.create(address, domain=shop, clock=self.clock, limits=LIMITS)
        for agent, age in zip(AGENTS, ages, strict=True):
            self.world.leases.desk.register_agent(agent, by="test", priority=age)
            self.model.register(agent, age)
        self.desk = cast(LeaseManager, StoredDesk(self))
        self.catch_up()

    def catch_up(self) -> None:
        """Fold what was stored since."""
        for logged in self.world.log.read(self.position):
            self.position = logged.position
            event = decoded(logged)
            if type(event) in KLIS_EVENTS:
                self._emit(event)

    def compare(self) -> None:
        """Compare what is stored with the simple ledger, and with what the running engine holds."""
        super().compare()
        assert fingerprint(self.world.realm().klis.ledger()) == fingerprint(self.ledger)


@pytest.mark.requirement("CARD-replay", "KP-4a", "KP-5a")
@pytest.mark.parametrize("backend", ["sqlite-file", "postgres"])
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    ages=st.permutations(range(len(AGENTS))),
    steps=st.one_of(st.lists(moves(), min_size=8, max_size=30), st.lists(contended_moves(), min_size=8, max_size=30)),
)
@pytest.mark.slow
def test_memory_replay_and_database_agree_move_by_move(
    request: pytest.FixtureRequest, backend: str, ages: list[int], steps: list[Ask | Move]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if backend == "postgres":
            address = f"{request.getfixturevalue('postgres_url')}#leases-{next(_logs)}"
        else:
            address = f"sqlite:///{folder}/leases.db"
        game = StoredGame(ages, address)
        with game.world:
            for step in steps:
                game.play(step)
            with Realm.open(address, domain=shop, clock=game.clock, limits=LIMITS) as again:
                assert fingerprint(again.realm().klis.ledger()) == fingerprint(game.ledger)
