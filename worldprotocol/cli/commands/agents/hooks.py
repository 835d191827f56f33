"""``worldctl hooks``: put coding agents under a realm by their own hooks, and pass on the events of these hooks."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any, Final

import click

from worldprotocol.agents.hook_client import LONGEST_S
from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table

NAMES: Final = ("claude-code", "codex", "gemini", "cursor")
"""Agents whose hooks are known; the same as ``worldprotocol.agents.hooks.settings.FORMS``."""

GIT: Final = "git"
"""What is no agent and has hooks, too."""

FAILED: Final = 1


@click.group("hooks", cls=Group)
def hooks() -> None:
    """Install the hooks of coding agents, show and remove them."""


_CLIENT = click.argument("client", metavar="AGENT", type=click.Choice(NAMES))
_ANY = click.argument("client", metavar="AGENT|git", type=click.Choice((*NAMES, GIT)))
_PROJECT = click.option(
    "--project", default=".", show_default=True, type=click.Path(file_okay=False, exists=True), help="The project."
)
_USER = click.option("--user", is_flag=True, help="The settings of the user, for all projects, not of the project.")
_SERVER = click.option(
    "--server",
    default="http://127.0.0.1:8437",
    show_default=True,
    envvar="WORLDCTL_SERVER",
    metavar="URL",
    help="The server of the realm; WORLDCTL_SERVER names it too.",
)
_REALM = click.option("--realm", default="main", show_default=True, metavar="NAME", help="Name of the realm there.")
_TOKEN_FILE = click.option(
    "--token-file", metavar="FILE", help="File with the agent's token; by default it is in WORLDCTL_TOKEN."
)


@hooks.command("install")
@_ANY
@_PROJECT
@_USER
@click.option(
    "--server", envvar="WORLDCTL_SERVER", metavar="URL", help="The server of the realm; by default that of world.toml."
)
@click.option("--realm", metavar="NAME", help="Name of the realm there; by default that of world.toml, main.")
@click.option(
    "--log-id", metavar="ID", help="Id of the realm's log, where there is no world.toml (`worldctl verify --json`)."
)
@_TOKEN_FILE
@click.option(
    "--http",
    "is_http",
    is_flag=True,
    help="Requests of the agent itself in place of commands (Claude Code): a dead agent is noticed by its calls alone.",
)
@click.option(
    "--branch", "branches", multiple=True, metavar="NAME", help="For git: a shared branch; main and master by default."
)
@click.option("--dry-run", is_flag=True, help="Print the settings, and write nothing.")
@with_desk
def install(
    desk: CommandContext,
    client: str,
    project: str,
    *,
    user: bool,
    server: str | None,
    realm: str | None,
    log_id: str | None,
    token_file: str | None,
    is_http: bool,
    branches: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Write the hooks of AGENT (claude-code, codex, gemini or cursor) into its settings; its other settings stay.

    Each call of a tool is then judged by the realm before it is made; a server that does not answer blocks it, and a
    call whose agent ended is withdrawn. The agent needs a token of its own: `worldctl token create --actor ID --can
    act`. For git, merges and updates of shared branches take leases on the paths that they change.

    Run it in the realm's folder while the server runs: nothing is written unless the server serves the log of
    world.toml.
    """
    from worldprotocol.agents.hooks.settings import FORMS, HookPlace, with_hooks
    from worldprotocol.api.remote.addresses import read_server_address
    from worldprotocol.cli.commands.agents.installation import MAIN, address_in, check_agent, prove

    if branches and client != GIT:
        raise click.UsageError("--branch goes with git.")
    server, realm = server or address_in(desk.settings()), realm or MAIN
    read_server_address(server)
    if is_http and (client == GIT or not FORMS[client].takes_http or server.startswith("unix:") or token_file):
        raise click.UsageError("--http goes with claude-code, a URL, and the token in WORLDCTL_TOKEN.")
    if client != GIT:
        check_agent(client, Path(project).resolve())
    if not dry_run:
        prove(desk, server, realm, log_id)
    file = None if token_file is None else str(Path(token_file).resolve())
    if client == GIT:
        from worldprotocol.cli.commands.agents.git_hooks import SHARED, install_git

        options = ["--server", server, "--realm", realm, *(() if file is None else ("--token-file", file))]
        install_git(desk, project, _program(), options, branches or SHARED, dry_run=dry_run)
        return
    place = HookPlace(server, realm, file, _program())
    target = _target(client, project, user=user)
    settings = with_hooks(client, _read(target), place, is_http=is_http)
    text = json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
    if dry_run:
        for line in text.splitlines():
            desk.out.text(line)
        return
    _write(target, text)
    remarks = [f"{target} has the hooks of {client}: they ask {place.url(client)}."]
    if file is None:
        remarks.append("Start the agent with its token in WORLDCTL_TOKEN.")
    if client == "codex":
        remarks.append(
            "Codex skips new and changed hooks without a word until they are trusted: trust them by /hooks there."
        )
    desk.out.tell({"settings": str(target), "url": place.url(client)}, *remarks)


