"""``worldctl run``: any command under leases, held to what it declared, recorded, and undone where it fails."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import click

from world.private_files import open_private
from worldprotocol.cli.support.command_context import CliCommand, CommandContext, with_desk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worldprotocol.api.realm import Realm
    from worldprotocol.runs.command import CommandResult

VIOLATED: Final = 120
LOST: Final = 121
DIED: Final = 123
WAITED_TOO_LONG: Final = 124
NOT_ENDED: Final = 122
REFUSED: Final = 125
NOT_EXECUTABLE: Final = 126
NOT_FOUND: Final = 127

CODES: Final = {
    "DIED": DIED,
    "WAIT_TIMED_OUT": WAITED_TOO_LONG,
    "WAIT_CANCELLED": WAITED_TOO_LONG,
    "COMMAND_NOT_EXECUTABLE": NOT_EXECUTABLE,
    "COMMAND_NOT_FOUND": NOT_FOUND,
    "RUN_NOT_ENDED": NOT_ENDED,
}
"""Exit codes of what keeps a command from being run; everything else is ``REFUSED``."""


class _RunCommand(CliCommand):
    """The command ``run``, which requires ``--`` before the command line that it runs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse arguments whose ``--`` is missing or does not separate options from a command."""
        if not ctx.resilient_parsing:
            _check_separator(self, ctx, args)
        return super().parse_args(ctx, args)


def _check_separator(command: click.Command, ctx: click.Context, args: list[str]) -> None:
    """Refuse a command line that the shell, or a slip, left without a whole command after ``--``.

    An unquoted pattern is replaced by the shell with as many words as there are files: further words would be taken
    for the command, and an option that lacks a word would take ``--`` for it.

    Raises:
        click.UsageError: with the reason.
    """
    own = args[: args.index("--")] if "--" in args else args
    if "--help" in own:
        return
    try:
        rendered, _, _ = command.make_parser(ctx).parse_args(list(own))
    except click.BadOptionUsage as error:
        if "--" not in args:
            raise
        raise click.UsageError(f"{error.message} '--' follows in its place; {_QUOTE}", ctx) from None
    words = [*rendered["argv"]] if isinstance(rendered.get("argv"), list | tuple) else []
    if words and "--" in args:
        raise click.UsageError(f"{words[0]!r} before '--' belongs to no option; {_QUOTE}", ctx)
    if words:
        raise click.UsageError(f"'--' is missing before the command: write `-- {' '.join(words):.200}`.", ctx)
    if len(args) - len(own) < 2:
        raise click.UsageError("No command follows '--', so nothing can be run: write `-- COMMAND [ARGUMENT]...`.", ctx)


_QUOTE: Final = "if that results from a pattern that the shell replaced, quote the pattern: --writes 'src/*'."


@click.command("run", cls=_RunCommand, context_settings={"ignore_unknown_options": False})
@click.argument("argv", metavar="-- COMMAND [ARGUMENT]...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--agent", metavar="ID", help="Agent that runs the command; your user name by default.")
@click.option("--session", metavar="ID", help="Its unit of work, whose leases never conflict; a new one if not given.")
@click.option("--reads", multiple=True, metavar="PLACE", help="It reads there (CONSUMES): a file, folder/**, *.py.")
@click.option("--writes", multiple=True, metavar="PLACE", help="It changes or makes files there (MUTATES).")
@click.option("--creates", multiple=True, metavar="PLACE", help="It makes this (PROVIDES).")
@click.option("--deletes", multiple=True, metavar="PLACE", help="It removes this (DELETES).")
@click.option("--renames", nargs=2, multiple=True, metavar="OLD NEW", help="It moves this there (RENAMES).")
@click.option("--connects", multiple=True, metavar="URL", help="It talks to this host (CONSUMES).")
@click.option("--declare", nargs=2, multiple=True, metavar="PREDICATE RESOURCE", help="Any other triple.")
@click.option("--manifest", metavar="JSON|YAML", help="A whole manifest in place of all the above: @file or -.")
@click.option("--wait", type=float, default=60.0, show_default=True, metavar="SECONDS", help="How long to wait.")
@click.option("--retry", is_flag=True, help="After Die ask again, when the verdict says, until --wait is over.")
@click.option("--ttl-ms", type=int, help="Time to live of the leases without a heartbeat; else as [klis] says.")
@click.option("--permissive", is_flag=True, help="Warn, and widen the scope by leases: deadlocks can form. For trying.")
@click.option("--keep", is_flag=True, help="Leave what a command did that failed without a violation.")
@click.option("--unconfined", is_flag=True, help="Do not confine it; what it did is found in the content alone.")
@click.option(
    "--require",
    multiple=True,
    type=click.Choice(["namespaces", "landlock"]),
    help="Refuse to run it where this wall does not hold it.",
)
@click.option("--trace", is_flag=True, help="Also trace it with strace, for the record.")
@click.option("--allow-read", multiple=True, metavar="PATH", help="It may read this, outside of the workspace.")
@click.option(
    "--env", multiple=True, metavar="NAME[=VALUE]", help="A variable that it gets beside PATH, HOME and such."
)
@click.option("--no-compare", is_flag=True, help="Do not compare the content of the workspace before and after.")
@click.option("--require-signature", is_flag=True, help="Accept a signed manifest only.")
@click.option("--by", metavar="ID", help="The caller; the agent itself unless it is a --manifest.")
@click.option("--report", metavar="FILE", help="Write the verification log there, as JSON; - is stdout.")
@click.option("--call", metavar="KEY", help="Run the text of an allowed call of a coding agent, with --server.")
@with_desk
def run(desk: CommandContext, argv: tuple[str, ...], report: str | None, call: str | None, **asked: Any) -> int:
    """Run a command that may do what it declares and nothing else.

    It gets its leases first, waiting or dying as Wait-Die says, and what it may change is backed up before. A violation
    ends it with everything that it started, and what it changed is put back; so is what a command did that failed,
    unless --keep is given. `worldctl show RUN` shows all of it afterwards.

    The exit code is the command's own, but for 120: it violated its scope; 121: its leases were lost; 122: it ran, but
    its end could not be recorded; 123: it died, ask again; 124: it waited too long; 125: refused, nothing was run; 126:
    not executable; 127: no such command. Broken off before it began, it is 130 (Ctrl-C) or 143.

    With --call it runs what a coding agent was allowed, under the leases of that call; the hooks of the agent put this
    into its command line.
    """
    if call is not None:
        from worldprotocol.cli.commands.run.call import run_allowed

        return run_allowed(desk, call, argv, is_unconfined=asked["unconfined"])
    from world.errors import WorldProtocolError
    from worldprotocol.cli.support.opening import open_with_workspace

    _check_report(report)
    try:
        with open_with_workspace(desk) as world:
            result = _governed(desk, world, argv, asked)
            _tell(desk, world, result, report)
    except WorldProtocolError as error:
        return refused(desk, error)
    return exit_code_of(result)


def exit_code_of(result: CommandResult) -> int:
    """Return the exit code of a run: the command's own, unless it violated its scope or lost its leases."""
    return {"violated": VIOLATED, "lost": LOST}.get(result.outcome, result.exit_code)


