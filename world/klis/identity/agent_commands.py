"""Commands for settings, agents, keys and the clock of a ledger (KLIS-3, KLIS-4)."""

from __future__ import annotations

from collections.abc import Callable

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import AgentRegistered, ClockConfirmed, KeyRegistered, KeyRevoked, KlisConfigured
from world.klis.ledger import Ledger
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.session import Rank
from world.klis.settings import KlisSettings

__all__ = ["AgentCommands"]


class AgentCommands:
    """Commands for settings, agents, keys and the clock; each emits its event."""

    def __init__(self, ledger: Ledger, emit: Callable[[Event], None]) -> None:
        """Create the commands of a ledger.

        Args:
            ledger: the ledger; ``emit`` folds into it.
            emit: records an event and folds it into the ledger.
        """
        self._ledger = ledger
        self._emit = emit

    @property
    def ledger(self) -> Ledger:
        """The ledger."""
        return self._ledger

    @property
    def settings(self) -> KlisSettings:
        """The settings in force."""
        return self._ledger.in_force

    def configure(self, settings: KlisSettings, now: int, *, by: str, types: ResourceTypes = STANDARD) -> bool:
        """Put settings and resource types in force; return False if they already are.

        Raises:
            RefusedError: ``CLOCK_STEPPED_BACK``.
        """
        wire = types.to_wire()
        if settings == self._ledger.settings and wire == self._ledger.types.to_wire():
            return False
        self._check_clock(now)
        self._emit(KlisConfigured(at=now, settings=settings.to_wire(), types=wire, by=by))
        return True

    def register(self, agent_id: str, now: int, *, priority: int | None = None, by: str) -> Rank:
        """Register an agent; a registered one keeps its priority (KP-3c).

        Args:
            agent_id: the agent.
            now: ms since 1970.
            priority: a timestamp in ms; None is ``now``.
            by: the registering actor.

        Returns:
            The agent's rank.

        Raises:
            RefusedError: ``INVALID_PRIORITY``, ``CLOCK_STEPPED_BACK``.
        """
        self._check_clock(now)
        known = self._ledger.agents.get(agent_id)
        if known is not None:
            return known
        given = now if priority is None else priority
        if type(given) is not int or not 0 <= given < 1 << 53:
            raise RefusedError(
                ErrorCode.INVALID_PRIORITY, f"{given!r} is no timestamp in ms: a whole number from 0 to 2^53 - 1."
            )
        self._emit(AgentRegistered(at=now, agent_id=agent_id, priority=given, by=by))
        return self._ledger.agents[agent_id]

    def register_key(self, agent_id: str, key_id: str, public_key: str, now: int, *, by: str) -> None:
        """Register a public key of an agent.

        Raises:
            RefusedError: ``KEY_EXISTS``.
        """
        self._check_clock(now)
        if key_id in self._ledger.keys:
            owner = self._ledger.keys[key_id].agent_id
            raise RefusedError(
                ErrorCode.KEY_EXISTS, f"The key {key_id} is registered already, for {owner!r}.", key_id=key_id
            )
        self._emit(KeyRegistered(at=now, agent_id=agent_id, key_id=key_id, public_key=public_key, by=by))

    def revoke_key(self, key_id: str, now: int, *, by: str, reason: str) -> None:
        """Revoke a public key permanently.

        Raises:
            RefusedError: ``UNKNOWN_KEY``.
        """
        self._check_clock(now)
        key = self._ledger.keys.get(key_id)
        if key is None or key.revoked:
            raise RefusedError(
                ErrorCode.UNKNOWN_KEY, f"No key {key_id!r} is in force; `worldctl keys list` shows them."
            )
        self._emit(KeyRevoked(at=now, key_id=key_id, by=by, reason=reason))

    def confirm_clock(self, now: int, *, by: str, reason: str) -> ClockConfirmed:
        """Record that an operator confirmed the time ``now``; lease time continues there.

        Raises:
            RefusedError: ``REASON_MISSING``.
        """
        if not reason.strip():
            raise RefusedError(ErrorCode.REASON_MISSING, "A confirmation of the clock needs a reason; give one.")
        event = ClockConfirmed(at=now, lease_time=self._ledger.clock, by=by, reason=reason)
        self._emit(event)
        return event

    def _check_clock(self, now: int) -> None:
        if now < self._ledger.clock:
            raise RefusedError(
                ErrorCode.CLOCK_STEPPED_BACK,
                f"The time {now} is before {self._ledger.clock}, at which something was recorded; set the clock right.",
                now=now,
                recorded=self._ledger.clock,
            )
