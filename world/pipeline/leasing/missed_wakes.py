"""Detection of missed wakes: verdicts that a pass left out although nothing was in the way any more.

A pass begins with events that free something: leases that end, and requests that leave the queue. Verdicts on what they
blocked follow, in the same unit. A unit is committed as a whole, so no crash separates a wake from what caused it, and
a pass that ended without a verdict that was due is a fault of the writer or of the record. Rules:

- A pass ends before the first event of another kind or unit, and at the end of the log. Events of the lease stream
  that have one time are taken for one unit; only the backup before a grant takes time.
- Where a pass ends, ``world.klis.lease_manager`` judges again what was freed, as the engine did. It finds nothing to
  record, or the pass was incomplete; then the pass is repeated on a copy of the ledger, which shows what is missing.
- What a unit left to the next one (``WOKEN_AT_ONCE``) is due in the next one. A log may end before.
- A grant that needs a backup may be left to a process that has the realm's workspace. It is due in a pass in which a
  backup was made, and before the next grant with a backup that the engine requested for a proposal.
- Before ``wake_rules`` 2 no verdict is expected.

Source: LIVE-wake; decision 14.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from msgspec import Struct

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import (
    ClockConfirmed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.klis.conflict import clash
from world.klis.lease_manager import LeaseManager
from world.klis.ledger import KLIS_EVENTS, Ledger
from world.klis.session import Session
from world.klis.triple import Triple, changes_files
from world.pipeline.unit_budget import WOKEN_AT_ONCE
from world.state.realm_state import RealmState

__all__ = ["MissedWake", "WakeCheck"]

_LEASES_END: Final = frozenset({LeasesExpired, LeasesReleased, LeasesRevoked})
_OF_A_PASS: Final = _LEASES_END | {RequestWithdrawn, VerdictGiven}


class _Freed(Struct, frozen=True):
    """A triple of a lease that ended, or of a request that left the queue; ``name`` is the id of either."""

    triple: Triple
    name: str
    topic: str
    position: int


class MissedWake(Struct, frozen=True):
    """A verdict that is missing.

    Args:
        missing: the event that was due, as it would be recorded.
        position: the event that freed what the request waited for or died of.
        topic: its topic.
        freed: ids of the leases, or of the queued requests, that it ended.
    """

    missing: VerdictGiven | RequestWithdrawn
    position: int
    topic: str
    freed: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return the finding as a sentence."""
        due = "withdrawal" if isinstance(self.missing, RequestWithdrawn) else f"verdict {self.missing.status}"
        return (
            f"Request {self.missing.request_id} waits for what is free: {self.topic} at event {self.position} ended "
            f"{', '.join(self.freed)}, and the {due} on the request was due in the same pass."
        )


class _Incomplete(Exception):
    """A pass would record an event."""


