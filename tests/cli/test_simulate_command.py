"""``worldctl simulate``: seeds, scripts, and what is said of a seed that fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.realm import CliRealm
from tests.simulation.planted import patches_are_not_held_to_their_scope

pytestmark = pytest.mark.slow

SCENARIO = """
from worldprotocol.simulation import Player, Scenario, DrawnIntent
from worldprotocol.simulation.depot import depot

def draw(chance):
    return DrawnIntent("add", {"to": "a", "by": chance.randint(1, 9)})

mine = Scenario(domain=depot, actors=(Player("ann", "human", {"kind": "auto_approve"}),), draw=draw)
wrong = Scenario(
    domain=depot, actors=mine.actors, draw=draw, adds=lambda action, given: {"counters.a": given["by"] + 1}
)
"""


def test_a_seed_that_holds_says_so(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    assert "60 steps" in realm("simulate", "--seed", "3", "--steps", "60").out
    told = realm("simulate", "--seed", "3", "--steps", "60", "--json").json
    assert told["ok"] is True
    assert told["steps"] == 60
    assert list(tmp_path.iterdir()) == []


def test_many_seeds_are_summed_up(tmp_path: Path) -> None:
    told = CliRealm(tmp_path)("simulate", "--seeds", "3", "--steps", "20", "--jobs", "1", "--json").json
    assert (told["ok"], told["seeds"], told["steps"]) == (True, 3, 60)


def test_a_scenario_of_ones_own_is_simulated_and_what_it_breaks_is_told_as_short_as_can_be(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    (tmp_path / "own.py").write_text(SCENARIO)
    realm("simulate", "--seed", "1", "--steps", "40", "--scenario", "own.py:mine")
    said = realm(
        "simulate", "--seed", "1", "--steps", "40", "--scenario", "own.py:wrong", "-o", "short.json", code=1
    ).out
    assert "WP-exec does not hold after step 1 of 1: counters.a is" in said
    assert "again: worldctl simulate --seed 1 --steps 40 --scenario own.py:wrong" in said
    script = json.loads((tmp_path / "short.json").read_text())
    assert len(script["steps"]) == 1
    again = realm("simulate", "--replay", "short.json", "--json", code=1).json
    assert again["violation"]["requirement"] == "WP-exec"
    assert again["script"] == script["steps"]


def test_what_cannot_be_meant_is_refused(tmp_path: Path) -> None:
    realm = CliRealm(tmp_path)
    assert "--seed, --seeds, or --replay" in realm("simulate", code=2).err
    (tmp_path / "short.json").write_text("{}")
    assert "no script" in realm("simulate", "--replay", "short.json", code=2).err
    (tmp_path / "own.py").write_text("mine = 1")
    assert "should be a Scenario" in realm("simulate", "--seed", "1", "--scenario", "own.py:mine", code=2).err


def test_a_failing_one_of_many_is_made_short(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    patches_are_not_held_to_their_scope(monkeypatch)
    said = Inside(tmp_path)("simulate", "--seeds", "9", "--steps", "60", "--jobs", "1", code=1).out
    assert re.search(r"INT-13.5 does not hold (after|at the end of)", said)
    assert "again: worldctl simulate --seed" in said
