"""An effect whose request is in a commit with an unknown outcome: its process makes it once, no other does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.works import Outside, a_yard, check_log, reopened, running, topics, vanish
from world.errors import WorldProtocolError
from worldprotocol import Realm

pytestmark = pytest.mark.requirement("HC-journal", "WP-exec")


@contextmanager
def unacknowledged(world: Realm, *, is_stored: bool) -> Iterator[None]:
    """Have the acknowledgement of each commit be lost, after the commit or in place of it."""
    store: Any = world.log._store
    commit: Callable[[Any], None] = store.commit

    def lose(batch: Any) -> None:
        if is_stored:
            commit(batch)
        raise WorldProtocolError("COMMIT_UNKNOWN", "The acknowledgement was lost.")

    store.commit = lose
    try:
        with pytest.raises(WorldProtocolError, match="acknowledgement"):
            yield
    finally:
        store.commit = commit


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("lost", [0, 1], ids=["first", "following"])
def test_an_effect_of_an_unknown_commit_is_made_once_by_the_process_that_asked(
    tmp_path: Path, lost: int, idempotent: bool
) -> None:
    address, outside = str(tmp_path / "w.db"), Outside()
    with a_yard(address, outside, idempotent=idempotent) as world:
        losing = unacknowledged(world, is_stored=True)

        def lose_next(_params: Any, _call: Any) -> None:
            losing.__enter__()

        if lost:  # the commit of the first result, which requests the second effect
            outside.plan.append(lose_next)
        else:
            lose_next(None, None)
        with pytest.raises(WorldProtocolError, match="acknowledgement") as caught:
            world.act("ann", "do", {"what": ["a", "b"]})
        assert losing.__exit__(type(caught.value), caught.value, None)
        assert len(outside.done) == lost
        world.settle()
        assert world.data()["done"] == ["a", "b"]
        assert len(outside.done) == len(set(outside.done)) == 2
        assert world.host.stuck() == []
    check_log(address)


def test_an_effect_of_a_commit_that_is_not_stored_is_not_made(tmp_path: Path) -> None:
    address, outside = str(tmp_path / "w.db"), Outside()
    with a_yard(address, outside) as world:
        with unacknowledged(world, is_stored=False):
            world.act("ann", "do", {"what": ["a"]})
        world.settle()
        assert outside.done == []
        assert world.realm().proposals == {}
        assert world.act("ann", "do", {"what": ["a"]}).status == "completed"
        assert len(outside.done) == 1
    check_log(address)


def test_an_unknown_commit_that_is_followed_by_another_one_leaves_no_doubt(tmp_path: Path) -> None:
    address, outside = str(tmp_path / "w.db"), Outside()
    with a_yard(address, outside) as world:
        with unacknowledged(world, is_stored=True):
            world.act("ann", "do", {"what": ["a"]})
        name = running(world)
        with unacknowledged(world, is_stored=True):
            world.settle()  # requests it again, and does not learn whether that is stored
        assert outside.done == []
        world.settle()
        assert len(outside.done) == 1
        assert topics(world, name) == [
            *["execution.started", "effect.requested"] * 3,
            "effect.fulfilled",
            "proposal.completed",
        ]
    check_log(address)


def test_another_process_cannot_know_whether_the_effect_of_an_unknown_commit_was_begun(tmp_path: Path) -> None:
    address, outside = str(tmp_path / "w.db"), Outside()
    with a_yard(address, Outside()) as world, unacknowledged(world, is_stored=True):
        world.act("ann", "do", {"what": ["a"]})
    with reopened(address, outside) as world:
        world.settle()
        assert [stuck["effect"] for stuck in world.host.stuck()] == ["work"]
    assert outside.done == []
    check_log(address)


def test_an_effect_that_was_begun_after_an_unknown_commit_is_in_doubt_when_its_thread_ends(tmp_path: Path) -> None:
    address, outside = str(tmp_path / "w.db"), Outside(vanish)
    with a_yard(address, outside) as world:
        with unacknowledged(world, is_stored=True):
            world.act("ann", "do", {"what": ["a"]})
        with pytest.raises(KeyboardInterrupt):
            world.settle()  # begins it
        world.settle()
        assert [stuck["effect"] for stuck in world.host.stuck()] == ["work"]
    assert outside.attempts == [1]
    check_log(address)