def _check_report(report: str | None) -> None:
    """Refuse a report that cannot be written before anything is run."""
    if report not in (None, "-"):
        try:
            open_private(str(report), "ab").close()
        except OSError as error:
            raise click.UsageError(f"--report {report} cannot be written: {error.strerror}.") from None


def _governed(desk: CommandContext, world: Realm, argv: tuple[str, ...], asked: Mapping[str, Any]) -> CommandResult:
    from worldprotocol.runs.command import CommandRunOptions, check_can_be_confined, run_command
    from worldprotocol.runs.governed import RunOptions

    by = world.host.premises.namespaces_by
    check_can_be_confined(unconfined=asked["unconfined"], require=asked["require"], namespaces_by=by)
    manifest = _manifest(world, asked)
    run_options = RunOptions(
        mode="permissive" if asked["permissive"] else "strict",
        wait=asked["wait"],
        retry=asked["retry"],
        ttl_ms=asked["ttl_ms"],
        keep=asked["keep"],
        compare=not asked["no_compare"],
        require_signature=asked["require_signature"],
        by=asked["by"] or (manifest["agent_id"] if asked["manifest"] is None else None),
    )
    if asked["permissive"]:
        desk.out.remark(
            "Permissive: violations are warned of and leased on the way, so deadlocks can form (KLIS-6). Not for "
            "production."
        )
    begun = world.host.begin(manifest, run_options)
    how = CommandRunOptions(
        unconfined=asked["unconfined"], trace=asked["trace"], read=asked["allow_read"], passes=asked["env"]
    )
    return run_command(begun, world.host.premises, argv, how)


