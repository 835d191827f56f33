"""``worldctl blame``: every value below a path, with who put it there and why, for people and for scripts."""

from __future__ import annotations

import pytest

from tests.cli.inside import Inside
from tests.golden.garden import record
from world.views.tracking import leaves
from worldprotocol import World


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("garden")
    record(str(folder / "world.db")).close()
    return Inside(folder)


@pytest.mark.requirement("IC-audit", "CARD-audit")
def test_a_line_for_each_value_leads_back_to_patch_decision_intent_actor_and_source_event(garden: Inside) -> None:
    lines = garden("blame", "--json").lines
    with World.look(garden.folder / "world.db") as world:
        assert [(one["path"], one["value"]) for one in lines] == list(leaves(world.data()))
        for one in lines:
            sealed = world.sealed(one["worldId"])
            if sealed.created_by is None:
                assert (one["genesis"], one["patch"]) == (True, None)
                continue
            proposal = world.proposal(sealed.created_by)
            assert one["patch"] in [{"op": patch["op"], "path": patch["path"]} for patch in sealed.patches]
            assert one["path"].startswith(one["patch"]["path"])
            assert one["proposalId"] == proposal.proposal_id
            assert (one["intentId"], one["intentKey"]) == (proposal.intent.intent_id, proposal.intent.intent_key)
            assert one["actor"] == proposal.submitted.actor
            assert proposal.decision is not None
            for name in ("decisionId", "authority", "reason"):
                assert one["decision"][name] == proposal.decision[name]
            decisive = [rule["rule"] for rule in proposal.decision.get("trace", ()) if rule.get("decisive")]
            assert one["decision"]["rules"] == decisive
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
    [nothing] = garden("blame", "beds.west", "--json").lines
    assert (nothing["present"], nothing["value"], nothing["genesis"]) == (False, None, True)
    assert "nobody has written there" in garden("blame", "beds.west").out
