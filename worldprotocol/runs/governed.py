"""One governed run of any kind: leases first, observation of all operations, and a recorded end (KO-4).

The order is essential. Before leases are granted, what may change is backed up; then the content of
the workspace is scanned; only then may the agent run. At the end the content is compared, failed changes are
undone, the end is recorded, and the leases are released last: no other session sees the rollback.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal

from host.backups import CHANGES
from host.environment import HostEnvironment
from host.observation import Violation, Watch
from host.observation.audit import exempt
from host.workspace.differences import EntryDifference
from host.workspace.scan import Scan, take
from world.clock import IdSource
from world.engine.writer import Writer
from world.errors import RefusedError
from world.events.resource_values import ChangedResource, ResourceExistence
from world.klis.manifest import read_manifest
from world.klis.observation import Declaration, Seen
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.triple import Triple, read_claim
from world.model.short_repr import fields_repr
from world.pipeline.leasing.existence import check_existence
from world.state.realm_view import RealmView
from worldprotocol.api.leases import Cancel, Leases
from worldprotocol.api.leasing.handle import LeaseHandle
from worldprotocol.runs.contents import ContentFindings, findings
from worldprotocol.runs.record import Kind, Outcome, RunRecord
from worldprotocol.runs.retention import prune_sometimes
from worldprotocol.runs.undoing import give_back, granted_since

__all__ = ["GovernedRun", "Kind", "Mode", "Outcome", "RunOptions"]

Mode = Literal["strict", "permissive"]

LOST: Final = "Its leases were lost: they expired or were revoked."

LOOK_S: Final = 0.5
"""Interval of checks that the leases are still held, in seconds."""

_LOGGER = logging.getLogger("worldprotocol")


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a governed run.

    Args:
        mode: ``strict`` ends the run at the first violation; ``permissive`` warns and extends the scope by leases
            where nothing conflicts, which gives up the guarantee that no deadlock can form (KO-3.2b).
        wait: longest wait for the leases, in seconds; None is without limit, 0 is none.
        retry: ask again after Die, at the time in the verdict, until the wait is over.
        ttl_ms: time to live of the leases without a heartbeat, in ms; None is the settings' default.
        keep: keep the changes of a run that failed without a violation; otherwise they are undone.
        compare: compare the content of the workspace before and after.
        require_signature: accept a signed manifest only.
        by: the caller's identity, which vouches for a manifest in its own name; see ``Leases.acquire``.
        progress: called with the number of scanned entries.
    """

    mode: Mode = "strict"
    wait: float | None = None
    retry: bool = False
    ttl_ms: int | None = None
    keep: bool = False
    compare: bool = True
    require_signature: bool = False
    by: str | None = None
    progress: Callable[[int], None] | None = None

    __repr__ = fields_repr


