"""``Realm.host``: governed runs, their records, and effects in doubt."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from host.builtin.notes import prune_notes
from host.confinement.descendants import end_orphans
from host.confinement.private import remove_left
from host.environment import HostEnvironment
from world.clock import IdSource
from world.code.keyword_options import check_names
from world.engine.writer import Writer
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.predicate import Predicate
from world.pipeline.recover import Choice
from world.state.proposal import Proposal
from world.state.realm_view import RealmView
from worldprotocol.api.leases import Cancel, Leases
from worldprotocol.runs.backups import BackupAdministration
from worldprotocol.runs.declaring import manifest_of_places, url_resource
from worldprotocol.runs.governed import GovernedRun, RunOptions
from worldprotocol.runs.listing import RunLine, list_runs
from worldprotocol.runs.recovering import recover_runs
from worldprotocol.runs.retention import prune_sometimes
from worldprotocol.runs.session import GovernedSession
from worldprotocol.runs.verification import VerificationLog, read_verification

if TYPE_CHECKING:
    from host.isolation.child_process import Isolation
    from worldprotocol.runs.python import PythonResult

__all__ = ["Hosting", "PythonOptions", "SessionOptions"]

_LOGGER = logging.getLogger("worldprotocol")

NOTES_KEPT_MS: Final = 30 * 86_400_000
"""Time for which notes of effects are kept, in ms; later repetitions of an effect find no note of the first attempt."""


class SessionOptions(TypedDict, total=False):
    """Declared resources and governance of a session.

    Args:
        agent: agent of the session and identity of the caller; with ``manifest``, its agent_id is used, and it needs a
            signature unless ``run_options.by`` is that agent or the setting ``authentication`` is ``open``.
        session: unit of work; None begins one.
        reads: paths that are read (CONSUMES); see ``worldprotocol.runs.declaring`` for their syntax.
        writes: paths that are changed (MUTATES).
        creates: paths that are created (PROVIDES).
        deletes: paths that are deleted (DELETES).
        connects: URLs that are read (CONSUMES).
        manifest: a manifest in place of all these.
        run_options: options of governance; None is strict governance.
    """

    agent: str | None
    session: str | None
    reads: Iterable[str]
    writes: Iterable[str]
    creates: Iterable[str]
    deletes: Iterable[str]
    connects: Iterable[str]
    manifest: Mapping[str, Any] | None
    run_options: RunOptions | None


class PythonOptions(SessionOptions, total=False):
    """Options of Python code that runs under leases.

    Args:
        isolation: ``process`` is a child process, confined like a governed command; ``thread`` is the calling thread,
            under audit hooks. None is ``process`` for source text, and for code of an agent or an actor that is not
            registered.
        timeout_ms: time limit of a process, in milliseconds; None is a week.
        require: mechanisms that must confine the process: ``namespaces``, ``landlock``.
    """

    isolation: Isolation | None
    timeout_ms: int | None
    require: Sequence[str]


class Hosting:
    """Governed runs, backups and executions of a realm."""

    def __init__(self, protocol: Writer, leases: Leases, ids: IdSource, premises: HostEnvironment | None) -> None:
        """Serve a realm; governed runs need a host environment."""
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
                ErrorCode.NO_WORKSPACE,
                "This realm has no workspace; add [workspace] with root to world.toml, or open it with workspace=...",
            )
        return self._premises

    # Governed runs

    def session(self, **options: Unpack[SessionOptions]) -> GovernedSession:
        """Return a session for Python code; it acquires leases when it is entered.

        Args:
            **options: see ``SessionOptions``.

        Raises:
            RefusedError: ``NO_WORKSPACE``, ``INVALID_VALUE``, ``NO_MATCH``, ``OUTSIDE_WORKSPACE``,
                ``NOTHING_DECLARED``.
        """
        check_names(options, SessionOptions)
        manifest, run_options = self._declaration(options)
        return GovernedSession(self.premises, lambda cancel: self.begin(manifest, run_options, cancel=cancel))

    def run_python(
        self, code: str | Callable[[Any], Any], argument: Any = None, **options: Unpack[PythonOptions]
    ) -> PythonResult:
        """Run Python code under leases and return its result.

        Args:
            code: source text that defines ``main(argument)``, or a function of one argument.
            argument: argument of the function; JSON for a process, as the result is.
            **options: see ``PythonOptions``.

        Raises:
            ScopeViolationError: the code attempted an undeclared access.
            RefusedError: as ``session``; ``PYTHON_FAILED``, ``LEASE_LOST``, ``CONFINEMENT_UNAVAILABLE``,
                ``CONFINEMENT_FAILED``.
        """
        from worldprotocol.runs.python import default_isolation, run_in_thread, run_isolated

        check_names(options, PythonOptions)
        manifest, run_options = self._declaration(options)
        given = options.get("manifest")
        agent = options.get("agent") if given is None else given.get("agent_id")
        actor = self._protocol.archive.peek(lambda realm: realm.actors.get(str(agent)))
        begin = partial(self.begin, manifest, run_options)
        if (options.get("isolation") or default_isolation(code, actor)) == "thread":
            return run_in_thread(GovernedSession(self.premises, lambda cancel: begin(cancel=cancel)), code, argument)
        timeout_ms, require = options.get("timeout_ms"), options.get("require", ())
        return run_isolated(begin, self.premises, code, argument, timeout_ms=timeout_ms, require=require)

    def _declaration(self, options: SessionOptions) -> tuple[Mapping[str, Any], RunOptions]:
        """Return the manifest of a session, and the options of its governance."""
        places, manifest, agent = _places(options), options.get("manifest"), options.get("agent")
        workspace = self.premises.workspace
        run_options = options.get("run_options") or RunOptions()
        if manifest is not None:
            return manifest, run_options
        if not agent:
            raise RefusedError(ErrorCode.INVALID_VALUE, "The session has no agent; give agent, or a manifest.")
        session = options.get("session") or self._ids.new_id()
        document = manifest_of_places(workspace, agent=agent, session=session, places=places)
        return document, replace(run_options, by=run_options.by or agent)

    def begin(
        self, manifest: Mapping[str, Any], run_options: RunOptions, *, cancel: Cancel | None = None
    ) -> GovernedRun:
        """Acquire the leases of a run; the caller opens and ends it. See ``GovernedRun``."""
        return GovernedRun.begin(
            self._protocol,
            self._leases,
            self.premises,
            self._ids,
            manifest,
            run_options,
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
            most: maximum number; None is all.
            agent: only runs of this agent.
            open_only: only runs that have not ended.
        """
        return list(list_runs(self._protocol.archive, most=most, agent=agent, open_only=open_only))

    @property
    def backups(self) -> BackupAdministration:
        """Backups of the workspace: list, restore and prune.

        Raises:
            RefusedError: ``NO_WORKSPACE``.
        """
        return BackupAdministration(self._protocol.archive, self.premises, self._protocol.now_ms(), self._protocol)

    def end_orphans(self) -> None:
        """End processes that effects of killed workers left, before their executions resume."""

        def begun(realm: RealmView) -> list[tuple[str, str]]:
            return [(name, one.started.worker) for name, one in realm.proposals.items() if one.started is not None]

        for proposal_id, worker in self._protocol.archive.peek(begun):
            if not self._protocol.is_gone(worker):
                continue
            if end_orphans(proposal_id) is None:
                _LOGGER.warning("Proposal %s: processes of its effects cannot be ended.", proposal_id)
            else:
                remove_left(proposal_id)

    def look_after(self) -> None:
        """Recover interrupted runs, and prune expired backups and notes."""
        self.recover()
        prune_sometimes(self._protocol, self.premises)
        prune_notes(self.premises.scratch, self._protocol.now_ms(), NOTES_KEPT_MS)

    def recover(self, premises: HostEnvironment | None = None) -> list[VerificationLog]:
        """End runs of ended processes, roll back their changes, and return their records.

        Args:
            premises: environment in which they ran; None is the realm's own.

        Raises:
            RefusedError: ``NO_WORKSPACE``.
        """
        return recover_runs(self._protocol, self._leases, premises or self.premises)

    # Executions

    def stuck(self) -> list[dict[str, Any]]:
        """Return the effects in doubt, oldest first."""
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
        """Resolve an effect in doubt as a human actor, and continue its execution.

        Args:
            proposal_id: proposal of the effect.
            choice: ``happened``, with its result in ``value``; ``retry``: it did not happen; ``fail``: unknown.
            by: id of a registered actor.
            reason: evidence for the choice, which is recorded.
            effect: id of the requirement; None if a single effect is in doubt.
            value: result that the action receives.

        Raises:
            RefusedError: ``NOT_IN_DOUBT``, ``UNKNOWN_ACTOR``, ``REASON_MISSING``, ``INVALID_VALUE``, ``NOT_CANONICAL``,
                ``EVENT_TOO_LARGE``, ``NO_WORKSPACE``.
        """
        return self._protocol.resolve(proposal_id, effect, choice, by=by, reason=reason, value=value)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Cancel a proposal: withdraw it where it is not decided, else stop its effects and undo its file changes.

        A withdrawn proposal ends as superseded, and its request for leases leaves the queue; an execution ends failed.
        An actor that performs an effect itself, as the call of a tool, has 15 s to report it.

        Args:
            proposal_id: an open proposal.
            by: the actor that cancels it.
            reason: why, for the record.

        Raises:
            RefusedError: ``NOT_RUNNING``, ``REASON_MISSING``, ``NO_WORKSPACE``.
        """
        return self._protocol.cancel(proposal_id, by=by, reason=reason)


def _places(options: SessionOptions) -> dict[Predicate, Sequence[str]]:
    return {
        Predicate.CONSUMES: [*options.get("reads", ()), *map(url_resource, options.get("connects", ()))],
        Predicate.MUTATES: list(options.get("writes", ())),
        Predicate.PROVIDES: list(options.get("creates", ())),
        Predicate.DELETES: list(options.get("deletes", ())),
    }


def in_doubt(realm: RealmView) -> list[dict[str, Any]]:
    """Return the effects in doubt of a realm, oldest first."""
    effects = [
        {
            "proposalId": proposal.proposal_id,
            "actorId": proposal.submitted.actor.actor_id,
            "action": proposal.submitted.intent.body.type,
            "requirementId": name,
            "effect": asked.requirement.type,
            "params": asked.requirement.params,
            "requestedAt": proposal.requested_at.get(name, asked.at),
            "idempotencyKey": f"{proposal.submitted.intent.intent_id}:{name}",
        }
        for proposal in realm.proposals.values()
        for name, asked in proposal.in_doubt.items()
    ]
    return sorted(effects, key=lambda one: one["requestedAt"])


def under_way(realm: RealmView) -> int:
    """Return the number of requested effects without a result that no worker performs."""
    return sum(asked.offer is None for proposal in realm.proposals.values() for asked in proposal.requested.values())
