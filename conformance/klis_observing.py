"""What scenarios observe: calls held against a session's declaration, and the backups that go before leases (KLIS-6).

A session's declaration is what the operation says it declared, and the leases that it has. The judgement is that of a
governed run: the first violation ends a strict session, and a permissive one may be granted a lease on the way.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from host.backups import Backups, resources_to_save
from host.observation.session_watch import Violation, Watch
from host.workspace import Workspace
from world.error_codes import ErrorCode
from world.errors import RefusedError, ScopeViolationError
from world.klis.observation import Declaration, Seen
from world.klis.predicate import Predicate, read_predicate
from world.klis.resources.names import NameComparison
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.resource_types import ResourceTypes
from world.klis.session import Session
from world.klis.triple import Triple

__all__ = ["GIVEN_UP", "Observing", "ScratchWorkspace", "lease_wire", "read_declared"]

GIVEN_UP: Final = "Permissive mode: a lease on the way gives up the guarantee against deadlocks (KLIS-6 section 3.2)."
"""Warning of permissive mode about each operation that it permits (KO-3.2b)."""


def read_declared(declared: Any, *, types: ResourceTypes, names: NameComparison) -> list[Triple]:
    """Read what a session declared; resources become canonical, the target of RENAMES is PROVIDES.

    Args:
        declared: a list of ``{"predicate", "resource"}``, with ``to`` for RENAMES.
        types: the resource types in force.
        names: which differences of paths are ignored.

    Raises:
        RefusedError: ``INVALID_SCENARIO`` for what is no such list, and what predicates and resources refuse.
    """
    if not isinstance(declared, list) or not all(isinstance(one, dict) for one in declared):
        raise RefusedError(
            ErrorCode.INVALID_SCENARIO, 'declared is a list of {"predicate", "resource"}.', path="$.declared"
        )
    found = []
    for index, one in enumerate(declared):
        path = f"$.declared[{index}]"
        resource = canonical_resource(one.get("resource"), types=types, names=names, path=f"{path}.resource")
        found.append(Triple(read_predicate(one.get("predicate"), f"{path}.predicate"), resource))
        if "to" in one:
            target = canonical_resource(one["to"], types=types, names=names, path=f"{path}.to")
            found.append(Triple(Predicate.PROVIDES, target))
    return found


class Observing:
    """One session as it is observed.

    Args:
        agent_id: whose session.
        session_id: which.
        lease: asks for a lease on one triple, and says whether it was granted.
        end: gives back what the session holds; called at its first violation in strict mode.
    """

    def __init__(
        self, agent_id: str, session_id: str, *, lease: Callable[[Seen], bool], end: Callable[[], object]
    ) -> None:
        """Begin in strict mode with nothing declared."""
        self.agent_id, self.session_id = agent_id, session_id
        self.declared: list[Triple] = []
        self._amended: list[Seen] = []
        self._lease, self._end = lease, end
        self._watch = Watch(Declaration(agent_id, session_id, ()), on_violation=self._on_violation, amend=self._amend)

    def set_mode(self, mode: Any) -> None:
        """Change to strict or permissive mode.

        Raises:
            RefusedError: ``INVALID_SCENARIO`` for another one.
        """
        if mode not in ("strict", "permissive"):
            raise RefusedError(
                ErrorCode.INVALID_SCENARIO, f"mode is strict or permissive, and not {mode!r:.100}.", path="$.mode"
            )
        self._watch.is_strict = mode == "strict"

    def judge(self, seen: Sequence[Seen], held: Session | None) -> dict[str, Any]:
        """Return the decision on the effects of one call.

        Args:
            seen: what the call attempts.
            held: the session of the ledger, whose leases are declared too.
        """
        leases = () if held is None else [lease.triple for lease in held.leases()]
        self._watch.declaration = Declaration(self.agent_id, self.session_id, [*self.declared, *leases])
        self._amended = []
        rendered: dict[str, Any] = {"observed": [one.claim().to_wire() for one in seen]}
        try:
            if self._watch.is_over and not seen:
                return {**rendered, "decision": "BLOCK", "error": ScopeViolationError.__name__, "session": self.state}
            self._watch.check(seen, depth="effect")
        except ScopeViolationError as error:
            rendered |= {"decision": "BLOCK", "error": type(error).__name__, "violation": error.message}
        else:
            rendered["decision"] = "ALLOW"
            if self._amended:
                rendered |= {"amended": True, "warning": GIVEN_UP}
        return {**rendered, "session": self.state}

    @property
    def state(self) -> str:
        """``ACTIVE``, or ``TERMINATED`` by a violation (KO-3.2a)."""
        return "TERMINATED" if self._watch.is_over else "ACTIVE"

    def _amend(self, seen: Seen) -> bool:
        granted = self._lease(seen)
        if granted:
            self._amended.append(seen)
        return granted

    def _on_violation(self, violation: Violation) -> None:
        if self._watch.is_strict:
            self._end()


class ScratchWorkspace:
    """An empty workspace for one scenario, in which leases for change are really backed up before they are granted."""

    def __init__(self) -> None:
        """Prepare; the folder is made when something is backed up for the first time."""
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._workspace: Workspace | None = None
        self._backups: Backups | None = None

    def before_grant(self, verdict_id: str, session: Session, triples: tuple[Triple, ...], now: int) -> bool:
        """Back up what the holder of leases may change (KO-7); the lease commands call it.

        Raises:
            RefusedError: ``BACKUP_FAILED``.
        """
        resources = resources_to_save(triples)
        if not resources:
            return False
        note = {"agentId": session.agent_id, "sessionId": session.session_id}
        backups = self._opened()
        backups.prepare(resources)
        backups.take(verdict_id, resources, at=now, note=note)
        return True

    def has(self, backup_id: str, triple: Triple, folder: str) -> bool:
        """Return whether a backup of what the holder of a lease may change is in a folder of the workspace."""
        if self._backups is None or self._workspace is None:
            return False
        kept = self._workspace.root / ".klock" / "backups"
        if os.path.normpath(self._workspace.root / folder.lstrip("/")) != str(kept):
            return False
        try:
            found = self._backups.get(backup_id)
        except RefusedError:
            return False
        return {one.text for one in resources_to_save([triple])} <= set(found.resources)

    def close(self) -> None:
        """Remove the workspace."""
        if self._workspace is not None:
            self._workspace.close()
        if self._folder is not None:
            self._folder.cleanup()

    def _opened(self) -> Backups:
        if self._backups is None:
            self._folder = tempfile.TemporaryDirectory(prefix="klis-")
            self._workspace = Workspace(self._folder.name)
            self._backups = Backups(self._workspace)
        return self._backups


def lease_wire(agent_id: str, session_id: str, seen: Seen) -> Mapping[str, Any]:
    """Return the manifest that asks for a lease on what was attempted."""
    return {"ver": "1.0", "session_id": session_id, "agent_id": agent_id, "scope": [seen.claim().to_wire()]}
