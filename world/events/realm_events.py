"""Events of the realm: creation, domain, actors, branches, sealed worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from world.events.base import Event, ObjectEvent
from world.events.verification import Verification
from world.model.actor import ActorRef
from world.model.member_types import JsonObject
from world.model.patch import Patch
from world.model.snapshot import ErrorValue

__all__ = [
    "ActorBound",
    "ActorRegistered",
    "BranchCreated",
    "BranchSwitched",
    "DomainAdopted",
    "EnforcementChosen",
    "LogArchived",
    "LogBranched",
    "LogFounded",
    "WorkspaceRegistered",
    "WorldSealed",
]


class LogFounded(Event, frozen=True, kw_only=True):
    """First event of every log: its id, its format, and the ``logic`` flags under which it is replayed.

    ``development`` marks a realm in which ``worldctl dev`` may adopt changes. ``system`` and ``timeline`` name the
    place on a database server where the log is written in its first epoch; without them, as in a file, any place may
    write.
    """

    TOPIC: ClassVar[str] = "log.founded"
    log_id: str
    format: int
    enforcement: str
    logic: list[str] = []
    development: bool | None = None
    system: str | None = None
    timeline: int | None = None


class LogBranched(Event, frozen=True, kw_only=True):
    """The log is a hypothetical copy; its prefix, of this size and root, equals that of the original log.

    ``whatif`` writes this event; such a log is never signed as the original.
    """

    TOPIC: ClassVar[str] = "log.branched"
    size: int
    root: str
    by: str


class LogArchived(Event, frozen=True, kw_only=True):
    """The contents of events up to a position may be removed from the log, because an archive has them.

    ``upto`` is the position and ``root`` the root of the tree there. ``snapshot`` is the hash of the state after that
    event, from which the log is folded afterwards, and ``manifest`` that of the last archive's manifest.
    """

    TOPIC: ClassVar[str] = "log.archived"
    upto: int
    root: str
    manifest: str
    snapshot: str
    by: str


class EnforcementChosen(Event, frozen=True, kw_only=True):
    """An operator set whether patches outside approvedScope are refused (INT-13.5)."""

    TOPIC: ClassVar[str] = "enforcement.chosen"
    enforcement: str
    by: str


class DomainAdopted(Event, frozen=True, kw_only=True):
    """A domain's schema was adopted; ``sources`` are the code fingerprints of its Python functions.

    ``distributions`` are the versions of the packages that these functions use and the fingerprints do not cover;
    absent where there are none, and in earlier logs. ``rules`` is the version of the rules under which its actions are
    computed (``world.core.schema.RULES``); absent in earlier logs, which is version 1.
    """

    TOPIC: ClassVar[str] = "domain.adopted"
    schema: JsonObject
    schema_hash: str
    sources: dict[str, str | None]
    by: str
    previous: str | None = None
    distributions: dict[str, str] | None = None
    rules: int | None = None


class WorkspaceRegistered(Event, frozen=True, kw_only=True):
    """A workspace became the realm's: the one folder that ``FILE:`` resources name and that holds the backups.

    It replaces the one before. ``workspace_id`` is kept in the folder itself (``host.workspace.workspace_id``).
    """

    TOPIC: ClassVar[str] = "workspace.registered"
    workspace_id: str
    by: str


class ActorRegistered(Event, frozen=True, kw_only=True):
    """An actor was registered, or its name or meta was changed."""

    TOPIC: ClassVar[str] = "actor.registered"
    actor: ActorRef
    by: str
    verified: Verification | None = None


class ActorBound(ObjectEvent, frozen=True, kw_only=True):
    """An actor was bound to an authority, in place of any previous binding (WP-bind)."""

    TOPIC: ClassVar[str] = "actor.bound"
    TEXTS: ClassVar[Mapping[str, tuple[str, ...]]] = {"binding": ("kind",)}
    actor_id: str
    binding: JsonObject
    by: str
    verified: Verification | None = None


class BranchCreated(Event, frozen=True, kw_only=True):
    """A branch was created with a name and a head."""

    TOPIC: ClassVar[str] = "branch.created"
    branch: str
    world_id: str
    by: str
    verified: Verification | None = None


class BranchSwitched(Event, frozen=True, kw_only=True):
    """Another branch became active, and the epoch increased (WP-epoch)."""

    TOPIC: ClassVar[str] = "branch.switched"
    branch: str
    epoch: int
    by: str
    verified: Verification | None = None


class WorldSealed(Event, frozen=True, kw_only=True):
    """A World was sealed. Genesis records its complete data, every other World the patches from its parent."""

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
    data: JsonObject | None = None
    patches: list[Patch] = []
    error: ErrorValue | None = None
