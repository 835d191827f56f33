"""Facts and services that a handler receives besides the effect's parameters.

Source: HC-handlers, HC-journal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from world.clock import Clock, SystemClock
from world.model.snapshot import SnapshotView

if TYPE_CHECKING:
    from host.confinement import RunningCommand, StartOptions
    from host.workspace import Workspace

__all__ = ["DoubtfulEffect", "EffectCallInfo", "StartCommand", "idempotency_key", "start_unconfined"]


def idempotency_key(intent_id: str, requirement_id: str) -> str:
    """Return the key by which an external system can recognize a repeated effect (HC-journal).

    Args:
        intent_id: the attempt at the intent, the same through the whole execution.
        requirement_id: the effect's position in it, 64 hex digits.
    """
    return f"{intent_id}:{requirement_id}"


class StartCommand(Protocol):
    """A function that starts a command; under a watch the command is confined to the declaration."""

    def __call__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        read: Iterable[str] = (),
        **options: Unpack[StartOptions],
    ) -> RunningCommand:
        """Start a command.

        Args:
            argv: the command and its arguments.
            env: its whole environment.
            read: further paths that it may read.
            **options: as for ``host.confinement.start``.

        Raises:
            RefusedError: as ``host.confinement.start``.
        """
        ...


def start_unconfined(
    argv: Sequence[str], *, env: Mapping[str, str], read: Iterable[str] = (), **options: Unpack[StartOptions]
) -> RunningCommand:
    """Start a command without confinement; arguments and errors as of ``StartCommand``, and ``read`` is ignored."""
    from host.confinement import UNCONFINED, start  # imported late: only effects that start a command need it

    return start(argv, env=env, confinement=UNCONFINED, **options)


def _is_never_cancelled() -> bool:
    return False


def _has_no_leases() -> None:
    return None


@dataclass(frozen=True, slots=True)
class EffectCallInfo:
    """Facts and services for one call of a handler.

    Args:
        effect_type: the effect's name, for handlers of several types.
        idempotency_key: the same for every repetition of this effect in this attempt.
        intent_id: the attempt at the intent.
        proposal_id: the approved proposal.
        now: the execution's frozen time, ms since 1970; not the wall clock.
        time_limit_ms: time after which the handler is abandoned and its answer dropped, in milliseconds.
        look: returns ``view``; called only when a handler reads the state.
        attempt: 1 for the first run of the effect, one more for each repetition.
        requested_at: when the effect was first requested, ms since 1970; 0 where unknown.
        fencing_token: grows with every grant of leases; an external system can refuse a smaller one than it has seen.
        workspace: the folder that agents see as ``FILE:/``, None where there is none.
        scratch: a folder of the engine for a handler's records between attempts; may not exist yet.
        clock: the engine's time.
        is_cancelled: whether the answer will be ignored because the effect was cancelled.
        check: raises when the leases were lost; to be called immediately before an irreversible step.
        start: starts a command; under a watch it is confined to what was declared for the effect's proposal.
    """

    effect_type: str
    idempotency_key: str
    intent_id: str
    proposal_id: str
    now: int
    time_limit_ms: int
    look: Callable[[], SnapshotView] = field(repr=False, compare=False)
    attempt: int = 1
    requested_at: int = 0
    fencing_token: int = 0
    workspace: Workspace | None = field(default=None, repr=False, compare=False)
    scratch: Path | None = field(default=None, repr=False, compare=False)
    clock: Clock = field(default_factory=SystemClock, repr=False, compare=False)
    is_cancelled: Callable[[], bool] = field(default=_is_never_cancelled, repr=False, compare=False)
    check: Callable[[], None] = field(default=_has_no_leases, repr=False, compare=False)
    start: StartCommand = field(default=start_unconfined, repr=False, compare=False)

    @property
    def view(self) -> SnapshotView:
        """The state in which the action requests the effect, its patches so far applied; read-only."""
        return self.look()


@dataclass(frozen=True, slots=True)
class DoubtfulEffect:
    """An effect that was requested and may have happened or not; ``look_up`` of its handler gets it.

    Args:
        type: the effect's name.
        params: its parameters, as its handler receives them.
        idempotency_key: the key under which the handler has made it, if it has.
        intent_id: the attempt at the intent.
        proposal_id: the approved proposal.
        requested_at: when the effect was first requested, ms since 1970.
        attempt: the number of the attempt whose outcome is not known.
    """

    type: str
    params: Any
    idempotency_key: str
    intent_id: str
    proposal_id: str
    requested_at: int
    attempt: int
