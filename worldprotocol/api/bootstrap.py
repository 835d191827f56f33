"""Composition root: creates the components of all packages and connects them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, cast

from authority import PolicyRegistry, StandardAuthority
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
    RecordContext,
    Select,
    Trigger,
    UnsafeUnguarded,
    direct,
    find_projections,
    record_of,
    routed_refusal,
)
from world.clock import Clock, IdSource, SystemClock, SystemIds
from world.code.keyword_options import check_names
from world.code.references import load_reference
from world.code.time_limit import TimeLimit
from world.core import Domain, load_domain
from world.core.domain_rules import RULES
from world.engine.protocol import WorldProtocol
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource_types import ResourceTypes
from world.limits import Limits
from world.log import Durability, EventLog, LoggedEvent, TreeHead, open_log, rebuild_view
from world.log.following import Follower
from world.log.url import MEMORY, LogAddress, parse_address
from world.model.actor import ActorRef
from world.model.canonical_json import canonical_bytes
from world.model.intent import IntentBody, IntentInstance
from world.model.intent_origin import API_ORIGIN
from world.model.snapshot import Snapshot
from world.model.source import SourceEvent
from world.pipeline.project import Projector
from world.read_models.archive import Archive
from world.read_models.index import WorldIndex
from world.read_models.packaged_views import PackagedViews
from world.state.ports import WorkerRegistry
from worldprotocol.api.config import RunsWorkspace, SecretsConfig, WorkspaceConfig
from worldprotocol.api.options import ComponentOptions, EngineOptions
from worldprotocol.api.telemetry.context import tracer_provider
from worldprotocol.api.ticker import Ticker
from worldprotocol.api.waiting.outages import patiently
from worldprotocol.api.waiting.proposals import timeout_seconds
from worldprotocol.api.workers import ProcessWorkers

if TYPE_CHECKING:
    from world.state.ports import Executor
    from worldprotocol.api.telemetry.tracing import Tracing

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
    "take_adopted_form",
]

DAY_MS = 86_400_000
KEY_ENDING = ".secrets-key"
"""Suffix of the file with the key of the digests of secrets, after the log's file name."""


@dataclass(frozen=True, slots=True)
class Components:
    """Components that one process created around a log.

    Args:
        domain: loaded domain.
        projections: loaded projections.
        policies: loaded policies.
        policy_names: policies given by the operator, which are adopted when a realm is founded.
        authority: evaluates proposals.
        executor: executes approved proposals.
        ids: source of new ids.
        issuer: assigns intent ids.
        limits: limits of the pipeline.
        registers_workspace: whether the executor's workspace becomes the realm's.
        tracing: makes spans; None where the program has configured no provider of traces.
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
    registers_workspace: bool = True
    tracing: Tracing | None = None

    @property
    def performer(self) -> Executor:
        """What performs effects for workers: the executor, with a span for each effect where traces are made."""
        return self.executor if self.tracing is None else self.tracing.executor(self.executor)

    def issue(self, actor: ActorRef, body: IntentBody, schema_hash: str, *, note: str | None = None) -> IntentInstance:
        """Issue an intent of a caller; with an actor of kind system, a direct intent."""
        event_id = self.ids.new_id()
        if actor.kind == "system":
            return self.issue_direct(actor, body, schema_hash, job="direct", event_id=event_id, note=note)
        source = SourceEvent(kind="api", event_id=event_id)
        return self.issuer.issue(IssueRequest(schema_hash, API_ORIGIN, actor, source, body, note))

    def issue_direct(
        self, actor: ActorRef, body: IntentBody, schema_hash: str, *, job: str, event_id: str, note: str | None = None
    ) -> IntentInstance:
        """Issue a system direct intent; see ``projections.direct``."""
        trigger = Trigger(event_id, job)
        return direct(self.issuer, schema_hash=schema_hash, actor=actor, trigger=trigger, body=body, note=note)

    def projector(self, source: SourceEvent, actor: ActorRef) -> Projector:
        """Return the function that projects a source event on the head of a branch.

        Raises:
            RefusedError: ``SOURCE_TOO_LARGE``.
        """
        size = len(canonical_bytes(source.to_wire()))
        if size > self.limits.max_source_bytes:
            raise RefusedError(
                ErrorCode.SOURCE_TOO_LARGE,
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
                RecordContext(self.ids.new_id(), at, actor, source, schema_hash, world),
                intent=intent if isinstance(intent, IntentInstance) else None,
            )
            return record, intent

        return project if self.tracing is None else self.tracing.projector(project, actor)


def bootstrap(
    address: str | LogAddress, *, create: bool, domain: Domain | str | Path, **options: Unpack[EngineOptions]
) -> tuple[EventLog, Components, WorldProtocol]:
    """Open a log for acting and compose the engine around it.

    Args:
        address: address of the log.
        create: make the store and the log where they do not exist.
        domain: a domain, a reference to one, or a file.
        **options: see ``EngineOptions``.

    Raises:
        RefusedError: references that cannot be loaded, ``INVALID_VALUE`` for the patience, the codes of ``open_log``.
    """
    check_names(options, EngineOptions)
    engine = EngineOptions(**options)
    engine.pop("on_change", None)  # for ``Realm.open``
    durability, progress = engine.pop("durability", "full"), engine.pop("progress", None)
    workers, clock = engine.pop("workers", None), engine.get("clock")
    patience_s = timeout_seconds(engine.pop("patience", 0.0), "patience")
    components = compose(domain=domain, address=address, options=cast(ComponentOptions, engine))
    index, most = WorldIndex(checkpoint_every=components.limits.checkpoint_every), components.limits.max_event_bytes
    opened = partial(
        open_log, address, view=index, max_event_bytes=most, create=create, durability=durability, progress=progress
    )
    log = patiently(opened, patience_s, "Opening the realm")
    views = _in_adopted_form(log, components, progress)
    protocol = _protocol(log, components, clock or SystemClock(), workers or ProcessWorkers(), views)
    if (provider := tracer_provider()) is not None:
        from worldprotocol.api.telemetry.tracing import trace_engine

        components = replace(components, tracing=trace_engine(protocol, provider, log.address.name))
    if clock is None:  # a clock that the caller gave advances as the caller decides
        protocol.set_timer(Ticker(protocol.tick, SystemClock().now_ms))
    return log, components, protocol


def take_adopted_form(domain: Domain, log: EventLog) -> None:
    """Give a copy of a domain the form in which its log adopted it, where it has that form, and check its schema."""
    for adopted in list(Archive(log).adopted_domains())[-1:]:
        domain.take_form(adopted.schema_hash, adopted.rules or 1)
    _ = domain.schema


def _in_adopted_form(log: EventLog, parts: Components, progress: Callable[[int, int], None] | None) -> PackagedViews:
    """Take the form of the adoption, and return packages' views, up to date; close the log where either is refused."""
    try:
        take_adopted_form(parts.domain, log)
        views = PackagedViews.installed(time_limit=TimeLimit(parts.limits.max_call_ms))
        views.catch_up(log, progress)
    except BaseException:
        log.close()
        raise
    return views


