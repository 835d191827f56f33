"""Cut logs against uncut twins: the same operations give the same events, at every commit the same state is left."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pytest
from eventsourcing.persistence import OperationalError

from bench.realms import BenchRealm
from tests.cli.realm import environment
from tests.golden import (
    access,
    callers,
    clocks,
    couriers,
    garden,
    gate,
    guards,
    harbour,
    orchard,
    repeats,
    signed,
    wakes,
)
from tests.golden.generate import FORGED
from tests.pipeline.test_history_sums import opened
from tests.support.patience import PATIENCE_S
from world.audit.replay import replay
from world.audit.sealing import last_commit, seal
from world.audit.verify import verify
from world.engine.protocol import WorldProtocol
from world.errors import DamagedLogError, RefusedError
from world.events.caller_events import CallerLeft
from world.events.execution_events import EffectFulfilled, ExecutionCancelled
from world.events.lease_events import ClockConfirmed, ProposalRescheduled
from world.events.proposal_events import ProposalSuperseded
from world.events.realm_events import LogArchived
from world.log import EventLog, open_log, verify_consistency
from world.log.log import rebuild_view
from world.read_models.archive import Archive
from world.read_models.clock_jumps import clock_jumps
from world.read_models.decoding import decoded
from world.read_models.index import WorldIndex
from world.read_models.live.sealed_snapshot import SealedSnapshot, archived_event, open_snapshot
from world.read_models.live.state_loading import fold_realm, load_realm
from world.state.realm_view import view_of
from worldprotocol import Realm, RealmDirectory
from worldprotocol.export.archive.cutting import CutLog, CutPlan, cut, open_for_cutting, plan_cut, restore
from worldprotocol.export.archive.cutting import check_cut as check_archives
from worldprotocol.export.archive.manifest import ArchiveFolder
from worldprotocol.export.archive.writing import plan_archive, write_archive
from worldprotocol.export.jsonl import import_log
from worldprotocol.export.proofs.checkpoint import Checkpoint, checkpoint_of

pytestmark = pytest.mark.slow

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LOGS = sorted(path.stem for path in GOLDEN.glob("*.jsonl") if path.stem != FORGED)
SOME_ARCHIVE = cast("ArchiveFolder", SimpleNamespace(digest="0" * 64))
WITHIN = (ClockConfirmed.TOPIC, ProposalRescheduled.TOPIC)
"""Topics after which a commit goes on, and that later events of it are compared with."""

ENDS = (ProposalSuperseded, EffectFulfilled, ExecutionCancelled)
"""Events by which the calls of a caller that left end, in the same commit."""

RECORDS: dict[str, Callable[[str], Realm]] = {
    "access": access.record,
    "callers": callers.record,
    "clocks": clocks.record,
    "couriers": couriers.record,
    "garden": garden.record,
    "gate": gate.record,
    "guards": guards.record,
    "harbour": harbour.record,
    "ledger": garden.record_portable,
    "orchard": orchard.record,
    "repeats": repeats.record,
    "signed": signed.record,
    "wakes": wakes.record,
}


BEHIND = {"clocks": 10, "repeats": 10, "signed": 10, "garden": 90}
"""How many events stay when the realm of a record is cut; the garden goes back that far for a branch."""


def places_to_cut(log: EventLog) -> list[int]:
    """Return the positions at which a log may be cut: after what was cut before, and at no place within a commit.

    An imported log has other commits; of these places, only those count whose later events are compared with earlier
    ones.
    """
    done = archived_event(log)  # a log that was cut once, and has its contents again
    within, left = {event.position for event in log.read(topics=WITHIN)}, set[str]()
    ends = [kind.TOPIC for kind in ENDS]
    for logged in log.read(topics=[CallerLeft.TOPIC, *ends]):
        event = decoded(logged)
        if isinstance(event, CallerLeft):
            left |= set(event.calls)
        elif isinstance(event, ENDS):
            left.discard(event.proposal_id)
        if left:
            following = next(iter(log.read(logged.position, topics=ends)))
            within |= set(range(logged.position, following.position))
    return [at for at in range(1 if done is None else done.upto + 1, log.head().size + 1) if at not in within]


def cut_at(log: EventLog, upto: int, before: int = 0) -> bool:
    """Cut a log; return False where a branch at an earlier world prevents it."""
    try:
        cut(log, CutPlan((SOME_ARCHIVE,), upto, before), by="operator", now_ms=0)
    except RefusedError as refused:
        if refused.code != "BRANCH_BEFORE_CUT":
            raise
        return False
    return True


def described(log: EventLog) -> dict[str, Any]:
    """Return the replayed state without what a cut adds."""
    wire = replay(log).to_wire()
    wire["events"].pop(LogArchived.TOPIC, None)
    return {name: value for name, value in wire.items() if name not in ("position", "head")}


def check_cut(log: EventLog) -> None:
    """Check that nothing contradicts anything, and that index and fold agree."""
    report = verify(log)
    assert report.findings == ()
    assert view_of(load_realm(log, Archive(log))) == view_of(fold_realm(log))


@pytest.mark.requirement("CARD-replay", "CARD-log")
@pytest.mark.parametrize("name", LOGS)
def test_a_log_cut_after_any_event_has_the_state_of_the_whole_one(name: str, tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    with (GOLDEN / f"{name}.jsonl").open("rb") as lines:
        import_log(lines, str(whole))
    with open_log(str(whole), read_only=True) as log:
        expected, places, done = described(log), places_to_cut(log), archived_event(log)
    cuts, before = 0, 0 if done is None else done.upto
    for upto in places[::3]:
        copy = tmp_path / f"{upto}.db"
        shutil.copy(whole, copy)
        with open_for_cutting(str(copy)) as log:
            if cut_at(log, upto, before):
                cuts += 1
                assert described(log) == expected
                check_cut(log)
    assert cuts


@contextmanager
def cutting(every: int, behind: int) -> Iterator[list[int]]:
    """After every so many commands of the engine, cut the log that they wrote, so many events before its end."""
    run, commands, cuts = WorldProtocol.run, [0], list[int]()

    def run_and_cut(protocol: WorldProtocol, *arguments: Any, **options: Any) -> Any:
        done = run(protocol, *arguments, **options)
        commands[0] += 1
        if commands[0] % every == 0:
            log = protocol.archive.log
            upto = last_commit(log, log.head().size - behind)
            realm = protocol.archive.realm()
            before = 0 if realm.archived is None else realm.archived.upto
            if upto > before and cut_at(log, upto, before):
                cuts.append(upto)
        return done

    with mock.patch.object(WorldProtocol, "run", run_and_cut):
        yield cuts


def recorded(log: EventLog) -> list[tuple[Any, ...]]:
    """Return the hashes of the events, without those of cuts, in their order."""
    found = []
    after = 0
    while rows := log.audit_rows(after, 1_000):
        found += [(row[1], row[3], _leaf(row)) for row in rows if row[3] != LogArchived.TOPIC]
        after = rows[-1][0]
    return found


def _leaf(row: tuple[Any, ...]) -> bytes:
    """Return a leaf hash; none where a cut moves what it covers: versions in the realm's stream, fencing tokens."""
    leaf: bytes = row[6]
    return b"" if row[1] == "realm" or row[3].startswith("effect.") else leaf


