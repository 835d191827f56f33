"""Leases that agents asked for themselves, asked for again; those of proposals follow from the proposals."""

from __future__ import annotations

from dataclasses import dataclass, field

from world.errors import Refused
from world.events import LeaseRenewed, LeasesReleased, LeasesRevoked, VerdictGiven
from world.protocol import WorldProtocol

__all__ = ["Leased"]

Held = tuple[str, str, str, str]
"""Agent, session, predicate and resource: what a lease of the record and one of the branch have in common."""


@dataclass(slots=True)
class Leased:
    """Which leases the record names, and what they are for.

    Args:
        requests: ids of the requests that agents made themselves.
        sessions: theirs.
        leases: what the leases of the record are for, by id.
    """

    requests: set[str] = field(default_factory=set)
    sessions: set[str] = field(default_factory=set)
    leases: dict[str, Held] = field(default_factory=dict)

    def note(self, event: VerdictGiven) -> None:
        """Take in a verdict of the record."""
        if event.manifest is not None and (event.channel or {}).get("kind") != "engine":
            self.requests.add(event.request_id)
            self.sessions.add(event.session_id)
        if event.request_id in self.requests:
            for lease in event.leases:
                held = event.agent_id, event.session_id, lease["predicate"], lease["resource"]
                self.leases[lease["leaseId"]] = held

    def is_agents(self, session_id: str) -> bool:
        """Tell whether a session is an agent's own, and no proposal's."""
        return session_id in self.sessions

    def request(self, protocol: WorldProtocol, event: VerdictGiven) -> None:
        """Ask again for what a manifest asked for.

        Raises:
            Refused: see ``Leasing.request``.
        """
        protocol.leasing.request(
            event.manifest or {},
            by=str((event.channel or {}).get("by", "")),
            ttl_ms=event.ttl_ms,
            queue=event.queued,
            wait_ms=None if event.deadline is None else event.deadline - event.at,
            request_id=event.request_id,
        )

    def heartbeat(self, protocol: WorldProtocol, event: LeaseRenewed) -> None:
        """Renew a lease again.

        Raises:
            Refused: see ``Leasing.heartbeat``; ``UNKNOWN_LEASE``.
        """
        agent, session, *_ = self._held(protocol, event.lease_id)
        name = self._here(protocol, event.lease_id)
        protocol.leasing.heartbeat([name], agent_id=agent, session_id=session, ttl_ms=event.ttl_ms)

    def release(self, protocol: WorldProtocol, event: LeasesReleased) -> None:
        """Give leases back again.

        Raises:
            Refused: see ``Leasing.release``; ``UNKNOWN_LEASE``.
        """
        names = [self._here(protocol, name) for name in event.lease_ids]
        protocol.leasing.release(names, agent_id=event.agent_id, session_id=event.session_id)

    def revoke(self, protocol: WorldProtocol, event: LeasesRevoked) -> None:
        """Take leases away again.

        Raises:
            Refused: see ``Leasing.revoke``; ``UNKNOWN_LEASE``.
        """
        names = [self._here(protocol, name) for name in event.lease_ids]
        protocol.leasing.revoke(names, by=event.by, reason=event.reason)

    def _held(self, protocol: WorldProtocol, lease_id: str) -> Held:
        known = self.leases.get(lease_id)
        if known is not None:
            return known
        lease = protocol.archive.peek(lambda realm: realm.klis.leases.get(lease_id))
        if lease is None:
            raise Refused("UNKNOWN_LEASE", f"There is no lease {lease_id} in the branch.", lease_id=lease_id)
        session = lease.session
        return session.agent_id, session.session_id, lease.triple.predicate.value, lease.triple.resource.text

    def _here(self, protocol: WorldProtocol, lease_id: str) -> str:
        """Return the lease of the branch that stands for one of the record."""
        agent, session, predicate, resource = self._held(protocol, lease_id)
        if lease_id not in self.leases:
            return lease_id

        def look(realm: object) -> str | None:
            found = realm.klis.sessions.get((agent, session))  # type: ignore[attr-defined]  # a Realm
            leases = [] if found is None else found.leases()
            return next(
                (
                    str(one.lease_id)
                    for one in leases
                    if (one.triple.predicate.value, one.triple.resource.text) == (predicate, resource)
                ),
                None,
            )

        here = protocol.archive.peek(look)
        if here is None:
            raise Refused("UNKNOWN_LEASE", f"What lease {lease_id} was for is not held in the branch.")
        return here
