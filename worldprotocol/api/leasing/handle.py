"""Leases that were granted together, kept alive by heartbeats until they are released."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from world.engine.lease_commands import LeaseCommands
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.model.short_repr import short_repr
from world.read_models.archive import Archive

__all__ = ["LOST", "LeaseHandle"]

LOST: Final = frozenset({"LEASE_NOT_ACTIVE", "UNKNOWN_LEASE", "NOT_THE_HOLDER"})
"""Codes with which a heartbeat is refused because the lease has ended."""

MAX_BEAT_S: Final = 3_600.0
"""Longest pause between two heartbeats, in seconds."""


class LeaseHandle:
    """Leases that were granted together; a context manager that releases them.

    Attributes: ``agent``, ``session``, ``lease_ids``, ``tokens`` (one fencing token for each lease) and ``token``, the
    largest of them: a store that records the largest token received can refuse earlier holders.
    """

    def __init__(
        self, leasing: LeaseCommands, archive: Archive | None, verdict: VerdictGiven, *, now_ms: Callable[[], int]
    ) -> None:
        """Hold the leases of a granted verdict; ``keep_alive`` starts the heartbeats."""
        self._leasing = leasing
        self._archive = archive
        self._now_ms = now_ms
        self._ended = threading.Event()
        self._lost: str | None = None
        self._thread: threading.Thread | None = None
        self.verdict = verdict
        self.agent = verdict.agent_id
        self.session = verdict.session_id
        self.lease_ids: tuple[str, ...] = tuple(lease.lease_id for lease in verdict.leases)
        self.tokens: tuple[int, ...] = tuple(lease.token for lease in verdict.leases)
        self.ttl_ms = verdict.ttl_ms or 0

    def __repr__(self) -> str:
        held = (f"{lease.predicate} {lease.resource}" for lease in self.verdict.leases)
        return short_repr(self, f"agent {self.agent}", f"token {self.token}", *held)

    @property
    def token(self) -> int:
        """Fencing token, larger than the tokens of all earlier grants."""
        return max(self.tokens)

    @property
    def is_active(self) -> bool:
        """Whether every lease is in force according to the current log."""
        return self._why_lost() is None

    def check(self) -> None:
        """Check that the leases are in force; call it before irreversible work.

        Raises:
            RefusedError: ``LEASE_LOST``.
        """
        why = self._why_lost()
        if why is not None:
            raise RefusedError(
                ErrorCode.LEASE_LOST,
                f"{why} Stop the work that needs the lease, and acquire it again.",
                lease_ids=list(self.lease_ids),
            )

    def keep_alive(self) -> None:
        """Send three heartbeats per TTL from a thread of its own until the leases are released."""
        if self._thread is None and not self._ended.is_set():
            self._thread = threading.Thread(target=self._beat, name="worldprotocol-heartbeat", daemon=True)
            self._thread.start()

    def heartbeat(self) -> None:
        """Extend the leases by their TTL from now.

        Raises:
            RefusedError: ``LEASE_LOST`` when one of them has ended.
        """
        try:
            self._leasing.heartbeat(self.lease_ids, agent_id=self.agent, session_id=self.session)
        except RefusedError as refused:
            if refused.code in LOST:
                self._lose(refused.message)
            self.check()
            raise

    def release(self) -> None:
        """Release the leases; those that have ended already and repeated calls have no effect."""
        self._stop()
        if self._lost is None:
            self._lost = "The lease was released."
            try:
                self._leasing.release(self.lease_ids, agent_id=self.agent, session_id=self.session)
            except RefusedError as refused:
                if refused.code not in LOST:  # ended, and no longer in the ledger
                    raise

    def stop_beating(self) -> None:
        """Stop the heartbeats; the leases expire after their TTL."""
        self._stop()

    def __enter__(self) -> Self:
        self.keep_alive()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _why_lost(self) -> str | None:
        if self._lost is None:
            assert self._archive is not None
            states = self._archive.peek(lambda realm: [realm.klis.leases.get(one) for one in self.lease_ids])
            now = self._now_ms()
            for name, lease in zip(self.lease_ids, states, strict=True):
                if lease is None:
                    self._lose(f"Lease {name} has ended: it expired or was revoked.")
                elif lease.expires_at is not None and now > lease.expires_at:
                    self._lose(f"Lease {name} has expired.")
        return self._lost

    def _lose(self, why: str) -> None:
        self._lost = self._lost or why
        self._ended.set()

    def _beat(self) -> None:
        pause = min(max(self.ttl_ms, 1) / 3_000, MAX_BEAT_S)
        while not self._ended.wait(pause):
            try:
                self._leasing.heartbeat(self.lease_ids, agent_id=self.agent, session_id=self.session)
            except RefusedError as refused:
                if refused.code in LOST or refused.code == "LOG_CLOSED":
                    self._lose(refused.message)
                    return
            except Exception:  # noqa: BLE001  # an unreachable store must not end the heartbeats
                continue

    def _stop(self) -> None:
        self._ended.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()
