"""Kinds of governed runs, how they end, and what a command needs of its run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from host.observation import Watch

__all__ = ["Kind", "ObservedRun", "Outcome"]

Kind = Literal["python", "command"]
Outcome = Literal["completed", "failed", "violated", "lost", "interrupted"]


class ObservedRun(Protocol):
    """A run whose leases are granted: it is opened, observed, and ended."""

    @property
    def run_id(self) -> str:
        """Its id."""

    @property
    def watch(self) -> Watch:
        """Checks and records what it does."""

    @property
    def lost(self) -> str | None:
        """Why its leases are lost; None while they are held."""

    @property
    def not_given_back(self) -> list[str]:
        """What should have been restored and was not."""

    def open(
        self,
        kind: Kind,
        *,
        stop: Callable[[str], None],
        held_by: Sequence[str],
        cannot_reach: Callable[[bytes], bool],
        command: Sequence[str],
    ) -> None:
        """Begin; see ``GovernedRun.open``."""

    def was_there(self, path: bytes) -> bool:
        """Whether a path of the workspace existed before."""

    def end(self, outcome: Outcome, *, exit_code: int | None = None, reason: str | None = None) -> Outcome:
        """End; see ``GovernedRun.end``."""
