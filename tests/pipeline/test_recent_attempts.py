"""How often an intent was tried: a preparation takes it from memory, and what is recorded is what the log says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from authority import Approve, Policy, Reject, rule
from authority.authority import StandardAuthority
from tests.pipeline.shop import shop
from world.read_models.archive import Archive
from world.state.proposal import Proposal
from world.state.recent_commits import KEPT_INTENTS, RecentAttempts
from worldprotocol import Realm


@rule
def at_most_twice(case: Any) -> Any:
    return Reject("the third attempt") if case.earlier_attempts == 2 else Approve("an early attempt")


counting = Policy("counting", [at_most_twice])


def founded(address: str) -> Realm:
    world = Realm.create(address, domain=shop, policies=[counting])
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "counting"})
    return world


def reopened(address: str) -> Realm:
    return Realm.open(address, domain=shop, policies=[counting])


def sell(world: Realm, item: str = "tea") -> Proposal:
    return world.act("bot", "sell", {"item": item, "count": 1})


@pytest.fixture
def queried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the statements that are run on the index without the log's lock."""
    names: list[str] = []
    rows = Archive.rows

    def noted(archive: Archive, name: str, values: Any = None) -> Any:
        names.append(name)
        return rows(archive, name, values)

    monkeypatch.setattr(Archive, "rows", noted)
    return names


def test_a_process_alone_judges_the_right_attempt_without_a_query(tmp_path: Path, queried: list[str]) -> None:
    with founded(str(tmp_path / "w.db")) as world:
        sell(world, "cake")
        queried.clear()
        done = [sell(world) for _ in range(3)]
    assert [one.submitted.attempt for one in done] == [1, 2, 3]
    assert [one.status for one in done] == ["completed", "completed", "rejected"]
    assert "attempts" not in queried


def test_an_attempt_from_before_the_process_is_found_under_the_lock(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as world:
        assert [sell(world).status for _ in range(2)] == ["completed"] * 2
    with reopened(address) as world:
        sell(world, "cake")  # from now on the process takes itself for the only one
        third, fourth = sell(world), sell(world)
        assert (third.submitted.attempt, third.status) == (3, "rejected")
        assert (fourth.submitted.attempt, fourth.status) == (4, "completed")


def test_an_attempt_of_another_process_is_seen_before_the_next_one(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as one, reopened(address) as other:
        done = [sell(one), sell(other), sell(one), sell(other)]
    assert [each.submitted.attempt for each in done] == [1, 2, 3, 4]
    assert [each.status for each in done] == ["completed", "completed", "rejected", "completed"]


def test_an_attempt_that_another_process_makes_meanwhile_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = str(tmp_path / "w.db")
    judge = StandardAuthority.judge
    with founded(address) as one, reopened(address) as other:
        sell(one)
        left = [other]

        def judged(authority: StandardAuthority, case: Any) -> Any:
            if left:
                sell(left.pop())
            return judge(authority, case)

        monkeypatch.setattr(StandardAuthority, "judge", judged)
        done = sell(one)
    assert (done.submitted.attempt, done.status) == (3, "rejected")


def test_the_memory_of_attempts_is_bounded() -> None:
    recent = RecentAttempts()
    for number in range(KEPT_INTENTS + 1):
        recent.learn(f"key{number}", 1)
    assert len(recent._attempts) == KEPT_INTENTS
    assert recent.of("key1") is None  # nothing of this process was committed yet
