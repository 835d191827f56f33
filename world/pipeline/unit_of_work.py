"""One unit of work under the log's lock: commands read the realm, decide, and emit events.

Everything emitted is folded into the realm at once, so the next command of the batch sees it; all of it is committed
together or, when the commit fails, forgotten together with the realm (design section 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar, Unpack

import msgspec

from world.clock import IdSource
from world.core import Domain, recompute
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import KLIS_STREAM, Event
from world.events.codec import record_event
from world.events.execution_events import EffectRequested
from world.events.lease_events import (
    KeyRegistered,
    KeyRevoked,
    LeaseRenewed,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.realm_events import DomainAdopted
from world.events.resource_values import ResourceExistence
from world.events.verification import Verification
from world.klis.lease_manager import LeaseManager
from world.klis.resources.resource import Resource
from world.klis.resources.resource_types import ResourceTypes
from world.klis.session import Session
from world.klis.triple import Triple, changes_files
from world.limits import Limits
from world.model.actor import ActorRef
from world.model.immutable_json import FrozenDict
from world.model.snapshot import Meta, Requirement, Snapshot, System
from world.pipeline.history_sums import PastAt
from world.pipeline.leasing.existence import Base, check_existence, observe
from world.pipeline.preparation.snapshots import SnapshotCache
from world.pipeline.recorded_time import GuardedClock
from world.pipeline.unit_budget import DUE_AT_ONCE, WOKEN_AT_ONCE, UnitBudget
from world.state.access import access_fault
from world.state.ports import (
    Authority,
    BackupService,
    Earlier,
    EffectAttempt,
    ExecutionOrder,
    Executor,
    LookupConditions,
    WorkerRegistry,
)
from world.state.realm_state import RealmState, apply_event

if TYPE_CHECKING:
    from world.pipeline.preparation.prepared import Prepared

E = TypeVar("E", bound=Event)

_IDLE: Final = System()


class Lookup(Protocol):
    """Questions that the realm cannot answer, because they are about what has ended."""

    def proposal_of_intent(self, intent_id: str) -> str | None:
        """Return the proposal that carries an intentId."""

    def attempts(self, intent_key: str) -> int:
        """Return how many proposals carried an intentKey; without the log's lock, as far as was seen."""

    def count(self, before: int, **conditions: Unpack[LookupConditions]) -> int:
        """Count earlier proposals; see ``world.state.ports.History``."""

    def earlier(self, before: int, most: int, **conditions: Unpack[LookupConditions]) -> list[Earlier]:
        """Return the first of the proposals that ``count`` counts, in the order of the log."""

    def inputs(self, found: Sequence[Earlier]) -> list[tuple[str, Any]]:
        """Return the ids of proposals and the inputs of their intents, for some that ``earlier`` found, in its order.

        Raises:
            DamagedLogError: where they cannot be read.
        """

    def world_outcome(self, world_id: str, parent: str | None = None) -> tuple[str, int] | None:
        """Return a world's outcome and height, None when there is no such world.

        Args:
            world_id: the world.
            parent: its parent, if known; this can make a query unnecessary.
        """

    def sealed_at(self, world_id: str) -> int | None:
        """Return the position of the event that sealed a world; None where that is not committed, or there is none."""

    def checked_state(self, world_id: str) -> FrozenDict:
        """Return a world's data after comparing it with the world's snapshotHash.

        Raises:
            DamagedLogError: ``STATE_DAMAGED``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Task:
    """An effect that was requested in this commit and is to be made after it, not before ``not_before`` (ms).

    With ``looks_up`` it is in doubt, and is to be looked up and not made.
    """

    proposal_id: str
    requirement: Requirement
    attempt: int
    order: ExecutionOrder
    call: EffectAttempt = field(default_factory=EffectAttempt)
    not_before: int = 0
    looks_up: bool = False

    @property
    def ref(self) -> EffectRef:
        """Which effect it is."""
        return self.proposal_id, self.requirement.id


Doubt = tuple[str, str, int]
"""An effect in doubt: its proposal, its requirement, and when it was requested, ms since 1970."""

EffectRef = tuple[str, str]
"""An effect: its proposal and its requirement."""

StageObserver = Callable[[Callable[["UnitOfWork", Any], Iterable[Any]], "UnitOfWork", Any], Iterable[Any]]
"""Runs a stage on a unit of work and a step, and returns the steps that it returned (``world.engine.observing``)."""


class Emitted(msgspec.Struct, frozen=True):
    """An event on its way into the log, with its canonical text."""

    stream: str
    event: Event
    state: bytes
    position: int


class UnitOfWork(msgspec.Struct, eq=False):
    """What a command works with; ``at`` is the time recorded in the events it emits, ms since 1970.

    ``budget`` is its time; ``begun`` counts the executions that the unit began or took over, and ``is_unfinished`` says
    that something due was left to the unit after it (``world.pipeline.unit_budget``); ``woken`` counts the requests for
    leases that died and got another verdict. ``prepared`` has what the running
    command took along: the results of foreign code that was called before the lock was taken. ``own`` has the states of
    the worlds that the unit sealed; they cannot be read from storage before the commit. ``is_revoking`` says that
    leases were revoked, so that offered effects may have to be withdrawn. ``unbegun`` has own requests of earlier units
    whose outcome is unknown, and which were not begun. ``looked_up`` has the effects in doubt that this process has
    looked up, ``looking_up`` those that this unit has looked up after its commit. ``verified`` is the verified caller.
    ``observer`` runs stages.
    """

    realm: RealmState
    lookup: Lookup
    domain: Domain
    authority: Authority
    executor: Executor
    clock: GuardedClock
    ids: IdSource
    workers: WorkerRegistry
    limits: Limits
    types: ResourceTypes
    snapshots: SnapshotCache
    performing: set[EffectRef]
    unbegun: list[EffectRequested] = msgspec.field(default_factory=list)
    claimed: set[EffectRef] = msgspec.field(default_factory=set)
    looked_up: set[Doubt] = msgspec.field(default_factory=set)
    looking_up: set[Doubt] = msgspec.field(default_factory=set)
    at: int = 0
    emitted: list[Emitted] = msgspec.field(default_factory=list)
    tasks: list[Task] = msgspec.field(default_factory=list)
    verdicts: list[VerdictGiven | RequestWithdrawn] = msgspec.field(default_factory=list)
    budget: UnitBudget = msgspec.field(default_factory=UnitBudget)
    begun: int = 0
    is_unfinished: bool = False
    woken: int = 0
    prepared: Prepared | None = None
    same_code: DomainAdopted | None = None
    own: dict[str, Snapshot] = msgspec.field(default_factory=dict)
    _desk: LeaseManager | None = None
    is_revoking: bool = False
    verified: Verification | None = None
    observer: StageObserver | None = None

    def emit(self, stream: str, event: Event) -> None:
        """Append an event to the unit and fold it into the realm.

        Raises:
            RefusedError: ``EVENT_TOO_LARGE`` or ``NOT_CANONICAL``; then nothing was emitted.
        """
        if (end := self.budget.end) is not None and self.budget.stopwatch() > end:
            self.budget.check(f"the event {event.TOPIC}")
        event, state = record_event(event)
        if len(state) > self.limits.max_event_bytes:
            raise RefusedError(
                ErrorCode.EVENT_TOO_LARGE,
                f"{event.TOPIC} would have {len(state)} bytes; the limit is {self.limits.max_event_bytes}. "
                "Send less at once, or raise the limit max_event_bytes.",
                size_bytes=len(state),
                limit_bytes=self.limits.max_event_bytes,
            )
        position, folded = self.realm.position + 1, self.realm.klis_version
        apply_event(self.realm, event, position)
        self.realm.klis_own += self.realm.klis_version - folded
        self.emitted.append(Emitted(stream, event, state, position))

    def of_caller(self, event: E) -> E:
        """Return an event with the verification of the running command's caller.

        Raises:
            RefusedError: ``NOT_THE_VERIFIED_ACTOR``, ``RIGHT_MISSING``, ``TOKEN_NOT_VALID``.
        """
        if self.verified is None:
            return event
        event = msgspec.structs.replace(event, verified=self.verified)
        fault = access_fault(self.realm, event)
        if fault is not None:
            raise RefusedError(fault.code, fault.message)
        return event

    def desk(self, *, of_caller: bool = False) -> LeaseManager:
        """Return the lease manager of the realm; its verdicts are also put into ``verdicts``.

        Args:
            of_caller: record the verification of the caller with the events that the caller causes.
        """
        if of_caller:
            return self._new_desk(self._emit_of_caller)
        if self._desk is None or self._desk.ledger is not self.realm.klis:
            self._desk = self._new_desk(self._emit_klis)
        return self._desk

    def _new_desk(self, emit: Callable[[Event], None]) -> LeaseManager:
        return LeaseManager(
            self.realm.klis,
            emit=emit,
            new_id=self.ids.new_id,
            before_grant=self._back_up,
            existing=self._existing,
            now=self._later,
            check=self._may_wake,
        )

    def _may_wake(self, what: str) -> bool:
        """Return whether one more request that died may get a verdict in this unit; the others are left to the next."""
        self.budget.check(what)
        self.is_unfinished |= self.woken >= WOKEN_AT_ONCE
        return self.woken < WOKEN_AT_ONCE

    def end(self) -> None:
        """Drop the lease desk, which refers to this unit; so both are freed without the garbage collector."""
        self._desk = None

    def own_requests(self) -> list[EffectRequested]:
        """Return the requests of this unit of effects that this process makes after the commit."""
        asked = [one.event for one in self.emitted if isinstance(one.event, EffectRequested)]
        return [one for one in asked if (one.proposal_id, one.requirement.id) in self.claimed]

    def begins(self) -> bool:
        """Return whether one more execution may begin in this unit; the others are left to the next one."""
        is_due = self.begun and self.budget.end is None  # a command's own execution is measured with the command
        if self.begun >= DUE_AT_ONCE or (is_due and self.budget.stopwatch() > self.budget.unit_end):
            self.is_unfinished = True
            return False
        self.begun += 1
        return True

    @property
    def keeper(self) -> BackupService | None:
        """The backups of the realm's workspace; None where this process has another workspace, or none."""
        keeper, registered = self.executor.keeper, self.realm.workspace
        if keeper is None or registered is None or keeper.workspace_id == registered.workspace_id:
            return keeper
        return None

    def _back_up(self, verdict_id: str, session: Session, triples: tuple[Triple, ...], now: int) -> bool | str:
        """Back up what leases let their holder change, before they are granted (KO-7).

        Raises:
            RefusedError: ``WORKSPACE_ELSEWHERE`` where another process has the workspace; what ``take`` refuses.
        """
        keeper = self.keeper
        if keeper is None and self.realm.workspace is not None and changes_files(triples):
            workspace_id = self.realm.workspace.workspace_id
            raise RefusedError(
                ErrorCode.WORKSPACE_ELSEWHERE,
                f"Files are backed up before these leases are granted, and the realm's workspace {workspace_id} is not "
                "here: request them in a process that has it.",
                workspace=workspace_id,
            )
        if keeper is None or not keeper.needs(triples):
            return False
        note = {"agentId": session.agent_id, "sessionId": session.session_id}
        return keeper.take(verdict_id, triples, at=now, note=note) and (keeper.workspace_id or True)

    def _existing(self, session: Session, triples: tuple[Triple, ...]) -> list[ResourceExistence]:
        """Check that what leases depend on exists, before they are granted (KLIS-1 section 3)."""
        proposal = self.realm.proposals.get(session.session_id)
        base = None if proposal is None else Base(proposal.branch, proposal.submitted.base_world)
        existence = self.existence(triples, session.session_id, base, before="grant")
        check_existence(existence)
        return existence

    def existence(
        self, triples: Sequence[Triple], session_id: str, base: Base | None, *, before: Literal["grant", "execution"]
    ) -> list[ResourceExistence]:
        """Return whether what claims depend on exists; see ``world.pipeline.leasing.existence.observe``.

        Args:
            triples: what is leased.
            session_id: for whom.
            base: the world to look at for one branch; None is its head.
            before: what the check comes before.
        """
        keeper = self.keeper

        def file_exists(resource: Resource) -> bool | None:
            return None if keeper is None else keeper.exists(resource, session_id=session_id, before=before)

        return observe(triples, head_of=self.head_of, data_of=self.data, base=base, file_exists=file_exists)

    def head_of(self, branch: str) -> str | None:
        """Return the id of the head of a branch, None where there is no such branch."""
        known = self.realm.branches.get(branch)
        return None if known is None else known.head

    def data(self, world_id: str) -> FrozenDict:
        """Return the data of a sealed world.

        Raises:
            DamagedLogError: ``STATE_DAMAGED``.
        """
        known = self.own.get(world_id) or self.snapshots.get(world_id)
        return self.lookup.checked_state(world_id) if known is None else known.data

    def _later(self) -> int:
        """Read the clock again, for what is recorded from now on.

        Raises:
            RefusedError: ``CLOCK_AHEAD``.
        """
        self.at = max(self.at, self.clock.now_ms())
        return self.klis_now

    @property
    def klis_now(self) -> int:
        """The time for the lease desk, ms: a wall clock that stepped back shortens nothing (design section 7)."""
        return max(self.at, self.realm.klis.clock)

    def _emit_of_caller(self, event: Event) -> None:
        """Emit an event of a lease command; those of expired leases and queued requests are not the caller's."""
        is_own = isinstance(event, LeaseRenewed | LeasesReleased | LeasesRevoked | KeyRegistered | KeyRevoked)
        is_own |= isinstance(event, VerdictGiven) and event.cause == "request"
        if is_own or (isinstance(event, RequestWithdrawn) and event.reason == "cancelled"):
            event = self.of_caller(event)
        self._emit_klis(event)

    def _emit_klis(self, event: Event) -> None:
        self.emit(KLIS_STREAM, event)
        if isinstance(event, VerdictGiven | RequestWithdrawn):
            self.verdicts.append(event)
            if isinstance(event, VerdictGiven) and event.cause == "wake":
                self.woken += 1
        elif isinstance(event, LeasesRevoked):
            self.is_revoking = True

    def attempt(self, step: Callable[[], object]) -> RefusedError | None:
        """Take a step for one proposal among many; return why it was refused, where it was before it changed anything.

        What one proposal cannot do must not hit the others that share the commit.
        """
        before = len(self.emitted)
        try:
            step()
        except RefusedError as refused:
            if len(self.emitted) != before:
                raise
            return refused
        return None

    def snapshot(self, world_id: str) -> Snapshot:
        """Return the state of a sealed world as a base to compute on; its ``meta.version`` is its height."""
        known = self.own.get(world_id) or self.snapshots.get(world_id)
        if known is None:
            self.budget.check(f"the state of world {world_id}")
            outcome = self.lookup.world_outcome(world_id)
            data = self.lookup.checked_state(world_id)
            computed = self.limits.in_time(lambda: recompute(self.domain, data))
            known = self._snapshot(data, computed, 0 if outcome is None else outcome[1])
            self.snapshots.keep(world_id, known)
        return known

    def keep(self, world_id: str, data: FrozenDict, computed: FrozenDict, height: int) -> Snapshot:
        """Keep the state of a world that this unit seals, and return it as a base to compute on."""
        base = self._snapshot(data, computed, height)
        self.own[world_id] = base
        self.snapshots.keep(world_id, base)
        return base

    def _snapshot(self, data: FrozenDict, computed: FrozenDict, height: int) -> Snapshot:
        return Snapshot(data, computed, _IDLE, None, Meta(height, 0, "", self.domain.schema.hash))

    def history(self, own: str) -> PastAt:
        """Return the history before the next event, without the proposal that is being judged."""
        return PastAt(self.lookup, self.realm.position + 1, own)

    def require_actor(self, actor_id: str) -> ActorRef:
        """Return a registered actor.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``.
        """
        actor = self.realm.actors.get(actor_id)
        if actor is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR,
                f"The actor {actor_id!r} is not registered; register and bind it first (`worldctl actor`).",
                actor_id=actor_id,
            )
        return actor
