"""Heartbeats of a claim: a thread extends it at a third of its deadline, and notices when it does not hold any more."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from world.error_codes import ErrorCode
from world.errors import LogBusyError, RefusedError, WorldProtocolError
from world.state.effect_claim import EffectClaim

__all__ = ["ClaimKeeper"]

LEAST_S = 0.05
"""Shortest interval between two heartbeats, in seconds."""


class ClaimKeeper:
    """Keeps a claim while its effect is performed; a context manager.

    Args:
        heartbeat: extends a claim; see ``Realm.heartbeat_effect``.
        claim: the claim.
        now_ms: returns the time with which its deadline is compared, ms since 1970.
    """

    def __init__(
        self, heartbeat: Callable[[EffectClaim], EffectClaim], claim: EffectClaim, now_ms: Callable[[], int]
    ) -> None:
        """Start no heartbeat yet."""
        self._heartbeat = heartbeat
        self._now_ms = now_ms
        self._claim = claim
        self._interval_s = max(LEAST_S, (claim.deadline - now_ms()) / 3_000)
        self._lost: tuple[str, str] | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"heartbeat {claim.requirement.type}", daemon=True)

    @property
    def claim(self) -> EffectClaim:
        """The claim with its newest deadline."""
        return self._claim

    def why_lost(self) -> tuple[str, str] | None:
        """Return why the claim does not hold any more, as code and sentence; None while it does."""
        if self._lost is None and self._now_ms() > self._claim.deadline:
            self._lost = ErrorCode.CLAIM_LOST, "The deadline of the claim passed without a heartbeat."
        return self._lost

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            try:
                self._claim = self._heartbeat(self._claim)
            except LogBusyError:
                continue  # the next one comes before the deadline
            except RefusedError as refused:
                if refused.code == ErrorCode.CLAIM_LOST:
                    self._lost = str(refused.details.get("why", refused.code)), refused.message
                    return
            except WorldProtocolError:
                continue  # `why_lost` ends it when the deadline has passed
