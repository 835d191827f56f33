"""``worldctl serve``: the HTTP server."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command, patience_option

if TYPE_CHECKING:
    from worldprotocol.api.config import AgentsConfig, Config, ServerConfig, WorkspaceConfig
    from worldprotocol.api.realm import Realm
    from worldprotocol.export.proofs.checkpoint import Checkpoint
    from worldprotocol.export.proofs.note import SigningKey
    from worldprotocol.runs.boundary import Boundary
    from worldprotocol.server.commands.output import CommandRequest
    from worldprotocol.server.service import AgentsOfRealm, RealmToServe, Service


@command("serve")
@click.option(
    "--realm",
    "named",
    multiple=True,
    metavar="NAME=ADDRESS",
    help="Serve this realm: a world.toml, or a log with the configuration in force; repeatable.",
)
@click.option("--host", metavar="ADDRESS", help="Listen there; 127.0.0.1. Another one needs sign-in and TLS.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Listen on this port; 8437, and 0 is any free one.")
@click.option("--socket", "path", metavar="FILE", help="Unix socket; beside the first realm's file.")
@patience_option
@click.option(
    "--sign-in",
    "people",
    multiple=True,
    metavar="ACTOR",
    help="Print a one-time link that signs a browser in as this actor, for 15 minutes; repeatable.",
)
def serve(
    desk: CommandContext,
    named: tuple[str, ...],
    host: str | None,
    port: int | None,
    path: str | None,
    patience: float,
    people: tuple[str, ...],
) -> None:
    """Serve realms over HTTP, until SIGTERM or Ctrl-C; running calls are finished then.

    Without --realm, the realms of [realms] in world.toml are served, and the configured log as `main`. With
    --directory, a realm that names a world.toml is served where the directory places it, after a move too. Callers
    sign in with API tokens (`worldctl token create`) and need rights (`worldctl rights grant`).
    """
    from world.extras import needs_extra
    from worldprotocol.cli.support.opening import settings_of

    with needs_extra("Servers", "server"):
        from worldprotocol.server import serving
    from worldprotocol.api.config import ServerConfig
    from worldprotocol.api.telemetry.provider import traces_from_environment
    from worldprotocol.api.waiting.outages import patiently
    from worldprotocol.server.service import Service

    config = settings_of(desk)
    own = {"main": desk.address()} if config.domain else {}
    wanted = dict(_split(one) for one in named) or {**(config.realms or {}), **own}
    if not wanted:
        raise click.UsageError("Name a realm with --realm NAME=ADDRESS, or in [realms] of world.toml.")
    chosen = {name: value for name, value in (("host", host), ("port", port)) if value is not None}
    server = (config.server or ServerConfig()).model_copy(update=chosen).in_folder(config.folder)
    with ExitStack() as opened:
        opened.enter_context(traces_from_environment())
        realms = [
            patiently(partial(_opened, desk, name, address, opened), patience, f"Opening the realm {name}")
            for name, address in wanted.items()
        ]
        can_sign_in = bool(server.oidc) or any(one.realm.access.tokens() for one in realms)
        serving.check_listener(server, can_sign_in=can_sign_in)
        service = Service.of(server, realms, _client_secrets(server, config, desk.address()))
        where = Path(path) if path is not None else _beside(server.socket, realms[0].realm)
        codes = _links(service, people)
        serving.serve(service, where, lambda addresses: _tell(desk, addresses, service, codes))


def _split(text: str) -> tuple[str, str]:
    from worldprotocol.api.remote.realm_names import check_realm_name

    name, sign, address = text.partition("=")
    if not sign or not address:
        raise click.UsageError(f"--realm {text!r} is not NAME=ADDRESS.")
    return check_realm_name(name), address


def _opened(desk: CommandContext, name: str, address: str, opened: ExitStack) -> RealmToServe:
    """Open a realm; its configuration is the file that the address names, else the one in force."""
    from worldprotocol.api.remote.realm_names import check_realm_name
    from worldprotocol.cli.support.opening import CATCHING_UP, composed
    from worldprotocol.directory.directory import RealmDirectory

    check_realm_name(name)
    own = CommandContext(json=desk.json)
    own.trust, own.quiet, own.paranoid = desk.trust, desk.quiet, desk.paranoid
    own.config, log = (address, None) if address.endswith(".toml") else (desk.config, address)
    config = composed(own)
    directory = desk.directory if log is None and "directory" in desk.typed else None
    with desk.progress(CATCHING_UP) as progress:
        if directory is None:
            found = _at_place(own, config, name, log or config.log_address, progress)
        else:
            with RealmDirectory.open(directory) as places:
                found = places.open_by(name, lambda place: _at_place(own, config, name, place, progress))
            found = replace(found, reopen=lambda: _reopened(own, config, name, directory), is_placed=True)
    opened.enter_context(found.realm)
    return found


def _reopened(own: CommandContext, config: Config, name: str, directory: str) -> RealmToServe | None:
    """Open a realm again where a directory places it; None while it is open nowhere."""
    from worldprotocol.directory.directory import RealmDirectory

    def open_at(place: str) -> RealmToServe:
        return _at_place(own, config, name, place, _untold)

    with RealmDirectory.open(directory) as places:
        found = places.open_after_move(name, open_at)
    if found is None:
        return None
    return replace(found, reopen=lambda: _reopened(own, config, name, directory), is_placed=True)


def _untold(_done: int, _total: int) -> None:
    """Show no progress."""


def _at_place(
    own: CommandContext, config: Config, name: str, place: str, progress: Callable[[int, int], None]
) -> RealmToServe:
    """Open a realm at an address."""
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.remote.execution import run_command
    from worldprotocol.cli.support.redaction import resource_digests
    from worldprotocol.cli.support.signing import signed_checkpoint
    from worldprotocol.server.jobs.program import RealmProgram
    from worldprotocol.server.service import RealmToServe

    realm = Realm.from_config(config, address=place, progress=progress)

    def signed(size: int | None) -> tuple[Checkpoint, list[SigningKey]]:
        return signed_checkpoint(own, realm, size, (), None)

    def run(request: CommandRequest) -> int:
        return run_command(request, config, place)

    try:
        return RealmToServe(
            name=name,
            realm=realm,
            roles=config.redact,
            signed=signed,
            program=RealmProgram(place, config),
            agents=_agents(own, config, realm),
            resource_digests=partial(resource_digests, config),
            run_command=run,
            reopen=lambda: _at_place(own, config, name, place, _untold),
        )
    except BaseException:
        realm.close()
        raise


def _agents(desk: CommandContext, config: Config, realm: Realm) -> AgentsOfRealm | None:
    """Return how a realm takes calls of coding agents; None where it has no section ``[agents]``."""
    from host.workspace.hidden import HIDDEN
    from worldprotocol.agents.command_terms import DeclaredCommand
    from worldprotocol.agents.files.calls import FileCalls
    from worldprotocol.agents.project import Project
    from worldprotocol.api.config import CONFIG_NAME
    from worldprotocol.server.service import AgentsOfRealm

    section = config.agents
    if section is None:
        return None
    file = Path(desk.config or CONFIG_NAME).resolve()
    log = realm.log.address.path
    beside = [f"{log}{ending}" for ending in ("", "-wal", "-shm", ".sock")] if log else []
    own: list[str | Path] = [file, *beside, *config.own_files()]
    workspace = config.placed_workspace_of_agents()
    hidden = HIDDEN if workspace is None else workspace.hidden
    project = Project(config.folder / Path(section.root).expanduser(), own, hidden)
    if not project.root.is_dir():
        remark = f"[agents] root: there is no folder {project.root}; all files of agents elsewhere are outside of it."
        desk.out.remark(f"{remark} Correct {file}, or create the folder.")
    return AgentsOfRealm(
        project,
        _boundary(section, workspace),
        section.wait_s,
        section.unclaimed_s,
        FileCalls(project, section.reads == "leased"),
        tuple(DeclaredCommand(tuple(one.words), tuple(one.writes), tuple(one.hosts)) for one in section.commands),
        workspace,
        tuple(str(path) for path in own),
        section.confine is True,
    )


def _boundary(section: AgentsConfig, workspace: WorkspaceConfig | None) -> Boundary:
    """Return what confines the shell commands of coding agents; ``none`` where the workspace is not their project."""
    from worldprotocol.runs.boundary import boundary_of

    if section.confine is False or workspace is None:
        return "none"
    return section.boundary or boundary_of(workspace.namespaces)


def _beside(configured: str | None, realm: Realm) -> Path | None:
    """Return the configured socket, else the one beside the realm's file; None for a realm in a database server."""
    if configured is not None:
        return Path(configured)
    file = realm.log.address.path
    return Path(f"{file}.sock") if file else None


