"""Published state of the lease ledger: an immutable view that shares everything unchanged with the one before.

The writer's ``Ledger`` has indexes for conflicts and heaps for deadlines, and changes with every event. A view has what
readers need. It is made from the view before and from the noted changes, so publishing costs O(changes) and reading
needs no lock and no copy. Source: docs/architecture.md, "The state of a process".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from msgspec import Struct
from rpds import HashTrieMap

from world.klis.ledger import Ledger, ledger_copy
from world.klis.resources.resource_types import ResourceTypes
from world.klis.session import AgentKey, Died, Lease, Rank, RefusedRequest, Request
from world.klis.settings import KlisSettings
from world.klis.wait_die import asks_again_at
from world.model.immutable.persistent_map import PersistentMap, TrackedDict, TrackedOrderedDict, publish_map

__all__ = ["LedgerView", "ReadableLedger", "publish_ledger", "track_ledger"]

_Name: TypeAlias = tuple[str, str]
_Tokens: TypeAlias = "HashTrieMap[str, int]"

_TRACKED = ("agents", "keys", "signers", "leases", "ended", "requests", "refused")
_TRACKED_IN_ORDER = ("nonces", "died")


class LedgerView(Struct, frozen=True, eq=False):
    """Agents, keys, leases and the queue after a commit; attributes as of ``world.klis.ledger.Ledger``.

    ``holdings`` has the ids of the leases of each session that holds any.
    """

    settings: KlisSettings | None
    types: ResourceTypes
    clock: int
    agents: PersistentMap[str, Rank]
    keys: PersistentMap[str, AgentKey]
    signers: PersistentMap[str, None]
    nonces: PersistentMap[_Name, int]
    leases: PersistentMap[str, Lease]
    ended: PersistentMap[str, str]
    last_token: int
    signed_from: int
    requests: PersistentMap[str, Request]
    refused: PersistentMap[str, RefusedRequest]
    sequence: int
    verdicts: Mapping[str, int]
    died: PersistentMap[_Name, Died]
    holdings: HashTrieMap[_Name, _Tokens]

    @property
    def in_force(self) -> KlisSettings:
        """The recorded settings, or the defaults."""
        return self.settings or KlisSettings()

    def __eq__(self, other: object) -> bool:
        """Return whether two views have equal content."""
        from world.klis.ledger_codec import ledger_to_wire  # the stored form is the content

        return isinstance(other, LedgerView) and (self is other or ledger_to_wire(self) == ledger_to_wire(other))

    __hash__ = None  # type: ignore[assignment]  # as of a ledger

    def holds(self, agent_id: str, session_id: str) -> bool:
        """Return whether a session holds any lease."""
        return (agent_id, session_id) in self.holdings

    def leases_of(self, agent_id: str, session_id: str) -> list[Lease]:
        """Return the leases of a session in the order of their tokens."""
        held = self.holdings.get((agent_id, session_id))
        return [] if held is None else sorted((self.leases[name] for name in held), key=lambda lease: lease.token)

    def dies(self, agent_id: str, session_id: str) -> int:
        """Return the number of consecutive Die verdicts of a session."""
        died = self.died.get((agent_id, session_id))
        return 0 if died is None else died.dies

    def asks_again_at(self, agent_id: str, session_id: str) -> int:
        """Return when a session retries by timer after a Die, ms since 1970; 0 without one."""
        return asks_again_at(self.died.get((agent_id, session_id)), self.in_force, session_id)

    def ledger(self) -> Ledger:
        """Return a ledger with this state, for the analysis of conflicts; O(leases)."""
        return ledger_copy(self)


ReadableLedger: TypeAlias = Ledger | LedgerView
"""A ledger as far as ``LedgerView`` has its attributes."""


def track_ledger(ledger: Ledger) -> None:
    """Have a ledger note its changes from now on, for ``publish_ledger``."""
    for name in _TRACKED:
        setattr(ledger, name, TrackedDict(getattr(ledger, name)))
    for name in _TRACKED_IN_ORDER:
        setattr(ledger, name, TrackedOrderedDict(getattr(ledger, name)))


def publish_ledger(ledger: Ledger, before: LedgerView | None) -> LedgerView:
    """Return the view of a ledger after the changes that were noted since a view.

    Args:
        ledger: a tracked ledger.
        before: its last view; None publishes the whole ledger.
    """
    parts: dict[str, Any] = {}
    leases = cast("TrackedDict[str, Lease]", ledger.leases)
    if before is None:
        holdings = _holdings(HashTrieMap(), {}, leases.values())
    else:
        holdings = _holdings(before.holdings, leases.gone, [leases[name] for name in leases.put])
    for name in (*_TRACKED, *_TRACKED_IN_ORDER):
        tracked = getattr(ledger, name)
        if before is None:
            parts[name] = PersistentMap(tracked)
            tracked.put, tracked.gone = {}, {}
        elif tracked.put or tracked.gone:
            parts[name] = publish_map(tracked, getattr(before, name), _same)
        else:
            parts[name] = getattr(before, name)
    return LedgerView(
        settings=ledger.settings,
        types=ledger.types,
        clock=ledger.clock,
        last_token=ledger.last_token,
        signed_from=ledger.signed_from,
        sequence=ledger.sequence,
        verdicts=ledger.verdicts.copy(),
        holdings=holdings,
        **parts,
    )


def _same(value: Any) -> Any:
    return value


def _holdings(
    before: HashTrieMap[_Name, _Tokens], gone: Mapping[str, Lease], put: Iterable[Lease]
) -> HashTrieMap[_Name, _Tokens]:
    """Return the holdings of all sessions after leases ended, and others were granted or renewed."""
    holdings = before
    for lease in gone.values():
        name = lease.session.agent_id, lease.session.session_id
        left = holdings.get(name)
        if left is not None:
            left = left.discard(lease.lease_id)
            holdings = holdings.insert(name, left) if len(left) else holdings.discard(name)
    for lease in put:
        name = lease.session.agent_id, lease.session.session_id
        held = holdings.get(name)
        if held is None:
            held = HashTrieMap()
        if lease.lease_id not in held:
            holdings = holdings.insert(name, held.insert(lease.lease_id, lease.token))
    return holdings
