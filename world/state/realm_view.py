"""Published state of a realm: an immutable view, made from the view before and from what changed since.

The writer's ``RealmState`` changes with every event. After a commit it is published: what changed is copied into
persistent maps, everything else is shared with the view before (``publish``). Readers of all threads use the newest
view without a lock and without a copy. Source: docs/architecture.md, "The state of a process".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias, TypeVar

from msgspec import Struct

from world.events.access_events import RightGranted, TokenCreated
from world.events.policy_events import PolicyAdopted, ShadowConfigured
from world.events.realm_events import DomainAdopted, LogArchived, LogBranched, LogFounded, WorkspaceRegistered
from world.events.run_events import RunOpened
from world.klis.ledger_view import LedgerView, publish_ledger, track_ledger
from world.model.actor import ActorRef
from world.model.immutable.persistent_map import PersistentMap, TrackedDict, publish_map
from world.state.branches import Branch
from world.state.proposal import Proposal
from world.state.realm_state import RealmState, realm_repr
from world.state.writer_epoch import WriterEpoch

__all__ = ["ReadableRealm", "RealmView", "publish", "state_of_view", "track", "view_of"]

V = TypeVar("V")
P = TypeVar("P")


class RealmView(Struct, frozen=True, eq=False):
    """The state of a realm after a commit; attributes as of ``world.state.realm_state.RealmState``.

    Maps iterate in the order of insertion: ``proposals`` in order of submission, ``branches`` in order of creation. All
    values are shared by the readers of a process and must not be changed; ``Proposal.copy`` returns a private one.
    ``due`` is when something may be due next, ms since 1970; None when nothing waits for a time.
    """

    position: int
    founded: LogFounded | None
    branched: LogBranched | None
    archived: LogArchived | None
    enforcement: str
    workspace: WorkspaceRegistered | None
    domain: DomainAdopted | None
    actors: Mapping[str, ActorRef]
    bindings: Mapping[str, Mapping[str, Any]]
    policies: Mapping[str, PolicyAdopted]
    rights: Mapping[str, Mapping[str, RightGranted]]
    tokens: PersistentMap[str, TokenCreated]
    shadow: ShadowConfigured | None
    branches: PersistentMap[str, Branch]
    active: str
    epoch: int
    writer: WriterEpoch
    proposals: PersistentMap[str, Proposal]
    queues: PersistentMap[str, tuple[str, ...]]
    running: PersistentMap[str, str]
    held: PersistentMap[str, None]
    offered: PersistentMap[str, None]
    runs: PersistentMap[str, RunOpened]
    klis: LedgerView
    klis_version: int
    due: int | None

    @property
    def schema_hash(self) -> str:
        """Hash of the schema in force; empty before a domain was adopted."""
        return "" if self.domain is None else self.domain.schema_hash

    def next_due(self) -> int | None:
        """Return when something may be due next, ms since 1970; None when nothing waits for a time."""
        return self.due

    def __repr__(self) -> str:
        return realm_repr(self)

    def __eq__(self, other: object) -> bool:
        """Return whether two views have equal content; ``due`` depends on how a state was made, and is left out."""
        if not isinstance(other, RealmView):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in _CONTENT)

    __hash__ = None  # type: ignore[assignment]  # its values are not hashable


_CONTENT: Final = tuple(name for name in RealmView.__struct_fields__ if name != "due")

ReadableRealm: TypeAlias = RealmState | RealmView
"""The state of a realm as far as ``RealmView`` has its attributes: the writer's own, or a published one."""

_FROZEN: Final = ("actors", "bindings", "policies", "rights")
_PERSISTENT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "branches": lambda branch: branch,
    "tokens": lambda token: token,
    "proposals": lambda proposal: proposal.copy(),
    "queues": tuple,
    "running": lambda proposal_id: proposal_id,
    "held": lambda _: None,
    "offered": lambda _: None,
    "runs": lambda opened: opened,
}
"""Maps of a view, with the function that returns the published form of a value."""


def track(realm: RealmState) -> None:
    """Have a state note its changes from now on, for ``publish``."""
    for name in (*_FROZEN, *_PERSISTENT):
        setattr(realm, name, TrackedDict(getattr(realm, name)))
    track_ledger(realm.klis)


def publish(realm: RealmState, before: RealmView | None) -> RealmView:
    """Return the view of a state after the changes that were noted since a view; O(changes).

    Args:
        realm: a tracked state.
        before: its last view; None publishes the whole state.
    """
    parts = dict(_frozen(realm, before))
    for name, published in _PERSISTENT.items():
        tracked = getattr(realm, name)
        if before is None:
            parts[name] = PersistentMap({key: published(value) for key, value in tracked.items()})
            tracked.put, tracked.gone = {}, {}
        elif tracked.put or tracked.gone:
            parts[name] = publish_map(tracked, getattr(before, name), published)
        else:
            parts[name] = getattr(before, name)
    klis = before.klis if before is not None and before.klis_version == realm.klis_version else None
    return RealmView(
        position=realm.position,
        founded=realm.founded,
        branched=realm.branched,
        archived=realm.archived,
        enforcement=realm.enforcement,
        workspace=realm.workspace,
        domain=realm.domain,
        shadow=realm.shadow,
        active=realm.active,
        epoch=realm.epoch,
        writer=realm.writer,
        klis=klis or publish_ledger(realm.klis, None if before is None else before.klis),
        klis_version=realm.klis_version,
        due=realm.next_due(),
        **parts,
    )


def view_of(realm: RealmState) -> RealmView:
    """Return the view of a state that was made otherwise than from a view; from now on the state notes its changes."""
    track(realm)
    return publish(realm, None)


def _frozen(realm: RealmState, before: RealmView | None) -> Iterator[tuple[str, Any]]:
    """Yield the small maps, which are copied as a whole when they changed."""
    for name in _FROZEN:
        tracked = getattr(realm, name)
        if before is not None and not tracked.put and not tracked.gone:
            yield name, getattr(before, name)
            continue
        tracked.put, tracked.gone = {}, {}
        yield name, MappingProxyType(dict(tracked))


def state_of_view(view: RealmView) -> RealmState:
    """Return a tracked state with the content of a view, to apply events to; O(open proposals and leases).

    Times of proposals are scheduled as they follow from the proposals.
    """
    realm = RealmState(
        position=view.position,
        founded=view.founded,
        branched=view.branched,
        archived=view.archived,
        enforcement=view.enforcement,
        workspace=view.workspace,
        domain=view.domain,
        actors=dict(view.actors),
        bindings=dict(view.bindings),
        policies=dict(view.policies),
        rights=dict(view.rights),
        tokens=dict(view.tokens),
        shadow=view.shadow,
        branches=dict(view.branches),
        active=view.active,
        epoch=view.epoch,
        writer=view.writer,
        proposals={name: proposal.copy() for name, proposal in view.proposals.items()},
        queues={key: list(queue) for key, queue in view.queues.items()},
        running=dict(view.running),
        held=dict(view.held),
        offered=dict(view.offered),
        runs=dict(view.runs),
        klis=view.klis.ledger(),
        klis_version=view.klis_version,
    )
    for proposal in realm.proposals.values():
        realm.schedule(proposal)
    track(realm)
    return realm
