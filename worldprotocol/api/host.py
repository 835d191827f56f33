"""``Realm.host``: governed runs, their records, and executions that need a person."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from host.builtin.notes import prune_notes
from host.confinement.descendants import end_orphans
from host.confinement.private import remove_left
from host.environment import HostEnvironment
from world.clock import IdSource
from world.engine.protocol import WorldProtocol
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.pipeline.recover import Choice
from world.state.proposal import Proposal
from world.state.realm_state import RealmState
from worldprotocol.api.leases import Cancel, Leases
from worldprotocol.runs.backups import BackupAdministration
from worldprotocol.runs.declaring import manifest_of_places, url_resource
from worldprotocol.runs.governed import GovernedRun, Wishes
from worldprotocol.runs.listing import RunLine, list_runs
from worldprotocol.runs.recovering import recover_runs
from worldprotocol.runs.retention import prune_sometimes
from worldprotocol.runs.session import GovernedSession
from worldprotocol.runs.verification import VerificationLog, read_verification

if TYPE_CHECKING:
    from host.isolation import Isolation
    from worldprotocol.runs.python import PythonResult

__all__ = ["Hosting"]

_LOGGER = logging.getLogger("worldprotocol")

NOTES_KEPT_MS: Final = 30 * 86_400_000
"""How long the notes of effects are kept, in ms: one made again after that does not know what it had done."""


class Hosting:
    """What the host does beside effects of proposals."""

    def __init__(
        self, protocol: WorldProtocol, leases: Leases, ids: IdSource, premises: HostEnvironment | None
    ) -> None:
        """Serve a realm; without premises there are no governed runs."""
        self._protocol = protocol
        self._leases = leases
        self._ids = ids
        self._premises = premises

    @property
    def premises(self) -> HostEnvironment:
        """The workspace and its backups.

        Raises:
            RefusedError: ``NO_WORKSPACE``.
        """
        if self._premises is None:
            raise RefusedError(
                "NO_WORKSPACE",
                "This realm has no workspace: add [workspace] with root to world.toml, or open it with workspace=...",
            )
        return self._premises

    # Governed runs

    def session(
        self,
        *,
        agent: str | None = None,
        session: str | None = None,
        reads: Iterable[str] = (),
        writes: Iterable[str] = (),
        creates: Iterable[str] = (),
        deletes: Iterable[str] = (),
        connects: Iterable[str] = (),
        manifest: Mapping[str, Any] | None = None,
        wishes: Wishes | None = None,
    ) -> GovernedSession:
        """Return a session for Python code; nothing happens before it is entered.

        Args:
            agent: whose session it is, and the caller's identity; with ``manifest``, its agent_id counts, and it needs
                a signature unless ``wishes.by`` is that agent or the setting ``authentication`` is ``open``.
            session: its unit of work; None begins one.
            reads: places that are read (CONSUMES); see ``worldprotocol.runs.declaring`` for how places are written.
            writes: places that are changed (MUTATES).
            creates: places that are made (PROVIDES).
            deletes: places that are removed (DELETES).
            connects: URLs that are read (CONSUMES).
            manifest: a whole manifest in place of all these.
            wishes: how it is to be governed; None is strictly.

        Raises:
            RefusedError: ``NO_WORKSPACE``, ``INVALID_VALUE``, ``NO_MATCH``, ``OUTSIDE_WORKSPACE``,
                ``NOTHING_DECLARED``.
        """
        places = _places(reads, writes, creates, deletes, connects)
        chosen, how = self._chosen(agent, session, places, manifest, wishes)
        return GovernedSession(self.premises, lambda cancel: self.begin(chosen, how, cancel=cancel))

    def run_python(
        self,
        code: str | Callable[[Any], Any],
        argument: Any = None,
        *,
        agent: str | None = None,
        session: str | None = None,
        reads: Iterable[str] = (),
        writes: Iterable[str] = (),
        creates: Iterable[str] = (),
        deletes: Iterable[str] = (),
        connects: Iterable[str] = (),
        manifest: Mapping[str, Any] | None = None,
        wishes: Wishes | None = None,
        isolation: Isolation | None = None,
        timeout_ms: int | None = None,
        require: Sequence[str] = (),
    ) -> PythonResult:
        """Run Python code under leases, and return what it answers; what is not trusted gets a process of its own.

        Args:
            code: a text that defines ``main(argument)``, or a function of one argument.
            argument: what it is given; for a process of its own JSON, as its result is.
            agent: as for ``session``, like all down to ``wishes``.
            session: its unit of work.
            reads: places that are read.
            writes: places that are changed.
            creates: places that are made.
            deletes: places that are removed.
            connects: URLs that are read.
            manifest: a whole manifest in place of all these.
            wishes: how it is to be governed.
            isolation: ``process`` is a child that the operating system holds like a governed command; ``thread`` is
                this thread, under audit hooks. None is ``process`` for texts, and for whatever runs for an agent or an
                actor that is not registered.
            timeout_ms: after which a process is killed, in milliseconds; None is a week.
            require: walls that have to hold a process: ``namespaces``, ``landlock``.

        Raises:
            ScopeViolationError: the code attempted what it had not declared.
            RefusedError: as ``session``; ``PYTHON_FAILED``, ``LEASE_LOST``, ``CONFINEMENT_UNAVAILABLE``,
                ``CONFINEMENT_FAILED``.
        """
        from worldprotocol.runs.python import default_isolation, run_in_thread, run_isolated

        places = _places(reads, writes, creates, deletes, connects)
        chosen, how = self._chosen(agent, session, places, manifest, wishes)
        name = agent if manifest is None else manifest.get("agent_id")
        actor = self._protocol.archive.peek(lambda realm: realm.actors.get(str(name)))
        begin = partial(self.begin, chosen, how)
        if (isolation or default_isolation(code, actor)) == "thread":
            return run_in_thread(GovernedSession(self.premises, lambda cancel: begin(cancel=cancel)), code, argument)
        return run_isolated(begin, self.premises, code, argument, timeout_ms=timeout_ms, require=require)

    def _chosen(
        self,
        agent: str | None,
        session: str | None,
        places: Mapping[Predicate, Sequence[str]],
        manifest: Mapping[str, Any] | None,
        wishes: Wishes | None,
    ) -> tuple[Mapping[str, Any], Wishes]:
        """Return the manifest of a session, and how it is to be governed."""
        workspace = self.premises.workspace
        how = wishes or Wishes()
        if manifest is not None:
            return manifest, how
        if not agent:
            raise RefusedError("INVALID_VALUE", "Say whose session it is (agent), or give a manifest.")
        name = session or self._ids.new_id()
        document = manifest_of_places(workspace, agent=agent, session=name, places=places)
        return document, replace(how, by=how.by or agent)

    def begin(self, manifest: Mapping[str, Any], wishes: Wishes, *, cancel: Cancel | None = None) -> GovernedRun:
        """Get the leases for a run; who runs something opens it and ends it. See ``GovernedRun``."""
        return GovernedRun.begin(
            self._protocol,
            self._leases,
            self.premises,
            self._ids,
            manifest,
            wishes,
            worker=self._protocol.worker,
            cancel=cancel,
        )

    def verification(self, run_id: str) -> VerificationLog:
        """Return the verification log of a run, or of a proposal's effects (KO-4).

        Raises:
            RefusedError: ``UNKNOWN_RUN``.
        """
        return read_verification(self._protocol.archive, run_id)

    def runs(self, *, most: int | None = None, agent: str | None = None, open_only: bool = False) -> list[RunLine]:
        """Return the governed runs, newest first.

        Args:
            most: at most so many; None is all.
            agent: only this agent's.
            open_only: only those that have not ended.
        """
        return list(list_runs(self._protocol.archive, most=most, agent=agent, open_only=open_only))

    @property
    def backups(self) -> BackupAdministration:
        """The backups of the workspace: what there is, giving it back, removing old ones.

        Raises:
            RefusedError: ``NO_WORKSPACE``.
        """
        return BackupAdministration(self._protocol.archive, self.premises, self._protocol.now_ms(), self._protocol)

    def end_orphans(self) -> None:
        """End what effects had started and left behind when their worker was killed, before anybody takes over."""

        def begun(realm: RealmState) -> list[tuple[str, str]]:
            return [(name, one.started.worker) for name, one in realm.proposals.items() if one.started is not None]

        for proposal_id, worker in self._protocol.archive.peek(begun):
            if not self._protocol.is_gone(worker):
                continue
            if end_orphans(proposal_id) is None:
                _LOGGER.warning("Proposal %s: processes of its effects cannot be ended.", proposal_id)
            else:
                remove_left(proposal_id)

    def look_after(self) -> None:
        """Do what is due in the workspace: end what was cut off, and remove what nobody needs any more."""
        self.recover()
        prune_sometimes(self._protocol, self.premises)
        prune_notes(self.premises.scratch, self._protocol.now_ms(), NOTES_KEPT_MS)

    def recover(self, premises: HostEnvironment | None = None) -> list[VerificationLog]:
        """End the runs whose process vanished, and give back what they left half done; returns their records.

        Args:
            premises: where they ran; None is the realm's own.

        Raises:
            RefusedError: ``NO_WORKSPACE``.
        """
        return recover_runs(self._protocol, self._leases, premises or self.premises)

    # Executions

    def stuck(self) -> list[dict[str, Any]]:
        """Return the effects of which nobody knows whether they happened, oldest first."""
        return self._protocol.archive.peek(in_doubt)

    def resolve(
        self,
        proposal_id: str,
        choice: Choice,
        *,
        by: str,
        reason: str,
        effect: str | None = None,
        value: Any = None,
    ) -> Proposal:
        """Say as a person what became of an effect in doubt, and let its execution go on.

        Args:
            proposal_id: whose effect it is.
            choice: ``happened``, with what it gave in ``value``; ``retry``, it did not happen; ``fail``, nobody knows.
            by: the person, a registered actor.
            reason: how it is known, for the record.
            effect: the requirement's id; None where only one is in doubt.
            value: what the action receives.

        Raises:
            RefusedError: ``NOT_IN_DOUBT``, ``UNKNOWN_ACTOR``, ``REASON_MISSING``, ``INVALID_VALUE``, ``NOT_CANONICAL``,
                ``EVENT_TOO_LARGE``, ``NO_WORKSPACE``.
        """
        return self._protocol.resolve(proposal_id, effect, choice, by=by, reason=reason, value=value)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Call an approved execution off: what is under way is given up, what it did to files is undone, it fails.

        Raises:
            RefusedError: ``NOT_RUNNING``, ``REASON_MISSING``, ``NO_WORKSPACE``.
        """
        return self._protocol.cancel(proposal_id, by=by, reason=reason)