def compose(
    *, domain: Domain | str | Path, options: ComponentOptions | None = None, address: str | LogAddress | None = None
) -> Components:
    """Compose the parts of the engine that need no log; see ``bootstrap``.

    Args:
        domain: a domain, a reference to one, or a file.
        options: see ``ComponentOptions``.
        address: address of the log; its files are excluded from the workspace.

    Raises:
        RefusedError: references that cannot be loaded.
    """
    given = options or ComponentOptions()
    check_names(given, ComponentOptions)
    folder, secrets, workspace = given.get("folder"), given.get("secrets"), given.get("workspace")
    loaded = load_any_domain(domain, base=folder, oldest_rules=1).copied()
    ids = given.get("ids") or SystemIds()
    limits = given.get("limits") or Limits()
    time_limit = TimeLimit(limits.max_call_ms)
    private = [secrets.folder] if isinstance(secrets, SecretsConfig) and secrets.folder is not None else []
    environment = None
    if workspace is not None:
        environment = environment_of(workspace, address, names=limits.klis.names, private=private)
    effects = given.get("effects", ())
    effects = effects if isinstance(effects, WholeRegistry) else list(effects)
    chosen = given.get("execute")
    has_means = isinstance(effects, WholeRegistry) or bool(effects or workspace is not None or secrets is not None)
    registry = PolicyRegistry.installed()
    names = tuple(_add_policy(registry, policy, folder) for policy in given.get("policies", ()))
    return Components(
        domain=loaded,
        projections=_projections(given, time_limit),
        policies=registry,
        policy_names=names,
        authority=StandardAuthority(registry, time_limit=time_limit),
        executor=Host(
            loaded,
            _effects(effects, folder),
            execute=has_means if chosen is None else chosen,
            enforcement=given.get("enforcement", "enforcing"),
            time_limit=time_limit,
            environment=environment,
            clock=given.get("clock"),
            secrets=secrets if isinstance(secrets, Secrets) else secrets_of(secrets, address, folder),
        ),
        ids=ids,
        issuer=Issuer(ids),
        limits=limits,
        registers_workspace=not isinstance(workspace, RunsWorkspace),
    )


