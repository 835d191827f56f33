"""Opening the realm that the options and ``world.toml`` name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from world.clock import SystemClock
from world.code.named_modules import admit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import UNAUTHENTICATED
from worldprotocol.api.bootstrap import environment_of
from worldprotocol.api.config import CONFIG_NAME, Config, RunsWorkspace, WorkspaceConfig, read_config
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.trust import refuse_untrusted
from worldprotocol.client.token_file import token_in

if TYPE_CHECKING:
    from host.environment import HostEnvironment
    from world.engine.domain_adoption import OpenProposals
    from world.klis.resources.names import NameComparison
    from worldprotocol.api.options import EngineOptions
    from worldprotocol.cli.support.command_context import CommandContext

CATCHING_UP = "Bringing the index up to date"


def settings_of(desk: CommandContext) -> Config:
    """Return the configuration that was named, or the one in the current folder, or the defaults.

    Raises:
        RefusedError: ``NO_CONFIG`` when the named one does not exist, ``INVALID_CONFIG``.
    """
    if desk.config is None and not Path(CONFIG_NAME).exists():
        config = Config()
    else:
        config = read_config(Path(desk.config or CONFIG_NAME))
    return config.model_copy(update={"paranoid": True}) if desk.paranoid else config


def composed(desk: CommandContext) -> Config:
    """Return the configuration of a realm that is to be acted on; the modules that it names can be imported afterwards.

    Raises:
        RefusedError: ``NO_CONFIG`` when no domain is known at all, ``INVALID_CONFIG``.
    """
    config = settings_of(desk)
    if config.domain is None:
        if desk.config is None and not Path(CONFIG_NAME).exists():
            raise RefusedError(
                ErrorCode.NO_CONFIG,
                f"There is no {CONFIG_NAME} here, and acting needs the domain: go to the realm's folder, name "
                "its configuration with --config, or make one with `worldctl init`.",
            )
        config.parts()  # which says where to name one
    admit_code(desk, config)
    return config


def admit_code(desk: CommandContext, config: Config) -> None:
    """Make the modules of a configuration's folder importable, where its code is the operator's own.

    Raises:
        RefusedError: ``UNTRUSTED_CODE`` for code that another user may have written, unless --trust was given;
            ``NOT_LOADED`` for a name that another configuration has in this process.
    """
    references = [*filter(None, [config.domain]), *config.projections, *config.policies, *config.effects]
    if not desk.trust:
        refuse_untrusted(Path(desk.config or CONFIG_NAME), config.folder, references)
    admit(references, config.folder)


def parts_of(config: Config, progress: Callable[[int, int], None]) -> dict[str, Any]:
    """Return what a configuration composes, with a progress bar.

    The clock is passed, so that no ticker is started: a command does its own work and nothing else.
    """
    return {**config.parts(), "progress": progress, "clock": SystemClock(), "execute": config.execute is not False}


def place_of(directory: str, name: str) -> str:
    """Return the address at which a directory places a realm.

    Raises:
        RefusedError: ``UNKNOWN_REALM``, ``REALM_ARCHIVED``; ``NOT_A_DIRECTORY`` and others of opening the directory.
    """
    from worldprotocol.directory.directory import RealmDirectory

    with RealmDirectory.open(directory, read_only=True) as opened:
        return opened.place(name)


def place_after_move(directory: str, name: str) -> str | None:
    """Return the address at which a directory places a realm; None while it is being moved or archived.

    Raises:
        RefusedError: as ``place_of``.
    """
    from worldprotocol.directory.directory import RealmDirectory

    with RealmDirectory.open(directory, read_only=True) as opened:
        return None if opened.entry(name).work is not None else opened.place(name)


def open_configured(desk: CommandContext, config: Config, **options: Unpack[EngineOptions]) -> Realm:
    """Open the realm of a configuration for acting, where a directory places it, if one was named.

    Args:
        desk: the options.
        config: the configuration.
        **options: as for ``Realm.open``; they override the configuration.

    Raises:
        RefusedError: see ``Realm.from_config``; the codes of ``place_of``.
    """
    if desk.placed is None:
        with naming_places(desk):
            return Realm.from_config(config, address=desk.address(), **options)
    from worldprotocol.directory.directory import open_placed

    return open_placed(*desk.placed, **{**config.parts(), **options})


@contextmanager
def naming_places(desk: CommandContext) -> Iterator[None]:
    """Name, in the refusal of a log that its realm has left, the place where the realm is now."""
    try:
        yield
    except RefusedError as refused:
        from worldprotocol.api.lookup.closed_log import naming_place

        raise naming_place(refused, desk.address()) from None


def executes(desk: CommandContext, config: Config, default: bool = True) -> bool:
    """Return whether a command performs effects: by its option, else by ``execute`` in world.toml."""
    chosen = config.execute if desk.execute is None else desk.execute
    return default if chosen is None else chosen


def open_for_acting(desk: CommandContext, *, execute: bool = True) -> Realm:
    """Open the realm for acting.

    Args:
        desk: the options.
        execute: whether the command performs effects where neither an option nor world.toml says it.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        performs = executes(desk, config, execute)
        world = open_configured(desk, config, progress=progress, clock=SystemClock(), execute=performs)
    if config.workspace is None:
        try:
            _recover(desk, config, world)
        except BaseException:
            world.close()
            raise
    return world.as_caller(UNAUTHENTICATED)


