"""Workers: claim the offered effects of a realm, perform them with the handlers of this process, report the results.

Any number of workers may work on a realm, in any number of processes. Each effect is claimed by one of them; a claim
whose worker does not report in time lapses (``worldprotocol.api.executing.external_effects``). ::

    with Realm.open("shop.db", domain=shop, effects=[send_mail], execute=False) as realm:
        Worker(realm).run()

A worker also does what is due in the realm: it continues executions that other processes left to one with the handler
or the workspace, and waits for the ends of time limits.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.model.new_names import check_new_id
from world.model.record import WireForm
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from world.state.proposal import ROLLBACK
from worldprotocol.api.executing.claim_keeper import ClaimKeeper
from worldprotocol.api.executing.effect_source import EffectSource, RealmSource
from worldprotocol.api.executing.external_effects import check_names
from worldprotocol.api.realm import Realm
from worldprotocol.api.waiting.outages import Outage, ends_by_itself

__all__ = ["Worker", "WorkerReport", "WorkerSummary", "perform_offered"]

MAX_CONCURRENCY: Final = 256
"""Effects that one worker performs at the same time, at most."""

STOPPED: Final = ("NOT_WANTED", "The worker was stopped.")

Kind = Literal["claimed", "completed", "failed", "retried", "lost", "given_up"]
"""What happened to an effect.