def _client_secrets(server: ServerConfig, config: Config, address: str) -> dict[str, str]:
    """Return the secrets of the clients at issuers, by name of the issuer.

    Raises:
        RefusedError: ``SECRET_NOT_FOUND``, ``SECRET_UNREADABLE``, ``SECRET_TOO_SHORT``, ``SECRET_NOT_ALLOWED``,
            ``SECRET_REFERENCE_INVALID``.
    """
    from worldprotocol.api.bootstrap import secrets_of

    wanted = [one for one in server.oidc if one.client_secret is not None]
    known = secrets_of(config.placed_secrets(), address, config.folder)
    return {one.name: str(known.resolve(one.client_secret, [f"URL:{one.issuer}"]).params) for one in wanted}


def _links(service: Service, people: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return actor and path of a one-time link for each actor, in each realm where it is registered.

    Raises:
        RefusedError: ``UNKNOWN_ACTOR`` where it is registered in none.
    """
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    made: list[tuple[str, str]] = []
    for actor in people:
        at = [name for name, one in service.realms.items() if actor in one.realm.realm().actors]
        if not at:
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR,
                f"{actor!r} is an actor of none of these realms; register it (`worldctl actor add`), and grant "
                f"it rights (`worldctl rights grant {actor} approver`).",
                actor_id=actor,
            )
        made += [(actor, f"/realms/{name}/sign-in?code={service.links.create(name, actor)}") for name in at]
    return made


def _tell(desk: CommandContext, addresses: list[str], service: Service, links: list[tuple[str, str]]) -> None:
    realms, public = list(service.realms), service.config.public
    signing_in = [{"actorId": actor, "url": f"{addresses[0]}{path}"} for actor, path in links]
    words = [f"Serving {', '.join(realms)} on {', '.join(addresses)}"]
    words += [f"Sign in as {one['actorId']}, once, within 15 minutes: {one['url']}" for one in signing_in]
    if not links and not service.config.oidc and not public:
        desk.out.remark("No browser can sign in; `worldctl serve --sign-in ACTOR` prints a link for one.")
    words += [
        f"Anyone may read {name} without sign-in: {addresses[0]}/realms/{name} (hidden: {', '.join(rules)})"
        for name, rules in public.items()
    ]
    rendered: dict[str, Any] = {"listening": addresses, "realms": realms} | ({"public": public} if public else {})
    desk.out.tell(rendered | ({"signIn": signing_in} if signing_in else {}), *words)
