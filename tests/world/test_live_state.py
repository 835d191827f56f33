"""One published state per process: what is folded and read back, what readers see, and what a failed unit leaves."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from tests.pipeline.shop import Bank, Shop, house, open_shop, shop
from tests.pipeline.test_sources import click, till
from tests.plugins.forms import scaled
from tests.support.patience import PATIENCE_S
from tests.world.sharing_child import lease, seen
from world.clock import ManualClock, SystemClock, SystemIds
from world.core import ActionContext, Domain, set_
from world.errors import StorageFullError, WorldProtocolError
from world.events.base import Event
from world.events.codec import decode_event
from world.events.lease_events import LeasesExpired, LeasesReleased, LeasesRevoked, VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalFailed, ProposalSubmitted
from world.events.realm_events import BranchCreated, EnforcementChosen
from world.pipeline.unit_of_work import UnitOfWork
from world.state.catch_up import _apply_end
from world.state.realm_state import RealmState, apply_event
from world.state.realm_view import RealmView, publish, state_of_view, view_of
from worldprotocol import Realm

ROOT = Path(__file__).resolve().parents[2]
FREE = {"item": "tea", "count": 0}


class Traced:
    """Counts of decoded events and of folds, in all threads."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.decoded: Counter[str] = Counter()
        self.folds: Counter[tuple[int, int]] = Counter()
        """By the identity of the state and the position of the event."""

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Count a call; a profile function."""
        if event != "call":
            return
        if frame.f_code is decode_event.__code__:
            self.decoded[frame.f_locals["topic"]] += 1
        elif frame.f_code in (apply_event.__code__, _apply_end.__code__):
            self.folds[id(frame.f_locals["realm"]), frame.f_locals["position"]] += 1

    def folded(self) -> list[int]:
        """Return the positions of the folded events, sorted, each as often as it was folded."""
        return sorted(position for (_, position), count in self.folds.items() for _ in range(count))


@contextmanager
def traced() -> Iterator[Traced]:
    counts = Traced()
    threading.setprofile(counts.note)
    sys.setprofile(counts.note)
    try:
        yield counts
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


@pytest.fixture(name="world")
def a_world(log_url: str) -> Iterator[Realm]:
    with open_shop(log_url, projections=[till]) as opened:
        yield opened


def read_everything(world: Realm, proposal_id: str) -> None:
    """Read what a process reads most."""
    world.data()
    world.branches()
    world.snapshot()
    world.sealed()
    world.inbox()
    world.realm()
    world.proposal(proposal_id)


@pytest.mark.requirement("CARD-replay")
def test_a_writer_folds_each_event_once_and_reads_none_of_its_own_back(world: Realm) -> None:
    world.act("ann", "sell", FREE)
    told: list[int] = []
    world.subscribe(lambda position, _event, _schedule: told.append(position))
    before = world.log.head().size
    with traced() as counts:
        sold = world.act("ann", "sell", FREE)
        read_everything(world, sold.proposal_id)
        charged = world.act("ann", "charge", {"amount": 1, "times": 2})
        assert charged.status == "completed"
        read_everything(world, charged.proposal_id)
        came = world.project(click(1, button="sell", item="tea"), "ann")
        assert came.proposal is not None
        read_everything(world, came.proposal.proposal_id)
        asked = world.act("kid", "sell", FREE)
        assert asked.status == "evaluating"
        read_everything(world, asked.proposal_id)
        assert world.decide(asked.proposal_id, "approve", by="ann").status == "completed"
        read_everything(world, asked.proposal_id)
        lease(world, 1)
        [name] = world.realm().klis.leases
        world.leases.desk.heartbeat([name], agent_id="holder", session_id="s1")
        world.leases.desk.release([name], agent_id="holder", session_id="s1")
        read_everything(world, sold.proposal_id)
    after = world.log.head().size
    assert after > before + 20
    assert counts.decoded == Counter()
    assert counts.folded() == list(range(before + 1, after + 1))
    assert told == list(range(before + 1, after + 1))


@pytest.mark.requirement("CARD-replay")
def test_what_another_writer_committed_is_folded_once(shared_log_url: str) -> None:
    with open_shop(shared_log_url) as first, Realm.open(shared_log_url, domain=shop, policies=[house]) as second:
        first.act("ann", "sell", FREE)
        second.act("ann", "sell", FREE)
        first.realm()
        before = first.log.head().size
        with traced() as counts:
            done = first.act("ann", "sell", FREE)
            between = first.log.head().size
            for _ in range(3):
                assert second.branch().head == first.branch().head == done.world_id
            last = second.act("ann", "sell", FREE)  # its unit finds everything folded
            assert first.branch().head == last.world_id
        states = {state for state, _ in counts.folds}
        assert len(states) == 2
        assert set(counts.folds.values()) == {1}
        own = range(before + 1, first.log.head().size + 1)  # each writer folds all of its own
        others = [  # and of the other's ended proposals the end alone
            one.position
            for one in first.log.read(before)
            if one.stream not in (done.proposal_id, last.proposal_id) or one.topic == ProposalCompleted.TOPIC
        ]
        assert 0 < len(others) < len(own)
        assert counts.folded() == sorted([*own, *others])
        assert sum(counts.decoded.values()) <= first.log.head().size - before
        assert between > before


# What a test expects of a state, from the events alone.


class Expected:
    """Heads, open proposals and leases after each event, by rules of its own."""

    def __init__(self, events: Iterator[tuple[int, Event]]) -> None:
        heads: dict[str, str] = {}
        opened: dict[str, None] = {}
        leases: dict[str, str] = {}
        self.at: dict[int, tuple[Any, ...]] = {}
        for position, event in events:
            if isinstance(event, BranchCreated | ProposalCompleted):
                heads[event.branch] = event.world_id
            if isinstance(event, ProposalSubmitted):
                opened[event.proposal_id] = None
            elif isinstance(event, ProposalCompleted | ProposalFailed) or (
                isinstance(event, DecisionMade) and event.decision.decision == "rejected"
            ):
                del opened[event.proposal_id]
            elif isinstance(event, VerdictGiven):
                leases |= {one.lease_id: event.session_id for one in event.leases}
            elif isinstance(event, LeasesReleased | LeasesExpired | LeasesRevoked):
                for name in event.lease_ids:
                    del leases[name]
            self.at[position] = tuple(heads.items()), tuple(opened), tuple(leases.items())


def summary(view: RealmView) -> tuple[Any, ...]:
    """Return what ``Expected`` has of a view."""
    leases = tuple((name, one.session.session_id) for name, one in view.klis.leases.items())
    assert all(view.klis.holds(one.session.agent_id, one.session.session_id) for one in view.klis.leases.values())
    assert set(view.running.values()) <= set(view.proposals)
    return tuple((name, one.head) for name, one in view.branches.items()), tuple(view.proposals), leases


@pytest.fixture
def often_switched() -> Iterator[None]:
    """Let threads take turns fifty times as often, so that busy readers do not hold up the one writer."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(interval / 50)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.requirement("CARD-replay", "WP-lineage")
