"""Backtests: recorded cases judged again by another policy; planted flips are found, all of them and no others."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import counter
from tests.cli.realm import COUNTER, Realm
from world.clock import ManualClock
from worldprotocol import World
from worldprotocol.backtest import Backtest, Setup, Wanted

START = 1_700_000_000_000
DECISIONS = 1_000
RULES = """
name = "{name}"

[[rules]]
id = "small_sales_pass"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= {most}"

[[rules]]
id = "enough_for_today"
verdict = "reject"
when = "history.count({{'actorId': actor.actorId, 'outcome': 'completed'}}) >= {often}"

[[rules]]
id = "charges_go_to_people"
verdict = "escalate"
actions = ["charge"]
to = ["{asked}"]
when = "intent.input.amount > {amount}"
"""


def rules(name: str = "till", *, most: int = 5, often: int = 100_000, asked: str = "ann", amount: int = 0) -> str:
    return RULES.format(name=name, most=most, often=often, asked=asked, amount=amount)


def opened(folder: Path, **parts: Any) -> World:
    (folder / "rules.toml").write_text(rules())
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    world = World.create(
        folder / "world.db",
        domain=counter,
        policies=["rules.toml"],
        folder=folder,
        clock=ManualClock(START, 1),
        **parts,
    )
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
    return world


def other(folder: Path, **changes: Any) -> str:
    file = folder / "other.toml"
    file.write_text(rules("other", **changes))
    return str(file)


def setup(folder: Path, policy: str, **wanted: Any) -> Setup:
    return Setup(str(folder / "world.db"), f"{COUNTER}:counter", policy, wanted=Wanted(**wanted))


def found(folder: Path, policy: str, *, jobs: int = 1, **wanted: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    running = Backtest(setup(folder, policy, **wanted), jobs)
    lines = list(running.lines())
    return lines, dict(running.counts)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A log of a thousand decisions; the ids of the proposals that flip where 4 is the most, in order, and all ids."""
    folder = tmp_path_factory.mktemp("thousand")
    numbers = random.Random(5)
    planted = set(numbers.sample(range(DECISIONS), 17))
    flips, every = [], []
    with opened(folder, durability="normal") as world:
        for at in range(DECISIONS):
            count = 5 if at in planted else numbers.choice((1, 2, 3, 4, 6, 7))
            done = world.act("bot", "sell", {"item": "tea", "count": count})
            every.append(done.proposal_id)
            if at in planted:
                flips.append(done.proposal_id)
    return folder, flips, every


@pytest.mark.requirement("CARD-policy", "CARD-replay")
@pytest.mark.parametrize("jobs", [1, 2])
def test_planted_flips_among_a_thousand_decisions_are_found_exactly(
    recorded: tuple[Path, list[str], list[str]], jobs: int
) -> None:
    folder, flips, every = recorded
    lines, counts = found(folder, other(folder, most=4), jobs=jobs)
    assert [one["proposalId"] for one in lines] == flips
    assert counts == {"judged": DECISIONS, "same": DECISIONS - len(flips), "flips": len(flips)}
    for one in lines:
        assert (one["change"], one["from"]["verdict"], one["to"]["verdict"]) == ("verdict", "approve", "reject")
        assert (one["from"]["decidedBy"], one["to"]["decidedBy"]) == (["small_sales_pass"], [])
        assert one["from"]["sources"] == ["rules.toml:4"]
    with World.look(folder / "world.db") as world:
        done = {one for one in every if world.proposal(one).status == "completed"}
    later = [sum(name in done for name in every[every.index(one) + 1 :]) for one in flips]
    assert [one["laterWorlds"] for one in lines] == later


@pytest.mark.requirement("CARD-replay")
def test_history_is_that_before_each_case(recorded: tuple[Path, list[str], list[str]]) -> None:
    folder, _, every = recorded
    with World.look(folder / "world.db") as world:
        done = [one for one in every if world.proposal(one).status == "completed"]
    lines, _ = found(folder, other(folder, often=len(done) - 3))
    assert [one["proposalId"] for one in lines] == done[-3:]
    assert {tuple(one["to"]["decidedBy"]) for one in lines} == {("enough_for_today",)}


def test_only_what_is_wanted_is_judged(recorded: tuple[Path, list[str], list[str]]) -> None:
    folder, flips, _ = recorded
    policy = other(folder, most=4)
    with World.look(folder / "world.db") as world:
        at = world.proposal(flips[5]).submitted.at
    assert [one["proposalId"] for one in found(folder, policy, since=at)[0]] == flips[5:]
    assert [one["proposalId"] for one in found(folder, policy, until=at)[0]] == flips[:6]
    assert found(folder, policy, branch="nowhere") == ([], {})
    assert found(folder, policy, of="nobody")[1] == {"otherBindings": DECISIONS}


@pytest.mark.requirement("CARD-policy")
def test_what_people_would_say_is_undecided_and_what_they_said_counts(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.register("eve", "human", binding={"kind": "auto_approve"})
        answered = world.act("bot", "charge", {"amount": 1}).proposal_id
        world.decide(answered, "reject", by="ann")
        open_still = world.act("bot", "charge", {"amount": 2}).proposal_id
        world.act("bot", "sell", {"item": "tea", "count": 1})
        world.act("ann", "sell", {"item": "tea", "count": 1})
    lines, counts = found(tmp_path, other(tmp_path))
    assert (lines, counts) == ([], {"judged": 3, "same": 3, "otherBindings": 1})
    lines, counts = found(tmp_path, other(tmp_path, asked="eve"))
    assert [(one["proposalId"], one["why"]) for one in lines] == [
        (answered, "asksPeople"),
        (open_still, "asksPeople"),
    ]
    lines, counts = found(tmp_path, other(tmp_path, amount=9))  # by default rejected, as ann did
    assert [(one["proposalId"], one["why"]) for one in lines] == [(open_still, "neverDecided")]
    assert "flips" not in counts


@pytest.mark.requirement("CARD-policy")
def test_the_command_lists_flips_as_lines_and_ends_with_one(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        first = world.act("bot", "sell", {"item": "tea", "count": 5})
        world.act("bot", "sell", {"item": "tea", "count": 1})
    before = (tmp_path / "world.db").read_bytes()
    realm, policy = Realm(tmp_path), other(tmp_path, most=4)
    said = realm("policy", "backtest", "--with", policy, "--json", code=1)
    flip, summary = said.lines
    assert (flip["kind"], flip["proposalId"], flip["laterWorlds"]) == ("flip", first.proposal_id, 1)
    assert summary == {"kind": "summary", "judged": 2, "same": 1, "flips": 1, "undecided": 0, "otherBindings": 0}
    words = realm("policy", "backtest", "--with", "other.toml", "--jobs", "1", code=1).out
    assert "approve (small_sales_pass) -> reject (by default)\t1 later worlds" in words
    assert "the same: 2, flips: 0" in realm("policy", "backtest", "--with", "till").out
    assert json.loads(realm("policy", "backtest", "--with", "till", "--since", "1h", "--json").out)["judged"] == 0
    realm("policy", "backtest", "--with", "till", "--branch", "nowhere", code=1)
    assert (tmp_path / "world.db").read_bytes() == before