def _places(
    reads: Iterable[str],
    writes: Iterable[str],
    creates: Iterable[str],
    deletes: Iterable[str],
    connects: Iterable[str],
) -> dict[Predicate, Sequence[str]]:
    return {
        Predicate.CONSUMES: [*reads, *map(url_resource, connects)],
        Predicate.MUTATES: list(writes),
        Predicate.PROVIDES: list(creates),
        Predicate.DELETES: list(deletes),
    }


def in_doubt(realm: RealmState) -> list[dict[str, Any]]:
    """Return the effects in a realm of which nobody knows whether they happened, oldest first."""
    found = [
        {
            "proposalId": proposal.proposal_id,
            "actorId": proposal.submitted.actor["actorId"],
            "action": proposal.submitted.intent["body"]["type"],
            "requirementId": name,
            "effect": asked.requirement["type"],
            "params": asked.requirement.get("params"),
            "requestedAt": proposal.requested_at.get(name, asked.at),
            "idempotencyKey": f"{proposal.submitted.intent['intentId']}:{name}",
        }
        for proposal in realm.proposals.values()
        for name, asked in proposal.in_doubt.items()
    ]
    return sorted(found, key=lambda one: one["requestedAt"])


def under_way(realm: RealmState) -> int:
    """Return how many effects were asked for and have not come back yet, whether their worker is still there or not."""
    return sum(len(proposal.requested) for proposal in realm.proposals.values())
