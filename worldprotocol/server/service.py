"""The service: its realms, threads and limits, from start to stop."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from world.clock import SystemClock
from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError
from world.limits import Limits
from world.read_models.leases import Shown
from world.read_models.live.ended_proposals import EndedProposals
from world.state.realm_view import RealmView
from worldprotocol.agents.command_terms import CommandTerms, DeclaredCommand
from worldprotocol.agents.files.calls import FileCalls
from worldprotocol.agents.project import Project
from worldprotocol.api.config import ServerConfig, WorkspaceConfig
from worldprotocol.api.lookup.past_views import PastViews
from worldprotocol.api.realm import Realm
from worldprotocol.api.telemetry.writes import time_writes
from worldprotocol.api.waiting.readiness import WITHIN_S, WriteProbe
from worldprotocol.export.cloud_events import CloudEvents
from worldprotocol.export.proofs.checkpoint import Checkpoint, checkpoint_of, default_origin
from worldprotocol.export.proofs.note import SigningKey
from worldprotocol.operations.calling import new_digests
from worldprotocol.operations.visibility import Redactions
from worldprotocol.runs.boundary import Boundary
from worldprotocol.server.commands.output import RunCommand
from worldprotocol.server.commands.running import RunningCommands
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.caller_watch import watch_callers
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls
from worldprotocol.server.governed.unclaimed import watch_unclaimed
from worldprotocol.server.issuers.issuer import flows_of, shared_key
from worldprotocol.server.jobs.program import RealmProgram, program_of
from worldprotocol.server.jobs.realm_jobs import RealmJobs, Slots
from worldprotocol.server.limits import Rates, Running, Waits
from worldprotocol.server.log_watch import LogWatch
from worldprotocol.server.metrics import Metrics
from worldprotocol.server.moves import Moves
from worldprotocol.server.pages.browser_sessions import Links
from worldprotocol.server.request_body import UnreadBodies
from worldprotocol.server.sign_in import SignIn
from worldprotocol.server.threads import Shared, Threads

if TYPE_CHECKING:
    from worldprotocol.server.governed.mcp_endpoint import McpEndpoint
    from worldprotocol.server.issuers.code_flow import CodeFlow

__all__ = ["AgentsOfRealm", "HostedRealm", "RealmToServe", "Service"]

CHECKS: Final = 2
"""Threads that check what callers send who were not verified, up to ``max_unverified_bytes``."""

Signed = Callable[[int | None], tuple[Checkpoint, Sequence[SigningKey]]]
"""Returns a checkpoint over so many first events, None of all, and the keys that signed it."""


@dataclass(frozen=True, slots=True)
class AgentsOfRealm:
    """How a realm takes calls of tools of coding agents.

    Args:
        project: the project that they work in.
        boundary: what confines shell commands.
        wait_s: longest wait of a call for its answer, in seconds.
        unclaimed_s: time after which an allowed call that its agent has not begun is cancelled, in seconds.
        files: the contents of files that calls read and write.
        commands: what is declared of shell commands.
        workspace: settings of the workspace, with absolute paths; None is the project alone.
        private: files of the engine that no command reads.
        must_confine: whether shell commands are refused where nothing confines them.
        running: the runs of shell commands in progress.
        presence: the callers that this server hears.
    """

    project: Project
    boundary: Boundary
    wait_s: float
    unclaimed_s: float
    files: FileCalls
    commands: tuple[DeclaredCommand, ...] = ()
    workspace: WorkspaceConfig | None = None
    private: tuple[str, ...] = ()
    must_confine: bool = False
    running: RunningCalls = field(default_factory=RunningCalls)
    presence: Presence = field(default_factory=Presence)

    def absent(self, realm: Realm) -> AbsentCallers:
        """Return what ends the calls of callers that are gone.

        Args:
            realm: the realm, open for acting, without a verified caller.
        """
        return AbsentCallers(realm, self.presence, self.running)

    def terms(self, actor_id: str, *, is_rewritten: bool) -> CommandTerms:
        """Return the terms of the shell commands of an agent.

        Args:
            actor_id: the agent.
            is_rewritten: whether its commands can be rewritten, without which they are not confined.
        """
        boundary = self.boundary if is_rewritten else "none"
        is_widened = partial(self.running.is_widened, actor_id)
        return CommandTerms(boundary, self.commands, is_widened, self.files.leases_reads)

    def workspace_to_wire(self) -> dict[str, Any]:
        """Return the workspace as a run needs it: its settings, and the files of the engine in it or beside it."""
        found = self.workspace or WorkspaceConfig(root=str(self.project.root))
        return {**found.model_dump(mode="json"), "private": list(self.private)}


@dataclass(frozen=True, slots=True)
class RealmToServe:
    """A realm that a server serves.

    Args:
        name: its name in paths.
        realm: the realm, open for acting; the service closes it.
        roles: rules of redaction by role, for ``role=NAME``.
        signed: returns a checkpoint over so many first events, None of all, and the keys that signed it; absent, a
            checkpoint without signature.
        program: log and code of the realm, which jobs load; None permits verification only.
        agents: how it takes calls of coding agents; None takes none.
        run_command: executes a command of ``worldctl``; None executes none.
        reopen: opens the realm again, where a directory places it; returns None while it is open nowhere. None where
            it cannot be opened again.
        is_placed: whether a directory places it, so that its moves are followed.
        resource_digests: returns what shows a resource by its digest.
    """

    name: str
    realm: Realm
    roles: Mapping[str, Iterable[str]] | None = None
    signed: Signed | None = None
    program: RealmProgram | None = None
    agents: AgentsOfRealm | None = None
    run_command: RunCommand | None = None
    reopen: Callable[[], RealmToServe | None] | None = None
    is_placed: bool = False
    resource_digests: Callable[[], Shown] = new_digests


@dataclass(slots=True)
class HostedRealm:
    """A realm in a running service, at one place; ``view`` reads its state, once for requests that arrive together.

    ``fault`` is why the realm cannot be opened where it was moved to; None where no attempt failed. ``noted`` is the
    code of the obstacle to writes that the log of the server names; empty where it names none.
    """

    name: str
    realm: Realm
    log_watch: LogWatch
    view: Shared[RealmView]
    redactions: Redactions
    signed: Signed
    past: PastViews
    cloud_events: CloudEvents
    ended: EndedProposals
    jobs: RealmJobs
    probe: WriteProbe
    resource_digests: Callable[[], Shown] = new_digests
    agents: AgentsOfRealm | None = None
    run_command: RunCommand | None = None
    reopen: Callable[[], RealmToServe | None] | None = None
    is_placed: bool = False
    watching: Sequence[asyncio.Task[None]] = ()
    fault: WorldProtocolError | None = None
    noted: str = ""

    @property
    def limits(self) -> Limits:
        """The limits of the realm's pipeline."""
        return Limits() if self.realm.parts is None else self.realm.parts.limits

    def checkpoint(self, size: int | None) -> Checkpoint:
        """Return a checkpoint over so many first events, None of all, signed where a key is configured."""
        return self.signed(size)[0]

    def verifier_keys(self) -> list[str]:
        """Return the keys that sign checkpoints, as texts."""
        return [key.verifier.to_text() for key in self.signed(None)[1]]


