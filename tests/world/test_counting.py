"""Counts that are looked up in memory are those that the index gives, for every point of a log and all conditions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.counter import counter, house
from world.events.proposal_events import ProposalSubmitted
from world.read_models import counting
from world.read_models.archive import Archive
from world.read_models.counting import Counts
from world.read_models.decoding import decoded
from worldprotocol import Realm

START = 1_700_000_000_000


@dataclass
class Jumping:
    """A clock that goes on, and back now and then."""

    numbers: random.Random = field(default_factory=lambda: random.Random(3))
    at: int = START

    def now_ms(self) -> int:
        self.at += self.numbers.choice((0, 1, 5, 20, -15))
        return self.at


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Archive]:
    numbers = random.Random(5)
    file = tmp_path_factory.mktemp("counted") / "world.db"
    with Realm.create(file, domain=counter, policies=[house], clock=Jumping(), durability="normal") as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
        waiting: list[str] = []
        for _ in range(60):
            order = {"item": numbers.choice(("tea", "cake", "air")), "count": numbers.choice((1, 2, 3))}
            done = world.act(numbers.choice(("ann", "bot")), "sell", order)
            if done.status == "evaluating":
                waiting.append(done.proposal_id)
            if waiting and numbers.random() < 0.4:
                world.decide(waiting.pop(0), numbers.choice(("approve", "reject")), by="ann")
    with Realm.open_read_only(file) as world:
        yield world.archive


def submissions(archive: Archive) -> list[tuple[int, ProposalSubmitted]]:
    events = ((one.position, decoded(one)) for one in archive.log.read(topics=[ProposalSubmitted.TOPIC]))
    return [(position, event) for position, event in events if isinstance(event, ProposalSubmitted)]


@st.composite
def questions(draw: st.DrawFn) -> tuple[int, dict[str, Any]]:
    conditions = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "actor_id": st.sampled_from(["ann", "bot", "nobody", 7]),
                "action": st.sampled_from(["sell", "charge"]),
                "decision": st.sampled_from(["approved", "rejected"]),
                "outcome": st.sampled_from(["completed", "failed"]),
                "since_ms": st.integers(START - 50, START + 900),
                "intent_key": st.sampled_from(["own", "other"]),
            },
        )
    )
    return draw(st.integers(0, 59)), conditions


@pytest.mark.requirement("CARD-policy")
@given(asked=st.lists(questions(), min_size=1, max_size=20), most=st.sampled_from([1, 10, 40, 1_000]))
def test_counts_in_memory_are_those_of_the_index(
    archive: Archive, asked: list[tuple[int, dict[str, Any]]], most: int
) -> None:
    told = submissions(archive)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(counting, "MAX_KEPT", most)
        counts = Counts(archive)
        for at, conditions in asked:
            position, own = told[at]
            if "intent_key" in conditions:
                of = own if conditions["intent_key"] == "own" else told[at // 2][1]
                conditions = {**conditions, "intent_key": of.intent.intent_key}
            expected = archive.count(position + 1, **conditions, other_than=own.proposal_id)
            assert counts.count(position + 1, own, **conditions) == expected


@pytest.mark.slow
def test_what_came_after_the_first_question_is_asked_for(tmp_path: Path) -> None:
    file = tmp_path / "world.db"
    with Realm.create(file, domain=counter, policies=[house], durability="normal") as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.act("ann", "sell", {"item": "tea"})
        ((first, own),) = submissions(world.archive)
        counts = Counts(world.archive)
        assert counts.count(first + 1, own, actor_id="ann") == 0
        world.act("ann", "sell", {"item": "tea"})
        second, again = submissions(world.archive)[1]
        assert counts.count(second + 1, again, actor_id="ann") == 1
        assert counts.count(first + 1, own, actor_id="ann") == 0
