"""The composition root: the only place where the rooms meet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from authority import Policy, PolicyRegistry, StandardAuthority
from host import EffectRegistry, Host, find_effects
from host.backups import Backups
from host.effect_registry import WholeRegistry
from host.environment import HostEnvironment
from host.observation import RuntimePaths
from host.secrets import EnvironmentSecrets, FolderSecrets, KeyringSecrets, Secrets, SecretSource
from host.workspace import Workspace
from projections import (
    Guard,
    InvocationMode,
    Issuer,
    IssueRequest,
    Once,
    ProjectionRegistry,
    ProjectionRequest,
    Select,
    UnsafeUnguarded,
    direct,
    find_projections,
    record_of,
    routed_refusal,
)
from world.clock import Clock, IdSource, SystemClock, SystemIds
from world.code.references import load_reference
from world.code.time_limit import TimeLimit
from world.core import Domain, load_domain
from world.engine.protocol import Projector, WorldProtocol
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import ResourceTypes
from world.limits import Limits
from world.log import EventLog, LoggedEvent, TreeHead, open_log, rebuild_view
from world.log.following import Follower
from world.log.store import Durability
from world.log.url import MEMORY, parse_address
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.intent import IntentBody, IntentInstance
from world.model.intent_origin import API_ORIGIN
from world.model.snapshot import Snapshot
from world.model.source import SourceEvent
from world.pipeline.unit_of_work import WorkerRegistry
from world.read_models.index import WorldIndex
from world.state.ports import Enforcement
from worldprotocol.api.config import SecretsConfig, WorkspaceConfig
from worldprotocol.api.ticker import Ticker
from worldprotocol.api.workers import ProcessWorkers

__all__ = [
    "Components",
    "Durability",
    "EventLog",
    "Follower",
    "LoggedEvent",
    "TreeHead",
    "bootstrap",
    "load_any_domain",
    "log_files",
    "open_for_reading",
]

DAY_MS = 86_400_000
KEY_ENDING = ".secrets-key"
"""What the file with the key of the digests of secrets is called, after the log's own file."""


@dataclass(frozen=True, slots=True)
class Components:
    """What one process composed around a log.

    Args:
        domain: whose actions run.
        projections: those at hand.
        policies: those at hand.
        policy_names: those that the operator named, to be adopted when a realm is founded.
        authority: judges.
        executor: executes.
        ids: makes fresh ids.
        issuer: gives intents their identity.
        limits: of the pipeline.
    """

    domain: Domain
    projections: ProjectionRegistry
    policies: PolicyRegistry
    policy_names: tuple[str, ...]
    authority: StandardAuthority
    executor: Host
    ids: IdSource
    issuer: Issuer
    limits: Limits

    def issue(self, actor: ActorRef, body: IntentBody, schema_hash: str, *, note: str | None = None) -> IntentInstance:
        """Issue an intent that a caller states outright; for an actor of kind system it is a direct intent."""
        event_id = self.ids.new_id()
        if actor.kind == "system":
            return self.issue_direct(actor, body, schema_hash, job="direct", event_id=event_id, note=note)
        source = SourceEvent(kind="api", event_id=event_id)
        return self.issuer.issue(IssueRequest(schema_hash, API_ORIGIN, actor, source, body, note))

    def issue_direct(
        self, actor: ActorRef, body: IntentBody, schema_hash: str, *, job: str, event_id: str, note: str | None = None
    ) -> IntentInstance:
        """Issue a system direct intent; see ``projections.direct``."""
        return direct(
            self.issuer, schema_hash=schema_hash, actor=actor, event_id=event_id, body=body, job=job, note=note
        )

    def projector(self, source: SourceEvent, actor: ActorRef) -> Projector:
        """Return what asks the projections about a source event, for the protocol to run on a branch's head.

        Raises:
            RefusedError: ``SOURCE_TOO_LARGE``.
        """
        size = len(canonical_bytes(source.to_wire()))
        if size > self.limits.max_source_bytes:
            raise RefusedError(
                "SOURCE_TOO_LARGE",
                f"The source event has {size} bytes; the limit is {self.limits.max_source_bytes} (max_source_bytes).",
                size_bytes=size,
                limit_bytes=self.limits.max_source_bytes,
            )

        def project(
            snapshot: Snapshot, schema_hash: str, world: str, at: int
        ) -> tuple[ProjectionRecorded | None, IntentInstance | RefusedError | None]:
            intent: IntentInstance | RefusedError | None = None
            try:
                routed = self.projections.route(ProjectionRequest(schema_hash, snapshot.view, actor, source))
            except RefusedError as refused:
                found = routed_refusal(refused)
                if found is None:
                    raise
                routed, intent = found, refused
            if isinstance(routed.result, Select):
                name = routed.recorded_as
                intent = self.issuer.issue(IssueRequest(schema_hash, name, actor, source, routed.result.body))
            record = record_of(
                routed,
                record_id=self.ids.new_id(),
                at=at,
                actor=actor,
                source=source,
                schema_hash=schema_hash,
                world_id=world,
                intent=intent if isinstance(intent, IntentInstance) else None,
            )
            return record, intent

        return project


