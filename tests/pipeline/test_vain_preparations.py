"""Preparations that other commands make vain again and again are left out; slow and useful ones never are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.written import governed, propose, reopened
from tests.support.engines import engine_of
from world.audit.verify import verify
from world.engine import commands, preparation
from world.engine.preparation import IN_VAIN, LEFT_OUT, PreparationRecord
from world.limits import Limits
from world.pipeline.preparation.preparing import prepare_submission
from worldprotocol import Realm


class Contended:
    """A realm, and another writer of it that moves a branch after each preparation, before the lock is taken."""

    def __init__(self, world: Realm, other: Realm, patch: pytest.MonkeyPatch) -> None:
        self.world = world
        self.prepared = 0
        self.moves = True
        self._number = 0
        group = engine_of(world)._group
        submit = group.submit

        def submitting(command: Any) -> Any:
            if self.moves:
                self._number += 1
                propose(other, self._number)
            return submit(command)

        def preparing(reading: Any, *given: Any) -> Any:
            self.prepared += reading is engine_of(world)
            return prepare_submission(reading, *given)

        patch.setattr(group, "submit", submitting)
        patch.setattr(commands, "prepare_submission", preparing)

    def prepares(self, act: Callable[[], object]) -> int:
        """Return how many preparations a call makes."""
        before = self.prepared
        act()
        return self.prepared - before

    def act(self, branch: str | None = None) -> None:
        """Act on the contended branch, or on another one."""
        done = self.world.act("ann", "counter.raise", {"counter": "c1", "by": 1}, branch=branch)
        assert done.status == "completed"


@contextmanager
def contended(path: Path, patch: pytest.MonkeyPatch) -> Iterator[Contended]:
    address = str(path / "world.db")
    with governed(address) as world, reopened(address) as other:
        world.create_branch("side")
        yield Contended(world, other, patch)
        assert verify(world.log).ok
        assert world.data() == other.data()


@pytest.fixture
def is_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every preparation for a fast one."""
    monkeypatch.setattr(preparation, "FAST_MS", 10**9)


@pytest.mark.usefixtures("is_fast")
def test_most_preparations_on_a_branch_that_always_moves_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with contended(tmp_path, monkeypatch) as bench:
        made = [bench.prepares(bench.act) for _ in range(IN_VAIN + 2 * (LEFT_OUT + 1))]
    assert made == [1] * IN_VAIN + ([0] * LEFT_OUT + [1]) * 2


@pytest.mark.usefixtures("is_fast")
def test_preparations_begin_again_when_one_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contended(tmp_path, monkeypatch) as bench:
        for _ in range(IN_VAIN):
            bench.act()
        bench.moves = False
        made = [bench.prepares(bench.act) for _ in range(LEFT_OUT + 4)]
    assert made == [0] * LEFT_OUT + [1] * 4


@pytest.mark.usefixtures("is_fast")
def test_commands_on_another_branch_are_prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with contended(tmp_path, monkeypatch) as bench:
        for _ in range(IN_VAIN + 1):
            bench.act()
        assert [bench.prepares(lambda: bench.act("side")) for _ in range(4)] == [1] * 4
        assert bench.prepares(bench.act) == 0


def test_slow_preparations_are_never_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "FAST_MS", 0)
    with contended(tmp_path, monkeypatch) as bench:
        most = Limits().max_preparations
        assert [bench.prepares(bench.act) for _ in range(IN_VAIN + 2)] == [most] * (IN_VAIN + 2)


def test_a_command_of_no_kind_is_always_prepared() -> None:
    record = PreparationRecord()
    for _ in range(IN_VAIN + 1):
        record.note(None, in_vain=True)
    assert not record.leaves_out(None)
