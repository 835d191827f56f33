"""Effects of a realm on another machine: a worker claims them over HTTP and reports their results (docs/server.md).

A request without an answer, or whose status is 429 or at least 500, is sent again, by a worker that is not stopped
without end: a claim with the same ``Idempotency-Key``, so that one whose answer was lost is returned and does not
lapse; a completion as it is, because a claim has one result. So a worker may be started before its server. Any other
refusal ends it. The handlers have the parameters of their effects; they cannot read the state of the realm, and have no
workspace.

Effects in doubt whose handlers have a ``look_up`` are listed between claims and looked up in a thread, each once by
each worker; what is found is reported, and is sent again as a completion is.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, NoReturn

from host import EffectRegistry
from host.effect_performance import EffectPerformer
from host.secrets import Secrets
from host.worker import WorkerThreads
from world.clock import SystemClock, SystemIds
from world.engine.effect_claims import attempt_of_claim
from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.model.immutable_json import FrozenDict
from world.model.snapshot import Meta, Requirement, Snapshot, System
from world.state.effect_claim import CalledEffect, EffectClaim, EffectDoubt, EffectReport, read_form
from world.state.ports import EffectAttempt, ExecutionOrder, Performed
from worldprotocol.api.executing.effect_source import WhyOver
from worldprotocol.api.remote.connection import RealmRequest, ServerConnection, may_pass
from worldprotocol.api.telemetry.context import tracer_provider
from worldprotocol.api.waiting.outages import Outage

__all__ = ["RemoteEffects"]

WAIT_S: Final = 5
"""Longest wait of a request for an effect, in seconds; a worker that is stopped ends after it."""

MAX_TRACES: Final = 1_000
"""Recorded traces of claimed effects that are kept for the links of their spans; the oldest are forgotten first."""

PAUSE_S: Final = 0.2
"""Time until the server is asked again, in seconds."""

LIST_S: Final = 5.0
"""Time between two lists of effects in doubt, in seconds."""

_LOGGER: Final = logging.getLogger("worldprotocol")


class RemoteEffects:
    """The effects of a realm that a server has; a source for ``Worker``, and a context manager.

    Args:
        server: URL of the server, or ``unix:PATH`` of its socket.
        realm: name of the realm there.
        token: API token of an actor with the right ``worker``; None where the peer of a socket is verified.
        effects: the handlers.
        secrets: values of references in parameters; None defines no secret.

    Raises:
        RefusedError: ``INVALID_ADDRESS`` for another address, or one that sends the token without TLS to another
            machine.
    """

    def __init__(
        self, server: str, realm: str, token: str | None, effects: EffectRegistry, secrets: Secrets | None = None
    ) -> None:
        """Open no connection yet."""
        self._connection = ServerConnection(server, realm, token, patience_s=0)  # the worker repeats
        self._realm = realm
        self._effects = effects
        self._performer = EffectPerformer(effects, WorkerThreads(), None, SystemClock(), secrets or Secrets(), _no_view)
        self._ahead_ms = 0.0
        self._key = _new_key()
        self._traces: dict[str, Mapping[str, Any]] = {}
        self._look_ups = [one.type for one in effects if one.look_up is not None]
        self._listed = -LIST_S
        self._looked_up: set[tuple[str, str, int]] = set()
        self._unreadable: set[str] = set()
        self._looking: ThreadPoolExecutor | None = None
        self._ending = threading.Event()

    def __enter__(self) -> RemoteEffects:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    @property
    def effects(self) -> EffectRegistry:
        """The handlers of this process."""
        return self._effects

    def begin(self, worker: str) -> list[str]:
        """Return no workspace: it is on the machine of the realm."""
        return []

    def claim(
        self, types: Collection[str], *, worker: str, workspaces: Collection[str], once: bool
    ) -> EffectClaim | None:
        """Claim an effect, waiting on the server for one; see ``EffectSource.claim``.

        Raises:
            LogBusyError: the server is away; the repetition of the request has the same key.
            RefusedError: ``LOG_UNAVAILABLE`` in its place for a worker that works ``once``, or whose server has a
                certificate that is not trusted; the refusals of the server, such as ``RIGHT_MISSING``;
                ``INVALID_ADDRESS`` for an answer that is not of a server of realms.
        """
        body = {"worker": worker, "types": list(types), "workspaces": list(workspaces)}
        wait = 0 if once else WAIT_S
        try:
            found = self._post("claim", body, wait_s=wait, key=self._key)
        except LogBusyError as failed:
            raise _away(failed.message, once=once) from None
        self._key = _new_key()
        claim = self._claim_of(found)
        if claim is not None and found.get("trace") is not None:
            self._traces[claim.proposal_id] = found["trace"]
            if len(self._traces) > MAX_TRACES:
                del self._traces[next(iter(self._traces))]
        return claim

    def perform(self, claim: EffectClaim, why_over: WhyOver) -> Performed:
        """Perform a claimed effect with the handler of this process."""
        attempt = attempt_of_claim(claim)
        return self._perform(_order_of(claim), claim.requirement, replace(attempt, why_over=why_over))

    @cached_property
    def _perform(self) -> Callable[[ExecutionOrder, Requirement, EffectAttempt], Performed]:
        provider = tracer_provider()
        if provider is None:
            return self._performer.perform
        from worldprotocol.api.telemetry.tracing import Tracing

        return partial(Tracing(provider, self._realm, self._traces.get).performed, self._performer.perform)

    def heartbeat(self, claim: EffectClaim) -> EffectClaim:
        """Extend a claim; raises as ``Realm.heartbeat_effect``, and ``LogBusyError`` where the request failed."""
        extended = self._claim_of(self._post("heartbeat", {"claim": claim.to_wire()}))
        assert extended is not None
        return extended

    def complete(self, claim: EffectClaim, performed: Performed) -> bool:
        """Report a result; raises as ``Realm.complete_effect``, and ``LogBusyError`` where the request failed.

        Returns:
            False: the server does not say whether the effect is offered again.
        """
        self._post("complete", {"claim": claim.to_wire(), "report": EffectReport.of(performed).to_wire()})
        return False

    def check_writable(self, *, once: bool) -> None:
        """Ask the server for the readiness of its realm; see ``EffectSource.check_writable``.

        Where the server does not answer that, or the realm was closed to writers, the first claim says what is wrong.

        Raises:
            LogBusyError: the realm would not accept a write now, or the server is away.
            RefusedError: ``LOG_UNAVAILABLE`` in its place for a worker that works ``once``, or whose server has a
                certificate that is not trusted.
        """
        asked = RealmRequest(method="GET", path="/readyz", query={"realm": self._realm}, is_of_server=True)
        try:
            self._connection.send(asked)
        except WorldProtocolError as error:
            realms = error.details.get("realms")
            if realms and error.code != ErrorCode.LOG_FENCED:
                server = self._connection.address.text
                cause = f"{realms[0].get('cause', error.message)} [{error.code}]"
                raise _away(f"The realm {self._realm} of {server} would accept no write: {cause}", once=once) from None
            if may_pass(error):
                raise _away(error.message, once=once) from None
            if error.code == ErrorCode.LOG_UNAVAILABLE:
                raise

    def now_ms(self) -> int:
        """Return the time of the server, as its last claim stated it, ms since 1970."""
        return int(time.monotonic() * 1000 + self._ahead_ms)

    @contextmanager
    def watching(self, wake: Callable[[], None]) -> Iterator[None]:
        """Watch nothing: the server answers a request for an effect once there is one. Look up until the end."""
        with ThreadPoolExecutor(1, thread_name_prefix="worldprotocol-look-up") as self._looking:
            try:
                yield
            finally:
                self._ending.set()

    def settle(self, *, at_once: bool) -> None:
        """Look effects in doubt up that this worker has not looked up yet; all else that is due, the server does.

        Args:
            at_once: wait for what is found.

        Raises:
            LogBusyError: the server is away.
            RefusedError: as ``claim``.
        """
        if not self._look_ups or (not at_once and time.monotonic() - self._listed < LIST_S):
            return
        try:
            listed = self._connection.get("/effects/doubts", {"type": self._look_ups})
        except WorldProtocolError as error:
            if not may_pass(error):
                raise
            raise _away(error.message, once=at_once) from None
        self._listed = time.monotonic()
        found = {_name_of(one): one for one in self._doubts_in(listed)}
        self._looked_up &= found.keys()
        assert self._looking is not None
        under_way = [
            self._looking.submit(self._look_up, found[one], once=at_once) for one in found.keys() - self._looked_up
        ]
        self._looked_up |= found.keys()
        if at_once:
            wait(under_way)

    def _doubts_in(self, listed: Mapping[str, Any]) -> Iterator[EffectDoubt]:
        """Yield the listed doubts; those that cannot be read are logged, each once."""
        unreadable = [f"{one['requirementId']} of {one['proposalId']}: {one['reason']}" for one in listed["unreadable"]]
        for wire in listed["doubts"]:
            try:
                yield read_form(EffectDoubt, wire)
            except RefusedError as error:
                unreadable.append(f"{wire.get('proposalId')}: {error.message}")
        for one in set(unreadable) - self._unreadable:
            _LOGGER.warning("An effect in doubt cannot be looked up, and stays for a person: %s", one)
        self._unreadable = set(unreadable)

    def _look_up(self, doubt: EffectDoubt, *, once: bool) -> None:
        """Look an effect in doubt up, and report its result where there is one."""
        what = f"{doubt.requirement.type} of proposal {doubt.proposal_id}"
        attempt = replace(attempt_of_claim(doubt), why_over=lambda: _STOPPED if self._ending.is_set() else None)
        performed = self._performer.look_up(_order_of(doubt), doubt.requirement, attempt)
        if performed is None or performed.result.error is not None:
            return
        body = {"doubt": doubt.to_wire(), "report": EffectReport.of(performed).to_wire()}
        outage = Outage(self._ending, f"The report on {what}")
        while True:
            try:
                self._post("found", body)
            except WorldProtocolError as error:
                if once or not isinstance(error, LogBusyError):
                    _LOGGER.warning("The effect %s stays in doubt: %s [%s]", what, error.message, error.code)
                    return
                if outage.wait(error):
                    return
            else:
                outage.over()
                return

    def next_retry(self, types: Collection[str], now: int) -> int | None:
        """Return None: a request for an effect waits on the server, and a worker that works once waits for no retry."""
        return None

    def pause_s(self, retry: int | None, now: int) -> float:
        """Return a short time: the request for an effect has waited."""
        return PAUSE_S

    def _claim_of(self, found: Mapping[str, Any]) -> EffectClaim | None:
        self._ahead_ms = found["now"] - time.monotonic() * 1000
        return None if found["claim"] is None else read_form(EffectClaim, found["claim"])

    def _post(self, verb: str, body: Mapping[str, Any], *, wait_s: int = 0, key: str | None = None) -> Any:
        """Return the answer of the server.

        Raises:
            LogBusyError: there was none, or its status is 429 or at least 500.
            WorldProtocolError: the problem that the server states.
        """
        try:
            return self._connection.post(f"/effects:{verb}", body, key=key, wait_s=wait_s)
        except WorldProtocolError as error:
            if not may_pass(error):
                raise
            raise LogBusyError(ErrorCode.LOG_BUSY, error.message) from None


def _order_of(called: CalledEffect) -> ExecutionOrder:
    """Return the order of an effect, without the state."""
    return ExecutionOrder(
        called.proposal_id,
        called.intent,
        _NO_STATE,
        called.approved_scope,
        called.now,
        called.seed,
        actor=called.actor,
        scope_rules=called.scope_rules,
    )


def _name_of(doubt: EffectDoubt) -> tuple[str, str, int]:
    """Return the name of a doubt; an effect that is made again may be in doubt again, with a later time."""
    return doubt.proposal_id, doubt.requirement.id, doubt.asked_at


def _away(message: str, *, once: bool) -> RefusedError:
    """Return the error of a request that may succeed later; a worker that works ``once`` ends with it."""
    return RefusedError(ErrorCode.LOG_UNAVAILABLE, message) if once else LogBusyError(ErrorCode.LOG_BUSY, message)


def _new_key() -> str:
    return SystemIds().new_id()


def _no_view(_: ExecutionOrder) -> NoReturn:
    """Refuse to read the state.

    Raises:
        RefusedError: ``LOG_UNAVAILABLE``.
    """
    raise RefusedError(
        ErrorCode.LOG_UNAVAILABLE,
        "A handler of a remote worker cannot read the state of the realm; pass what it needs in the parameters of the "
        "effect.",
    )


_STOPPED: Final = ("NOT_WANTED", "The worker was stopped.")

_NO_STATE: Final = Snapshot(FrozenDict(), FrozenDict(), System(), None, Meta(0, 0, "", ""))
"""In place of the state, which is not on this machine."""