@dataclass(slots=True)
class Service:
    """Everything that requests share.

    Args:
        config: listeners, sign-in and limits.
        realms: the realms by name.
        threads: the pool for calls of realms.
        unread: bytes of bodies that are arriving.
        checks: threads for what callers send who were not verified, so that they leave ``threads`` to the others.
        large_checks: one thread for intents of such callers that are larger than ``max_unverified_bytes``.
        flows: sign-in of browsers, by the name of the issuer.
        flow_key: key of the cookies that keep a sign-in until it ends.
        address: the first listener's.
        mcp: the sessions of MCP clients; None without an application.
    """

    config: ServerConfig
    realms: dict[str, HostedRealm]
    threads: Threads
    sign_in: SignIn
    rates: Rates
    waits: Waits
    metrics: Metrics
    commands: RunningCommands
    unread: UnreadBodies
    checks: Threads
    large_checks: Threads
    is_stopping: bool = False
    running: Running = field(default_factory=Running)
    links: Links = field(default_factory=Links)
    flows: Mapping[str, CodeFlow] = field(default_factory=dict)
    flow_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    address: str = ""
    clock: SystemClock = field(default_factory=SystemClock)
    mcp: McpEndpoint | None = None
    moves: Moves = field(init=False)

    def __post_init__(self) -> None:
        """Follow the moves of the realms."""
        self.moves = Moves(self)

    @classmethod
    def of(
        cls,
        config: ServerConfig,
        realms: Iterable[RealmToServe],
        client_secrets: Mapping[str, str] | None = None,
    ) -> Service:
        """Return a service that is not started yet.

        Args:
            config: listeners, sign-in and limits.
            realms: the realms.
            client_secrets: by name of an issuer, the secret of the client there.

        Raises:
            RefusedError: ``INVALID_CONFIG`` where a realm that is not served is public, ``INVALID_REDACTION``.
        """
        to_serve = {one.name: one for one in realms}
        unknown = sorted(set(config.public) - set(to_serve))
        if unknown:
            raise RefusedError(
                ErrorCode.INVALID_CONFIG,
                f"[server.public] names {unknown[0]!r}, which is not served; there is {', '.join(to_serve)}.",
            )
        threads, checks, slots, clock = Threads(config.threads), Threads(CHECKS), Slots(), SystemClock()
        sign_in = SignIn(config.oidc, config.peers, checks)
        made = cls(
            config=config,
            realms={},
            threads=threads,
            sign_in=sign_in,
            rates=Rates(config.requests_per_second, config.burst),
            waits=Waits(config.max_waits),
            metrics=Metrics(),
            commands=RunningCommands(config.threads),
            unread=UnreadBodies(config.max_unread_bytes),
            checks=checks,
            large_checks=Threads(1),
            flows=flows_of(sign_in.issuers.values(), client_secrets or {}),
            clock=clock,
        )
        for one in to_serve.values():
            jobs = RealmJobs(one.program or program_of(one.realm), slots, clock.now_ms)
            made.realms[one.name] = made.hosted(one, jobs)
        if client_secrets:  # servers with the same configuration finish each other's sign-ins
            made.flow_key = shared_key(client_secrets)
        return made

    @property
    def public_url(self) -> str:
        """The address that browsers use."""
        return self.config.public_url or self.address

    async def start(self) -> None:
        """Begin to follow the realms."""
        self.moves.start()
        for one in self.realms.values():
            await self.begin(one)

    async def begin(self, one: HostedRealm) -> None:
        """Begin to follow the log of a realm, and the moves of one that a directory places."""
        if one.is_placed:
            one.log_watch.on_writer_closed = partial(self.moves.follow, one.name)
        one.log_watch.on_shrunk = partial(self.moves.open_again, one.name)
        await one.log_watch.start()
        if one.is_placed:
            self.moves.follow(one.name)  # where it was closed before the log was followed
        if one.agents is not None:
            watch = watch_unclaimed(one.realm, self.threads, one.agents.unclaimed_s, self.clock.now_ms)
            callers = watch_callers(one.agents.absent(one.realm), self.threads)
            one.watching = [asyncio.create_task(watch), asyncio.create_task(callers)]

    def hosted(self, one: RealmToServe, jobs: RealmJobs) -> HostedRealm:
        """Return a realm as the service has it while it serves the realm at one place.

        Args:
            one: the realm, open at that place.
            jobs: its jobs, which the next ones at that place join.

        Raises:
            RefusedError: ``INVALID_REDACTION``.
        """
        realm = one.realm

        def unsigned(size: int | None) -> tuple[Checkpoint, Sequence[SigningKey]]:
            head = realm.log.head() if size is None else realm.log.root_at(size)
            return checkpoint_of(head, default_origin(realm.log)), ()

        jobs.program = one.program or program_of(realm)
        made = HostedRealm(
            name=one.name,
            realm=realm,
            log_watch=LogWatch(realm.log, self.threads),
            view=Shared(self.threads, realm.realm),
            redactions=Redactions(realm.log, one.roles, self.config.public.get(one.name, ())),
            signed=one.signed or unsigned,
            past=PastViews(realm),
            cloud_events=CloudEvents(realm.log),
            ended=EndedProposals(realm.archive),
            jobs=jobs,
            probe=WriteProbe(realm._acting.writability),
            resource_digests=one.resource_digests,
            agents=one.agents,
            run_command=one.run_command,
            reopen=one.reopen,
            is_placed=one.is_placed,
        )
        if realm.parts is not None and realm.parts.tracing is not None:
            realm.parts.tracing.realm = one.name
        time_writes(realm, self.metrics.writes_of(one.name))
        return made

    def answered(self, name: str | None, error: WorldProtocolError) -> WorldProtocolError:
        """Return an error as it is answered: a request to a realm that is followed to another place may be repeated.

        A realm whose log lacks events that this process has seen is opened again.

        Args:
            name: of the realm; None where the request names none.
            error: what the request raised.
        """
        hosted = self.realms.get(name or "")
        is_moved = error.code == ErrorCode.LOG_FENCED and error.details.get("reason") == "move"
        if hosted is not None and error.code == ErrorCode.LOG_SHRUNK:
            self.moves.open_again(hosted.name)
        if hosted is None or not hosted.is_placed or not is_moved:
            return error
        then = (
            ""
            if hosted.fault is None
            else f" It cannot be opened there yet, and the server tries again: {hosted.fault.message}"
        )
        return RefusedError(
            ErrorCode.REALM_MOVED,
            f"The realm {name} is being moved to another place. Send the request again, with the same Idempotency-Key "
            f"or intentId.{then}",
        )

    def begin_stop(self) -> None:
        """Refuse new requests, and end those that wait."""
        self.is_stopping = True
        if self.mcp is not None:
            self.mcp.begin_stop()
        self.moves.begin_stop()
        for one in self.realms.values():
            one.log_watch.close()
            for task in one.watching:
                task.cancel()
            one.jobs.begin_stop()

    async def stop(self) -> None:
        """Wait for the running calls, whose effects are recorded, and close the realms."""
        self.begin_stop()
        if self.mcp is not None:
            await self.mcp.join()
        await self.moves.join()
        await self.commands.close()
        await self.threads.close()
        await self.checks.close()
        await self.large_checks.close()
        await self.moves.close()
        for one in self.realms.values():
            await one.jobs.join()
            await one.log_watch.join()
            await asyncio.to_thread(one.probe.join, WITHIN_S)
            await asyncio.to_thread(one.realm.close)