@pytest.mark.parametrize(("readers", "commits"), [(2, 150), (8, scaled(1_000, ci=300))])
@pytest.mark.slow
def test_readers_see_committed_states_only_and_in_order(
    tmp_path: Path, readers: int, commits: int, often_switched: None
) -> None:
    found: list[dict[int, tuple[Any, ...]]] = [{} for _ in range(readers)]
    wrong: list[Any] = []
    over = threading.Event()
    with open_shop(str(tmp_path / "w.db"), clock=ManualClock(1_000, 0), durability="normal") as world:

        def read(mine: dict[int, tuple[Any, ...]]) -> None:
            last = 0
            while not over.is_set():
                view = world.realm()
                if view.position < last:
                    wrong.append((last, view.position))
                last = view.position
                known = mine.setdefault(view.position, summary(view))
                if known != summary(view):
                    wrong.append((view.position, known))

        threads = [threading.Thread(target=read, args=(mine,)) for mine in found]
        for thread in threads:
            thread.start()
        try:
            waiting = [world.act("kid", "sell", FREE).proposal_id for _ in range(5)]
            number = 0
            while world.log.head().size < 3 * commits or number < commits // 3:
                number += 1
                lease(world, number)
                name = next(reversed(list(world.realm().klis.leases)))
                if number % 3 == 0:
                    world.act("ann", "sell", FREE)
                elif number % 50 == 1 and waiting:
                    world.decide(waiting.pop(), "reject", by="ann")
                if number % 7:
                    world.leases.desk.release([name], agent_id="holder", session_id=f"s{number}")
        finally:
            over.set()
            for thread in threads:
                thread.join()
        committed = {head.size for head in world.log.heads()}
        expected = Expected(world.events()).at
        last = world.realm()
    assert len(committed) >= commits
    assert wrong == []
    for mine in found:
        assert set(mine) <= committed
        assert mine == {position: expected[position] for position in mine}
    assert summary(last) == expected[last.position]
    assert max(len(mine) for mine in found) > 1


