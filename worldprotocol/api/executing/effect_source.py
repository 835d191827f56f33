"""Where a worker claims effects and reports results: a realm in this process, or a server (``remote_effects``)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Protocol

from host import EffectRegistry
from world.errors import LogBusyError, WorldProtocolError
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from world.state.proposal import Proposal
from world.state.realm_view import RealmView
from worldprotocol.api.executing.workspaces import take_up_workspace
from worldprotocol.api.realm import Realm
from worldprotocol.api.waiting.readiness import WriteProbe

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import Components, EventLog

__all__ = ["EffectSource", "RealmSource", "WhyOver"]

WhyOver = Callable[[], tuple[str, str] | None]
"""Returns why an effect is not wanted any more, as code and sentence; None while it is."""

POLL_MS: Final = 200
"""Interval, in ms, at which a waiting worker looks whether other processes have extended the log."""

SETTLE_S: Final = 1.0
"""Seconds between two attempts at doing what is due, at least."""

LONGEST_WAIT_S: Final = 60.0
"""Seconds after which a waiting worker looks again, whatever the log says."""


class EffectSource(Protocol):
    """What a worker needs: claims, reports, and how effects are performed."""

    @property
    def effects(self) -> EffectRegistry:
        """The handlers of this process."""
        ...

    def begin(self, worker: str) -> list[str]:
        """Prepare for a worker, and return the ids of the workspaces that it has."""
        ...

    def claim(
        self, types: Collection[str], *, worker: str, workspaces: Collection[str], once: bool
    ) -> EffectClaim | None:
        """Claim an effect; None where none is offered. It may wait for one unless ``once``.

        Raises:
            WorldProtocolError: ``LOG_BUSY``, ``LOG_UNAVAILABLE`` and others; it is not known now, and the worker asks
                again (``worldprotocol.api.waiting.outages``).
        """
        ...

    def perform(self, claim: EffectClaim, why_over: WhyOver) -> Performed:
        """Perform a claimed effect with the handler of this process."""
        ...

    def heartbeat(self, claim: EffectClaim) -> EffectClaim:
        """Extend a claim; see ``Realm.heartbeat_effect``."""
        ...

    def complete(self, claim: EffectClaim, performed: Performed) -> bool:
        """Report a result; see ``Realm.complete_effect``. Return whether the effect is offered again after it."""
        ...

    def check_writable(self, *, once: bool) -> None:
        """Check that claims and results can be recorded, before the first claim.

        Args:
            once: whether the worker ends where that cannot be found out now.

        Raises:
            WorldProtocolError: what a claim would be refused with.
        """
        ...

    def now_ms(self) -> int:
        """Return the time with which deadlines of claims are compared, ms since 1970."""
        ...

    def watching(self, wake: Callable[[], None]) -> AbstractContextManager[None]:
        """Call ``wake`` whenever another effect may be offered, until the end of the context."""
        ...

    def settle(self, *, at_once: bool) -> None:
        """Do what is due; once a second at most, unless ``at_once``."""
        ...

    def next_retry(self, types: Collection[str], now: int) -> int | None:
        """Return when an effect that failed may be claimed again by this worker, ms since 1970; None without one.

        Args:
            types: the types of effects that the worker performs.
            now: ms since 1970; only later times count.
        """
        ...

    def pause_s(self, retry: int | None, now: int) -> float:
        """Return the longest time, in seconds, until the worker asks for an effect again.

        Args:
            retry: what ``next_retry`` returned.
            now: ms since 1970.
        """
        ...


class RealmSource:
    """The effects of a realm that is open in this process.

    Args:
        realm: open for acting, with the handlers; with ``execute=False``, so that it performs nothing else.

    Raises:
        RefusedError: ``LOG_READ_ONLY``.
    """

    def __init__(self, realm: Realm) -> None:
        """Use the writer of the realm."""
        self._realm = realm
        self._acting = realm._acting
        self._probe = WriteProbe(self._acting.writability)
        self._worker = ""
        self._workspaces: list[str] = []
        self._watched: EventLog | None = None
        self._watch: Callable[[EventLog], object] = lambda log: None
        self._settled = 0.0
        self._looked = -1
        self._looked_up: set[tuple[str, str, int]] = set()

    @property
    def _parts(self) -> Components:
        return self._realm._composed  # those of its place

    @property
    def effects(self) -> EffectRegistry:
        """The handlers of this process."""
        return self._parts.executor.effects

    def begin(self, worker: str) -> list[str]:
        """Take up the workspace of the process, and return its id; look effects in doubt up from now on.

        Raises:
            RefusedError: ``OTHER_WORKSPACE``, ``WORKSPACE_COPIED`` where it is not the realm's.
        """
        self._worker = worker
        self._parts.executor.looks_up = True  # although it may perform nothing but what is claimed
        take_up_workspace(self._acting, self._parts, by=worker, executes=True)
        environment = self._parts.executor.environment
        self._workspaces = [] if environment is None or environment.workspace_id is None else [environment.workspace_id]
        return self._workspaces

    def claim(
        self, types: Collection[str], *, worker: str, workspaces: Collection[str], once: bool
    ) -> EffectClaim | None:
        """Claim an effect; it does not wait, because ``watching`` wakes the worker."""
        return self._realm.claim_effect(types, worker=worker, workspaces=workspaces)

    def perform(self, claim: EffectClaim, why_over: WhyOver) -> Performed:
        """Perform a claimed effect.

        Raises:
            RefusedError: ``CLAIM_LOST`` where its proposal has ended.
        """
        order, attempt = self._realm.claimed_order(claim)
        in_log = attempt.why_over
        attempt = replace(attempt, why_over=lambda: why_over() or in_log())
        return self._parts.performer.perform(order, claim.requirement, attempt)

    def heartbeat(self, claim: EffectClaim) -> EffectClaim:
        """Extend a claim; see ``Realm.heartbeat_effect``."""
        return self._realm.heartbeat_effect(claim)

    def complete(self, claim: EffectClaim, performed: Performed) -> bool:
        """Report a result; see ``Realm.complete_effect``. Return whether the effect is offered again after it."""
        return _is_retried(self._realm.complete_effect(claim, performed), claim)

    def check_writable(self, *, once: bool) -> None:
        """Check that the realm would accept a write; see ``EffectSource.check_writable``."""
        if (obstacle := self._probe.answer().obstacle) is not None:
            raise obstacle

    def now_ms(self) -> int:
        """Return the time of the log, ms since 1970."""
        return self._acting.now_ms()

    @contextmanager
    def watching(self, wake: Callable[[], None]) -> Iterator[None]:
        """Call ``wake`` whenever the log grows, after a move at its new place."""
        with ExitStack() as watches:

            def watch(log: EventLog) -> None:
                watches.close()
                watches.enter_context(_watched(log, wake))

            self._watch = watch
            self._watch_here()
            yield

    def _watch_here(self) -> None:
        """Watch the log where the realm is, and take up the workspace there after a move."""
        log = self._acting.archive.log
        if log is not self._watched:
            if self._watched is not None:
                self.begin(self._worker)
            self._watched = log
            self._watch(log)

    def settle(self, *, at_once: bool) -> None:
        """Do what is due, where a time limit has passed or another process left something; follow a move.

        Raises:
            RefusedError: ``LOG_FENCED`` where the log was closed to writers, and no directory names its next place.
        """
        if self._acting.archive.peek(_is_closed):
            self._acting.settle()
        self._watch_here()
        now = time.monotonic()
        if (not at_once and now - self._settled < SETTLE_S) or not self._acting.archive.peek(self._is_due):
            return
        self._settled = now
        with suppress(LogBusyError):
            doubts = self._acting.archive.peek(self._doubts)
            self._acting.settle()
            self._looked, self._looked_up = self._acting.archive.peek(lambda realm: realm.position), doubts

    def _is_due(self, realm: RealmView) -> bool:
        due = realm.next_due()
        if due is not None and due <= self._acting.now_ms():
            return True
        if realm.position == self._looked:
            return False  # what is left then is not for this process
        left = any(self._is_left(realm, one) for one in realm.proposals.values())
        return left or not self._doubts(realm) <= self._looked_up

    def _doubts(self, realm: RealmView) -> set[tuple[str, str, int]]:
        """Return the effects in doubt that the handlers of this process can look up."""
        terms = self._parts.executor.terms
        return {
            (proposal.proposal_id, name, asked.at)
            for proposal in realm.proposals.values()
            for name, asked in proposal.in_doubt.items()
            if terms(asked.requirement.type, asked.requirement.params).looks_up
        }

    def _is_left(self, realm: RealmView, proposal: Proposal) -> bool:
        """Return whether a proposal waits for a process with a handler or a workspace."""
        if proposal.held is not None and proposal.held.cause == "workspace":
            return proposal.held.in_force in self._workspaces
        if proposal.status == "executing":
            return not proposal.requested and not proposal.in_doubt
        key = proposal.submitted.execution_key
        return proposal.status == "approved" and key not in realm.running

    def next_retry(self, types: Collection[str], now: int) -> int | None:
        """Return when an effect that failed may be claimed again; see ``EffectSource.next_retry``."""
        later = (one for one in self._realm.offered_effects() if one.state == "offered" and one.claimable_from > now)
        mine = (one for one in later if one.effect in types and one.workspace in (None, *self._workspaces))
        return min((one.claimable_from for one in mine), default=None)

    def pause_s(self, retry: int | None, now: int) -> float:
        """Return how long to wait for the log to grow: until the next time limit or the next retry at most."""
        if self._acting.archive.peek(self._is_due):
            return SETTLE_S
        times = (self._acting.archive.peek(RealmView.next_due), retry)
        left = min((max(0.0, (at - now) / 1000) for at in times if at is not None), default=LONGEST_WAIT_S)
        return max(POLL_MS / 1000, min(LONGEST_WAIT_S, left))


def _is_retried(proposal: Proposal, claim: EffectClaim) -> bool:
    """Return whether the effect is offered again after the failure that was reported under a claim."""
    failure = proposal.failures.get(claim.requirement.id)
    return failure is not None and failure.claim is not None and failure.claim.token == claim.token


def _is_closed(realm: RealmView) -> bool:
    return realm.writer.closed is not None


@contextmanager
def _watched(log: EventLog, wake: Callable[[], None]) -> Iterator[None]:
    """Call ``wake`` whenever a log grows, in a thread."""
    follower, ended = log.follow(log.head().size, poll_ms=POLL_MS), threading.Event()
    arguments = (follower, ended, wake)
    watching = threading.Thread(target=_watch, args=arguments, name="worldprotocol-worker-log", daemon=True)
    watching.start()
    try:
        yield
    finally:
        ended.set()
        follower.stop()
        watching.join()  # it reads the log, which the caller may close then


def _watch(follower: Iterable[object], ended: threading.Event, wake: Callable[[], None]) -> None:
    """Wake a worker whenever the log grows, and when it cannot be read: the next command says why."""
    while not ended.is_set():
        try:
            for _ in follower:
                wake()
        except WorldProtocolError:
            wake()
            ended.wait(SETTLE_S)