@pytest.mark.requirement("CARD-replay", "CARD-log")
@pytest.mark.parametrize("name", RECORDS)
def test_a_realm_that_is_cut_again_and_again_decides_as_its_twin(name: str, tmp_path: Path) -> None:
    with RECORDS[name](str(tmp_path / "twin.db")) as twin:
        expected, described_twin = recorded(twin.log), described(twin.log)
    with cutting(3, BEHIND.get(name, 40)) as cuts, RECORDS[name](str(tmp_path / "cut.db")):
        pass
    with open_for_cutting(str(tmp_path / "cut.db")) as log:
        assert recorded(log) == expected
        assert described(log) == described_twin
        check_cut(log)
    assert cuts


def grown(address: str, proposals: int) -> None:
    """Fill a realm, one proposal in each commit."""
    realm = BenchRealm(address, durability="normal")
    for number in range(proposals):
        realm.grow_by(number)
    realm.close()


@pytest.mark.requirement("CARD-replay", "CARD-log", "CARD-audit")
def test_a_log_is_archived_cut_twice_and_given_back(shared_log_url: str, tmp_path: Path) -> None:
    grown(shared_log_url, 120)
    with open_for_cutting(shared_log_url) as log:
        events, expected = list(log.read()), described(log)
        old = log.root_at(700)
        first = write_archive(log, tmp_path / "a", plan_archive(log, (), 512, has_tables=False), _unsigned(log, 512))
        done = cut(log, plan_cut(log, [first], 600), by="operator", now_ms=0)
        assert done.upto <= 512
        assert done.removed > 400
        check_cut(log)
        assert described(log) == expected
        assert seal(log, done.upto).to_text() == log.snapshot(done.upto)
        plan = plan_archive(log, (first,), 768, has_tables=True)
        second = write_archive(log, tmp_path / "b", plan, _unsigned(log, 768))
        again = cut(log, plan_cut(log, [first, second], 768), by="operator", now_ms=0)
        assert (done.upto < again.upto, log.snapshot(done.upto)) == (True, None)
        check_cut(log)
        check_archives(log, [first, second])
        assert described(log) == expected
        assert [log.event_at(event.position) for event in events if event.position > again.upto] == [
            event for event in events if event.position > again.upto
        ]
        proof = log.prove_consistency(700)
        assert proof.first == old
        assert verify_consistency(700, proof.second.size, old.root, proof.second.root, proof.path)
        assert verify(log).archived is not None
    with open_for_cutting(shared_log_url, has_view=False) as log:
        assert restore(log, [first, second]) == verify_removed(done, again)
    with open_for_cutting(shared_log_url) as log:
        assert [event for event in log.read() if event.topic != LogArchived.TOPIC] == events
        assert verify(log).findings == ()
        assert verify(log).archived is None
    grown(shared_log_url, 3)