@pytest.mark.requirement("CARD-replay")
def test_a_reader_inside_a_unit_sees_the_committed_state_and_never_waits(log_url: str) -> None:
    looked: list[tuple[int, tuple[str, ...], bool]] = []

    def look() -> None:
        view = world.realm()
        looked.append((view.position, tuple(view.proposals), world.branch().head == view.branches["main"].head))

    def command(work: UnitOfWork) -> int:
        work.emit("realm", _chosen(work))
        look()
        other = threading.Thread(target=look)  # the unit waits for a reader in another thread
        other.start()
        other.join(PATIENCE_S)
        assert not other.is_alive()
        return work.realm.position

    with open_shop(log_url) as world:
        opened = world.act("kid", "sell", FREE)
        before = world.log.head().size
        position = world._acting.run(command)
        assert position > before
        assert looked == [(before, (opened.proposal_id,), True)] * 2
        look()
        assert looked[-1][0] == world.log.head().size >= position


@pytest.mark.requirement("CARD-replay")
def test_an_action_that_reads_the_realm_sees_committed_states(log_url: str) -> None:
    looked: list[tuple[str, int, bool]] = []
    domain = Domain("urn:test:looking", version="1.0.0", state=Shop)

    def look(who: str) -> None:
        view = world.realm()
        committed = {head.size for head in world.log.heads()} if ":memory:" not in log_url else {view.position}
        looked.append((who, view.position, view.position in committed))

    @domain.action("look", version="1")
    def look_around(ctx: ActionContext) -> Any:
        look("action")
        other = threading.Thread(target=look, args=("thread of the action",))
        other.start()
        other.join(PATIENCE_S)
        assert not other.is_alive()
        return [set_("sold", ctx.data["sold"] + 1)]

    with Realm.create(log_url, domain=domain) as world:
        world.register("bot", "agent", binding={"kind": "auto_approve"})
        world.act("bot", "look", None)
        looked.clear()
        before = world.log.head().size
        done = world.act("bot", "look", None)
        assert done.status == "completed"
        assert {who for who, _, _ in looked} == {"action", "thread of the action"}
        assert {position for _, position, _ in looked} == {before}
        assert all(is_committed for _, _, is_committed in looked)
        assert world.data()["sold"] == 2


def _chosen(work: UnitOfWork) -> Event:
    """Return an event that a command may record at any time."""
    return EnforcementChosen(at=work.at, enforcement=work.realm.enforcement, by="ann")


class _WrongError(Exception):
    """What a command raises in this test."""


def _snapshot(world: Realm) -> tuple[Any, ...]:
    view = world.realm()
    return view, view.position, world.data(), [proposal.proposal_id for proposal in world.inbox()]


def _check_sound(world: Realm) -> None:
    """Compare the published state with one that is folded from the log."""
    view = world.realm()
    assert view == world.archive.fold_realm()
    assert view_of(state_of_view(view)) == view
    assert view.next_due() == view_of(state_of_view(view)).next_due()


@pytest.mark.requirement("CARD-replay")
def test_a_unit_that_fails_half_way_leaves_the_state_as_it_was(world: Realm) -> None:
    world.act("kid", "sell", FREE)
    lease(world, 1)
    before = _snapshot(world)
    protocol = world._acting

    def spoiled(work: UnitOfWork) -> None:
        work.emit("realm", _chosen(work))
        raise _WrongError

    with traced() as counts:
        with pytest.raises(_WrongError):
            protocol.run(spoiled)
        assert _snapshot(world) == before
        assert world.realm() is before[0]
        assert world.act("ann", "sell", FREE).status == "completed"
    assert counts.decoded == Counter()  # the state is made again from the view
    _check_sound(world)
    assert list(world.realm().proposals) == [one.proposal_id for one in world.inbox()]


def _repeated(world: Realm, states: list[Any]) -> Iterator[None]:
    """Take one lease after the other, and add the state after each."""
    for number in range(2, 1_000):
        lease(world, number)
        states.append(_snapshot(world))
        yield


@pytest.mark.requirement("CARD-replay")
def test_a_commit_that_fails_leaves_the_state_as_it_was(tmp_path: Path) -> None:
    with open_shop(str(tmp_path / "w.db")) as world:
        world.act("kid", "sell", FREE)
        lease(world, 1)
        before = _snapshot(world)
        writer = world.log._store._writer  # type: ignore[attr-defined]
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count = {pages}")
        with traced() as counts:
            states = [before]
            with pytest.raises(StorageFullError):
                for _ in _repeated(world, states):
                    pass
            assert _snapshot(world) == states[-1]
            writer.execute("PRAGMA max_page_count = 1000000")
            lease(world, 1_000)
            assert world.act("ann", "sell", FREE).status == "completed"
        assert counts.decoded == Counter()
        assert len(world.realm().klis.leases) >= len(before[0].klis.leases) + 1
        _check_sound(world)