def environment_of(
    workspace: WorkspaceConfig | str | Path,
    address: str | LogAddress | None = None,
    *,
    names: NameComparison = BYTE_WISE,
    private: Iterable[str] = (),
) -> HostEnvironment:
    """Return the environment of a workspace; files of the log in it are inaccessible.

    Args:
        workspace: a folder, or its configuration.
        address: address of the log.
        names: comparison of names.
        private: further files and folders that effects and runs must not access.

    Raises:
        RefusedError: ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``.
    """
    if not isinstance(workspace, WorkspaceConfig):
        workspace = WorkspaceConfig(root=str(Path(workspace).resolve()))
    place = Workspace(workspace.root, names=names)
    own = [*log_files(address), *private]
    runtime = RuntimePaths.standard(read=workspace.read, write=workspace.write, private=own, guarded=workspace.guarded)
    return HostEnvironment(
        place,
        Backups(place, hard_links=workspace.hard_links),
        runtime,
        workspace.unwatched,
        keep_ms=workspace.keep_days * DAY_MS,
        keep_bytes=workspace.keep_bytes,
        namespaces_by=workspace.namespaces,
        hidden=workspace.hidden,
    )


def log_files(address: str | LogAddress | None) -> list[str]:
    """Return the files of a log in SQLite, the key of the digests of secrets last."""
    place = parse_address(address) if isinstance(address, str) else address
    if place is None or place.path in ("", MEMORY):
        return []
    return [f"{place.path}{ending}" for ending in ("", "-wal", "-shm", "-journal", KEY_ENDING)]


def secrets_of(configured: SecretsConfig | None, address: str | LogAddress | None, folder: Path | None) -> Secrets:
    """Return the secrets that a configuration defines.

    Args:
        configured: ``[secrets]`` with absolute paths; None defines none.
        address: of the log; the key of the digests is beside its file unless the configuration names another.
        folder: of the configuration; the key of a log without a file is there.

    Raises:
        RefusedError: what ``Secrets`` refuses of ``uses``.
    """
    if configured is None:
        return Secrets()
    made: dict[str, SecretSource] = {
        "environment": EnvironmentSecrets(tuple(configured.environment), configured.prefix)
    }
    if configured.folder is not None:
        made["folder"] = FolderSecrets(Path(configured.folder))
    if configured.keyring is not None:
        made["keyring"] = KeyringSecrets(configured.keyring)
    files = log_files(address)
    key = configured.key or (files[-1] if files else str((folder or Path()) / f"world{KEY_ENDING}"))
    return Secrets([made[name] for name in configured.order if name in made], key=Path(key), uses=configured.uses)


def _protocol(
    log: EventLog, parts: Components, clock: Clock, workers: WorkerRegistry, views: PackagedViews
) -> WorldProtocol:
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
        views=views,
    )


def rebuild_index(
    address: str, limits: Limits | None = None, progress: Callable[[int, int], None] | None = None
) -> int:
    """Rebuild a log's index and the views of packages; return the number of events. Needs no domain.

    Raises:
        RefusedError: what opening the log refuses; ``VIEW_FAILED`` and what else the views of packages refuse.
        DamagedLogError: the events themselves are damaged.
    """
    index = WorldIndex(checkpoint_every=(limits or Limits()).checkpoint_every)
    size = rebuild_view(address, index, progress=progress)
    views = PackagedViews.installed()
    if views.names:
        with open_log(address, view=index) as log:
            views.rebuild(log, progress)
    return size


def load_any_domain(domain: Domain | str | Path, *, base: Path | None = None, oldest_rules: int = RULES) -> Domain:
    """Load a domain from an object, a file, or a reference: ``module:attribute`` or ``file.py:attribute``.

    Raises:
        RefusedError: ``NOT_LOADED``, ``NOT_A_DOMAIN``, and the codes of ``world.core.load_domain``, where
            ``oldest_rules`` is described.
    """
    if isinstance(domain, Domain):
        return domain
    text = str(domain)
    if isinstance(domain, Path) or text.endswith((".json", ".yaml", ".yml", ".mel")):
        return load_domain((base or Path()) / text, oldest_rules=oldest_rules)
    found = load_reference(text, base=base)
    if not isinstance(found, Domain):
        raise RefusedError(ErrorCode.NOT_A_DOMAIN, f"{text!r} is a {type(found).__name__}; it should be a Domain.")
    return found


def _add_policy(registry: PolicyRegistry, given: Any, folder: Path | None) -> str:
    if not isinstance(given, (str, Path)):
        return registry.add(given).name
    return registry.load(str(given), base=folder).name


def _projections(options: ComponentOptions, time_limit: TimeLimit) -> ProjectionRegistry:
    paranoid = options.get("paranoid", False)
    unguarded = options.get("unsafe_unguarded_projections", False)
    if paranoid and unguarded:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            "paranoid calls projections twice under guard, and unsafe_unguarded_projections removes the guard; "
            "choose one of them.",
        )
    mode: InvocationMode = Once(time_limit)
    if paranoid:
        mode = Guard(time_limit)
    elif unguarded:
        mode = UnsafeUnguarded(time_limit)
    given = list(options.get("projections", ()))
    references = [one for one in given if isinstance(one, str)]
    registry = find_projections(references, base=options.get("folder"), invocation_mode=mode)
    for one in given:
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