@hooks.command("uninstall")
@_ANY
@_PROJECT
@_USER
@with_desk
def uninstall(desk: CommandContext, client: str, project: str, *, user: bool) -> None:
    """Remove the hooks of AGENT that `install` wrote; other settings and hooks stay."""
    if client == GIT:
        from worldprotocol.cli.commands.agents.git_hooks import uninstall_git

        uninstall_git(desk, project)
        return
    from worldprotocol.agents.hooks.settings import installed, without_hooks

    target = _target(client, project, user=user)
    settings = _read(target)
    removed = installed(client, settings)
    if removed:
        _write(target, json.dumps(without_hooks(client, settings), indent=2, ensure_ascii=False) + "\n")
    words = f"Removed the hooks of {', '.join(removed)} from {target}." if removed else f"{target} has no such hooks."
    desk.out.tell({"settings": str(target), "removed": removed}, words)


@hooks.command("status")
@_PROJECT
@_USER
@with_desk
def status(desk: CommandContext, project: str, *, user: bool) -> int:
    """List which agents have hooks of this engine, and for which events.

    Exit code 1 where installed hooks do not hold: settings switch them off, the agent is too old, an earlier release
    wrote them, or they run a program that does not exist.
    """
    rows = [_row(client, project, user=user) for client in NAMES]
    rows.append(_git_row(project))
    table = ((one["agent"], ", ".join(one["events"]) or "none", one["settings"]) for one in rows)
    tell_table(desk, rows, ("agent", "hooks", "settings"), table)
    faults = [fault for one in rows for fault in one["faults"]]
    for fault in faults:
        desk.out.remark(fault)
    return FAILED if faults else 0


def _row(client: str, project: str, *, user: bool) -> dict[str, Any]:
    """Return what is installed of an agent, and why it does not hold."""
    from worldprotocol.agents.hooks.settings import absent, installed, is_earlier
    from worldprotocol.agents.hooks.silencing import silencing
    from worldprotocol.cli.commands.agents.installation import too_old

    target = _target(client, project, user=user)
    settings = _read(target)
    events = installed(client, settings)
    faults: list[str] = []
    if events:
        found = silencing(client, Path(project).resolve(), Path.home())
        faults += [f"{client}: {one} switches the hooks off; remove it." for one in found]
        faults += [f"{client}: {words}" for words in too_old(client)]
        if is_earlier(client, settings):
            faults.append(f"{client}: an earlier release wrote the hooks in {target}; install them again.")
        elif missing := absent(client, settings):
            faults.append(f"{client}: the hooks in {target} run {missing}, which does not exist; install them again.")
    return {"agent": client, "settings": str(target), "events": events, "faults": faults}


def _git_row(project: str) -> dict[str, Any]:
    from world.errors import RefusedError
    from worldprotocol.cli.commands.agents.git_hooks import installed_git

    try:
        paths = installed_git(project)
    except RefusedError:
        paths = []
    folder = str(paths[0].parent) if paths else ""
    return {"agent": GIT, "settings": folder, "events": [one.name for one in paths], "faults": []}


