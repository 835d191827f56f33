"""The one writer of the log (design sections 1, 2, 5).

Every command runs under the log's lock, on the state after all events that other processes appended. Commands of many
callers share a commit. Effects run between commits, after the commit that requests them, and never under the lock.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from world.clock import Boot, Clock, IdSource, boot_of
from world.core import Domain
from world.engine.appending import SpoiledError, add_checkpoints, intents_of, new_events
from world.engine.backlog import Backlog, Taken
from world.engine.clock_state import warn_behind
from world.engine.commands import Prepare
from world.engine.effect_runner import EffectRecorder, make_effect
from world.engine.event_bus import Subscribers
from world.engine.preparation import Command, PreparingCommands
from world.engine.scheduled_work import ScheduledWork, Timer
from world.engine.writer_epochs import enter_epoch, refusal
from world.errors import UnitEndedError
from world.klis.ledger_codec import ledger_to_wire
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.limits import Limits
from world.log import EventLog, GroupCommit, Pending, Transaction
from world.model.canonical_json import canonical_text
from world.pipeline.driver import advance, due, recover, reevaluate
from world.pipeline.preparation.prepared import StalePreparationError
from world.pipeline.preparation.snapshots import SnapshotCache
from world.pipeline.recorded_time import GuardedClock, evidence_of
from world.pipeline.unit_budget import UNITS_AT_ONCE, UnitBudget, UnitOverrunError, ended_again
from world.pipeline.unit_of_work import Doubt, Emitted, Task, UnitOfWork
from world.read_models.archive import Archive
from world.read_models.decoding import known
from world.read_models.index import IndexRows, has_new_copy
from world.read_models.packaged_views import PackagedViews
from world.read_models.unit_lookup import IntentNames, UnitLookup, intent_questions
from world.state.ports import Authority, Executor, WorkerRegistry
from world.state.realm_state import RealmState
from world.state.realm_view import RealmView

__all__ = ["Command", "WorldProtocol"]

R = TypeVar("R")


class WorldProtocol(PreparingCommands):
    """The writer of one realm in this process; safe to use from many threads."""

    def __init__(
        self,
        log: EventLog,
        *,
        domain: Domain,
        authority: Authority,
        executor: Executor,
        clock: Clock,
        ids: IdSource,
        workers: WorkerRegistry,
        limits: Limits | None = None,
        types: ResourceTypes = STANDARD,
        views: PackagedViews | None = None,
        stopwatch: Callable[[], float] = time.monotonic,
    ) -> None:
        """Work on an open, writable log whose view is ``world.read_models.index.Index``.

        ``views`` of packages are kept in each commit; ``stopwatch`` gives the seconds of a monotonic clock.
        """
        self._log = log
        self.archive = Archive(log)
        self._domain = domain
        self._authority = authority
        self._executor = executor
        self._clock = clock
        self._ids = ids
        self._workers = workers
        self._limits = limits or Limits()
        self._types = types
        self._views = views or PackagedViews()
        self._stopwatch = stopwatch
        self._is_behind = False
        self._held_since = math.inf
        self._live = self.archive.live
        self._snapshots = SnapshotCache()
        self._looked_up: set[Doubt] = set()
        self._group: GroupCommit[Command, Any] = GroupCommit(self._run_batch)
        self._backlog = Backlog()
        self._ledger_kept: int | None = None  # version of the stored copy of the ledger; None before it was read
        self._checkpoint_every = self._limits.checkpoint_every
        self._scheduled = ScheduledWork(self.perform, self._notify, self._backlog.recover_soon)
        self.archive.expectations.on_follow = self._scheduled.follow
        self.subscribers = Subscribers(self.archive)
        self._closing = threading.Event()

    def now_ms(self) -> int:
        """Return the time that would be recorded now, ms since 1970."""
        return self._clock.now_ms()

    @property
    def worker(self) -> str:
        """The id of this process's worker."""
        return self._workers.me

    def is_gone(self, worker: str) -> bool:
        """Return whether a worker is known to have ended."""
        return self._workers.is_gone(worker)

    @property
    def domain(self) -> Domain:
        """The domain whose actions run."""
        return self._domain

    def set_timer(self, timer: Timer) -> None:
        """Set the timer that is rescheduled after each commit."""
        self._scheduled.set_timer(timer)

    def close(self) -> None:
        """End this worker; what it left is free for others to take over."""
        self._closing.set()
        try:
            self.subscribers.close()
            self._scheduled.close()
        finally:
            self._workers.close()

    def settle(self) -> None:
        """Do what is due: take over abandoned executions, decide what timed out, start what is approved."""
        self.run(recover, others_too=True)

    def tick(self) -> None:
        """Do what is due without a caller: what ``settle`` does, with each effect in a thread of its own."""
        self.run(recover)
        self._scheduled.start_threads()

    def _notify(self) -> None:
        """Deliver what was committed to subscribers, and run their reactions."""
        self.subscribers.tell()
        self.subscribers.react()

    def realm(self) -> RealmView:
        """Return the realm as of now, an immutable view."""
        return self.archive.realm()

    # Running commands

    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command in a shared commit, then make the effects it asked for, until none is left.

        Args:
            command: what to do.
            others_too: also make the scheduled effects, of proposals that continued because leases were released, or
                because something was due; those whose time has not come are left to the timer. Without a timer every
                caller makes them all.
            prepare: calls foreign code for the command before the log's lock is taken.

        Raises:
            RefusedError: what the command refuses, or ``CALL_FROM_HANDLER``.
        """
        self.subscribers.refuse_inside_handler()
        leaves_later = others_too and self._scheduled.has_timer
        others_too = others_too or not self._scheduled.has_timer
        tasks, later = list[Task](), list[Task]()
        try:
            try:
                for attempt in self.attempts(command, prepare):
                    with suppress(StalePreparationError):
                        result, tasks = self._group.submit(attempt)
                        break
            finally:
                self.subscribers.tell()
                while task := tasks.pop(0) if tasks else self._scheduled.take() if others_too else None:
                    if leaves_later and task.not_before > self._clock.now_ms():
                        later.append(task)
                        continue
                    tasks += self.perform(task)
                    self.subscribers.tell()
        except BaseException:
            self._scheduled.add(tasks)
            self._backlog.recover_soon()  # the next command takes over what was broken off
            raise
        finally:
            if later:
                self._scheduled.add(later)
            self.subscribers.react()
            if later or not others_too:
                self._scheduled.run_at_once()
        return cast(R, result)

    def perform(self, task: Task) -> list[Task]:
        """Perform an effect, record its result and return the effects that follow; a simulation defers it."""
        return self.record(self.make(task))

    def make(self, task: Task) -> EffectRecorder:
        """Make an effect that was requested in the log, or look one up that is in doubt."""
        try:
            return EffectRecorder(
                task, make_effect(task, self._executor, self.archive.peek, self._clock, self._closing)
            )
        except BaseException:
            self._backlog.release(task.ref)
            raise

    def record(self, recording: EffectRecorder) -> list[Task]:
        """Record the result of an effect and return the effects that follow."""
        if recording.performed is None:
            return []
        self.add_recording(recording)  # should recording it fail now, the next unit does
        try:
            _, tasks = self._group.submit(recording)
        except BaseException:
            recording.is_left = True
            self._scheduled.add(recording.tasks)
            raise
        return cast(list[Task], tasks)

    def _run_batch(self, batch: list[Pending[Command, Any]]) -> None:
        with self.subscribers.committing():
            committed = self._run_units(list(batch))
            if self.subscribers.has_any:
                self.subscribers.committed([(item.position, item.event) for item in committed])

    def _run_units(self, open_commands: list[Pending[Command, Any]]) -> list[Emitted]:
        """Run commands, without those that spoil it, and what is due, and return what was committed.

        After another writer ended a unit, each command is run alone, so that one that takes too long hits no other.
        """
        committed: list[Emitted] = []
        units_left, is_unfinished, is_alone = UNITS_AT_ONCE, False, False
        while open_commands or (is_unfinished and units_left):
            units_left, self._held_since = max(0, units_left - 1), math.inf
            commands = open_commands[:1] if is_alone else open_commands
            try:
                self._live.prepare()  # before the lock is taken: it may have to read from storage
                if self._ledger_kept is None:
                    self._ledger_kept = self.archive.ledger_position()[1]
                    self._checkpoint_every = self.archive.checkpoint_every() or self._limits.checkpoint_every
                work = self._run_unit(commands, joins=not is_alone, is_last=not units_left)
                committed, is_unfinished = committed + work.emitted, work.is_unfinished
            except SpoiledError as spoiled:
                self._forget()
                spoiled.pending.fail(spoiled.error)
            except UnitEndedError as error:
                self._forget()
                for pending in commands if is_alone else ():
                    pending.fail(ended_again(error, self._stopwatch() - self._held_since))
                is_unfinished, is_alone = is_unfinished and not is_alone, True
            except Exception as error:
                self._forget()
                if not committed:
                    raise
                for pending in open_commands:  # the commits of earlier units are published all the same
                    pending.fail(error)
                is_unfinished = False
            except BaseException:
                self._forget()
                raise
            open_commands = [pending for pending in open_commands if not pending.settled]
        return committed

    def _run_unit(self, commands: list[Pending[Command, Any]], *, joins: bool, is_last: bool) -> UnitOfWork:
        """Run commands in one transaction, with those that arrive meanwhile; settle them when it is committed.

        Where more is due than fits in the unit, the commands wait for the next one, unless this ``is_last``.
        """
        intents = intents_of(commands)
        questions = intent_questions(intents, self._log.log_id, self._log.backend)
        with self._live.unit() as live, self._log.write(questions, is_unit=True) as transaction:
            self._held_since = self._stopwatch()
            commands += self._group.join() if joins else []
            confirming = [pending for pending in commands if getattr(pending.command, "confirms_clock", False)]
            boot = boot_of(self._clock)
            realm = live.begin(transaction)
            taken = self._backlog.take()
            work, lookup = self._begin(realm, transaction, boot, intents, taken, is_confirmed=bool(confirming))
            place, first = self._log.place(), confirming
            if place is not None or realm.writer.closed is not None:
                first = enter_epoch(work, place, commands) + first
            fits = (in_force := work.realm.domain) is None or self._domain.is_form(in_force.schema_hash, in_force.rules)
            asked: list[Task] = []
            done_first = _run_first(work, first, asked, fits=fits) if first else []
            for done in taken.recordings:
                done.record(work)
            if fits:
                advance(work, due(work, must_recover=taken.must_recover))
            others, work.tasks = taken.tasks + asked + work.tasks, []
            is_early = work.is_unfinished and not is_last
            remaining = [] if is_early else [pending for pending in commands if pending not in first]
            outcomes = done_first + self._outcomes(work, remaining, others, fits=fits)
            events = [item.event for item in work.emitted]
            if events:
                self._write(transaction, work, lookup.rows(), boot)
                self._follow(work.realm)
                live.committing(events)
            if work.claimed:
                self._backlog.put_back(work.own_requests())
            work.end()
        if work.realm.writer.closed is not None:
            others, work.tasks = [], []  # their results could not be recorded; the next epoch makes them
            work.claimed.clear()
            outcomes = [(pending, result and (result[0], []), error) for pending, result, error in outcomes]
        self.archive.keep_states(events, self._snapshots)
        self._looked_up |= work.looking_up
        unbegun = work.unbegun if work.is_unfinished or not fits else []
        is_left = work.is_unfinished or (taken.must_recover and not fits)
        self._backlog.settle(taken, claimed=work.claimed, unbegun=unbegun, is_unfinished=is_left)
        self._scheduled.add(others + work.tasks)
        self._scheduled.plan(self._live.due, work.at)  # readers may apply events to the state by now
        for pending, result, error in outcomes:
            pending.succeed(result) if error is None else pending.fail(error)
        return work

    def _outcomes(
        self, work: UnitOfWork, commands: list[Pending[Command, Any]], others: list[Task], *, fits: bool
    ) -> list[tuple[Pending[Command, Any], Any, Exception | None]]:
        """Run commands until the lock was held for ``max_unit_ms``; the others are left to the next unit."""
        outcomes = []
        for pending in commands:
            outcomes.append(_outcome(work, pending, others, fits=fits))
            if work.is_unfinished or self._stopwatch() > work.budget.unit_end:
                break  # what a command freed continues what waited before the next one
        return outcomes

    def _begin(
        self,
        realm: RealmState,
        transaction: Transaction,
        boot: Boot | None,
        intents: Sequence[IntentNames],
        taken: Taken,
        *,
        is_confirmed: bool,
    ) -> tuple[UnitOfWork, UnitLookup]:
        self._follow(realm)
        if self._live.recorded_ms is None and (size := transaction.head.size):
            self._live.recorded_ms = known(transaction.new_events(size - 1)[0]).at
        settings = realm.klis.in_force
        evidence = evidence_of(transaction.clocks, boot, self._live.recorded_ms, settings.max_clock_ahead_ms)
        clock = GuardedClock(self._clock, evidence, is_confirmed=is_confirmed)
        at = clock.now_ms()
        if (at < evidence.earliest_ms) is not self._is_behind:
            self._is_behind = warn_behind(evidence, at)
        emitted: list[Emitted] = []
        lookup = UnitLookup(transaction, self.archive, emitted)
        lookup.take_answers(intents)
        work = UnitOfWork(
            realm=realm,
            lookup=lookup,
            domain=self._domain,
            authority=self._authority,
            executor=self._executor,
            clock=clock,
            ids=self._ids,
            workers=self._workers,
            limits=self._limits,
            types=self._types,
            snapshots=self._snapshots,
            performing=self._backlog.performing,
            unbegun=list(taken.unbegun),
            looked_up=self._looked_up,
            at=at,
            emitted=emitted,
            budget=UnitBudget(self._stopwatch, self._limits.max_unit_ms, self._held_since, transaction.check_held),
            observer=self._stages,
        )
        return work, lookup

    def _follow(self, realm: RealmState) -> None:
        """Have names of files compared in the workspace as the settings in force say."""
        if self._executor.keeper is not None and realm.klis.settings is not None:
            self._executor.keeper.follow(realm.klis.in_force.names)

    def _write(self, transaction: Transaction, work: UnitOfWork, rows: IndexRows, boot: Boot | None) -> None:
        add_checkpoints(work, rows, self._checkpoint_every)
        self._keep_ledger(work, rows)
        self._log.insert_events(new_events(work.emitted), transaction=transaction)
        rows.write(transaction.cursor())
        self._views.apply(transaction, transaction.appended)
        if boot is not None:
            transaction.note_clocks(boot, work.at, is_confirmed=work.clock.was_confirmed)

    def _keep_ledger(self, work: UnitOfWork, rows: IndexRows) -> None:
        """Keep a copy of the lease ledger once so much happened that loading it from the events would take long."""
        realm = work.realm
        if has_new_copy(realm.klis_version, self._ledger_kept or 0, len(realm.klis.leases)):
            rows.add_ledger(realm.position, realm.klis_version, canonical_text(ledger_to_wire(realm.klis)))
            self._ledger_kept = realm.klis_version

    def _forget(self) -> None:
        """Drop what a unit noted of events that were not committed."""
        self._snapshots.clear()
        self._ledger_kept = None


def _run_first(
    work: UnitOfWork, first: list[Pending[Command, Any]], others: list[Task], *, fits: bool
) -> list[tuple[Pending[Command, Any], Any, Exception | None]]:
    """Run the commands that open the log or confirm the clock, before anything else is recorded."""
    outcomes = [_outcome(work, pending, others, fits=fits) for pending in first]
    for pending, _, error in outcomes:
        if error is not None:
            raise SpoiledError(pending, error)
    return outcomes


def _outcome(
    work: UnitOfWork, pending: Pending[Command, Any], others: list[Task], *, fits: bool
) -> tuple[Pending[Command, Any], Any, Exception | None]:
    """Run one command; its result comes with the effects it asked for, and ``others`` gets those of what went on."""
    if (not fits or work.realm.writer.closed) and (refused := refusal(work, pending.command, fits=fits)):
        return pending, None, refused
    before, unit_at = len(work.emitted), work.at
    try:
        if not isinstance(pending.command, EffectRecorder) and pending.command is not recover:
            work.budget.start()
        result = pending.command(work)
        tasks, work.tasks = work.tasks, []
        if fits:
            reevaluate(work)
            others += work.tasks
            work.tasks = []
    except Exception as failure:  # raised again in the caller's own thread
        events = len(work.emitted) - before
        error = failure.refusal(events) if isinstance(failure, UnitOverrunError) else failure
        if events:
            raise SpoiledError(pending, error) from failure
        return pending, None, error
    finally:
        work.budget.stop()
        work.prepared, work.at = None, max(work.at, unit_at)
    return pending, (result, tasks), None
