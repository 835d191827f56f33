"""``worldctl diff``: two worlds with who made each difference, and two logs with what follows from where they part."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.inside import Inside
from tests.cli.notebook import drop, merged, opened, put, write
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import freeze
from world.model.paths import look_up
from world.read_models.diff import ABSENT, changes

JSON = st.recursive(
    st.sampled_from([None, True, 0, 1, "x"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "c.d"]), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.requirement("CARD-audit")
@given(JSON, JSON)
def test_two_values_differ_exactly_where_it_is_said(before: Any, after: Any) -> None:
    left, right = freeze({"v": before}), freeze({"v": after})
    found = list(changes(left, right))
    assert (found == []) == (canonical_bytes(left) == canonical_bytes(right))
    for change in found:
        if change.before is not ABSENT:
            assert look_up(left, change.place) == change.before
        if change.after is not ABSENT and change.before is not ABSENT:
            assert canonical_bytes(change.before) != canonical_bytes(change.after)
    assert len({change.place for change in found}) == len(found)


def test_an_element_that_was_taken_out_is_one_change() -> None:
    [change] = changes(["a", "b", "c"], ["a", "c"])
    assert (change.path, change.before, change.after) == ("1", "b", ABSENT)


@pytest.fixture
def realm(tmp_path: Path) -> Inside:
    return Inside(tmp_path)


def forked(realm: Inside) -> dict[str, str]:
    """Make two branches: main, and one that begins at its first world."""
    with opened(realm.folder / "world.db", data={"tags": ["red", "green"]}) as world:
        base = write(world, put("doc.lamp", {"on": True}), by="ann")
        main = write(world, put("count", 1), drop("tags.0"), by="bob")
        world.create_branch("other", base)
        first = write(world, merged("doc.lamp", {"watt": 60}), by="eve", branch="other")
        other = write(world, put("count", 2), by="ann", branch="other")
    return {"base": base, "main": main, "first": first, "other": other}


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_worlds_of_two_branches_are_compared_with_who_and_why_on_either_side(realm: Inside) -> None:
    worlds = forked(realm)
    told = realm("diff", "main", "other", "--json", code=1).json
    assert told["commonAncestor"] == worlds["base"]
    assert told["same"] is False
    by_path = {one["path"]: one for one in told["changes"]}
    assert by_path.keys() == {"count", "doc.lamp.watt", "tags.0"}
    count = by_path["count"]
    assert (count["before"], count["after"]) == (1, 2)
    assert [one["worldId"] for one in count["by"]["a"]] == [worlds["main"]]
    assert [one["worldId"] for one in count["by"]["b"]] == [worlds["other"]]
    [cause] = count["by"]["a"]
    assert cause["actor"]["actorId"] == "bob"
    assert cause["decision"]["authority"] == "auto_approve"
    assert cause["decision"]["reason"]
    lamp = by_path["doc.lamp.watt"]
    assert "before" not in lamp
    assert ([one["worldId"] for one in lamp["by"]["b"]], lamp["by"]["a"]) == ([worlds["first"]], [])
    red = by_path["tags.0"]
    assert "before" not in red
    assert ([one["worldId"] for one in red["by"]["a"]], red["by"]["b"]) == ([worlds["main"]], [])
    said = realm("diff", "main", "other", code=1).out
    assert f"common ancestor {worlds['base']}" in said
    assert "count: 1 -> 2" in said
    assert "by bob (human); approved by auto_approve" in said


@pytest.mark.requirement("CARD-audit", "IC-audit")
def test_whoever_removed_an_element_is_named_where_another_one_stands_now(realm: Inside) -> None:
    with opened(realm.folder / "world.db", data={"tags": ["a", "b", "c", "d"]}) as world:
        base = write(world, put("doc.list", [1, 2, 3]), by="ann")
        write(world, drop("tags.0"), by="ann")
        write(world, drop("tags.1"), by="bob")
        write(world, put("doc.list", []), by="eve")
    found = realm("diff", base, "HEAD", "--json", code=1).json["changes"]
    by = {one["path"]: {who["actor"]["actorId"] for who in one["by"]["b"]} for one in found}
    assert by == {
        "tags.0": {"ann"},
        "tags.1": {"ann", "bob"},
        "tags.2": {"ann", "bob"},
        **{f"doc.list.{at}": {"eve"} for at in range(3)},
    }


@pytest.mark.requirement("CARD-audit")
def test_a_world_is_compared_with_its_ancestor_and_with_itself(realm: Inside) -> None:
    worlds = forked(realm)
    assert "is a: b descends from it" in realm("diff", worlds["base"], "main", code=1).out
    assert "is b: a descends from it" in realm("diff", "main", worlds["base"], code=1).out
    back = realm("diff", "main", worlds["base"], "--json", code=1).json["changes"]
    assert {one["path"] for one in back} == {"count", "tags.0"}
    assert all([who["worldId"] for who in one["by"]["a"]] == [worlds["main"]] for one in back)
    assert "no difference in the data" in realm("diff", "main", "HEAD").out


def test_a_failed_world_differs_from_its_parent_though_the_data_is_the_same(realm: Inside) -> None:
    with opened(realm.folder / "world.db") as world:
        failed = world.act("ann", "edit", {"fail": True}).world_id or ""
    said = realm("diff", "HEAD", failed, code=1).out
    assert "failed: TOLD_TO" in said
    assert "no difference in the data" in said


def two_logs(realm: Inside) -> None:
    """Make two logs that part where bob writes another number; what ann does beside it is the same."""
    for name, number in (("one", 1), ("two", 2)):
        with opened(realm.folder / f"{name}.db") as world:
            write(world, put("doc.a", 0), by="ann")
            base = world.branch().head
            write(world, put("count", number), by="bob")
            world.create_branch("aside", base)
            write(world, put("doc.b", 1), by="ann", branch="aside")
            write(world, put("doc.c", 1), by="eve", branch="main")


@pytest.mark.requirement("CARD-audit", "CARD-replay")
def test_two_logs_are_compared_with_the_first_event_that_differs_and_what_follows(realm: Inside) -> None:
    two_logs(realm)
    told = realm("diff", "--logs", "one.db", "two.db", "--json", code=1).json
    assert told["a"]["topic"] == told["b"]["topic"] == "proposal.submitted"
    assert told["a"]["position"] == told["position"]
    fields = {one["path"]: (one.get("before"), one.get("after")) for one in told["fields"]}
    assert fields["state.intent.body.input.patches.0.value"] == (1, 2)
    assert not any(path.startswith("state.actor") for path in fields)
    parted = told["a"]["state"]["proposalId"]
    assert {one["id"] for one in told["proposals"] if one["dependsOnIt"]} >= {parted}
    assert {one["id"] for one in told["heads"]} == {"main"}
    assert all(one["dependsOnIt"] for one in told["heads"])
    assert len(told["worlds"]) == 4  # bob's and eve's, in either log; ann's on the other branch are the same
    assert all(one["dependsOnIt"] for one in told["worlds"])
    said = realm("diff", "--logs", "one.db", "two.db", code=1).out
    assert "state.intent.body.input.patches.0.value: 1 -> 2" in said
    assert "then 1 head differs, 1 depending on it (*)" in said


@pytest.mark.requirement("CARD-audit")
def test_exports_and_logs_are_compared_alike_and_a_beginning_is_told(realm: Inside) -> None:
    two_logs(realm)
    realm("--log", "one.db", "export", "one.jsonl")
    before = (realm.folder / "one.db").read_bytes()
    assert realm("diff", "--logs", "one.jsonl", "one.db").out.startswith("the same ")
    direct = realm("diff", "--logs", "one.db", "two.db", "--json", code=1).json
    assert realm("diff", "--logs", "one.jsonl", "two.db", "--json", code=1).json == direct
    with opened(realm.folder / "short.db") as world:
        size = world.log.head().size
        realm("--log", "short.db", "export", "short.jsonl")
    with opened(realm.folder / "long.db") as world:
        write(world, put("count", 7))
    told = realm("diff", "--logs", "short.jsonl", "long.db", "--json", code=1).json
    assert (told["position"], told["a"], told["fields"]) == (size + 1, None, [])
    assert [one["a"] for one in told["worlds"]] == [None]
    assert "the log ends before it" in realm("diff", "--logs", "short.jsonl", "long.db", code=1).out
    assert (realm.folder / "one.db").read_bytes() == before
    realm("diff", "--logs", "nothing.db", "one.db", code=2)


def test_a_damaged_event_after_the_parting_one_ends_with_three(realm: Inside) -> None:
    two_logs(realm)
    database = sqlite3.connect(realm.folder / "two.db")
    with database:
        database.execute("UPDATE wp_event SET state = replace(state, 'doc.c', 'doc.d')")
    database.close()
    told = realm("diff", "--logs", "one.db", "two.db", "--json", code=3).json
    assert told["damage"]["a"] is None
    assert "is not what was logged" in told["damage"]["b"]
    assert told["fields"]
    assert told["worlds"] == []
    assert "b is damaged" in realm("diff", "--logs", "one.db", "two.db", code=3).out


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_a_copy_that_was_tampered_with_differs_in_the_field_that_was_changed(realm: Inside) -> None:
    two_logs(realm)
    (realm.folder / "copy.db").write_bytes((realm.folder / "one.db").read_bytes())
    database = sqlite3.connect(realm.folder / "copy.db")
    with database:
        tampered = "UPDATE wp_event SET state = replace(state, 'approves every', 'rejects every') WHERE topic = ?"
        database.execute(tampered, ("decision.made",))
    database.close()
    told = realm("diff", "--logs", "one.db", "copy.db", "--json", code=3).json
    assert [one["path"] for one in told["fields"]] == ["state.decision.reason"]
    assert told["a"]["topic"] == "decision.made"
    assert f"Event {told['position']} " in told["damage"]["b"]