@hooks.command("git")
@click.argument("event", metavar="HOOK", type=click.Choice(("reference-transaction", "pre-push")))
@click.argument("state", metavar="ARGUMENT")
@click.option("--session", required=True, metavar="ID", help="The unit of work of the git process.")
@click.option("--branch", "branches", multiple=True, required=True, metavar="NAME", help="A shared branch.")
@click.option(
    "--wait", "wait_s", default=60.0, show_default=True, metavar="SECONDS", help="How long to wait for leases."
)
@_SERVER
@_REALM
@_TOKEN_FILE
@with_desk
def git(
    desk: CommandContext, event: str, state: str, *, server: str, realm: str, token_file: str | None, **more: Any
) -> int:
    """Take leases for what a git command merges, or give them back; hooks of git run this.

    Without leases the exit code is 1, and git gives up.
    """
    from world.errors import RefusedError
    from worldprotocol.api.remote.connecting import RealmConnecting
    from worldprotocol.cli.commands.agents.git_hooks import run_git_hook
    from worldprotocol.client.token_file import given_token

    try:
        with RealmConnecting.connect(server, token=given_token(token_file), realm=realm) as connected:
            run_git_hook(event, state, connected, **more)
    except RefusedError as refused:
        click.echo(f"worldctl: git may not change these files now: {refused.message} [{refused.code}]", err=True)
        return FAILED
    return 0


@hooks.command("call")
@_CLIENT
@_SERVER
@_REALM
@_TOKEN_FILE
@click.option(
    "--time-s",
    default=LONGEST_S,
    show_default=True,
    type=click.IntRange(1, LONGEST_S),
    help="How long to wait for an answer, in seconds.",
)
@with_desk
def call(desk: CommandContext, client: str, server: str, realm: str, token_file: str | None, time_s: int) -> int:
    """Pass the event of a hook on stdin to the server, and print its answer; agents run this.

    A call that is refused, and one about which nothing can be found out, is blocked by exit code 2. Where nothing reads
    the answer any more, or the parent process ended, the call is withdrawn. What `install` writes does the same without
    this program.
    """
    from worldprotocol.agents.hook_client import answered

    program = sys.argv[0] if os.path.isabs(sys.argv[0]) and sys.argv[0].endswith("worldctl") else "worldctl"
    options = {"--server": server, "--realm": realm, "--program": shlex.quote(program), "--time-s": str(time_s)}
    options |= {} if token_file is None else {"--token-file": str(Path(token_file).resolve())}
    return answered([client, *(word for pair in options.items() for word in pair)])


def _program() -> tuple[str, ...]:
    """Return the words that start this ``worldctl`` from any folder."""
    found = shutil.which("worldctl")
    return (str(Path(sys.argv[0]).resolve()),) if found is None and sys.argv[0].endswith("worldctl") else ("worldctl",)


def _target(client: str, project: str, *, user: bool) -> Path:
    from worldprotocol.agents.hooks.settings import FORMS

    return (Path.home() if user else Path(project).resolve()) / FORMS[client].path


def _read(target: Path) -> dict[str, Any]:
    """Return settings; empty where there are none.

    Raises:
        RefusedError: ``INVALID_CONFIG`` where they cannot be read; they are not overwritten.
    """
    from world.error_codes import ErrorCode
    from world.errors import RefusedError

    try:
        settings = json.loads(target.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG, f"{target} cannot be read: {error}. Correct it; nothing was written."
        ) from None
    if not isinstance(settings, dict):
        raise RefusedError(ErrorCode.INVALID_CONFIG, f"{target} is no JSON object. Correct it; nothing was written.")
    hooks = settings.get("hooks") or {}
    if not isinstance(hooks, dict) or not all(isinstance(listed, list) for listed in hooks.values()):
        words = f"{target}: `hooks` is no object with a list for each event. Correct it; nothing was written."
        raise RefusedError(ErrorCode.INVALID_CONFIG, words)
    return settings


def _write(target: Path, text: str) -> None:
    """Replace settings at once; a link to them stays a link."""
    target = target.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f"{target.name}.new")
    beside.write_text(text, encoding="utf-8")
    if target.exists():
        shutil.copymode(target, beside)
    beside.replace(target)