def verify_removed(*cuts: CutLog) -> int:
    return sum(one.removed for one in cuts)


def _unsigned(log: EventLog, size: int) -> Checkpoint:
    return checkpoint_of(log.root_at(size), "example.com/cut")


@pytest.fixture(scope="module")
def cut_log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SealedSnapshot]:
    path = tmp_path_factory.mktemp("cut") / "cut.db"
    grown(str(path), 60)
    with open_for_cutting(str(path)) as log:
        assert cut_at(log, last_commit(log, 300))
        snapshot = open_snapshot(log)
        assert snapshot is not None
        log.compact()
    return path, snapshot


@pytest.mark.requirement("CARD-audit")
def test_each_damage_of_a_cut_log_is_found_and_named(cut_log: tuple[Path, SealedSnapshot], tmp_path: Path) -> None:
    path, snapshot = cut_log
    kept, upto = snapshot.kept[-1], snapshot.upto
    gone = next(position for position in range(1, upto) if position not in snapshot.kept)
    key = "id & 1099511627775"
    damages = [
        (f"DELETE FROM wp_event WHERE {key} = {kept}", "EVENT_MISSING", kept),
        (f"UPDATE wp_event SET state = '' WHERE {key} = {kept}", "EVENT_CHANGED", kept),
        (f"UPDATE wp_event SET state = '' WHERE {key} = {upto + 1}", "EVENT_CHANGED", upto + 1),
        (f"DELETE FROM wp_event WHERE {key} = {gone}", "EVENT_MISSING", gone),
        (f"UPDATE wp_event SET state = '{{}}' WHERE {key} = {gone}", "EVENT_CHANGED", gone),
        (f"UPDATE wp_event SET leaf = zeroblob(32) WHERE {key} = {gone}", "TREE_MISMATCH", 1),
        ("UPDATE wp_snapshot SET state = replace(state, 'completed', 'failed')", "SNAPSHOT_CHANGED", upto),
        ("DELETE FROM wp_snapshot", "SNAPSHOT_CHANGED", upto),
    ]
    for number, (statement, code, position) in enumerate(damages):
        copy = tmp_path / f"{number}.db"
        shutil.copy(path, copy)
        with sqlite3.connect(copy) as connection:
            assert connection.execute(statement).rowcount == 1
        connection.close()
        with open_log(str(copy), read_only=True) as log:
            found = [(one.code, one.position) for one in verify(log).findings]
        assert (code, position) in found, (statement, found)


