"""The premises of a host: the workspace that its effects and its agents touch, with its backups and its map.

One object for all who need them: the host's effects, governed runs, and the lease desk, which has a backup made before
it grants (``world.ports.Keeper``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from host.backups import Backups
from host.observation.operations import Operations, RuntimePaths
from host.workspace import Workspace
from world.klis.observation import Declaration, Seen
from world.klis.predicate import Predicate, read_predicate
from world.klis.resource import Resource, canonical_resource
from world.klis.triple import Triple

__all__ = ["CHANGES", "Premises"]

CHANGES: Final = frozenset({Predicate.PROVIDES, Predicate.MUTATES, Predicate.DELETES, Predicate.RENAMES})
"""The predicates that let their holder change a resource."""


class Premises:
    """A workspace, its backups and what is known of its surroundings; implements ``world.ports.Keeper``.

    Args:
        workspace: whose root is ``FILE:/``.
        backups: of that workspace.
        runtime: what belongs to the system and not to anybody's work.
    """

    def __init__(self, workspace: Workspace, backups: Backups, runtime: RuntimePaths | None = None) -> None:
        """Put together; nothing is read yet."""
        self.workspace = workspace
        self.backups = backups
        self.runtime = runtime or RuntimePaths.standard()

    @property
    def scratch(self) -> Path:
        """A folder of the engine's own, for what effects have to remember across a crash."""
        return self.workspace.private / "effects"

    def operations(self, declaration: Declaration, *, confined: bool = False) -> Operations:
        """Return the mapping of operations for one session."""
        return Operations(
            self.workspace, runtime=self.runtime, hosts=[host for host, _ in declaration.hosts], confined=confined
        )

    def seen(self, triples: Iterable[tuple[str, str]]) -> list[Seen]:
        """Return what an effect says that it touches, as something that is seen.

        Raises:
            Refused: ``INVALID_PREDICATE``, ``AMBIGUOUS_RESOURCE`` and the like, for what is no triple.
        """
        return [
            Seen(read_predicate(predicate), canonical_resource(resource, lower_case=self.workspace.lower_case))
            for predicate, resource in triples
        ]

    # world.ports.Keeper

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Tell whether there is anything to back up for these claims."""
        return bool(_changed(triples))

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy ahead, outside of the log's lock, so that ``take`` is quick; failures are told by ``take``."""
        self.backups.prepare(_changed(triples))

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Back up, durably, and return whether there was anything to back up.

        Raises:
            Refused: ``BACKUP_FAILED`` and the like; then the leases may not be granted.
        """
        resources = _changed(triples)
        if not resources:
            return False
        self.backups.take(backup_id, resources, at=at, note=note)
        return True

    def restore(self, backup_id: str) -> Mapping[str, Any]:
        """Give back what was backed up.

        Raises:
            Refused: ``UNKNOWN_BACKUP``, ``BACKUP_DAMAGED``.
        """
        done = self.backups.restore(backup_id)
        return {"restored": list(done.restored), "removed": list(done.removed), "failed": list(done.failed)}


def _changed(triples: Iterable[Triple]) -> list[Resource]:
    """Return the files that claims let their holder change; a directory's contents go with it."""
    resources = []
    for triple in triples:
        if triple.predicate in CHANGES and triple.resource.type == "FILE":
            resources.append(triple.resource)
    return list(dict.fromkeys(resources))