def open_to_confirm_clock(desk: CommandContext) -> Realm:
    """Open the realm for acting, without giving back what vanished runs left: that would need the right time.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        return open_configured(desk, config, progress=progress, clock=SystemClock(), execute=executes(desk, config))


def open_with_workspace(desk: CommandContext, *, execute: bool | None = None) -> Realm:
    """Open the realm for acting on its workspace: the folder of world.toml, unless it names another.

    Args:
        desk: the options.
        execute: whether the command performs effects; None is as for ``open_for_acting``.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        return open_configured(
            desk,
            config,
            progress=progress,
            clock=SystemClock(),
            workspace=workspace_of(config),
            execute=executes(desk, config) if execute is None else execute,
        ).as_caller(UNAUTHENTICATED)


def open_for_workers(desk: CommandContext, handlers: Iterable[str], workspace: str | None) -> Realm:
    """Open the realm for a worker: with further handlers, and nothing performed but what is claimed.

    Args:
        desk: the options.
        handlers: references to handlers; a module or file without an attribute is all of its handlers.
        workspace: a folder in place of the configured one; None leaves that.

    Raises:
        RefusedError: see ``Realm.open``; the errors of loading handlers.
    """
    config = composed(desk)
    named = [one if ":" in one else f"{one}:*" for one in handlers]
    config = config.model_copy(update={"effects": [*config.effects, *named]})
    admit_code(desk, config)
    parts: dict[str, Any] = {} if workspace is None else {"workspace": placed(config, workspace)}
    with desk.progress(CATCHING_UP) as progress:
        return open_configured(desk, config, progress=progress, clock=SystemClock(), execute=False, **parts)


def remote_effects(desk: CommandContext, handlers: Iterable[str], server: str, realm: str, token: Path | None) -> Any:
    """Return the effects of a realm that a server has, with the handlers of this process.

    Args:
        desk: the options; the configuration, where there is one, names further handlers and the secrets.
        handlers: references to handlers; a module or file without an attribute is all of its handlers.
        server: URL of the server, or ``unix:PATH``.
        realm: name of the realm there.
        token: file with an API token; None where the peer of a socket is verified.

    Raises:
        RefusedError: ``INVALID_ADDRESS``, ``INVALID_NAME``; ``TOKEN_NOT_VALID`` for a file without a token; the errors
            of loading handlers.
    """
    from host import find_effects
    from worldprotocol.api.bootstrap import secrets_of
    from worldprotocol.api.executing.remote_effects import RemoteEffects
    from worldprotocol.api.remote.realm_names import check_realm_name

    config = settings_of(desk)
    named = [one if ":" in one else f"{one}:*" for one in handlers]
    config = config.model_copy(update={"effects": [*config.effects, *named], "domain": None})
    admit_code(desk, config)
    secrets = None if config.secrets is None else config.secrets.in_folder(config.folder)
    return RemoteEffects(
        server,
        check_realm_name(realm),
        None if token is None else token_in(token),
        find_effects(config.effects, base=config.folder),
        secrets_of(secrets, None, config.folder),
    )


def placed(config: Config, root: str) -> WorkspaceConfig:
    """Return the configured workspace in another folder."""
    configured = config.placed_workspace() or WorkspaceConfig()
    return configured.model_copy(update={"root": str(Path(root).resolve())})


@contextmanager
def look_at_workspace(desk: CommandContext) -> Iterator[tuple[Realm, HostEnvironment]]:
    """Open the realm for looking only, and its workspace beside it.

    Raises:
        RefusedError: see ``Realm.open_read_only``; ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``.
    """
    with desk.look() as world:
        premises = environment_of(workspace_of(desk.settings()), desk.address(), names=_names_in(world))
        try:
            yield world, premises
        finally:
            premises.workspace.close()


def workspace_of(config: Config) -> WorkspaceConfig:
    """Return the workspace that a configuration names; where it names none, it is the configuration's folder."""
    return config.placed_workspace() or RunsWorkspace().in_folder(config.folder)


def _recover(desk: CommandContext, config: Config, world: Realm) -> None:
    """Give back what vanished runs left, where the configuration says nothing of a workspace and they had one."""
    workspace = workspace_of(config)
    interrupted = Path(workspace.root, ".klock", "backups", "restoring")
    if not world.archive.peek(lambda realm: bool(realm.runs)) and not (
        interrupted.is_dir() and any(interrupted.iterdir())
    ):
        return
    premises = environment_of(workspace, desk.address(), names=_names_in(world))
    try:
        world.host.recover(premises)
    finally:
        premises.workspace.close()


def _names_in(world: Realm) -> NameComparison:
    """Return how a realm compares names of files."""
    return world.archive.peek(lambda realm: realm.klis.in_force.names)


def open_to_adopt(desk: CommandContext, by: str, open_proposals: OpenProposals) -> Realm:
    """Open the realm under a changed domain and adopt it.

    Raises:
        RefusedError: see ``Realm.open_to_adopt``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress, naming_places(desk):
        return Realm.open_to_adopt(desk.address(), by=by, open_proposals=open_proposals, **parts_of(config, progress))