def test_a_proposal_and_a_world_before_the_cut_are_refused_with_what_to_do(
    cut_log: tuple[Path, SealedSnapshot],
) -> None:
    path, snapshot = cut_log
    with open_log(str(path), read_only=True) as log:
        archive = Archive(log)
        gone = next(position for position in range(1, snapshot.upto) if position not in snapshot.kept)
        submitted = [row[0] for row in archive.rows("proposal_prefix", {"low": "", "high": "z", "most": 1})]
        attempts: list[Callable[[], Any]] = [
            lambda: list(log.read()),
            lambda: log.event_at(gone),
            lambda: list(log.events_at([gone])),
            lambda: archive.proposal(submitted[0]),
            lambda: replay(log, upto=gone),
            lambda: fold_realm(log, gone),
            lambda: log.select_notifications(1, 10),
            lambda: next(iter(log.follow())),
        ]
        for number, attempt in enumerate(attempts):
            with pytest.raises((RefusedError, OperationalError)) as refused:
                attempt()
            error = refused.value if isinstance(refused.value, RefusedError) else refused.value.__cause__
            assert isinstance(error, RefusedError)
            assert error.code == "EVENT_ARCHIVED", number
        assert len(list(log.read(snapshot.upto))) == log.head().size - snapshot.upto


def test_the_index_of_a_cut_log_is_not_dropped(cut_log: tuple[Path, SealedSnapshot], tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    with pytest.raises(RefusedError) as refused:
        rebuild_view(str(copy), WorldIndex())
    assert refused.value.code == "EVENT_ARCHIVED"
    later = WorldIndex()
    later.version += 1
    with pytest.raises(RefusedError) as refused:
        open_log(str(copy), view=later)
    assert refused.value.code == "EVENT_ARCHIVED"
    with open_log(str(copy), view=WorldIndex()) as log:
        check_cut(log)


def test_a_cut_log_that_lost_the_copy_of_its_lease_ledger_is_read_from_its_snapshot(
    cut_log: tuple[Path, SealedSnapshot], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    with sqlite3.connect(copy) as connection:
        assert connection.execute("DELETE FROM wp_ledger").rowcount == 1
    connection.close()
    with open_log(str(copy), view=WorldIndex()) as log, open_log(str(cut_log[0]), read_only=True) as whole:
        assert view_of(load_realm(log, Archive(log))) == view_of(load_realm(whole, Archive(whole)))


@pytest.mark.requirement("CARD-log", "CARD-replay")
def test_a_cut_that_is_killed_leaves_a_sound_log_and_is_completed_by_the_next(tmp_path: Path) -> None:
    whole = tmp_path / "whole.db"
    grown(str(whole), 60)
    with open_log(str(whole), read_only=True) as log:
        expected, upto = described(log), last_commit(log, 400)
    killed, removed = 0, set[int]()
    for commits in range(1, 16):
        copy = tmp_path / f"{commits}.db"
        shutil.copy(whole, copy)
        child = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("cut_child.py")), str(copy), str(upto)],
            stdout=subprocess.PIPE,
            env=environment(),
        )
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(commits)]
        os.kill(child.pid, signal.SIGKILL)
        child.communicate(timeout=PATIENCE_S)
        killed += lines[-1] == b"commit\n"
        with open_for_cutting(str(copy)) as log:
            check_cut(log)
            assert described(log) == expected
            removed.add(sum(not row[5] for row in log.audit_rows(0, upto)))
            done = archived_event(log)
            assert cut_at(log, upto, 0 if done is None else done.upto)
            check_cut(log)
            assert described(log) == expected
            assert sum(bool(row[5]) for row in log.audit_rows(0, upto)) == len(seal(log, upto).kept)
    assert killed > 5
    assert len(removed) > 2


