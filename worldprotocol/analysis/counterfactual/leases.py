"""Repetition of lease requests of agents; leases of proposals follow from the proposals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import LeaseRenewed, LeasesReleased, LeasesRevoked, VerdictGiven
from world.state.realm_view import RealmView
from worldprotocol.analysis.counterfactual.stand_ins import Putting

__all__ = ["Leased"]

Held = tuple[str, str, str, str]
"""Agent, session, predicate and resource: the key by which leases of both logs correspond."""


@dataclass(slots=True)
class Leased:
    """Recorded leases and the sessions of proposals.

    Args:
        proposals: ids of recorded proposals, which are also the ids of their sessions and requests.
        leases: keys of the recorded leases, by id, until they end.
    """

    proposals: set[str] = field(default_factory=set)
    leases: dict[str, Held] = field(default_factory=dict)

    def note(self, event: VerdictGiven) -> None:
        """Record the leases of a recorded verdict."""
        for lease in event.leases:
            held = event.agent_id, event.session_id, lease.predicate, lease.resource
            self.leases[lease.lease_id] = held

    def forget(self, lease_ids: Iterable[str]) -> None:
        """Remove recorded leases that ended."""
        for name in lease_ids:
            self.leases.pop(name, None)

    def is_agents(self, name: str) -> bool:
        """Return whether a session or a request belongs to an agent and not to a proposal."""
        return name not in self.proposals

    def request(self, protocol: Putting, event: VerdictGiven) -> None:
        """Repeat a lease request.

        Raises:
            RefusedError: see ``LeaseCommands.request``.
        """
        channel = event.channel or {}
        protocol.leasing.request(
            event.manifest or {},
            by=channel.get("by"),
            run_id=channel.get("runId"),
            ttl_ms=event.ttl_ms,
            queue=event.queued,
            wait_ms=None if event.deadline is None else event.deadline - event.at,
            request_id=event.request_id,
        )

    def heartbeat(self, protocol: Putting, event: LeaseRenewed) -> None:
        """Repeat the renewal of a lease.

        Raises:
            RefusedError: see ``LeaseCommands.heartbeat``; ``UNKNOWN_LEASE``.
        """
        agent, session, *_ = self._held(protocol, event.lease_id)
        name = self._corresponding(protocol, event.lease_id)
        protocol.leasing.heartbeat([name], agent_id=agent, session_id=session, ttl_ms=event.ttl_ms)

    def release(self, protocol: Putting, event: LeasesReleased) -> None:
        """Repeat the release of the corresponding leases.

        Raises:
            RefusedError: see ``LeaseCommands.release``; ``UNKNOWN_LEASE`` if none of them is held.
        """
        names = self._all_corresponding(protocol, event.lease_ids)
        protocol.leasing.release(names, agent_id=event.agent_id, session_id=event.session_id)

    def revoke(self, protocol: Putting, event: LeasesRevoked) -> None:
        """Revoke the leases that correspond to the recorded ones.

        A proposal that loses all of its leases in the record loses all of them in the counterfactual: its leases follow
        from its approved scope, which may differ.

        Raises:
            RefusedError: see ``LeaseCommands.revoke``; ``UNKNOWN_LEASE`` if none of them is held.
        """
        names = self._all_of_proposals(protocol, event.lease_ids) or self._all_corresponding(protocol, event.lease_ids)
        protocol.leasing.revoke(names, by=event.by, reason=event.reason)

    def _all_of_proposals(self, protocol: Putting, lease_ids: list[str]) -> list[str]:
        """Return all leases of proposals that lost all of their recorded leases."""
        sessions = {self.leases[name][:2] for name in lease_ids if name in self.leases}
        recorded = {name for name, held in self.leases.items() if held[:2] in sessions}
        if not sessions or recorded != set(lease_ids) or any(self.is_agents(session) for _, session in sessions):
            return []

        def look(realm: RealmView) -> list[str]:
            return [lease.lease_id for session in sorted(sessions) for lease in realm.klis.leases_of(*session)]

        return protocol.ask(look)

    def _all_corresponding(self, protocol: Putting, lease_ids: list[str]) -> list[str]:
        names, missing = [], None
        for lease_id in lease_ids:
            try:
                names.append(self._corresponding(protocol, lease_id))
            except RefusedError as refused:
                missing = refused
        if missing is not None and not names:
            raise missing
        return names

    def _held(self, protocol: Putting, lease_id: str) -> Held:
        known = self.leases.get(lease_id)
        if known is not None:
            return known
        lease = protocol.ask(lambda realm: realm.klis.leases.get(lease_id))
        if lease is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_LEASE, f"There is no lease {lease_id} in the counterfactual.", lease_id=lease_id
            )
        session = lease.session
        return session.agent_id, session.session_id, lease.triple.predicate.value, lease.triple.resource.text

    def _corresponding(self, protocol: Putting, lease_id: str) -> str:
        """Return the lease that corresponds to a recorded one."""
        agent, session, predicate, resource = self._held(protocol, lease_id)
        if lease_id not in self.leases:
            return lease_id

        def look(realm: RealmView) -> str | None:
            leases = realm.klis.leases_of(agent, session)
            same = (one for one in leases if (one.triple.predicate.value, one.triple.resource.text) == key)
            return next((str(one.lease_id) for one in same), None)

        key = predicate, resource
        corresponding = protocol.ask(look)
        if corresponding is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_LEASE, f"No lease in the counterfactual corresponds to lease {lease_id}."
            )
        return corresponding
