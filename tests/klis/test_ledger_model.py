"""The ledger against a simple one, move by move, and what must always be true of it (KLIS-3, KLIS-4, KLIS-5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.klis.lease_game import AGENTS, Ask, Game, Move, contended_moves, fingerprint, moves, wanted_triples
from tests.klis.simple_ledger import Who, exclude
from world.events.lease_events import VerdictGiven

priorities = st.lists(st.integers(0, 3), min_size=len(AGENTS), max_size=len(AGENTS))
steps = st.one_of(st.lists(moves(), min_size=5, max_size=40), st.lists(contended_moves(), min_size=10, max_size=40))
games = st.tuples(st.one_of(priorities, st.permutations(range(len(AGENTS)))), steps)
quickly = settings(max_examples=60)


class LeaseMachine(RuleBasedStateMachine):
    """Random agents do random things; after each the engine and the simple ledger agree."""

    @initialize(priorities=priorities)
    def begin(self, priorities: list[int]) -> None:
        self.game = Game(priorities)

    @rule(move=moves())
    def move(self, move: Ask | Move) -> None:
        self.game.play(move)

    @rule(move=contended_moves())
    def contend(self, move: Ask | Move) -> None:
        self.game.play(move)

    @rule(by=st.integers(0, 1_000))
    def time_passes(self, by: int) -> None:
        self.game.now += by

    @invariant()
    def nothing_unsafe(self) -> None:
        if hasattr(self, "game"):
            assert not told_to_clash(self.game)
            assert not edges_from_young_to_old(self.game)
            assert not has_cycle(waits_for(self.game))


TestTheLedgerAndTheSimpleLedgerAgreeMoveByMove = pytest.mark.requirement(
    "KP-3a", "KP-4a", "KP-4b", "KP-4c", "KP-5a", "KP-5b", "KP-7", "KP-wild", "CARD-replay"
)(LeaseMachine.TestCase)
TestTheLedgerAndTheSimpleLedgerAgreeMoveByMove.settings = settings(max_examples=60, stateful_step_count=40)


def told_to_clash(game: Game) -> list[Any]:
    """Return pairs of leases of different sessions that exclude each other, both in force as told to their agents."""
    live = [told for told in game.told.values() if game.now <= told.expires_at]
    return [
        (one, other)
        for place, one in enumerate(live)
        for other in live[:place]
        if one.who != other.who and exclude(one.triple, other.triple)
    ]


def edges_from_young_to_old(game: Game) -> list[tuple[Who, Who]]:
    """Return waits for a lease of somebody who is not younger."""
    model = game.model
    return [
        (request.who, lease.who)
        for request in model.queue
        for lease in model.in_the_way(request.who, request.triples)
        if not model.rank(request.who) < model.rank(lease.who)
    ]


def waits_for(game: Game) -> dict[Who, set[Who]]:
    """Return who waits for whom: for a lease, or for a turn in the queue."""
    model = game.model
    graph: dict[Who, set[Who]] = {}
    for request in model.queue:
        ways = graph.setdefault(request.who, set())
        ways.update(lease.who for lease in model.in_the_way(request.who, request.triples))
        ways.update(one.who for one in model.ahead(request.who, request.triples))
    return graph


def has_cycle(graph: dict[Who, set[Who]]) -> bool:
    """Tell whether a graph has a cycle, by taking out nodes that lead nowhere."""
    left = {who: set(ways) for who, ways in graph.items()}
    while True:
        ends = [who for who, ways in left.items() if not ways & left.keys()]
        if not ends:
            return bool(left)
        for who in ends:
            del left[who]


def is_oldest(game: Game, who: Who) -> bool:
    """Tell whether an agent is older than all who hold or wait for anything in other sessions."""
    model = game.model
    others = {lease.who for lease in model.active()} | {request.who for request in model.queue}
    return all(model.rank(who) < model.rank(other) for other in others - {who})


@pytest.mark.requirement("KP-5a", "KP-7", "KM-2.2")
@quickly
@given(games)
@pytest.mark.slow
def test_agents_are_never_told_of_two_leases_in_force_that_exclude_each_other(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
        assert not told_to_clash(game)


@pytest.mark.requirement("KP-3b")
@quickly
@given(games)
@pytest.mark.slow
def test_waits_go_from_old_to_young_and_never_in_a_circle(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
        assert not edges_from_young_to_old(game)
        assert not has_cycle(waits_for(game))


@pytest.mark.requirement("KP-3b")
@quickly
@given(games)
@pytest.mark.slow
def test_who_waits_for_a_turn_behind_an_older_one_holds_nothing(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
        for request in game.model.queue:
            if game.model.ahead(request.who, request.triples):
                assert not game.model.holds_something(request.who)


@pytest.mark.requirement("KP-3c", "KP-3d")
@quickly
@given(games)
@pytest.mark.slow
def test_the_oldest_open_request_never_dies_and_gets_nearer_with_every_lease_that_ends(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    before_it: dict[str, set[str]] = {}
    for step in steps:
        asks_as_oldest = isinstance(step, Ask) and is_oldest(game, step.who)
        told_before = len(game.events)
        game.play(step)
        model = game.model
        if asks_as_oldest:
            told = [event for event in game.events[told_before:] if isinstance(event, VerdictGiven)]
            assert all(event.status != "Die" for event in told if event.cause == "request")
        still = {}
        for request in model.queue:
            if is_oldest(game, request.who):
                in_the_way = {lease.lease_id for lease in model.in_the_way(request.who, request.triples)}
                assert in_the_way, "it is free and yet it waits"
                assert in_the_way <= before_it.get(request.request_id, in_the_way)
                still[request.request_id] = in_the_way
        before_it = still


@pytest.mark.requirement("KP-5a")
@quickly
@given(games, st.sampled_from(AGENTS), wanted_triples(), st.booleans())
@pytest.mark.slow
def test_wait_and_die_change_nothing_but_the_queue(played: Any, agent: str, wanted: Any, queue: bool) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
    game.desk.advance(game.now)
    leases, waiting = [lease.to_wire() for lease in game.ledger.leases.values()], set(game.ledger.requests)
    token, agents = game.ledger.last_token, dict(game.ledger.agents)
    game.last_verdict = None
    game.play(Ask((agent, "new"), wanted, 1_000, queue, None))
    verdict = game.last_verdict
    if verdict is None or verdict.status == "Granted":
        return
    told_to_others = [event for event in game.events if isinstance(event, VerdictGiven) and event.at == game.now]
    assert (game.ledger.last_token, game.ledger.agents) == (token, agents)
    assert [lease.to_wire() for lease in game.ledger.leases.values()] == leases
    own = {verdict.request_id} if verdict.queued else set()
    behind = {event.request_id for event in told_to_others if event.status == "Die"}
    assert own <= set(game.ledger.requests) | behind
    assert waiting - behind <= set(game.ledger.requests) <= waiting | own


@pytest.mark.requirement("KP-3c")
@quickly
@given(games, st.lists(st.tuples(st.sampled_from(AGENTS), st.integers(0, 9)), max_size=5))
def test_a_priority_never_changes(played: Any, again: list[tuple[str, int]]) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
    for agent, priority in again:
        rank = game.desk.register(agent, game.now, priority=priority, by="test")
        assert rank == (ages[AGENTS.index(agent)], agent)
    assert game.ledger.agents == {agent: (age, agent) for agent, age in zip(AGENTS, ages, strict=True)}


@pytest.mark.requirement("KP-4a")
@quickly
@given(games)
@pytest.mark.slow
def test_lease_ids_are_unique_for_ever_and_tokens_only_grow(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    for step in steps:
        game.play(step)
    granted = [lease for event in game.events if isinstance(event, VerdictGiven) for lease in event.leases]
    assert len({lease.lease_id for lease in granted}) == len(granted)
    tokens = [lease.token for lease in granted]
    assert tokens == sorted(set(tokens))


@pytest.mark.requirement("CARD-replay")
@quickly
@given(games)
def test_a_copy_of_a_ledger_goes_on_as_the_ledger_does(played: Any) -> None:
    ages, steps = played
    game = Game(ages)
    twin = game.ledger.copy()
    for place, step in enumerate(steps):
        before = len(game.events)
        game.play(step)
        for event in game.events[before:]:
            twin.fold(event)
        assert fingerprint(twin) == fingerprint(game.ledger)
        if place % 7 == 0:
            twin = game.ledger.copy()