@pytest.mark.requirement("CARD-policy")
def test_a_sum_over_archived_proposals_refuses_and_one_over_later_ones_does_not(tmp_path: Path) -> None:
    address = str(tmp_path / "sums.db")
    with opened(address) as realm:
        assert all(realm.act("bot", "pay", {"amount": 1}).status == "completed" for _ in range(5))
        before = realm.log.head().size
        with open_for_cutting(address) as log:
            assert cut_at(log, last_commit(log, before))
        refused = realm.act("bot", "pay", {"amount": 2})
        assert refused.status == "rejected"
        assert refused.decision is not None
        assert "was removed from this log" in refused.decision.reason
        assert check_sound(realm)


def check_sound(realm: Realm) -> bool:
    return verify(realm.log).findings == ()


def test_a_log_that_is_closed_to_writers_is_not_cut(cut_log: tuple[Path, SealedSnapshot], tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    realm = BenchRealm(str(copy))
    realm.protocol.close_writer("archive", by="ann")
    realm.close()
    with open_for_cutting(str(copy)) as log, pytest.raises(RefusedError) as refused:
        cut_at(log, last_commit(log, log.head().size), cut_log[1].upto)
    assert refused.value.code == "LOG_FENCED"
    with open_log(str(copy), read_only=True) as log:
        check_cut(log)


def test_lists_of_a_cut_realm_show_what_its_log_still_has(cut_log: tuple[Path, SealedSnapshot], tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    with Realm.open_read_only(copy) as realm:
        shown = list(realm.proposals())
        assert 0 < len(shown) < 60
        assert all(realm.proposal(one.proposal_id).status == one.status for one in shown)
        upto = cut_log[1].upto
        topics = [logged.position for logged in realm.log.read(skip_archived=True)]
        assert [position for position in topics if position <= upto] == list(cut_log[1].kept)
        assert topics[-1] == realm.log.head().size
        assert clock_jumps(realm.log, limit_ms=10**12, now_ms=10**13) == []


def test_a_removed_content_that_no_cut_permits_is_damage_in_lists_too(
    cut_log: tuple[Path, SealedSnapshot], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    with sqlite3.connect(copy) as connection:
        later = cut_log[1].upto + 1
        connection.execute(f"UPDATE wp_event SET state = '' WHERE id & 1099511627775 = {later}")
    connection.close()
    with open_log(str(copy), read_only=True) as log, pytest.raises(DamagedLogError) as damaged:
        list(log.read(skip_archived=True))
    assert (damaged.value.code, damaged.value.details["position"]) == ("EVENT_CHANGED", later)


def test_a_branch_that_begins_before_the_cut_prevents_it(tmp_path: Path) -> None:
    path = tmp_path / "branched.db"
    grown(str(path), 60)
    realm = BenchRealm(str(path))
    worlds = [row[0] for row in Archive(realm.log).rows("worlds", {"most": 1_000})]
    size = realm.log.head().size
    realm.protocol.create_branch("old", worlds[-2], by="ann")
    realm.close()
    with open_for_cutting(str(path)) as log:
        upto = last_commit(log, size - 40)
        with pytest.raises(RefusedError) as refused:
            cut(log, CutPlan((SOME_ARCHIVE,), upto, 0), by="operator", now_ms=0)
        assert refused.value.code == "BRANCH_BEFORE_CUT"
        assert archived_event(log) is None
        check_cut(log)


def test_a_cut_realm_is_neither_moved_nor_archived_and_goes_on(
    cut_log: tuple[Path, SealedSnapshot], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    shutil.copy(cut_log[0], copy)
    with RealmDirectory.found(tmp_path / "directory.db", by="ann") as directory:
        directory.add("bench", copy)
        for attempt in (
            lambda: directory.move("bench", tmp_path / "other.db", by="ann"),
            lambda: directory.archive("bench", tmp_path / "folder", by="ann"),
        ):
            with pytest.raises(RefusedError) as refused:
                attempt()
            assert refused.value.code == "EVENT_ARCHIVED"
            assert "--undo" in refused.value.message
            assert directory.entry("bench").status == "open"
    with Realm.open_read_only(copy) as realm:
        assert realm.realm().writer.closed is None