class WakeCheck:
    """Finds missed wakes; takes every event of a log before it is folded.

    Args:
        realm: the state before each event, which the caller folds.
    """

    def __init__(self, realm: RealmState) -> None:
        self._realm = realm
        self._freed: list[_Freed] = []  # by the pass that has not ended
        self._left: list[_Freed] = []  # by passes that left something to the next unit
        self._elsewhere: list[_Freed] = []  # by passes that left something to a process with the workspace
        self._found: set[str] = set()  # requests that were reported and got no verdict since
        self._at = 0  # time of the unit
        self._woken = 0  # requests that the unit woke
        self._has_given = False  # whether a verdict of the pass was given
        self._has_workspace = False  # whether the pass made a backup
        self._leaves = self._leaves_elsewhere = False

    def take(self, event: Event, position: int) -> list[MissedWake]:
        """Return what the pass that ends before an event left out.

        Args:
            event: the next event, not folded yet.
            position: its position in the log.
        """
        kind = type(event)
        if kind not in KLIS_EVENTS:
            self._has_given = False
            return self.end() if self._freed else []
        is_backup = isinstance(event, VerdictGiven) and event.backup
        is_new = event.at != self._at and not is_backup
        missed = self.end() if self._freed and (is_new or not self._continues(event)) else []
        if is_new:
            self._woken, self._has_given = 0, False
        if not self._freed and not is_backup:  # another process may have written what follows
            self._has_workspace = False
        self._at = event.at
        if kind is ClockConfirmed:  # it comes before everything that is due
            return missed
        if is_new and self._left and kind in _OF_A_PASS:
            self._freed, self._left = self._left, []
        if isinstance(event, VerdictGiven):
            missed += self._verdict(event, position)
        elif isinstance(event, RequestWithdrawn):
            self._leave(event, position)
        elif isinstance(event, LeasesExpired | LeasesReleased | LeasesRevoked):
            self._ended(event, position)
        elif self._freed:
            missed += self.end()
        return missed

    def end(self) -> list[MissedWake]:
        """Return what the last pass left out; also called after the last event of a log."""
        freed, self._freed, self._has_given = self._freed, [], False
        ledger = self._realm.klis
        if not freed or ledger.in_force.wake_rules < 2 or not (ledger.requests or ledger.refused):
            return []
        self._leaves = self._leaves_elsewhere = False
        missed: list[MissedWake] = []
        try:
            self._manager(ledger, _refuse).judge_again([one.triple for one in freed], ledger.clock)
        except _Incomplete:
            missed = list(self._missed(ledger, freed))
        if self._leaves:
            self._left += freed
        if self._leaves_elsewhere:
            self._elsewhere += freed
        return missed

    def _continues(self, event: Event) -> bool:
        """Return whether an event of the same unit may belong to the pass that has not ended."""
        if type(event) in _LEASES_END:
            return not self._has_given
        return isinstance(event, RequestWithdrawn) or (isinstance(event, VerdictGiven) and event.cause != "request")

    def _verdict(self, event: VerdictGiven, position: int) -> list[MissedWake]:
        missed: list[MissedWake] = []
        if event.backup:
            self._has_workspace = True
            if self._elsewhere and (event.cause != "request" or (event.channel or {}).get("kind") == "engine"):
                self._realm.klis.refusals.free(one.triple for one in self._elsewhere)
                self._freed, self._elsewhere = self._elsewhere + self._freed, []
        if event.cause == "request":
            missed, self._has_given = self.end() if self._freed else [], False
        else:
            self._has_given = True
            self._woken += event.cause == "wake"
        self._leave(event, position)
        return missed

    def _leave(self, event: VerdictGiven | RequestWithdrawn, position: int) -> None:
        """Note what a request frees that leaves the queue."""
        self._found.discard(event.request_id)
        request = self._realm.klis.requests.get(event.request_id)
        if request is not None:
            self._freed += [_Freed(one, event.request_id, event.TOPIC, position) for one in request.triples]

    def _ended(self, event: LeasesExpired | LeasesReleased | LeasesRevoked, position: int) -> None:
        ledger = self._realm.klis
        if ledger.requests or ledger.refused:
            leases = [ledger.leases[name] for name in event.lease_ids if name in ledger.leases]
            self._freed += [_Freed(one.triple, one.lease_id, event.TOPIC, position) for one in leases]

    def _manager(self, ledger: Ledger, emit: Callable[[Event], None]) -> LeaseManager:
        ids = count(1)
        return LeaseManager(
            ledger,
            emit=emit,
            new_id=lambda: f"missing-{next(ids)}",
            before_grant=self._before_grant,
            check=self._may_wake,
        )

    def _may_wake(self, _: str) -> bool:
        self._leaves |= self._woken >= WOKEN_AT_ONCE
        return self._woken < WOKEN_AT_ONCE

    def _before_grant(self, _verdict_id: str, _session: Session, triples: tuple[Triple, ...], _now: int) -> bool:
        if self._realm.workspace is not None and not self._has_workspace and changes_files(triples):
            self._leaves_elsewhere = True
            raise RefusedError(ErrorCode.WORKSPACE_ELSEWHERE, "The writer may have had another workspace, or none.")
        return False

    def _missed(self, ledger: Ledger, freed: list[_Freed]) -> Iterator[MissedWake]:
        """Repeat a pass on a copy of the ledger, and yield what is missing and was not reported before."""
        twin, due = ledger.copy(), list[Any]()

        def emit(event: Event) -> None:
            twin.fold(event)
            due.append(event)

        self._manager(twin, emit).judge_again((), ledger.clock, also=list(twin.requests))
        goes = [event for event in due if not isinstance(event, VerdictGiven) or event.status != "Die"] or due
        for event in goes:
            if event.request_id not in self._found:
                self._found.add(event.request_id)
                yield _missed(event, _triples_of(ledger, event.request_id), freed)


def _refuse(_: Event) -> None:
    raise _Incomplete


def _triples_of(ledger: Ledger, request_id: str) -> tuple[Triple, ...]:
    request = ledger.requests.get(request_id) or ledger.refused.get(request_id)
    return () if request is None else request.triples


def _missed(event: VerdictGiven | RequestWithdrawn, wanted: tuple[Triple, ...], freed: list[_Freed]) -> MissedWake:
    """Return a finding with the first event that freed what a request wants, or began the pass."""
    near = [one for one in freed if any(clash(one.triple, triple) for triple in wanted)] or freed
    first = near[0]
    names = dict.fromkeys(one.name for one in near if one.position == first.position)
    return MissedWake(event, first.position, first.topic, tuple(names))
