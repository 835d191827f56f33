"""Opening the realm that the options and ``world.toml`` name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from world.clock import SystemClock
from world.code.named_modules import admit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.bootstrap import environment_of
from worldprotocol.api.config import CONFIG_NAME, Config, WorkspaceConfig, read_config
from worldprotocol.api.realm import Realm
from worldprotocol.cli.support.trust import refuse_untrusted

if TYPE_CHECKING:
    from host.environment import HostEnvironment
    from world.engine.domain_adoption import OpenProposals
    from world.klis.resources.names import NameComparison
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
    return {**config.parts(), "progress": progress, "clock": SystemClock()}


def open_for_acting(desk: CommandContext) -> Realm:
    """Open the realm for acting.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        world = Realm.from_config(config, address=desk.log, progress=progress, clock=SystemClock())
    if config.workspace is None:
        try:
            _recover(desk, config, world)
        except BaseException:
            world.close()
            raise
    return world


def open_to_confirm_clock(desk: CommandContext) -> Realm:
    """Open the realm for acting, without giving back what vanished runs left: that would need the right time.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        return Realm.from_config(config, address=desk.log, progress=progress, clock=SystemClock())


def open_with_workspace(desk: CommandContext) -> Realm:
    """Open the realm for acting on its workspace: the folder of world.toml, unless it names another.

    Raises:
        RefusedError: see ``Realm.open``.
    """
    config = composed(desk)
    with desk.progress(CATCHING_UP) as progress:
        return Realm.from_config(
            config, address=desk.log, progress=progress, clock=SystemClock(), workspace=workspace_of(config)
        )


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
    return config.placed_workspace() or WorkspaceConfig().in_folder(config.folder)


def _recover(desk: CommandContext, config: Config, world: Realm) -> None:
    """Give back what vanished runs left, where the configuration says nothing of a workspace and they had one."""
    workspace = workspace_of(config)
    interrupted = Path(workspace.root, ".klock", "backups", "restoring")
    if not world.archive.peek(lambda realm: bool(realm.runs)) and not (
        interrupted.is_dir() and any(interrupted.iterdir())
    ):
        return
    premises = environment_of(workspace, desk.log or config.log_address, names=_names_in(world))
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
    with desk.progress(CATCHING_UP) as progress:
        return Realm.open_to_adopt(
            desk.log or config.log_address, by=by, open_proposals=open_proposals, **parts_of(config, progress)
        )
