"""Verification finds every kind of change, and names the first bad event."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from tests.golden.garden import FOLDER, record
from tests.golden.generate import rehashed
from tests.support.tables import for_each
from world.audit.event_form import is_canonical
from world.audit.index_checks import IndexAudit
from world.audit.replay import replay
from world.audit.verify import VerificationReport, verify
from world.errors import DamagedLogError, RefusedError
from world.events.realm_events import WorldSealed
from world.log import NewEvent, TreeHead, open_log
from world.log.sql.statement import LOG_SHIFT
from world.model.canonical_json import canonical_bytes
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log
from worldprotocol.testing import strategies as wp

Lines = list[dict[str, Any]]
GOLDEN = (FOLDER / "garden.jsonl").read_bytes().splitlines(keepends=True)


def verified(address: str, **options: Any) -> VerificationReport:
    with Realm.open_read_only(address) as world:
        return verify(world.log, **options)


def first(report: VerificationReport) -> tuple[str, int]:
    assert not report.ok
    return report.findings[0].code, report.findings[0].position


@pytest.fixture
def address(tmp_path: Path) -> str:
    """A garden in a file of its own, closed."""
    place = str(tmp_path / "world.db")
    record(place).close()
    return place


def change(address: str, sql: str, *parameters: Any) -> None:
    database = sqlite3.connect(address)
    with database:
        assert database.execute(sql, parameters).rowcount > 0
    database.close()


def key(position: int) -> int:
    return (1 << LOG_SHIFT) + position


@pytest.mark.requirement("CARD-audit", "WP-hash", "WP-world", "WP-restore", "WP-lineage")
def test_a_sound_log_has_no_findings_on_any_backend(log_url: str) -> None:
    with record(log_url) as world:
        steps: list[int] = []
        report = verify(world.log, against=list(world.log.heads()), progress=lambda done, _: steps.append(done))
        size = world.log.head().size
    assert report.ok, report.findings
    assert (report.events, report.index, steps[-1]) == (size, "whole", size)
    assert report.to_wire()["findings"] == []


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize("step", ["__init__", "_differences"])
def test_events_appended_during_the_pass_are_no_difference(
    log_url: str, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    performed = getattr(IndexAudit, step)

    def with_an_append(*arguments: Any) -> Any:
        done = performed(*arguments)
        realm.register("late", "human", binding={"kind": "auto_approve"})
        realm.create_branch("late")
        return done

    with record(log_url) as realm:
        monkeypatch.setattr(IndexAudit, step, with_an_append)
        report = verify(realm.log)
        assert report.ok, report.findings
        assert report.index == "none"
        assert report.head.size == report.events  # a saved head vouches for checked events only
        monkeypatch.undo()
        assert verify(realm.log).index == "whole"


@pytest.mark.requirement("CARD-audit")
def test_a_branch_of_an_early_world_that_begins_during_the_pass_is_no_damage(
    log_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    performed = IndexAudit.__init__

    def with_a_branch(*arguments: Any) -> None:
        performed(*arguments)
        realm.create_branch(f"late{realm.log.head().size}", early)

    with record(log_url) as realm:
        _, sealed, *_ = realm.log.read(topics=[WorldSealed.TOPIC])
        early = json.loads(sealed.state)["worldId"]
        monkeypatch.setattr(IndexAudit, "__init__", with_a_branch)
        assert verify(realm.log).findings == ()


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE wp_event SET state = replace(state, '\"at\":1', '\"at\":2') WHERE id = ?",
        "UPDATE wp_event SET topic = 'proposal.failed' WHERE id = ?",
        "UPDATE wp_event SET stream = 'elsewhere' WHERE id = ?",
        "UPDATE wp_event SET version = version + 50 WHERE id = ?",
        "UPDATE wp_event SET schema_version = 7 WHERE id = ?",
        "UPDATE wp_event SET leaf = zeroblob(32) WHERE id = ?",
        "DELETE FROM wp_event WHERE id = ?",
    ],
)
@pytest.mark.parametrize("position", [1, 20, 44])
@pytest.mark.slow
def test_an_event_changed_in_the_file_is_named(address: str, sql: str, position: int) -> None:
    change(address, sql, key(position))
    report = verified(address)
    assert first(report)[1] == position
    assert report.findings[0].code in ("EVENT_CHANGED", "EVENT_MISSING", "UNKNOWN_EVENT", "BAD_EVENT")


@pytest.mark.requirement("CARD-audit")
def test_any_single_byte_changed_in_any_state_is_found(address: str) -> None:
    with open_log(address, read_only=True) as log:
        states = [(event.position, event.state) for event in log.read()]
    for position, state in states[:: max(1, len(states) // 25)]:
        at = (position * 31) % len(state)
        other = bytearray(state)
        other[at] ^= 1
        change(address, "UPDATE wp_event SET state = CAST(? AS TEXT) WHERE id = ?", bytes(other), key(position))
        assert first(verified(address))[1] == position
        change(address, "UPDATE wp_event SET state = CAST(? AS TEXT) WHERE id = ?", state, key(position))
    assert verified(address).ok


def test_a_state_that_is_no_text_is_a_finding(address: str) -> None:
    bad = b'{"at":1,"by":"\xff"}'
    change(address, "UPDATE wp_event SET state = CAST(? AS TEXT) WHERE id = ?", bad, key(5))
    assert first(verified(address)) == ("EVENT_CHANGED", 5)
    with Realm.open_read_only(address) as world, pytest.raises(DamagedLogError):
        replay(world.log)


def test_reordered_inserted_and_cut_events_are_found(address: str) -> None:
    with open_log(address, read_only=True) as log:
        head = log.head()
    for old, new in ((30, 1000), (29, 30), (1000, 29)):
        change(address, "UPDATE wp_event SET id = ? WHERE id = ?", key(new), key(old))
    assert 20 <= first(verified(address))[1] <= 30  # the first event that no good head covers
    for old, new in ((29, 1000), (30, 29), (1000, 30)):
        change(address, "UPDATE wp_event SET id = ? WHERE id = ?", key(new), key(old))
    assert verified(address).ok
    with open_log(address) as log, log.write() as transaction:
        transaction.append(
            [NewEvent("realm", "actor.registered", 1, b'{"actor":{"actorId":"x","kind":"human"},"at":1,"by":"x"}')]
        )
    assert verified(address, against=head).ok
    change(address, "DELETE FROM wp_event WHERE id > ?", key(head.size - 5))
    assert first(verified(address)) == ("LOG_TRUNCATED", head.size - 4)


def test_a_changed_head_and_a_head_kept_elsewhere_are_compared(address: str) -> None:
    with open_log(address, read_only=True) as log:
        heads = list(log.heads())
    assert first(verified(address, against=TreeHead(heads[3].size, b"\1" * 32)))[0] == "SAVED_HEAD_MISMATCH"
    change(address, "UPDATE wp_head SET root = zeroblob(32) WHERE id = ?", key(heads[3].size))
    assert first(verified(address)) == ("HEAD_CHANGED", heads[3].size)


# Events whose leaves and tree heads were made to fit: only what they say gives them away.


def forged(tmp_path: Path, forge: Callable[[Lines], None]) -> VerificationReport:
    told: Lines = [json.loads(line) for line in GOLDEN]
    forge(told)
    address = str(tmp_path / "forged.db")
    with open_log(address, create=True) as log, log.write() as transaction:  # without the index and its constraints
        events = (line for line in told if "leaf" in line)
        transaction.append(NewEvent(e["stream"], e["topic"], 1, canonical_bytes(e["state"])) for e in events)
    report = verified(address)
    assert report.index == "none"
    return report


def of(told: Lines, topic: str, nth: int = 0) -> dict[str, Any]:
    return [line for line in told if line.get("topic") == topic][nth]


FORGERIES: dict[str, tuple[str, int, Callable[[dict[str, Any]], None], str]] = {
    "a schema": ("domain.adopted", 0, lambda e: e["schema"].update(version="2.0.0"), "WRONG_HASH"),
    "a patch": ("world.sealed", 1, lambda e: e["patches"][0]["value"].update(what="oak"), "WRONG_HASH"),
    "a patch's path": ("world.sealed", 1, lambda e: e["patches"][0].update(path="beds.x.y.z"), "WRONG_HASH"),
    "a snapshotHash": ("world.sealed", 2, lambda e: e.update(snapshotHash="0" * 64), "WRONG_HASH"),
    "a contentId": ("world.sealed", 2, lambda e: e.update(contentId="0" * 64), "WRONG_HASH"),
    "a worldId": ("world.sealed", 2, lambda e: e.update(worldId="0" * 64), "WRONG_HASH"),
    "a parent": ("world.sealed", 4, lambda e: e.update(parent="0" * 64), "BAD_WORLD"),
    "a creator": ("world.sealed", 2, lambda e: e.update(createdBy="nobody"), "BAD_REFERENCE"),
    "a schemaHash": ("world.sealed", 2, lambda e: e.update(schemaHash="0" * 64), "BAD_REFERENCE"),
    "a height": ("world.sealed", 2, lambda e: e.update(height=9), "BAD_EVENT"),
    "an outcome": ("world.sealed", 2, lambda e: e.update(outcome="failed"), "BAD_EVENT"),
    "an error's code": ("world.sealed", 3, lambda e: e["error"].update(code="OTHER"), "WRONG_HASH"),
    "an input": ("proposal.submitted", 0, lambda e: e["intent"]["body"]["input"].update(bed="b"), "WRONG_HASH"),
    "an intentKey": ("proposal.submitted", 0, lambda e: e["intent"].update(intentKey="0" * 64), "WRONG_HASH"),
    "a proposer": ("proposal.submitted", 0, lambda e: e["actor"].update(actorId="eve"), "BAD_REFERENCE"),
    "a base world": ("proposal.submitted", 2, lambda e: e.update(baseWorld="0" * 64), "BAD_REFERENCE"),
    "an epoch": ("proposal.submitted", 2, lambda e: e.update(epoch=3), "BAD_REFERENCE"),
    "an attempt": ("proposal.submitted", 4, lambda e: e.update(attempt=1), "DUPLICATE_ID"),
    "a binding": ("proposal.judged", 0, lambda e: e.update(binding={"kind": "hitl"}), "BAD_REFERENCE"),
    "a policy's hash": ("policy.adopted", 0, lambda e: e.update(policyHash="0" * 64), "WRONG_HASH"),
    "a ruling's policy": ("proposal.judged", 1, lambda e: e["ruling"].update(policyHash="0" * 64), "BAD_REFERENCE"),
    "a decision": ("decision.made", 2, lambda e: e["decision"].update(decision="approved"), "BAD_EVENT"),
    "an approved scope": ("decision.made", 1, lambda e: e["decision"].update(approvedScope=None), "BAD_EVENT"),
    "who is bound": ("actor.bound", 0, lambda e: e.update(actorId="eve"), "BAD_REFERENCE"),
    "who answered": ("human.answered", 0, lambda e: e["answer"]["by"].update(actorId="eve"), "BAD_REFERENCE"),
    "where it began": ("execution.started", 1, lambda e: e.update(onWorld="0" * 64), "BAD_REFERENCE"),
    "an effect": ("effect.requested", 0, lambda e: e["requirement"]["params"].update(seed="gold"), "WRONG_HASH"),
    "which effect": ("effect.fulfilled", 0, lambda e: e.update(requirementId="0" * 64), "ILLEGAL_TRANSITION"),
    "a result that was looked up": ("effect.fulfilled", 0, lambda e: e.update(lookedUp=True), "ILLEGAL_TRANSITION"),
    "what came of it": ("proposal.completed", 0, lambda e: e.update(worldId="0" * 64), "UNKNOWN_WORLD"),
    "a branch's world": ("branch.created", 2, lambda e: e.update(worldId="0" * 64), "UNKNOWN_WORLD"),
    "a switch": ("branch.switched", 0, lambda e: e.update(epoch=5), "BAD_EPOCH"),
    "a supersession": ("proposal.superseded", 0, lambda e: e.update(epoch=5), "BAD_REFERENCE"),
    "a record's intent": ("projection.recorded", 0, lambda e: e.update(intentId="other"), "BAD_REFERENCE"),
    "a record's proposal": ("projection.recorded", 0, lambda e: e.update(proposalId="other"), "BAD_REFERENCE"),
    "a text that may not be empty": ("projection.recorded", 0, lambda e: e["actor"].update(actorId=""), "BAD_EVENT"),
    "an actor without id": ("actor.registered", 0, lambda e: e.update(actor={}), "BAD_EVENT"),
}


@pytest.mark.requirement("CARD-audit", "WP-hash", "WP-world", "WP-lineage", "WP-decision", "INV-I2", "INT-13.3")
@pytest.mark.parametrize("what", FORGERIES)
def test_an_event_forged_with_fitting_hashes_is_named(tmp_path: Path, what: str) -> None:
    topic, nth, alter, code = FORGERIES[what]
    position = of([json.loads(line) for line in GOLDEN], topic, nth)["position"]
    report = forged(tmp_path, lambda told: alter(of(told, topic, nth)["state"]))
    found = [(finding.code, finding.position) for finding in report.findings]
    if what in ("a record's intent", "a record's proposal"):
        assert found
        assert found[0][0] == code
        assert found[0][1] > position
    else:
        assert found[0][1] == position
        assert (code, position) in found, report.findings


@pytest.mark.requirement("HC-context")
def test_an_execution_whose_seed_is_not_its_intent_id_is_named(tmp_path: Path) -> None:
    report = forged(tmp_path, lambda told: of(told, "execution.started")["state"].update(seed="other"))
    assert "the seed is not the intentId" in report.findings[0].message


def test_an_event_in_the_stream_of_another_is_named(tmp_path: Path) -> None:
    report = forged(tmp_path, lambda told: of(told, "projection.recorded", 1).update(stream="x", version=1))
    assert first(report)[0] == "WRONG_STREAM"


@pytest.mark.requirement("INT-6.1.2")
def test_an_intent_id_that_comes_twice_is_named(tmp_path: Path) -> None:
    def twice(told: Lines) -> None:
        of(told, "proposal.submitted", 2)["state"]["intent"]["intentId"] = of(told, "proposal.submitted")["state"][
            "intent"
        ]["intentId"]

    told = [json.loads(line) for line in GOLDEN]
    position = of(told, "proposal.submitted", 2)["position"]
    assert ("DUPLICATE_ID", position) in [(f.code, f.position) for f in forged(tmp_path, twice).findings]
    twice(told)
    with pytest.raises(RefusedError, match=f"Event {position}"):
        import_log(io.BytesIO(b"".join(rehashed(told))), str(tmp_path / "import.db"))
    assert not (tmp_path / "import.db").exists()


# The index


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE wp_proposal SET status = 'failed' WHERE status = 'rejected'",
        "UPDATE wp_proposal SET actor_id = 'eve' WHERE actor_id = 'kid'",
        "DELETE FROM wp_proposal WHERE submitted_pos = (SELECT max(submitted_pos) FROM wp_proposal)",
        "UPDATE wp_world SET height = 7 WHERE height = 1",
        "DELETE FROM wp_world WHERE height = 2",
        "UPDATE wp_branch SET head = tip || 'x' WHERE name = 'again'",
        "DELETE FROM wp_landmark WHERE position = 2",
    ],
)
def test_an_index_that_says_something_else_is_found(address: str, sql: str) -> None:
    change(address, sql)
    report = verified(address)
    assert {finding.code for finding in report.findings} == {"INDEX_DIFFERS"}


def test_a_checkpoint_that_is_not_the_worlds_data_is_found(address: str) -> None:
    with Realm.open_read_only(address) as world:
        row = next(iter(world.worlds(3)))
        data = canonical_bytes(world.data(row.world_id)).decode()
    change(address, "INSERT INTO wp_checkpoint VALUES (1, ?, ?)", row.world_id, data)
    assert verified(address).ok
    change(address, "UPDATE wp_checkpoint SET data = '{}' WHERE world_id = ?", row.world_id)
    assert first(verified(address)) == ("INDEX_DIFFERS", row.position)


# Canonical text


@given(wp.json_values())
def test_canonical_text_is_known_as_such(value: Any) -> None:
    text = canonical_bytes(value)
    assert is_canonical(text)
    assert is_canonical(text, has_fraction=b"." in text or b"e" in text)


@for_each(
    "text",
    [b'{"b":1,"a":2}', b'{"a": 1}', b'{"a":1.0}', b'{"a":1,"a":1}', b'{"a":-0}', b'{"a":9007199254740993}', b"nothing",
     b'{"a":"\\u0041"}', b'{"a":1e2}', b'{"a":"\\ud800"}', b'{"a":NaN}', b""],
)  # fmt: skip
def test_other_text_is_not_canonical(text: bytes) -> None:
    assert not is_canonical(text)
    if b"." not in text and b"e" not in text:
        assert not is_canonical(text, has_fraction=False)
