"""Points in the past, and what stood there: ``--at``, ``state``, ``show``, ``worlds``, ``inbox``, ``stuck``."""

from __future__ import annotations

import contextlib
import io
import random
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.cli.notebook import opened, put, write
from tests.golden.garden import record
from world.events.proposal_events import ProposalCompleted
from world.events.realm_events import WorldSealed
from world.model.snapshot import error_state_hash
from world.read_models.lineage import common_ancestor, heads_at, line, recorded_by, sealed_line
from worldprotocol import Realm
from worldprotocol.cli.program import run

pytestmark = pytest.mark.slow

TOML = (
    'domain = "tests.golden.garden:garden"\npolicies = ["tests.golden.garden:rules"]\n'
    'projections = ["tests.golden.garden:sensor"]\n'
)


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("garden")
    record(str(folder / "world.db")).close()
    (folder / "world.toml").write_text(TOML)
    return Inside(folder)


def look(realm: Inside) -> Realm:
    return Realm.open_read_only(realm.folder / "world.db")


def sealed_events(realm: Inside) -> list[WorldSealed]:
    with look(realm) as world:
        return [event for _, event in world.events() if isinstance(event, WorldSealed)]


@pytest.mark.requirement("WP-lineage", "CARD-audit")
def test_branches_stood_at_every_event_where_a_fold_of_all_events_puts_them(garden: Inside) -> None:
    with look(garden) as world:
        for position in range(world.log.head().size + 1):
            folded, found = world.archive.fold_realm(position), heads_at(world.archive, position)
            assert found.active == folded.active
            assert found.branches == folded.branches


@pytest.mark.requirement("WP-lineage")
def test_a_line_of_descent_leads_from_parent_to_parent_down_to_genesis(garden: Inside) -> None:
    by_id = {event.world_id: event for event in sealed_events(garden)}
    with look(garden) as world:
        for world_id in by_id:
            expected: list[str] = []
            at: str | None = world_id
            while at is not None:
                expected.append(at)
                at = by_id[at].parent
            assert [row.world_id for row in line(world.archive, world_id)] == expected
            assert [event.world_id for _, event in sealed_line(world.archive, world_id)] == expected
            for other in by_id:
                met = common_ancestor(world.archive, world_id, other)
                theirs = [row.world_id for row in line(world.archive, other)]
                assert met == next(name for name in expected if name in theirs)


@pytest.mark.requirement("WP-restore", "CARD-audit")
def test_state_gives_the_data_of_every_world_whose_hash_agrees(garden: Inside) -> None:
    for event in sealed_events(garden):
        told = garden("state", "--at", event.world_id[:12], "--json").json
        assert error_state_hash(told["data"], event.error) == event.snapshot_hash
        assert told["snapshotHash"] == event.snapshot_hash
        assert told["computed"] == {"computed.bedCount": len(told["data"]["beds"])}


@pytest.mark.requirement("CARD-audit")
def test_a_position_stands_for_the_head_of_the_active_branch_after_that_event(garden: Inside) -> None:
    with look(garden) as world:
        ended = [position for position, event in world.events() if isinstance(event, ProposalCompleted)]
        folded = {position: world.archive.fold_realm(position) for position in ended}
    for position, realm in folded.items():
        told = garden("state", "--at", str(position), "--json").json
        assert told["worldId"] == realm.branches[realm.active].head


def test_a_value_is_found_by_its_path_in_data_and_computed(garden: Inside) -> None:
    assert garden("state", "water", "--at", "HEAD").out == "82\n"
    assert garden("state", "data.beds.north.what").out == '"beans"\n'
    assert garden("state", "computed.bedCount").out == "4\n"
    assert "has no value" in garden("state", "beds.west", code=1).err
    assert garden("state", "notes.9", "--json", code=1).json["present"] is False


def test_state_says_when_no_domain_is_at_hand(tmp_path: Path) -> None:
    record(str(tmp_path / "world.db")).close()
    realm = Inside(tmp_path)
    said = realm("state")
    assert "computed" not in said.out
    assert "no domain is loaded" in said.err
    assert "no domain is loaded" in realm("state", "--json").json["computedMissing"]
    (tmp_path / "world.toml").write_text('domain = "tests.cli.counter:counter"\n')
    assert "the schema of the loaded domain differs" in realm("state").err