def _manifest(world: Realm, asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what was declared: a manifest, or places; an unconfined command without either changes where it works."""
    from world.klis.predicate import Predicate, read_predicate
    from worldprotocol.cli.support.input_reading import read_manifest_document
    from worldprotocol.runs.declaring import manifest_of_places, opaque_manifest, url_resource

    named = ("reads", "writes", "creates", "deletes", "renames", "connects", "declare")
    is_declared = any(asked[name] for name in named)
    if asked["manifest"] is not None:
        if is_declared or asked["agent"] or asked["session"]:
            raise click.UsageError("A manifest says all; leave out --agent, --session and the places.")
        return read_manifest_document(asked["manifest"])
    if asked["agent"] == "":
        raise click.UsageError("--agent is empty; name the agent, or leave it out.")
    agent = asked["agent"] or _user()
    session = asked["session"] or world.new_id()
    workspace = world.host.premises.workspace
    if not is_declared and asked["unconfined"]:
        return opaque_manifest(workspace, agent=agent, session=session, folder=os.getcwd())
    places: dict[Predicate, list[str]] = {
        Predicate.CONSUMES: [*asked["reads"], *map(url_resource, asked["connects"])],
        Predicate.MUTATES: list(asked["writes"]),
        Predicate.PROVIDES: list(asked["creates"]),
        Predicate.DELETES: list(asked["deletes"]),
    }
    for predicate, resource in asked["declare"]:
        places.setdefault(read_predicate(predicate.upper(), "--declare"), []).append(resource)
    return manifest_of_places(workspace, agent=agent, session=session, places=places, renames=asked["renames"])


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise click.UsageError("Name the agent that runs the command: --agent ID.") from None


def _tell(desk: CommandContext, world: Realm, result: CommandResult, report: str | None) -> None:
    """Report on stderr, because stdout is the command's own; write the record where it was requested."""
    import json

    if result.reason is not None and result.outcome != "completed":
        desk.out.warn(f"worldctl: {result.outcome}: {result.reason}")
    for one in result.not_given_back:
        desk.out.warn(f"worldctl: not given back: {one}")
    if result.not_given_back:
        desk.out.warn("worldctl: `worldctl backups list` names the backup, `worldctl backups restore` tries again")
    desk.out.remark(f"The verification log: worldctl show {result.run_id}")
    if report is None and not desk.json:
        return
    wire = world.host.verification(result.run_id).to_wire()
    if report in (None, "-"):
        desk.out.line(wire)
    else:
        with open_private(str(report)) as file:
            file.write(json.dumps(wire, ensure_ascii=False).encode() + b"\n")


def refused(desk: CommandContext, error: Any) -> int:
    """Report what kept a command from being run, and return the exit code."""
    from worldprotocol.cli.program import report_error

    code = CODES.get(error.code, REFUSED)
    return report_error(desk, error.code, error.message, error.details, code)