def bootstrap(
    address: str,
    *,
    create: bool,
    domain: Domain | str | Path,
    folder: Path | None = None,
    projections: Iterable[Any] = (),
    policies: Iterable[Any] = (),
    effects: Iterable[Any] = (),
    enforcement: Enforcement = "enforcing",
    paranoid: bool = False,
    unsafe_unguarded_projections: bool = False,
    durability: Durability = "full",
    limits: Limits | None = None,
    workspace: WorkspaceConfig | str | Path | None = None,
    secrets: SecretsConfig | Secrets | None = None,
    clock: Clock | None = None,
    ids: IdSource | None = None,
    workers: WorkerRegistry | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[EventLog, Components, WorldProtocol]:
    """Open a log for acting and put everything around it; see ``worldprotocol.Realm``.

    Args:
        address: of the log.
        create: make the store and the log where they do not exist.
        domain: a domain, a reference to one, or a file.
        folder: where relative references start; None is the current folder.
        projections: projections, or references to them.
        policies: policies, or references to them.
        effects: handlers of effects, or references to them.
        enforcement: whether patches outside approvedScope are refused.
        paranoid: ask every projection twice under guard, on copies.
        unsafe_unguarded_projections: ask projections without any guard.
        durability: ``full`` or ``normal``; see ``world.log.open_log``.
        limits: of the pipeline.
        workspace: the folder that agents see as ``FILE:/``, or its configuration; None: nothing is watched.
        secrets: what references in effects stand for, or its configuration; None: no secret is defined.
        clock: what time it is.
        ids: makes fresh ids.
        workers: names this process in the record; None is by what the operating system calls it.
        progress: called while the index is built, with events done and in all.

    Raises:
        RefusedError: what cannot be loaded, and what opening the log refuses.
    """
    parts = compose(
        domain=domain,
        folder=folder,
        projections=projections,
        policies=policies,
        effects=effects,
        enforcement=enforcement,
        paranoid=paranoid,
        unsafe_unguarded_projections=unsafe_unguarded_projections,
        limits=limits,
        ids=ids,
        workspace=workspace,
        secrets=secrets,
        address=address,
        clock=clock,
    )
    log = _opened_log(address, parts.limits, create=create, durability=durability, progress=progress)
    protocol = _protocol(log, parts, clock or SystemClock(), workers or ProcessWorkers())
    if clock is None:  # a clock of the caller's own passes as the caller says
        protocol.set_alarm(Ticker(protocol.tick, SystemClock().now_ms))
    return log, parts, protocol


def _opened_log(address: str, limits: Limits, **options: Any) -> EventLog:
    view = WorldIndex(checkpoint_every=limits.checkpoint_every)
    return open_log(address, view=view, max_event_bytes=limits.max_event_bytes, **options)


def compose(
    *,
    domain: Domain | str | Path,
    folder: Path | None = None,
    projections: Iterable[Any] = (),
    policies: Iterable[Any] = (),
    effects: Iterable[Any] = (),
    enforcement: Enforcement = "enforcing",
    paranoid: bool = False,
    unsafe_unguarded_projections: bool = False,
    limits: Limits | None = None,
    ids: IdSource | None = None,
    workspace: WorkspaceConfig | str | Path | None = None,
    secrets: SecretsConfig | Secrets | None = None,
    address: str | None = None,
    clock: Clock | None = None,
) -> Components:
    """Put together what works around a log, without a log; see ``bootstrap``.

    Raises:
        RefusedError: what cannot be loaded.
    """
    at_hand = load_any_domain(domain, base=folder)
    makes_ids = ids or SystemIds()
    chosen = limits or Limits()
    time_limit = TimeLimit(chosen.max_call_ms)
    kept = [secrets.folder] if isinstance(secrets, SecretsConfig) and secrets.folder is not None else []
    premises = None
    if workspace is not None:
        premises = premises_of(workspace, address, names=chosen.klis.names, private=kept)
    registry = PolicyRegistry.installed()
    names = tuple(_add_policy(registry, given, folder) for given in policies)
    return Components(
        domain=at_hand,
        projections=_projections(
            projections,
            folder,
            paranoid=paranoid,
            unsafe_unguarded=unsafe_unguarded_projections,
            time_limit=time_limit,
        ),
        policies=registry,
        policy_names=names,
        authority=StandardAuthority(registry, time_limit=time_limit),
        executor=Host(
            at_hand,
            _effects(effects, folder),
            enforcement=enforcement,
            time_limit=time_limit,
            environment=premises,
            clock=clock,
            secrets=secrets if isinstance(secrets, Secrets) else secrets_of(secrets, address, folder),
        ),
        ids=makes_ids,
        issuer=Issuer(makes_ids),
        limits=chosen,
    )


def premises_of(
    workspace: WorkspaceConfig | str | Path,
    address: str | None = None,
    *,
    names: NameComparison = BYTE_WISE,
    private: Iterable[str] = (),
) -> HostEnvironment:
    """Return the premises of a workspace; the log's own files in it are nobody's to touch.

    Args:
        workspace: a folder, or all that can be said of it.
        address: of the log.
        names: which differences of names are ignored.
        private: further files and folders that no effect and no run may touch.

    Raises:
        RefusedError: ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``.
    """
    told = workspace if isinstance(workspace, WorkspaceConfig) else WorkspaceConfig(root=str(Path(workspace).resolve()))
    place = Workspace(told.root, names=names)
    runtime = RuntimePaths.standard(read=told.read, write=told.write, private=[*log_files(address), *private])
    return HostEnvironment(
        place,
        Backups(place, hard_links=told.hard_links),
        runtime,
        told.unwatched,
        keep_ms=told.keep_days * DAY_MS,
        keep_bytes=told.keep_bytes,
        namespaces_by=told.namespaces,
    )


def log_files(address: str | None) -> list[str]:
    """Return the files of a log that is kept in files, the key of its digests of secrets last."""
    if address is None:
        return []
    place = parse_address(address)
    if place.backend != "sqlite" or place.path == MEMORY:
        return []
    return [f"{place.path}{ending}" for ending in ("", "-wal", "-shm", "-journal", KEY_ENDING)]


def secrets_of(told: SecretsConfig | None, address: str | None, folder: Path | None) -> Secrets:
    """Return the secrets that a configuration defines.

    Args:
        told: ``[secrets]`` with absolute paths; None defines none.
        address: of the log; the key of the digests is beside its file unless the configuration names another.
        folder: of the configuration; the key of a log without a file is there.

    Raises:
        RefusedError: what ``Secrets`` refuses of ``uses``.
    """
    if told is None:
        return Secrets()
    made: dict[str, SecretSource] = {"environment": EnvironmentSecrets(tuple(told.environment), told.prefix)}
    if told.folder is not None:
        made["folder"] = FolderSecrets(Path(told.folder))
    if told.keyring is not None:
        made["keyring"] = KeyringSecrets(told.keyring)
    files = log_files(address)
    key = told.key or (files[-1] if files else str((folder or Path()) / f"world{KEY_ENDING}"))
    return Secrets([made[name] for name in told.order if name in made], key=Path(key), uses=told.uses)


def _protocol(log: EventLog, parts: Components, clock: Clock, workers: WorkerRegistry) -> WorldProtocol:
    return WorldProtocol(
        log,
        domain=parts.domain,
        authority=parts.authority,
        executor=parts.executor,
        clock=clock,
        ids=parts.ids,
        workers=workers,
        limits=parts.limits,
        types=ResourceTypes.installed(),
    )


def rebuild_index(
    address: str, limits: Limits | None = None, progress: Callable[[int, int], None] | None = None
) -> int:
    """Build a log's index anew and return how many events it covers; no domain is needed.

    Raises:
        RefusedError: what opening the log refuses.
        DamagedLogError: the events themselves are damaged.
    """
    return rebuild_view(address, WorldIndex(checkpoint_every=(limits or Limits()).checkpoint_every), progress=progress)


def open_for_reading(address: str) -> EventLog:
    """Open a log for looking only; no byte of it changes."""
    return open_log(address, read_only=True, view=WorldIndex())


def load_any_domain(domain: Domain | str | Path, *, base: Path | None = None) -> Domain:
    """Return a domain from an object, a reference (``module:attribute``, ``file.py:attribute``) or a file.

    Raises:
        RefusedError: ``NOT_LOADED``, ``NOT_A_DOMAIN``, and what ``world.core.load_domain`` refuses.
    """
    if isinstance(domain, Domain):
        return domain
    text = str(domain)
    if isinstance(domain, Path) or text.endswith((".json", ".yaml", ".yml")):
        return load_domain((base or Path()) / text)
    found = load_reference(text, base=base)
    if not isinstance(found, Domain):
        raise RefusedError("NOT_A_DOMAIN", f"{text!r} is a {type(found).__name__}; it should be a Domain.")
    return found


def _add_policy(registry: PolicyRegistry, given: Any, folder: Path | None) -> str:
    if isinstance(given, Policy):
        return registry.add(given).name
    return registry.load(str(given), base=folder).name


def _projections(
    given: Iterable[Any], folder: Path | None, *, paranoid: bool, unsafe_unguarded: bool, time_limit: TimeLimit
) -> ProjectionRegistry:
    if paranoid and unsafe_unguarded:
        raise RefusedError(
            "INVALID_CONFIG",
            "paranoid asks projections twice under guard, and unsafe_unguarded_projections takes the guard away; "
            "choose one of them.",
        )
    asking: InvocationMode = Once(time_limit)
    if paranoid:
        asking = Guard(time_limit)
    elif unsafe_unguarded:
        asking = UnsafeUnguarded(time_limit)
    several = list(given)
    registry = find_projections([str(one) for one in several if isinstance(one, str)], base=folder, asking=asking)
    for one in several:
        if not isinstance(one, str):
            registry.add(one)
    return registry


def _effects(given: Iterable[Any], folder: Path | None) -> EffectRegistry:
    if isinstance(given, WholeRegistry):
        return given
    several = list(given)
    registry = find_effects([str(one) for one in several if isinstance(one, str)], base=folder)
    for one in several:
        if not isinstance(one, str):
            registry.add(one)
    return registry
