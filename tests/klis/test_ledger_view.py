"""The published view of the lease ledger: what it holds, that it never changes, and that a ledger is made from it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.klis.test_ledger_snapshot import MOVES, Game
from world.klis.lease_manager import LeaseManager
from world.klis.ledger import Ledger
from world.klis.ledger_codec import ledger_to_wire
from world.klis.ledger_view import LedgerView, publish_ledger, track_ledger


def compared(ledger: Ledger | LedgerView) -> dict[str, Any]:
    """Return what readers can ask of a ledger and of its view."""
    names = [("ann", "s0"), ("ann", "s1"), ("bob", "s0"), ("bob", "s1"), ("cleo", "s0"), ("cleo", "s1")]
    return {
        "wire": ledger_to_wire(ledger),
        "signers": list(ledger.signers),
        "in force": ledger.in_force,
        "holds": [ledger.holds(*name) for name in names],
        "leases": [ledger.leases_of(*name) for name in names],
        "dies": [ledger.dies(*name) for name in names],
        "again": [ledger.asks_again_at(*name) for name in names],
    }


@pytest.mark.requirement("CARD-replay")
@given(MOVES, st.sets(st.integers(0, 39)))
def test_a_view_is_the_ledger_as_it_was_published(moves: list[Any], quiet: set[int]) -> None:
    game = Game()
    track_ledger(game.ledger)
    view = publish_ledger(game.ledger, None)
    published = [(view, compared(game.ledger))]
    for number, move in enumerate(moves):
        game.move(move)
        if number not in quiet:  # several moves are published together
            view = publish_ledger(game.ledger, view)
            published.append((view, compared(game.ledger)))
    for one, content in published:
        assert compared(one) == content
    assert view.ledger() == view.ledger()
    if len(moves) - 1 not in quiet:
        assert view.ledger() == game.ledger


@pytest.mark.requirement("CARD-replay")
@given(MOVES, MOVES)
def test_a_ledger_that_is_made_from_a_view_goes_on_like_the_one_that_was_published(
    before: list[Any], after: list[Any]
) -> None:
    game = Game()
    for move in before:
        game.move(move)
    track_ledger(game.ledger)
    view = publish_ledger(game.ledger, None)
    content = compared(view)
    twin = view.ledger()
    game.twins.append(twin)
    for move in after:
        game.move(move)
    assert ledger_to_wire(twin) == ledger_to_wire(game.ledger)
    assert compared(view) == content


def test_a_lease_and_a_view_cannot_be_changed() -> None:
    game = Game()
    track_ledger(game.ledger)
    game.ask("ann", "FILE:/a", "MUTATES", 50, False)
    view = publish_ledger(game.ledger, None)
    [lease] = view.leases.values()
    with pytest.raises(AttributeError):
        lease.expires_at = 5  # type: ignore[misc]
    with pytest.raises(AttributeError):
        view.clock = 5  # type: ignore[misc]
    with pytest.raises(TypeError):
        view.leases["other"] = lease  # type: ignore[index]
    game.now += 20
    game.beat(0)
    assert game.ledger.leases[lease.lease_id].expires_at == (lease.expires_at or 0) + 20
    assert view.leases[lease.lease_id] is lease
    assert [one.expires_at for one in publish_ledger(game.ledger, view).leases_of("ann", "s1")] == [1_070]


def test_a_commit_with_few_changes_shares_everything_else() -> None:
    ledger, ids = Ledger(), iter(range(1 << 20))
    manager = LeaseManager(ledger, emit=ledger.fold, new_id=lambda: f"id-{next(ids)}")
    manager.configure(Game().desk.settings, 0, by="test")
    for number in range(500):
        manager.register(f"agent-{number}", 0, by="test")
    track_ledger(ledger)
    view = publish_ledger(ledger, None)
    manager.register("new", 0, by="test")
    after = publish_ledger(ledger, view)
    assert (len(view.agents), len(after.agents)) == (500, 501)
    assert after.leases is view.leases
    assert after.keys is view.keys
    assert next(reversed(list(after.agents))) == "new"