class GovernedRun:
    """A run under leases; made by ``begin``, ended by ``end``."""

    def __init__(
        self,
        protocol: Writer,
        leases: Leases,
        premises: HostEnvironment,
        ids: IdSource,
        *,
        held: LeaseHandle,
        declaration: Declaration,
        run_options: RunOptions,
    ) -> None:
        """Manage granted leases; use ``begin``."""
        self._protocol = protocol
        self._leases = leases
        self._premises = premises
        self._wishes = run_options
        self.held = held
        self.run_id = ids.new_id()
        self.watch = Watch(
            declaration, strict=run_options.mode == "strict", on_violation=self._violated, amend=self._amended
        )
        self.record = RunRecord(protocol, self.run_id, self.watch)
        self.not_given_back: list[str] = []
        self._more: list[LeaseHandle] = []
        self._stop: Callable[[str], None] = lambda _why: None
        self._ended = threading.Event()
        self._lost: str | None = None
        self._before: Scan | None = None
        self._position = 0
        self._others: list[Triple] = []
        self._cannot_reach: Callable[[bytes], bool] = lambda _: False

    @classmethod
    def begin(
        cls,
        protocol: Writer,
        leases: Leases,
        premises: HostEnvironment,
        ids: IdSource,
        manifest: Mapping[str, Any],
        run_options: RunOptions,
        *,
        cancel: Cancel | None = None,
    ) -> GovernedRun:
        """Acquire the leases of a manifest and prepare a run; ``cancel`` stops the wait from another thread.

        Raises:
            RefusedError: as ``Leases.acquire``, and where a backup cannot be taken; nothing is granted then.
        """
        held = leases.acquire(
            manifest=manifest,
            ttl_ms=run_options.ttl_ms,
            timeout=run_options.wait,
            retry=run_options.retry,
            by=run_options.by,
            require_signature=run_options.require_signature,
            cancel=cancel,
        )
        try:
            settings, types = protocol.archive.peek(lambda realm: (realm.klis.in_force, realm.klis.types))
            read = read_manifest(manifest, settings=settings, types=types)
            declaration = Declaration(held.agent, held.session, (*read.declared, *read.triples))
            if not held.verdict.backup and premises.needs(read.triples):
                # The process that granted the leases has no workspace; nothing was done yet.
                note = {"agentId": held.agent, "sessionId": held.session}
                premises.take(held.verdict.verdict_id, read.triples, at=protocol.now_ms(), note=note)
            return cls(protocol, leases, premises, ids, held=held, declaration=declaration, run_options=run_options)
        except BaseException:
            held.release()
            raise

    def open(
        self,
        kind: Kind,
        *,
        stop: Callable[[str], None],
        held_by: Sequence[str],
        cannot_reach: Callable[[bytes], bool] = lambda _: False,
        command: Sequence[str] = (),
    ) -> None:
        """Scan the workspace, record the beginning, and keep the leases alive from now on.

        Args:
            kind: the kind of the code.
            stop: called with the reason to end the code, when a violation ends the run or its leases are lost.
            held_by: mechanisms that enforce the declaration, for the record.
            cannot_reach: whether the kernel prevents the code from changing a path below the root, so that a change
                there was made by another process.
            command: the command line.
        """
        self._stop = stop
        self._cannot_reach = cannot_reach
        with exempt():
            try:
                self.held.keep_alive()
                self._position, self._others = self._protocol.archive.peek(
                    lambda realm: (realm.position, self._held_by_others(realm))
                )
                self._before = self._scan()
                self.record.opened(
                    self.held.verdict,
                    kind=kind,
                    held_by=list(held_by),
                    command=list(command),
                    existence=self._existence(),
                )
                threading.Thread(target=self._look_after, name="worldprotocol-leases", daemon=True).start()
            except BaseException:
                self._ended.set()
                self.held.release()
                raise

    def _existence(self) -> list[ResourceExistence] | None:
        """Check the existence of the files that the run depends on."""
        found = []
        for lease in self.held.verdict.leases:
            triple = read_claim(lease)
            if triple.predicate is Predicate.DEPENDS_ON and triple.resource.type == "FILE":
                exists = self._premises.exists(triple.resource, session_id=self.held.session, before="execution")
                found.append(ResourceExistence(triple.resource.text, exists))
        check_existence(found)
        return found or None

    def end(self, outcome: Outcome, *, exit_code: int | None = None, reason: str | None = None) -> Outcome:
        """Compare the content, undo a failure, record the end, and release the leases.

        Args:
            outcome: the outcome as known to the caller.
            exit_code: of a command.
            reason: one sentence, or None.

        Returns:
            The final outcome: lost leases and violations take precedence.
        """
        with exempt():
            try:
                ended = self._end(outcome, exit_code, reason)
            except BaseException as error:
                self._end_anyhow(error)
                raise
            finally:
                self._ended.set()
            prune_sometimes(self._protocol, self._premises)
        return ended

    def _end(self, outcome: Outcome, exit_code: int | None, reason: str | None) -> Outcome:
        found = self._compared()
        ended, why = self._outcome(outcome, reason)
        if ended in ("violated", "interrupted") or (ended == "failed" and not self._wishes.keep):
            self._give_back(found.undeclared)
        self.record.compared(
            [self._rendered(one) for one in found.changes], [self._rendered(one) for one in found.foreign]
        )
        self.record.closed(ended, exit_code=exit_code, reason=why, unused=self.watch.unused())
        self._release()
        return ended

    def _end_anyhow(self, error: BaseException) -> None:
        """Undo and close a run whose end could not be determined; if that fails too, the next start does it.

        The leases are then kept until they expire, so that no other session is admitted.
        """
        reason = f"Its end could not be determined, so it was undone: {type(error).__name__}: {error}"
        try:
            if self._lost is None:
                self._give_back([])
            self.record.closed("interrupted" if self._lost is None else "lost", reason=reason)
            self._release()
        except Exception as another:  # noqa: BLE001  # the first error is the one that is raised
            _LOGGER.warning("Run %s was left open; the next start ends it: %s", self.run_id, another)
            for held in (self.held, *self._more):
                held.stop_beating()

    def _release(self) -> None:
        """Release the leases, after the end is recorded and failures are undone."""
        for held in (self.held, *self._more):
            with suppress(RefusedError):
                held.release()

    def was_there(self, path: bytes) -> bool:
        """Whether a path of the workspace existed before the run; True without a scan."""
        workspace = self._premises.workspace
        relative = workspace.relative(path)
        if self._before is None or relative is None or relative in self._before:
            return True
        wanted = workspace.resource_at(relative)
        return not workspace.names.is_byte_wise and any(workspace.resource_at(one) == wanted for one in self._before)

    @property
    def lost(self) -> str | None:
        """Why the leases are lost; None while they are held."""
        return self._lost

    # While it runs

    def _violated(self, violation: Violation) -> None:
        if self.watch.is_strict:
            self._stop(violation.error.message)
        else:
            _LOGGER.warning("%s The mode is permissive.", violation.error.message)
        self.record.flush()

    def _amended(self, seen: Seen) -> bool:
        """Request a further lease without waiting: a session that would wait, or die, is denied (KO-3.2b)."""
        document = {
            "ver": "1.0",
            "session_id": self.held.session,
            "agent_id": self.held.agent,
            "scope": [seen.claim().to_wire()],
        }
        with exempt():
            try:
                run_options = self._wishes
                more = self._leases.acquire(manifest=document, timeout=0, ttl_ms=run_options.ttl_ms, run_id=self.run_id)
            except RefusedError:
                return False
            more.keep_alive()
            self._more.append(more)
            _LOGGER.warning(
                "%s on %s was not declared; the mode is permissive, so the scope was widened by a lease.",
                seen.predicate.value,
                seen.resource.text,
            )
            self.record.amended(more.verdict)
        return True

    def _look_after(self) -> None:
        """End the run when its leases are lost: another session may be working there."""
        heard = time.monotonic()
        while not self._ended.wait(LOOK_S):
            try:
                lost = not all(held.is_active for held in (self.held, *self._more))
                heard = time.monotonic()
            except Exception:  # noqa: BLE001  # the log is unavailable; after the TTL the leases may be another session's
                lost = time.monotonic() - heard > max(self.held.ttl_ms, 1) / 1000
            if lost:
                self._lost = LOST
                self._stop(self._lost)
                return

    # At the end

    def _scan(self) -> Scan | None:
        if not self._wishes.compare:
            return None
        premises = self._premises
        premises.workspace.make_private()
        return take(
            premises.workspace,
            ignore=premises.is_unwatched,
            cache=premises.workspace.private / "scan-cache",
            known=self._before,
            progress=self._wishes.progress,
        )

    def _compared(self) -> ContentFindings:
        """Compare the changes in the workspace with the declaration: this depth finds every change, afterwards."""
        if self._before is None:
            return ContentFindings()
        after = self._scan()
        assert after is not None
        later = granted_since(self._protocol.archive, self._position, but=self._own_verdicts())
        others = [*self._others, *later]

        def is_foreign(relative: bytes, resource: Resource) -> bool:
            return self._cannot_reach(relative) or _is_of(others, resource)

        return findings(self._before, after, self.watch, self._premises.workspace, is_foreign)

    def _held_by_others(self, realm: RealmView) -> list[Triple]:
        own = set(self.held.lease_ids)
        held = [lease.triple for lease in realm.klis.leases.values() if lease.lease_id not in own]
        return [triple for triple in held if triple.predicate in CHANGES]

    def _own_verdicts(self) -> list[str]:
        return [one.verdict.verdict_id for one in (self.held, *self._more)]

    def _outcome(self, outcome: Outcome, reason: str | None) -> tuple[Outcome, str | None]:
        if self._lost is None and not self.held.is_active:
            self._lost = LOST
        if self._lost is not None:
            return "lost", self._lost
        violations = self.watch.violations
        if violations and (self.watch.is_strict or any(not one.blocked for one in violations)):
            return "violated", violations[0].error.message
        return outcome, reason

    def _give_back(self, undeclared: Sequence[EntryDifference]) -> None:
        """Restore the leased resources, the newest leases first (KO-3.3), and record what could not be restored."""
        for held in (*reversed(self._more), self.held):
            verdict = held.verdict
            if not self._premises.needs([read_claim(lease) for lease in verdict.leases]):
                continue
            if not held.is_active:
                self._lost = LOST
                self.record.rolled_back(verdict.verdict_id, {"failed": [f"nothing was given back: {LOST}"]})
                continue
            archive, own = self._protocol.archive, self._own_verdicts()
            rendered = give_back(self._premises, archive, verdict.verdict_id, own=own)
            self.not_given_back += rendered.get("failed", ())
            self.record.rolled_back(verdict.verdict_id, rendered)
        if undeclared:
            left = "it was not leased, so nothing of it was saved, and it may be others'; it was left as it is"
            failed = [f"{self._rendered(one).resource} ({one.kind}): {left}" for one in undeclared]
            self.record.rolled_back(self.held.verdict.verdict_id, {"failed": failed})

    def _rendered(self, difference: EntryDifference) -> ChangedResource:
        resource = self._premises.workspace.resource_at(difference.relative)
        return ChangedResource(kind=difference.kind, resource=resource.text)


def _is_of(others: Sequence[Triple], resource: Resource) -> bool:
    """Whether another session may have changed a resource under leases."""
    return any(
        one.resource.key == resource.key or (one.covers and one.resource.key in resource.ancestors) for one in others
    )
