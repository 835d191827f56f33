"""``worldctl bisect``: the first world in which something holds, by halving a line of descent."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.inside import Inside
from tests.cli.notebook import opened, put, write
from world.errors import RefusedError
from world.read_models.bisect import bisect, spread


@pytest.mark.requirement("CARD-audit")
@given(st.integers(1, 200), st.data())
def test_the_first_world_is_found_or_the_untestable_ones_beside_it(length: int, data: st.DataObject) -> None:
    line = [f"w{number}" for number in range(length)]
    first = data.draw(st.integers(0, length - 1))
    untestable = data.draw(st.sets(st.integers(1, max(1, length - 2)))) - {length - 1}
    asked: list[str] = []

    def holds(world_id: str) -> bool | None:
        asked.append(world_id)
        number = int(world_id[1:])
        return None if number in untestable else number >= first

    found = bisect(line, holds)
    assert len(asked) == len(set(asked)) == found.tested
    assert line[first] in found.first
    testable = [number for number in range(length) if number not in untestable]
    before = max((number for number in testable if number < first), default=None)
    after = min(number for number in testable if number >= first)
    assert found.before == (None if before is None else line[before])
    assert list(found.first) == (line[: after + 1] if before is None else line[before + 1 : after + 1])


@given(st.integers(0, 50), st.integers(0, 300))
def test_spread_gives_every_number_once_the_middle_first(start: int, width: int) -> None:
    found = list(spread(start, start + width))
    assert sorted(found) == list(range(start, start + width))
    if width:
        assert found[0] == start + width // 2


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("first", [0, 1, 31_415, 99_998, 99_999])
def test_a_line_of_a_hundred_thousand_worlds_takes_twenty_tests(first: int) -> None:
    line = [str(number) for number in range(100_000)]
    found = bisect(line, lambda world_id: int(world_id) >= first)
    assert found.first == (str(first),)
    assert found.tested <= 19


def test_a_long_stretch_that_cannot_be_tested_is_left_quickly() -> None:
    line = [str(number) for number in range(100_000)]
    found = bisect(line, lambda world_id: None if 30_000 < int(world_id) < 70_000 else int(world_id) >= 80_000)
    assert found.first == ("80000",)
    assert found.tested <= 40


def test_ends_that_contradict_the_question_are_refused() -> None:
    with pytest.raises(RefusedError, match="condition does not hold"):
        bisect(["a", "b"], lambda _: False)
    with pytest.raises(RefusedError, match="cannot be tested"):
        bisect(["a", "b"], lambda _: None)
    with pytest.raises(RefusedError, match="--good"):
        bisect(["a", "b"], lambda world_id: None if world_id == "a" else True)
    assert bisect(["a", "b"], lambda _: True).first == ("a",)
    assert bisect(["a"], lambda _: True).before is None
    for line in (["a", "b"], ["a"]):
        with pytest.raises(RefusedError, match="holds already in world a"):
            bisect(line, lambda _: True, from_genesis=False)


SHELF = """
id: urn:test:shelf
version: 1.0.0
state:
  fields:
    left: {type: number, default: 0}
    right: {type: number, default: 0}
computed:
  fields:
    computed.thrice:
      deps: [computed.twice, left]
      expr: {kind: add, left: {kind: get, path: computed.twice}, right: {kind: get, path: left}}
    computed.twice:
      deps: [left, right]
      expr: {kind: add, left: {kind: get, path: left}, right: {kind: get, path: right}}
    computed.one:
      deps: []
      expr: {kind: lit, value: 1}
actions:
  put:
    input: {type: object, fields: {more: {type: number, required: true}}}
    flow:
      kind: seq
      steps:
        - kind: patch
          op: set
          path: left
          value: {kind: add, left: {kind: get, path: left}, right: {kind: get, path: input.more}}
        - kind: patch
          op: set
          path: right
          value: {kind: get, path: left}
