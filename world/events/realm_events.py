"""Events of the realm: founding, domain, actors, branches, sealed worlds."""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

__all__ = [
    "ActorBound",
    "ActorRegistered",
    "BranchCreated",
    "BranchSwitched",
    "DomainAdopted",
    "EnforcementChosen",
    "LogBranched",
    "LogFounded",
    "WorldSealed",
]


class LogFounded(Event, frozen=True, kw_only=True):
    """The first event of every log: what it is, and under which logic its parts replay."""

    TOPIC: ClassVar[str] = "log.founded"
    log_id: str
    format: int
    enforcement: str
    logic: list[str] = []


class LogBranched(Event, frozen=True, kw_only=True):
    """From here on the log is a branch that never was: its beginning, of this size and root, is that of the real log.

    ``whatif`` writes it; nobody signs such a log for the one that it began as.
    """

    TOPIC: ClassVar[str] = "log.branched"
    size: int
    root: str
    by: str


class EnforcementChosen(Event, frozen=True, kw_only=True):
    """The operator chose whether patches outside approvedScope are refused (INT-13.5)."""

    TOPIC: ClassVar[str] = "enforcement.chosen"
    enforcement: str
    by: str


class DomainAdopted(Event, frozen=True, kw_only=True):
    """A domain's schema came into force; ``sources`` are the identities of the code of its Python functions.

    ``distributions`` are the versions of what they reach and no identity covers; absent where no function does, or in a
    log of before that was recorded.
    """

    TOPIC: ClassVar[str] = "domain.adopted"
    schema: Wire
    schema_hash: str
    sources: dict[str, str | None]
    by: str
    previous: str | None = None
    distributions: dict[str, str] | None = None


class ActorRegistered(Event, frozen=True, kw_only=True):
    """An actor became known, or changed its name or meta."""

    TOPIC: ClassVar[str] = "actor.registered"
    actor: Wire
    by: str


class ActorBound(Event, frozen=True, kw_only=True):
    """An actor got its one authority binding, in place of any before (WP-bind)."""

    TOPIC: ClassVar[str] = "actor.bound"
    actor_id: str
    binding: Wire
    by: str


class BranchCreated(Event, frozen=True, kw_only=True):
    """A branch with a name and a head."""

    TOPIC: ClassVar[str] = "branch.created"
    branch: str
    world_id: str
    by: str


class BranchSwitched(Event, frozen=True, kw_only=True):
    """Another branch became the active one; the epoch was raised (WP-epoch)."""

    TOPIC: ClassVar[str] = "branch.switched"
    branch: str
    epoch: int
    by: str


class WorldSealed(Event, frozen=True, kw_only=True):
    """A new World. Genesis carries its whole data, every other world the patches from its parent."""

    TOPIC: ClassVar[str] = "world.sealed"
    world_id: str
    content_id: str
    schema_hash: str
    snapshot_hash: str
    parent: str | None
    created_by: str | None
    branch: str
    outcome: str
    height: int
    data: Wire | None = None
    patches: list[Wire] = []
    error: Wire | None = None
