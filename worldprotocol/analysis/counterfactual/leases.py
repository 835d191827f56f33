"""Leases that agents asked for themselves, asked for again; those of proposals follow from the proposals."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from world.errors import RefusedError
from world.events.lease_events import LeaseRenewed, LeasesReleased, LeasesRevoked, VerdictGiven
from world.state.realm_state import RealmState
from worldprotocol.analysis.counterfactual.stand_ins import Putting

__all__ = ["Leased"]

Held = tuple[str, str, str, str]
"""Agent, session, predicate and resource: what a lease of the record and one of the branch have in common."""


@dataclass(slots=True)
class Leased:
    """Which leases the record names, and what they are for.

    Args:
        proposals: ids of the proposals of the record; their sessions and requests bear them too.
        leases: what the leases are for that the record grants, by id, as long as it has them.
    """

    proposals: set[str] = field(default_factory=set)
    leases: dict[str, Held] = field(default_factory=dict)

    def note(self, event: VerdictGiven) -> None:
        """Take in a verdict of the record."""
        for lease in event.leases:
            held = event.agent_id, event.session_id, lease["predicate"], lease["resource"]
            self.leases[lease["leaseId"]] = held

    def forget(self, lease_ids: Iterable[str]) -> None:
        """Take in that leases of the record ended."""
        for name in lease_ids:
            self.leases.pop(name, None)

    def is_agents(self, name: str) -> bool:
        """Tell whether a session or a request is an agent's own, and no proposal's."""
        return name not in self.proposals

    def request(self, protocol: Putting, event: VerdictGiven) -> None:
        """Ask again for what a manifest asked for.

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
        """Renew a lease again.

        Raises:
            RefusedError: see ``LeaseCommands.heartbeat``; ``UNKNOWN_LEASE``.
        """
        agent, session, *_ = self._held(protocol, event.lease_id)
        name = self._here(protocol, event.lease_id)
        protocol.leasing.heartbeat([name], agent_id=agent, session_id=session, ttl_ms=event.ttl_ms)

    def release(self, protocol: Putting, event: LeasesReleased) -> None:
        """Give back again what of the leases is held here.

        Raises:
            RefusedError: see ``LeaseCommands.release``; ``UNKNOWN_LEASE`` where none of them is.
        """
        names = self._those_here(protocol, event.lease_ids)
        protocol.leasing.release(names, agent_id=event.agent_id, session_id=event.session_id)

    def revoke(self, protocol: Putting, event: LeasesRevoked) -> None:
        """Revoke the leases of the branch that correspond to those of the record.

        A proposal that loses all of its leases in the record loses all of them here as well: its leases follow from its
        approved scope, which may be another one in the branch.

        Raises:
            RefusedError: see ``LeaseCommands.revoke``; ``UNKNOWN_LEASE`` where none of them is held.
        """
        names = self._all_of_proposals(protocol, event.lease_ids) or self._those_here(protocol, event.lease_ids)
        protocol.leasing.revoke(names, by=event.by, reason=event.reason)

    def _all_of_proposals(self, protocol: Putting, lease_ids: list[str]) -> list[str]:
        """Return the leases held here by proposals, where these are all that the same proposals hold in the record."""
        sessions = {self.leases[name][:2] for name in lease_ids if name in self.leases}
        then = {name for name, held in self.leases.items() if held[:2] in sessions}
        if not sessions or then != set(lease_ids) or any(self.is_agents(session) for _, session in sessions):
            return []

        def look(realm: RealmState) -> list[str]:
            found = (realm.klis.sessions.get(session) for session in sorted(sessions))
            return [str(lease.lease_id) for held in found if held is not None for lease in held.leases()]

        return protocol.ask(look)

    def _those_here(self, protocol: Putting, lease_ids: list[str]) -> list[str]:
        names, missing = [], None
        for lease_id in lease_ids:
            try:
                names.append(self._here(protocol, lease_id))
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
            raise RefusedError("UNKNOWN_LEASE", f"There is no lease {lease_id} in the branch.", lease_id=lease_id)
        session = lease.session
        return session.agent_id, session.session_id, lease.triple.predicate.value, lease.triple.resource.text

    def _here(self, protocol: Putting, lease_id: str) -> str:
        """Return the lease of the branch that stands for one of the record."""
        agent, session, predicate, resource = self._held(protocol, lease_id)
        if lease_id not in self.leases:
            return lease_id

        def look(realm: RealmState) -> str | None:
            found = realm.klis.sessions.get((agent, session))
            leases = [] if found is None else found.leases()
            same = (one for one in leases if (one.triple.predicate.value, one.triple.resource.text) == wanted)
            return next((str(one.lease_id) for one in same), None)

        wanted = predicate, resource
        here = protocol.ask(look)
        if here is None:
            raise RefusedError("UNKNOWN_LEASE", f"What lease {lease_id} was for is not held in the branch.")
        return here