"""
"""A portable domain with computed values, of which one follows from another one and one from nothing."""


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Inside, list[str]]:
    """Return a realm whose count goes up by one with each world, with the ids of the worlds in order."""
    folder = tmp_path_factory.mktemp("counting")
    with opened(folder / "world.db") as world:
        made = [world.branch().head]
        made += [write(world, put("count", number), by="bob" if number == 7 else "ann") for number in range(1, 13)]
        world.create_branch("aside", made[3])
        write(world, put("doc.aside", 1), branch="aside")
    (folder / "check.py").write_text(
        "import json, os, sys\n"
        "data = json.load(sys.stdin)\n"
        "assert data == json.load(open(os.environ['WORLD_STATE']))\n"
        "assert int(os.environ['WORLD_HEIGHT']) == data['count']\n"
        "assert os.environ['WORLD_ID'] and os.environ['WORLD_BRANCH'] == 'main' and os.environ['WORLD_LOG']\n"
        "assert len(os.environ['WORLD_PARENT']) == (64 if data['count'] else 0)\n"
        "print('on stdout')\n"
        "codes = json.loads(sys.argv[1])\n"
        "sys.exit(codes.get(str(data['count']), codes['else' if data['count'] < 7 else 'bad']))\n"
    )
    return Inside(folder), made


def command(codes: dict[str, int]) -> list[str]:
    return ["--", sys.executable, "check.py", json.dumps({"else": 0, "bad": 1} | codes)]


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_the_world_where_a_value_came_is_told_with_who_and_why(counting: tuple[Inside, list[str]]) -> None:
    realm, made = counting
    told = realm("bisect", "--path", "count", "--becomes", "12", "--json").json
    assert (told["first"]["worldId"], told["before"], told["worlds"]) == (made[12], made[11], 13)
    ended = realm("bisect", "--path", "data.count", "--becomes", "7", "--bad", made[7][:16], "--json").json
    assert ended["first"]["worldId"] == made[7]
    assert ended["first"]["actor"]["actorId"] == "bob"
    assert ended["first"]["decision"]["authority"] == "auto_approve"
    said = realm("bisect", "--path", "count", "--becomes", "12", "--good", made[9]).out
    assert "in a line of 4 worlds" in said
    assert f"world {made[12]}" in said
    assert f"before    world {made[11]}" in said


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_a_command_is_asked_with_the_state_on_stdin_and_in_a_file(counting: tuple[Inside, list[str]]) -> None:
    realm, made = counting
    before = (realm.folder / "world.db").read_bytes()
    for codes in ({}, {"7": 124}, {"8": 126, "9": 127, "10": 2}):
        said = realm("bisect", "--json", *command(codes))
        assert said.json["first"]["worldId"] == made[7]
        assert said.json["tested"] <= 6
    assert (realm.folder / "world.db").read_bytes() == before
    assert not (realm.folder / "state.json").exists()


@pytest.mark.slow
def test_worlds_that_cannot_be_tested_are_stepped_around_or_named(counting: tuple[Inside, list[str]]) -> None:
    realm, made = counting
    around = realm("bisect", "--json", *command({"6": 0, "5": 125, "8": 125, "4": 125})).json
    assert around["first"]["worldId"] == made[7]
    left = realm("bisect", "--json", *command({"6": 125, "5": 125, "7": 125}), code=1).json
    assert (left["first"], left["candidates"], left["before"]) == (None, made[5:9], made[4])
    assert set(left["untestable"]) == set(made[5:8])
    assert "cannot be tested" in realm("bisect", *command({"6": 125}), code=1).out


def test_a_command_that_ends_the_search_or_cannot_be_run_is_told(counting: tuple[Inside, list[str]]) -> None:
    realm, _ = counting
    for codes in ({"12": 128}, {"6": 200}):
        assert realm("bisect", "--json", *command(codes), code=1).json["error"]["code"] == "BISECT_ABORTED"
    killed = ("--", sys.executable, "-c", "import os; os.kill(os.getpid(), 9)")
    assert "signal 9" in realm("bisect", *killed, code=1).err
    assert realm("bisect", "--json", "--", "no-such-command", code=1).json["error"]["code"] == "COMMAND_NOT_FOUND"
    assert realm("bisect", "--json", "--", "./check.py", code=1).json["error"]["code"] == "COMMAND_NOT_EXECUTABLE"


def test_what_cannot_be_bisected_is_refused(counting: tuple[Inside, list[str]], tmp_path: Path) -> None:
    realm, made = counting
    where = ("--path", "count", "--becomes")
    assert realm("bisect", *where, "99", "--json", code=1).json["error"]["code"] == "NOT_BISECTABLE"
    apart = realm("bisect", *where, "12", "--good", "aside", "--json", code=1).json["error"]
    assert apart["code"] == "NOT_BISECTABLE"
    assert "no ancestor" in apart["message"]
    for good in (made[8], made[7], made[12]):  # bob made it 7; who made the others has nothing to do with it
        late = realm("bisect", "--good", good, "--json", *command({}), code=1).json["error"]
        assert late["code"] == "NOT_BISECTABLE"
        assert f"holds already in world {good[:12]}" in late["message"]
    realm("bisect", code=2)
    realm("bisect", "--path", "count", code=2)
    realm("bisect", *where, "1", "--", "true", code=2)
    assert realm("bisect", *where, "0", "--bad", made[0]).out.startswith("the first one")
    assert realm("bisect", *where, "0", "--bad", made[0], "--good", made[0]).out.startswith("the first one")


@pytest.mark.requirement("CARD-audit")
def test_a_computed_value_is_looked_for_as_state_tells_it(tmp_path: Path) -> None:
    (tmp_path / "shelf.yaml").write_text(SHELF)
    realm = Inside(tmp_path)
    realm("init", "--domain", "shelf.yaml")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    made = [
        realm("submit", "put", "--actor", "ann", "--input", f'{{"more": {number}}}', "--json").json["worldId"]
        for number in (0, 2, 3)
    ]
    for name, wanted, first in (("twice", 4, 1), ("thrice", 15, 2), ("twice", 0, None)):
        asked = ("bisect", "--path", f"computed.{name}", "--becomes", str(wanted))
        if first is None:
            assert realm(*asked, "--json", code=1).json["error"]["code"] == "NOT_BISECTABLE"
            continue
        assert realm("state", f"computed.{name}", "--at", made[first], "--json").json["value"] == wanted
        assert realm(*asked, "--bad", made[first], "--json").json["first"]["worldId"] == made[first]
    (tmp_path / "world.toml").write_text('log = "world.db"\n')
    portable = ("bisect", "--path", "computed.twice", "--becomes", "10", "--json")
    assert realm(*portable).json["first"]["worldId"] == made[2]  # the log holds the expression