def test_a_point_is_a_branch_a_proposal_a_decision_or_a_time(garden: Inside) -> None:
    with look(garden) as world:
        spare = world.branch("spare").head
        made = world.sealed(spare).created_by
        assert made is not None
        proposal = world.proposal(made)
        decided = proposal.decision.decision_id if proposal.decision else ""
        ended = world.log.stream(made)[-1].position
        at = proposal.submitted.at
        assert recorded_by(world.archive, at - 1) < world.log.stream(made)[0].position <= recorded_by(world.archive, at)
    for named in ("spare", spare[:14], made):
        assert garden("state", "--at", named, "--json").json["worldId"] == spare
    assert garden("replay", "--at", made, "--json").json["position"] >= ended
    before = garden("state", "--at", decided, "--json").json["position"]
    assert before <= garden("state", "--at", made, "--json").json["position"]
    with look(garden) as world:
        by_time = garden("state", "--at", str(at), "--json").json
        assert by_time["position"] == recorded_by(world.archive, at)
        assert garden("state", "--at", "1s", "--json").json["position"] == world.log.head().size
    assert "is before the log began, at 2023-11-14T22:13:20Z" in garden("state", "--at", "2001-01-01", code=1).err
    assert "At that point there was no branch yet." in garden("state", "--at", "0", code=1).err
    assert "is in the future" in garden("state", "--at", "2999-01-01", code=1).err
    assert "There is no event 99999: the log ends with event" in garden("state", "--at", "99999", code=1).err


def test_what_could_be_several_points_is_refused_with_all_of_them(garden: Inside) -> None:
    refused = garden("state", "--at", "0000", "--json", code=1).json["error"]
    assert refused["code"] == "AMBIGUOUS"
    assert len(refused["details"]["candidates"]) > 1
    assert garden("state", "--at", "nowhere", "--json", code=1).json["error"]["code"] == "NOT_FOUND"
    assert garden("replay", "--at", "", "--json", code=1).json["error"]["code"] == "NOT_FOUND"


def test_a_time_that_could_also_be_an_id_is_refused(tmp_path: Path) -> None:
    with opened(tmp_path / "world.db") as world:
        made = [write(world, put("count", number)) for number in range(60)]
    days = next(found[0] for name in made if (found := re.match("[1-9][0-9]*d", name)))  # so many days ago, or a world
    refused = Inside(tmp_path)("state", "--at", days, "--json", code=1).json["error"]
    assert refused["code"] == "AMBIGUOUS"
    assert {one["kind"] for one in refused["details"]["candidates"]} == {"world", "time"}


@pytest.mark.requirement("WP-restore", "CARD-audit")
def test_show_rebuilds_a_world_and_compares_it_with_its_hash(garden: Inside) -> None:
    assert "rebuilt and its hash agrees" in garden("show", "HEAD").out
    assert garden("show", "spare", "--json").json["snapshotChecked"] is True


def test_show_tells_a_world_and_a_proposal_as_they_stood_then(garden: Inside) -> None:
    events = sealed_events(garden)
    with look(garden) as world:
        child = events[2]
        parent = child.parent or ""
        sealed_at = world.archive.world(parent).position
        made = child.created_by or ""
        positions = [logged.position for logged in world.log.stream(made)]
    then = garden("show", parent, "--at", str(sealed_at), "--json").json
    assert then["children"] == []
    assert garden("show", parent, "--json").json["children"]
    assert garden("show", child.world_id, "--at", str(sealed_at), "--json", code=1).json["error"]["code"] == "NOT_FOUND"
    first = garden("show", made, "--at", str(positions[0]), "--json").json
    assert (first["status"], first["events"]) == ("submitted", positions[:1])
    assert garden("show", made, "--at", str(positions[0] - 1), "--json", code=1).json["error"]["code"] == "NOT_FOUND"
    assert garden("show", "HEAD", "--at", parent, "--json").json["worldId"] == parent
    proven = garden("show", "5", "--at", "9", "--json").json["inclusion"]
    with look(garden) as world:
        assert (proven["size"], proven["root"]) == (9, world.log.root_at(9).root_hex)
    assert "which is after event 9" in garden("show", "10", "--at", "9", code=1).err


def test_worlds_draws_the_lineage_as_it_stood_then(garden: Inside) -> None:
    drawn = garden("worlds", "--at", "60").out.splitlines()
    assert len(drawn) == 5
    assert drawn[-1].endswith("(head of main)")
    for name in ("main", "again"):
        told = garden("worlds", "--branch", name, "--json").lines
        with look(garden) as world:
            head = world.branch(name).head
            assert head in [one["worldId"] for one in told]


def test_inbox_and_stuck_tell_what_waited_then(garden: Inside) -> None:
    asked: dict[str, Any] = {}
    with look(garden) as world:
        for position, event in world.events():
            if event.TOPIC == "proposal.judged" and event.ruling.verdict == "wait":
                asked[event.proposal_id] = position
    for proposal_id, position in asked.items():
        waiting = garden("inbox", "--at", str(position), "--json").json
        assert proposal_id in [one["proposalId"] for one in waiting]
        assert not any(one["overdue"] for one in waiting)
        assert proposal_id not in garden("inbox", "--at", str(position - 1), "--json").out
    assert garden("stuck", "--at", "20", "--json").json == []


@pytest.mark.requirement("WP-restore", "CARD-audit")
def test_damaged_patches_end_with_three_and_print_no_data(tmp_path: Path) -> None:
    record(str(tmp_path / "world.db")).close()
    realm = Inside(tmp_path)
    head = realm("state", "--json").json
    database = sqlite3.connect(tmp_path / "world.db")
    with database:
        told = "UPDATE wp_event SET state = replace(state, 'thyme', 'mints') WHERE topic = 'world.sealed'"
        assert database.execute(told).rowcount
    database.close()
    for words in (("state",), ("show", "HEAD", "--data")):
        said = realm(*words, code=3)
        assert said.out == ""
        assert "Event " in said.err
    with look(realm) as world:
        height = world.archive.world(head["worldId"]).height
    assert height == head["height"]


