"""Foreign code outside the log's lock: a command is prepared in its caller's thread before it is queued.

A preparation that does not hold under the lock any more is repeated, ``Limits.max_preparations`` times in all. Then the
stages call the code under the lock, within its time limit; they do so at once where the calls had been fast, because
repeating them outside would cost more than it spares the others. Where such preparations were in vain again and again,
because other commands moved the head of the branch, most of those that follow are left out. Whether a call is made or
repeated may depend on time; what is recorded does not. Source: decision record 8.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, partial
from typing import Any, Final, Protocol, TypeVar, cast

from world.clock import Clock
from world.core import Domain
from world.engine.backlog import Backlog
from world.engine.commands import Prepare
from world.engine.effect_runner import EffectRecorder
from world.engine.observing import Observer, TimedLog, WritableLog, WriteTiming
from world.engine.writability import LockWatch, Writability, writability
from world.engine.writer import Writer
from world.klis.resources.resource_types import ResourceTypes
from world.limits import Limits
from world.pipeline.driver import recover
from world.pipeline.preparation.prepared import Prepared, take_up
from world.pipeline.preparation.preparing import prepare_effect_result
from world.pipeline.preparation.snapshots import SnapshotCache
from world.pipeline.recorded_time import Evidence, GuardedClock
from world.pipeline.unit_of_work import StageObserver, UnitOfWork
from world.read_models.unit_lookup import CommittedLookup, IntentNames
from world.state.ports import Authority, Executor, WorkerRegistry
from world.state.realm_state import RealmState

__all__ = ["FAST_MS", "PreparedCommand", "PreparingCommands"]

R = TypeVar("R")
Command = Callable[[UnitOfWork], Any]

FAST_MS: Final = 20
"""A stale preparation that took less is called again under the lock, in milliseconds for each thread that prepares."""

IN_VAIN: Final = 2
"""After so many fast preparations of a kind of command that did not hold, one after the other..."""

LEFT_OUT: Final = 8
"""... so many commands of this kind are not prepared; then one is prepared again."""


class PreparationRecord:
    """Preparations of each kind of command that did not hold lately, in this process.

    A call that was fast and does not hold is made again under the lock. So leaving it out before the lock spares its
    CPU time and delays no other command by more than before.
    """

    __slots__ = ("_in_vain",)

    def __init__(self) -> None:
        """Begin without a preparation."""
        self._in_vain: dict[Hashable, int] = {}

    def leaves_out(self, kind: Hashable) -> bool:
        """Return whether a command is not prepared, and count it; a kind of None is always prepared."""
        count = self._in_vain.get(kind, 0)
        if kind is None or count < IN_VAIN:
            return False
        self._in_vain[kind] = count + 1 if count < IN_VAIN + LEFT_OUT else IN_VAIN - 1
        return count < IN_VAIN + LEFT_OUT

    def note(self, kind: Hashable, *, in_vain: bool) -> None:
        """Note a preparation: whether it was fast and did not hold."""
        if kind is None:
            return
        if not in_vain:
            self._in_vain.pop(kind, None)
        elif self._in_vain.get(kind, 0) < IN_VAIN:
            self._in_vain[kind] = self._in_vain.get(kind, 0) + 1


class CommandQueue(Protocol):
    """What a preparation needs of the queue of commands (``world.log.group_commit.GroupCommit``)."""

    @property
    def preparing(self) -> int:
        """Number of threads that run ``before``."""
        ...

    def before(self, call: Callable[[], R]) -> R:
        """Return the result of a call that prepares a command; commands from inside of it are refused."""
        ...

    def refuse_within(self) -> None:
        """Refuse a call from code that a command of this thread calls."""
        ...


class PreparedCommand:
    """A command with its preparation; ``world.engine.protocol`` runs it like the command alone.

    Args:
        command: what to do.
        prepared: results of the foreign code that it is going to need.
        note: called under the lock with whether the preparation held.
    """

    __slots__ = ("command", "note", "prepared")

    def __init__(
        self, command: Callable[[UnitOfWork], Any], prepared: Prepared, note: Callable[[bool], None] = lambda _: None
    ) -> None:
        """Combine them."""
        self.command = command
        self.prepared = prepared
        self.note = note

    @property
    def any_schema(self) -> bool:
        """Whether it runs under another schema than the one in force."""
        return getattr(self.command, "any_schema", False)

    @property
    def intent_names(self) -> IntentNames | None:
        """The intent that the command looks up, as far as it is known; None without one."""
        submitted = self.prepared.submitted
        if submitted is not None:
            return IntentNames(submitted.intent.intent_id, submitted.intent.intent_key)
        return getattr(self.command, "intent_names", None)

    def __call__(self, work: UnitOfWork) -> Any:
        """Run the command on its preparation.

        Raises:
            StalePreparationError: it does not hold any more, and is to be repeated; nothing was emitted.
        """
        try:
            take_up(work, self.prepared)
            return self.command(work)
        finally:
            self.note(not self.prepared.is_stale)


class PreparingCommands(Writer):
    """Commands that are prepared; ``world.engine.protocol.WorldProtocol`` runs them."""

    _authority: Authority
    _backlog: Backlog
    _clock: Clock
    _domain: Domain
    _executor: Executor
    _group: CommandQueue
    _limits: Limits
    _log: WritableLog
    _snapshots: SnapshotCache
    _stopwatch: Callable[[], float]
    _types: ResourceTypes
    _workers: WorkerRegistry
    _stages: StageObserver | None = None

    def observe(self, observer: Observer) -> None:
        """Have an observer follow every command from now on; once, before the first one."""
        self.observer, self._stages = observer, observer.stages
        self._authority, self._executor = observer.authority(self._authority), observer.executor(self._executor)
        self.time_writes(observer.wrote)

    def time_writes(self, note: Callable[[WriteTiming], None]) -> None:
        """Call a function after each write to the log, in the thread that wrote, with its times."""
        self._log = TimedLog(self._log, note)

    def refuse_waiting(self) -> None:
        """Refuse to wait where commands are refused: in a subscriber's handler, and in code that a command calls.

        Raises:
            RefusedError: ``CALL_FROM_HANDLER``, ``CALL_FROM_WITHIN``.
        """
        self.subscribers.refuse_inside_handler()
        self._group.refuse_within()

    @cached_property
    def _lock_watch(self) -> LockWatch:
        return LockWatch(self._stopwatch, self._limits.max_unit_ms)

    def writability(self) -> Writability:
        """Return whether the realm would accept a write now; see ``Writer.writability``."""
        return writability(self.archive, self._clock, self._lock_watch, self._domain)

    def attempts(self, command: Command, prepare: Prepare | None) -> Iterator[Command]:
        """Yield a command with its preparation, again while the one before did not hold; at last the command alone.

        Args:
            command: what to do.
            prepare: calls the foreign code that the command is going to need; None prepares nothing.

        Raises:
            RefusedError: what the preparation refuses; ``CALL_FROM_WITHIN``.
        """
        if self.observer is not None and command is not recover:
            command = self.observer.command(command)
        left, kind = self._limits.max_preparations, getattr(prepare, "kind", None)
        if left and self._record.leaves_out(kind):
            left = 0
        while prepare is not None and left > 0:
            begin = self._stopwatch()
            prepared = self._group.before(partial(prepare, self))
            if prepared is None:
                break
            taken_ms = (self._stopwatch() - begin) * 1000
            was_fast = taken_ms < FAST_MS * (1 + self._group.preparing)
            prepared.is_repeatable = left > 1 and not was_fast
            yield PreparedCommand(command, prepared, partial(self._note, kind, was_fast))
            left -= 1
        yield command

    def _note(self, kind: Hashable, was_fast: bool, held: bool) -> None:
        self._record.note(kind, in_vain=was_fast and not held)

    def add_recording(self, recording: EffectRecorder) -> None:
        """Prepare the step that follows a result, and leave the result to the next unit of work."""
        task, done, call_ms = recording.task, recording.performed, self._limits.max_call_ms
        try:
            if self._limits.max_preparations and done is not None and not task.looks_up:
                recording.prepared = self._group.before(lambda: prepare_effect_result(self, task, done, call_ms))
        except Exception:  # noqa: BLE001 - the unit that records the result calls the code again, and reports it
            recording.prepared = None
        finally:
            self._backlog.add(recording)

    @cached_property
    def _record(self) -> PreparationRecord:
        """The record of the preparations of this engine."""
        return PreparationRecord()

    @cached_property
    def _reading_clock(self) -> GuardedClock:
        """The clock of reading units; the unit that records a time compares it with its evidence."""
        return GuardedClock(self._clock, Evidence(None, None, None, 0), is_confirmed=True)

    # What a preparation reads (``world.pipeline.preparation.preparing.Reading``)

    def unit(self, *, looks: bool = True) -> UnitOfWork:
        """Return a unit of work that reads the published state; see ``Reading.unit``."""
        realm = self.archive.realm() if looks else self.archive.seen()
        return UnitOfWork(
            realm=cast(RealmState, realm),  # an immutable view has the attributes that are read
            lookup=CommittedLookup(self.archive),
            domain=self._domain,
            authority=self._authority,
            executor=self._executor,
            clock=self._reading_clock,
            ids=self._ids,
            workers=self._workers,
            limits=self._limits,
            types=self._types,
            snapshots=self._snapshots,
            performing=set(),
            at=self._clock.now_ms(),
        )