@pytest.mark.requirement("CARD-replay")
def test_a_commit_whose_fate_is_unknown_is_read_from_the_log(tmp_path: Path) -> None:
    path = tmp_path / "w.db"
    with open_shop(str(path)) as world:
        world.act("ann", "sell", FREE)
        before = world.realm()
        store: Any = world.log._store
        commit: Callable[[Any], None] = store.commit

        def unacknowledged(batch: Any) -> None:
            commit(batch)
            raise WorldProtocolError("COMMIT_UNKNOWN", "The acknowledgement was lost.")

        store.commit = unacknowledged
        with pytest.raises(WorldProtocolError, match="acknowledgement"):
            lease(world, 1)
        store.commit = commit
        assert len(world.realm().klis.leases) == 1
        assert world.realm().position == world.log.head().size > before.position
        assert len(before.klis.leases) == 0
        lease(world, 2)
        _check_sound(world)


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_two_processes_see_what_the_other_committed_with_the_next_read(shared_log_url: str) -> None:
    with open_shop(shared_log_url, clock=SystemClock(), ids=SystemIds()) as world:
        command = [sys.executable, "-m", "tests.world.sharing_child", shared_log_url]
        child = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "ready\n"
            for number in range(12):
                if number % 3 == 0:
                    world.act("ann", "sell", FREE)
                elif number % 3 == 1:
                    lease(world, number)
                told = ("look", "lease", "sell")[number % 4 % 3]
                child.stdin.write(f"{told}\n")
                child.stdin.flush()
                assert json.loads(child.stdout.readline()) == seen(world)
            child.stdin.close()
            assert child.wait(PATIENCE_S) == 0
        finally:
            child.kill()
            child.wait()
            child.stdout.close()
        _check_sound(world)


@pytest.mark.requirement("CARD-replay")
@pytest.mark.parametrize("step", [1, 2, 3, 5, 11])
def test_a_view_that_is_published_often_is_the_state_that_is_folded_at_once(tmp_path: Path, step: int) -> None:
    bank = Bank()
    with open_shop(str(tmp_path / "w.db"), effects=[bank.handler()]) as world:
        waiting = [world.act("kid", "sell", FREE) for _ in range(3)]
        world.act("ann", "charge", {"amount": 1, "times": 3})
        lease(world, 1)
        world.decide(waiting[0].proposal_id, "approve", by="ann")
        world.decide(waiting[1].proposal_id, "reject", by="ann")
        world.register("eve", "human", binding={"kind": "auto_approve"})
        world.act("bot", "close", None)
        events = list(world.events())
        folded = {position: world.archive.fold_realm(position) for position, _ in events[::step]}
        kept = world.realm()
    state = state_of_view(folded[1])
    view = folded[1]
    views = {}
    for position, event in events[1:]:
        apply_event(state, event, position)
        if position in folded:
            view = views[position] = publish(state, view)
    for position, one in views.items():
        assert one == folded[position]
        assert one.next_due() == folded[position].next_due()
        assert list(one.proposals) == list(folded[position].proposals)
    assert list(kept.proposals) == [waiting[2].proposal_id]


def test_a_published_state_cannot_be_changed(world: Realm) -> None:
    asked = world.act("kid", "sell", FREE)
    view = world.realm()
    for change in (
        lambda: setattr(view, "position", 0),
        lambda: setattr(view.branches["main"], "head", "other"),
    ):
        with pytest.raises(AttributeError):
            change()
    for mapping in (view.actors, view.bindings, view.policies, view.branches, view.proposals, view.runs):
        with pytest.raises(TypeError):
            mapping["other"] = None  # type: ignore[index]
    own = world.proposal(asked.proposal_id)
    own.status = "failed"
    own.requested["other"] = None  # type: ignore[assignment]
    assert world.proposal(asked.proposal_id).status == "evaluating"
    assert view.proposals[asked.proposal_id].requested == {}


def test_the_state_is_not_read_after_its_unit_when_readers_may_apply_events_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_shop(str(tmp_path / "w.db")) as world:
        live, due, unowned = world.archive.live, RealmState.next_due, list[str]()

        def next_due(state: RealmState) -> int | None:
            if state is live._state and live._owner != threading.get_ident():
                unowned.append("read")
            return due(state)

        monkeypatch.setattr(RealmState, "next_due", next_due)
        assert world.act("ann", "sell", FREE).status == "completed"
    assert unowned == []