def test_a_damaged_copy_of_a_state_is_found_by_its_hash(tmp_path: Path) -> None:
    record(str(tmp_path / "world.db")).close()
    realm = Inside(tmp_path)
    head = realm("state", "--json").json["worldId"]
    database = sqlite3.connect(tmp_path / "world.db")
    with database:
        [(log_id,)] = database.execute("SELECT id FROM wp_log").fetchall()
        copy = (log_id, head, '{"beds":{},"harvest":0,"notes":[],"water":1000}')
        database.execute("INSERT INTO wp_checkpoint (log_id, world_id, data) VALUES (?, ?, ?)", copy)
    database.close()
    said = realm("state", "--json", code=3)
    assert said.json["error"]["code"] == "STATE_DAMAGED"


FUZZED = [
    ["state"], ["state", "--at", "90"], ["state", "--at", "2h"], ["blame"], ["trace", "HEAD"], ["trace", "reading-0"],
    ["diff", "40", "HEAD"], ["diff", "main", "again"], ["diff", "--logs", "damaged.db", "world.db"],
    ["bisect", "--path", "harvest", "--becomes", "0.5"], ["show", "HEAD", "--at", "60"], ["worlds", "--at", "100"],
    ["inbox", "--at", "100"], ["stuck", "--at", "100"], ["waits", "--at", "100"], ["policy", "list", "--at", "100"],
    ["explain", "00000000-0004", "--at", "100"], ["actions", "--at", "100"], ["log", "--at", "99", "--type", "plant"],
]  # fmt: skip


@pytest.mark.requirement("CARD-audit")
def test_no_changed_byte_makes_a_command_about_the_past_crash(
    garden: Inside, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data, chance = (garden.folder / "world.db").read_bytes(), random.Random(7)
    (tmp_path / "world.db").write_bytes(data)
    for _ in range(60):
        changed = bytearray(data)
        changed[chance.randrange(len(data))] ^= chance.randrange(1, 256)
        (tmp_path / "damaged.db").write_bytes(changed)
        command = chance.choice(FUZZED)
        code = run(["--json", "--log", "damaged.db", *command])
        told = capsys.readouterr()
        assert code == 0 or '"error":' in told.out or command[0] in ("diff", "bisect"), (command, told)


MISLED = [
    ("wp_world", "parent"), ("wp_world", "height"), ("wp_world", "position"), ("wp_proposal", "submitted_pos"),
    ("wp_proposal", "decided_pos"), ("wp_branch", "head"), ("wp_branch", "created_pos"), ("wp_landmark", "position"),
    ("wp_verdict", "position"),
]  # fmt: skip


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(("table", "column"), MISLED)
@pytest.mark.parametrize("value", ["x", 5, -1, None])
def test_an_index_that_was_changed_at_one_place_is_noticed_where_it_matters(
    garden: Inside, tmp_path: Path, table: str, column: str, value: str | int | None
) -> None:
    (tmp_path / "world.db").write_bytes((garden.folder / "world.db").read_bytes())
    database = sqlite3.connect(tmp_path / "world.db")
    with database, suppress(sqlite3.IntegrityError):
        database.execute(f"UPDATE {table} SET {column} = ?", (value,))
    database.close()
    realm = Inside(tmp_path)
    explain = ("explain", "00000000-0004", "--at", "100")
    for words in (("blame", "notes"), ("show", "HEAD"), ("trace", "HEAD"), ("state", "--at", "100"), explain):
        code, told = told_of(realm, *words)
        assert code in (1, 3) or told == told_of(garden, *words)[1], words


@pytest.mark.parametrize(("table", "column", "order", "value"), [
    ("wp_landmark", "position", "position", "x"),
    ("wp_branch", "name", "created_pos", b"\xff"),
])  # fmt: skip
def test_what_the_index_cannot_hold_is_noticed(
    garden: Inside, tmp_path: Path, table: str, column: str, order: str, value: str | bytes
) -> None:
    (tmp_path / "world.db").write_bytes((garden.folder / "world.db").read_bytes())
    database = sqlite3.connect(tmp_path / "world.db")
    with database:
        last = f"(SELECT max({order}) FROM {table})"
        database.execute(f"UPDATE {table} SET {column} = ? WHERE {order} = {last}", (value,))
    database.close()
    for words in (("show", "HEAD"), ("state", "--at", "100"), ("actor", "list"), ("branch", "list")):
        assert told_of(Inside(tmp_path), *words)[0] == 3, words


def told_of(realm: Inside, *words: str) -> tuple[int, Any]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()):
        code = run(["--json", "--log", str(realm.folder / "world.db"), *words])
    return code, out.getvalue()
