"""``worldctl blame``: every value below a path, with who put it there and why, for people and for scripts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from tests.cli.inside import Inside
from tests.cli.test_bisect_command import SHELF
from tests.golden.garden import record
from world.core import ActionContext, Domain, Patch, set_
from world.errors import RefusedError
from world.read_models.value_tracking import leaves
from worldprotocol import Realm


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("garden")
    record(str(folder / "world.db")).close()
    return Inside(folder)


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_a_line_for_each_value_leads_back_to_patch_decision_intent_actor_and_source_event(garden: Inside) -> None:
    lines = garden("blame", "--json").lines
    with Realm.open_read_only(garden.folder / "world.db") as world:
        assert [(one["path"], one["value"]) for one in lines] == list(leaves(world.data()))
        for one in lines:
            sealed = world.sealed(one["worldId"])
            if sealed.created_by is None:
                assert (one["genesis"], one["patch"]) == (True, None)
                continue
            proposal = world.proposal(sealed.created_by)
            assert one["patch"] in [{"op": patch.op, "path": patch.path} for patch in sealed.patches]
            assert one["path"].startswith(one["patch"]["path"])
            assert one["proposalId"] == proposal.proposal_id
            assert (one["intentId"], one["intentKey"]) == (proposal.intent.intent_id, proposal.intent.intent_key)
            assert one["actor"] == proposal.submitted.actor.to_wire()
            assert proposal.decision is not None
            for name in ("decisionId", "authority", "reason"):
                assert one["decision"][name] == proposal.decision.to_wire()[name]
            assert one["decision"]["rules"] == proposal.decision.decisive_rules
    [litres] = garden("blame", "beds.north.litres", "--json").lines
    assert litres["projectionId"] == "sensor"
    assert litres["source"] == {"kind": "api", "eventId": "reading-0", "payload": {"bed": "north", "dry": True}}


def test_what_one_patch_put_there_is_listed_below_it_once(garden: Inside) -> None:
    told = garden("blame", "beds").out
    worlds = [line for line in told.splitlines() if line.startswith("world ")]
    assert len(worlds) == len(set(worlds))
    assert told.count('patch     {"op":"set","path":"beds.roof"') == 1
    assert "    |- beds.roof.litres = 0\n" in told
    assert '    `- beds.roof.what = "thyme"\n' in told


def test_an_earlier_world_knows_an_earlier_writer(garden: Inside) -> None:
    now = garden("blame", "beds.north.litres", "--json").lines[0]
    [then] = garden("blame", "beds.north.litres", "--at", "30", "--json").lines
    assert (then["value"], then["patch"]) == (0, {"op": "set", "path": "beds.north"})
    assert then["worldId"] != now["worldId"]
    [main] = garden("blame", "beds.north.litres", "--branch", "main", "--json").lines
    assert main["value"] == 12


def test_what_is_absent_is_told_as_such(garden: Inside) -> None:
    [nothing] = garden("blame", "beds.west", "--json", code=1).lines
    assert (nothing["present"], nothing["value"], nothing["genesis"]) == (False, None, True)
    assert "never written since the realm was founded" in garden("blame", "beds.west", code=1).out


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_a_computed_value_has_no_writer_and_follows_from_places_in_the_data(tmp_path: Path) -> None:
    (tmp_path / "shelf.yaml").write_text(SHELF)
    realm = Inside(tmp_path)
    realm("init", "--domain", "shelf.yaml")
    (tmp_path / "world.toml").write_text('log = "world.db"\n')  # the log tells what follows from what
    schema = realm("show", "HEAD", "--json").json["schemaHash"]
    told = {"path": "computed.thrice", "computed": True, "dependsOn": ["left", "right"], "schemaHash": schema}
    for path in ("computed.thrice", "computed.thrice.0"):
        assert realm("blame", path, "--json").lines == [told]
    everything = realm("blame", "computed", "--json").lines
    assert {one["path"]: one["dependsOn"] for one in everything} == {
        "computed.thrice": ["left", "right"],
        "computed.twice": ["left", "right"],
        "computed.one": [],
    }
    words = realm("blame", "computed.thrice").out
    assert "it is never written\n  from      left, right\n" in words
    assert "genesis" not in words
    assert "always the same" in realm("blame", "computed.one").out
    assert realm("blame", "data.computed.thrice", "--json", code=2).json["error"]["code"] == "INVALID_PATH"
    missing = realm("blame", "computed.two", "--json", code=1).json["error"]
    assert missing["code"] == "NOT_FOUND"
    assert "computed.thrice" in missing["message"]
    with Realm.open_read_only(tmp_path / "world.db") as world, pytest.raises(RefusedError, match="never written"):
        world.blame("computed.twice")
    assert {one["path"] for one in realm("blame", "--json").lines} == {"left", "right"}


def test_a_place_where_nothing_ever_stood_is_told_as_such(garden: Inside) -> None:
    for path in ("beds.nowhere", "notes.x", "data"):
        said = garden("blame", path, code=1)
        assert f"{path!r} has no value and was never written." in said.err
        assert garden("blame", path, "--json", code=1).lines[0]["present"] is False


class Box(BaseModel):
    data: dict[str, int] = {"x": 1}


def test_a_member_of_the_data_that_is_called_data_is_found_by_its_path(tmp_path: Path) -> None:
    box = Domain("urn:test:box", version="1.0.0", state=Box)

    @box.action("put", version="1")
    def put(ctx: ActionContext) -> list[Patch]:
        return [set_("data.x", 7)]

    with Realm.create(tmp_path / "world.db", domain=box) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        made = world.act("ann", "put").world_id
    realm = Inside(tmp_path)
    told = realm("blame", "data.x", "--json").lines[0]
    assert (told["path"], told["value"], told["worldId"]) == ("data.x", 7, made)
    assert realm("state", "data.x", "--quiet").out == "7\n"
    assert realm("bisect", "--path", "data.x", "--becomes", "7", "--json").json["first"]["worldId"] == made