``failed`` is an error as result, ``retried`` an error after which the effect is offered again, ``lost`` a claim that
did not hold any more.
"""


@dataclass(frozen=True, slots=True)
class WorkerReport(WireForm):
    """What a worker did with one effect.

    Args:
        kind: what happened.
        claim: the effect.
        seconds: how long it was performed.
        code: the error's code; None for a success.
        message: the error's sentence.
    """

    kind: Kind
    claim: EffectClaim
    seconds: float = 0.0
    code: str | None = None
    message: str | None = None
    WIRE: ClassVar = (
        "what=kind effect=claim.requirement.type proposalId=claim.proposal_id requirementId=claim.requirement.id "
        "idempotencyKey=claim.idempotency_key token=claim.token attempt=claim.attempt worker=claim.worker "
        "seconds=performed? error?"
    )

    @property
    def performed(self) -> float | None:
        """How long it was performed, rounded; None where it only begins."""
        return None if self.kind == "claimed" else round(self.seconds, 3)

    @property
    def error(self) -> dict[str, Any] | None:
        """Code and sentence of the error; None for a success."""
        return None if self.code is None else {"code": self.code, "message": self.message}


@dataclass(slots=True)
class WorkerSummary:
    """How many effects a worker completed, failed, lost and gave up; one that is retried is counted at its end.

    Args:
        completed: effects with a result.
        failed: effects with an error as result.
        lost: effects whose claim did not hold any more.
        given_up: claims of effects that were under way when the worker was ordered to give up.
    """

    completed: int = 0
    failed: int = 0
    lost: int = 0
    given_up: list[EffectClaim] = field(default_factory=list)


class Worker:
    """Performs the offered effects of a realm; ``run`` may be called once."""

    def __init__(
        self,
        realm: Realm | EffectSource,
        *,
        types: Iterable[str] | None = None,
        concurrency: int = 1,
        name: str | None = None,
        on_report: Callable[[WorkerReport], None] | None = None,
    ) -> None:
        """Check what the worker needs; nothing is claimed yet.

        Args:
            realm: open for acting, with the handlers; with ``execute=False``, so that it performs nothing else. Or a
                server that has the realm (``worldprotocol.api.executing.remote_effects``).
            types: the types of effects to perform; None is every type that has a handler.
            concurrency: how many effects to perform at the same time.
            name: of the worker, recorded with its claims; None is made of host and process id.
            on_report: called after each step of an effect, from the thread that performs it.

        Raises:
            RefusedError: ``NO_HANDLER`` for a type without a handler here; ``INVALID_VALUE`` for the concurrency,
                ``INVALID_ID`` for the name; ``LOG_READ_ONLY``; ``OTHER_WORKSPACE``, ``WORKSPACE_COPIED`` where the
                workspace of the process is not the realm's.
        """
        source = self._source = RealmSource(realm) if isinstance(realm, Realm) else realm
        known = [one.type for one in source.effects if not one.terms.external]
        check_names("types", types)
        wanted = known if types is None else list(dict.fromkeys(types))
        _check_types(wanted, known)
        if not 1 <= concurrency <= MAX_CONCURRENCY:
            raise RefusedError(
                ErrorCode.INVALID_VALUE, f"The concurrency is {concurrency}; give 1 to {MAX_CONCURRENCY}."
            )
        self.name = name if name is not None else f"{socket.gethostname()}:{os.getpid()}"
        check_new_id("worker", self.name)
        self._workspaces = source.begin(self.name)
        self._types = [*wanted, *([ROLLBACK] if self._workspaces else [])]
        self._concurrency = concurrency
        self._on_report = on_report or (lambda _report: None)
        self._wake = threading.Event()
        self._draining = threading.Event()
        self._giving_up = threading.Event()
        self._outage = Outage(self._draining, f"The claim of worker {self.name}")
        self._under_way: dict[str, EffectClaim] = {}
        self._lock = threading.Lock()
        self._unreported: Exception | None = None
        self.summary = WorkerSummary()

    @property
    def types(self) -> Collection[str]:
        """The types of effects that are claimed."""
        return tuple(self._types)

    @property
    def workspaces(self) -> Collection[str]:
        """Ids of the workspaces that this worker has."""
        return tuple(self._workspaces)

    @property
    def under_way(self) -> Collection[EffectClaim]:
        """Claims of the effects that are being performed."""
        with self._lock:
            return tuple(self._under_way.values())

    def stop(self) -> None:
        """Claim nothing any more; ``run`` returns when what is under way has ended."""
        self._draining.set()
        self._wake.set()

    def give_up(self) -> None:
        """Claim nothing any more, and give up what is under way; ``run`` returns at once.

        No result is reported for it: its claims lapse, and what is idempotent is offered again; the rest is in doubt.
        """
        self._giving_up.set()
        self.stop()

    def run(self, *, once: bool = False) -> WorkerSummary:
        """Claim and perform effects until the worker is stopped.

        While the log is busy, its storage full, or its server away, the worker retries, with growing pauses.

        Args:
            once: return when nothing that this worker performs is offered any more; what is offered again after a
                failure is waited for, and so is a log that is busy, but no server that is away.

        Returns:
            What was done.

        Raises:
            RefusedError: ``LOG_CLOSED``, ``LOG_MOVED`` and the like, after what is under way has ended and its
                results were reported, as far as its claims hold. Of a server: ``SIGN_IN_REQUIRED``,
                ``TOKEN_NOT_VALID``, ``RIGHT_MISSING``, ``UNKNOWN_REALM``, and ``INVALID_ADDRESS`` for an answer that
                is not of a server of realms.
            KeyboardInterrupt: in the main thread, after what is under way was given up.
            Exception: what ``on_report`` raised first, after what is under way has ended.
        """
        with ExitStack() as stack:
            pool = stack.enter_context(ThreadPoolExecutor(self._concurrency, thread_name_prefix="worldprotocol-worker"))
            stack.enter_context(self._source.watching(self._wake.set))
            try:
                self._work(pool, once=once)
            except Exception:
                self.stop()
                raise
            except BaseException:
                self.give_up()
                raise
        if self._unreported is not None:
            raise self._unreported
        return self.summary

    def _work(self, pool: ThreadPoolExecutor, *, once: bool) -> None:
        is_checked = False
        while not self._draining.is_set():
            try:
                if not is_checked:
                    self._source.check_writable(once=once)
                    is_checked = True
                is_done = self._turn(pool, once=once)
            except WorldProtocolError as error:
                if not ends_by_itself(error) or (once and not isinstance(error, LogBusyError)):
                    raise
                self._outage.wait(error)
                continue
            self._outage.over()
            if is_done:
                return

    def _turn(self, pool: ThreadPoolExecutor, *, once: bool) -> bool:
        """Claim an effect, or wait for one; return whether a worker that works ``once`` is done."""
        self._wake.clear()
        self._source.settle(at_once=once)
        if len(self.under_way) < self._concurrency and self._start(pool, once=once):
            return False
        now = self._source.now_ms()
        if once and not self.under_way and not self._start(pool, once=once) and self._next_retry(now) is None:
            return True
        self._wake.wait(self._source.pause_s(self._next_retry(now), now))
        return False

    def _start(self, pool: ThreadPoolExecutor, *, once: bool) -> bool:
        """Claim an effect and have a thread perform it; return False where none is offered, or the worker stops."""
        if self._draining.is_set():  # seen here also where a report raised since the turn began
            return False
        claim = self._source.claim(self._types, worker=self.name, workspaces=self._workspaces, once=once)
        if claim is None:
            return False
        with self._lock:
            self._under_way[claim.claim_id] = claim
        pool.submit(self._perform, claim)
        return True

    def _next_retry(self, now: int) -> int | None:
        """Return when an effect that failed may be claimed again by this worker, ms since 1970; None without one."""
        return self._source.next_retry(self._types, now)

    def _perform(self, claim: EffectClaim) -> None:
        """Perform a claimed effect and report its result."""
        began = time.monotonic()
        self._say(WorkerReport("claimed", claim))
        try:
            kind, code, message = self._performed(claim)
        except Exception as error:  # noqa: BLE001 - the claim lapses; one effect does not end the worker
            kind, code, message = "lost", getattr(error, "code", type(error).__name__), str(error)
        with self._lock:
            self._count(kind, claim)
        self._say(WorkerReport(kind, claim, time.monotonic() - began, code, message))
        with self._lock:
            self._under_way.pop(claim.claim_id, None)  # after the report: one that raises stops the next claim
        self._wake.set()

    def _say(self, report: WorkerReport) -> None:
        """Call ``on_report``; where it raises, what is under way is completed, and nothing more is claimed."""
        try:
            self._on_report(report)
        except Exception as error:  # noqa: BLE001 - ``run`` raises it
            self._unreported = self._unreported or error
            self.stop()

    def _performed(self, claim: EffectClaim) -> tuple[Kind, str | None, str | None]:
        with ClaimKeeper(self._source.heartbeat, claim, self._source.now_ms) as keeper:

            def why_over() -> tuple[str, str] | None:
                return STOPPED if self._giving_up.is_set() else keeper.why_lost()

            performed = self._source.perform(claim, why_over)
            if self._giving_up.is_set() and _was_stopped(performed):
                return "given_up", *STOPPED
            return self._report(keeper, performed)

    def _report(self, keeper: ClaimKeeper, performed: Performed) -> tuple[Kind, str | None, str | None]:
        """Report a result, again where the log cannot be written now: the same completion is recorded once."""
        outage = Outage(self._giving_up, f"The report on {keeper.claim.requirement.type} of {keeper.claim.proposal_id}")
        while True:
            try:
                is_retried = self._source.complete(keeper.claim, performed)
            except WorldProtocolError as error:
                if error.code == ErrorCode.CLAIM_LOST:
                    return "lost", str(error.details.get("why", error.code)), error.message
                if not ends_by_itself(error) or keeper.why_lost() is not None:
                    raise
                if outage.wait(error):
                    return "given_up", *STOPPED
                continue
            outage.over()
            error_value = performed.result.error
            if error_value is None:
                return "completed", None, None
            return "retried" if is_retried else "failed", error_value.code, error_value.message

    def _count(self, kind: Kind, claim: EffectClaim) -> None:
        summary = self.summary
        if kind == "given_up":
            summary.given_up.append(claim)
        elif kind == "completed":
            summary.completed += 1
        elif kind == "failed":
            summary.failed += 1
        elif kind == "lost":
            summary.lost += 1


def perform_offered(realm: Realm) -> WorkerSummary:
    """Perform the effects that are offered now, where the process executes and has their handlers.

    Args:
        realm: open for acting.

    Raises:
        RefusedError: as ``Worker.run``.
    """
    executor = realm._composed.executor
    known = any(not one.terms.external for one in executor.effects)
    if not executor.executes or not known or not realm.offered_effects():
        return WorkerSummary()
    return Worker(realm).run(once=True)


def _check_types(wanted: Collection[str], known: Collection[str]) -> None:
    """Refuse types of effects without a handler in this process."""
    missing = [one for one in wanted if one not in known]
    if missing or not wanted:
        some = ", ".join(map(repr, missing)) or "any type of effect"
        raise RefusedError(
            ErrorCode.NO_HANDLER,
            f"This worker has no handler for {some}. It has handlers for {', '.join(known) or 'none'}; name others "
            "with --handlers, or effects=[...] where the realm is opened.",
            missing=missing,
        )


def _was_stopped(performed: Performed) -> bool:
    error = performed.result.error
    return error is not None and error.code == STOPPED[0] and STOPPED[1] in error.message
