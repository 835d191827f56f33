"""Replay of lease requests of agents in a counterfactual, by type of event."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from world.errors import RefusedError
from world.events.base import KLIS_STREAM, Event
from world.events.lease_events import (
    AgentRegistered,
    ClockConfirmed,
    LeaseRenewed,
    LeasesExpired,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.pipeline.leasing.clock_confirmation import confirm_clock
from world.pipeline.unit_of_work import UnitOfWork
from worldprotocol.analysis.counterfactual.caller_steps import resume

if TYPE_CHECKING:
    from worldprotocol.analysis.counterfactual.replaying import Replaying

__all__ = ["LEASE_STEPS", "no_command", "register_agent"]


def no_command(work: UnitOfWork) -> None:
    """Do nothing, so that only due work is done."""


def _verdict(replaying: Replaying, event: VerdictGiven) -> None:
    replaying.leases.note(event)
    if (event.channel or {}).get("kind") == "engine" or event.manifest is None:
        resume(replaying, event.request_id, event)
        if event.at > replaying.clock.now:
            replaying.advance_to(event)
            replaying.run(no_command)
        return
    replaying.advance_to(event)
    _repeat(replaying, "lease request", lambda: replaying.leases.request(replaying.protocol, event))


def _renewed(replaying: Replaying, event: LeaseRenewed) -> None:
    replaying.advance_to(event)
    _repeat(replaying, "heartbeat", lambda: replaying.leases.heartbeat(replaying.protocol, event))


def _released(replaying: Replaying, event: LeasesReleased) -> None:
    if replaying.leases.is_agents(event.session_id):
        replaying.advance_to(event)
        _repeat(replaying, "release", lambda: replaying.leases.release(replaying.protocol, event))
    replaying.leases.forget(event.lease_ids)


def _revoked(replaying: Replaying, event: LeasesRevoked) -> None:
    replaying.advance_to(event)
    _repeat(replaying, "revoke", lambda: replaying.leases.revoke(replaying.protocol, event))
    replaying.leases.forget(event.lease_ids)


def _expired(replaying: Replaying, event: LeasesExpired) -> None:
    replaying.leases.forget(event.lease_ids)
    if event.at > replaying.clock.now:
        replaying.advance_to(event)
        replaying.run(no_command)


def _withdrawn(replaying: Replaying, event: RequestWithdrawn) -> None:
    replaying.advance_to(event)
    if event.reason == "cancelled" and replaying.leases.is_agents(event.request_id):
        _repeat(replaying, "withdraw", lambda: replaying.protocol.leasing.withdraw(event.request_id))
    else:
        replaying.run(no_command)


def _clock_confirmed(replaying: Replaying, event: ClockConfirmed) -> None:
    replaying.advance_to(event)
    replaying.attempt(event.TOPIC, lambda work: confirm_clock(work, event.by, event.reason))


def _repeat(replaying: Replaying, what: str, command: Callable[[], Any]) -> None:
    try:
        command()
    except RefusedError as refused:
        replaying.notes[f"{what}: {refused.code}"] += 1
    replaying.outside.look_for_all()


def register_agent(replaying: Replaying, event: AgentRegistered, coming: Sequence[Event]) -> None:
    """Repeat an explicit registration of an agent; requests register agents by themselves."""
    first = coming[0] if coming else None
    if event.by == event.agent_id and isinstance(first, VerdictGiven) and first.agent_id == event.agent_id:
        return
    if not replaying.protocol.ask(lambda realm: event.agent_id in realm.klis.agents):
        replaying.advance_to(event)
        replaying.emit(KLIS_STREAM, event)


LEASE_STEPS: Final[Mapping[type[Event], Callable[[Replaying, Any], None]]] = {
    VerdictGiven: _verdict,
    LeaseRenewed: _renewed,
    LeasesReleased: _released,
    LeasesRevoked: _revoked,
    LeasesExpired: _expired,
    RequestWithdrawn: _withdrawn,
    ClockConfirmed: _clock_confirmed,
}
"""Steps that repeat events of leases and of the clock."""
