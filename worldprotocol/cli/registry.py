"""The commands of ``worldctl``: name, where it is, and its one line of help. A command is imported when it is used.

Installed packages add commands (``worldprotocol.cli.support.packaged_commands``); none takes the place of one of these.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click

from worldprotocol.cli.support.packaged_commands import PackagedCommand, packaged_commands


@dataclass(frozen=True, slots=True)
class LazyCommand:
    """A command that is not loaded yet.

    Args:
        where: ``module:attribute`` of the click command, below ``worldprotocol.cli.commands``.
        short: one line of help for the list of commands.
    """

    where: str
    short: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.where.partition(":")
        found = getattr(importlib.import_module(f"worldprotocol.cli.commands.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found


@dataclass(frozen=True, slots=True)
class DerivedCommands:
    """A command of operations that is not loaded yet, or a group of such.

    Args:
        name: the first word of the command.
        subject: module of ``worldprotocol.operations``.
        short: one line of help for the list of commands.
        where: further commands of the group, as for ``LazyCommand``; empty where all are derived.
    """

    name: str
    subject: str
    short: str
    where: str = ""

    def load(self) -> click.Command:
        """Import the operations and derive the command."""
        from worldprotocol.cli.derived import add_commands, command_of, operations_with_commands
        from worldprotocol.cli.support.command_context import Group

        if self.where:
            group = LazyCommand(self.where, self.short).load()
            assert isinstance(group, click.Group)
            return add_commands(group, self.subject)
        for one in operations_with_commands(self.subject):
            if one.command is not None and one.command.words == self.name:
                return command_of(one, self.name)
        return add_commands(Group(self.name, help=self.short), self.subject)


def _derived(*commands: DerivedCommands) -> dict[str, DerivedCommands]:
    return {one.name: one for one in commands}


SECTIONS: Final[Mapping[str, Mapping[str, LazyCommand | DerivedCommands]]] = {
    "Act": {
        "init": LazyCommand("admin.init:init", "Found a realm: world.toml and a log."),
        "new": LazyCommand("admin.new:new", "Write a running project from a template."),
        "actor": LazyCommand("admin.actor:actor", "Register actors and bind them to an authority."),
        "policy": LazyCommand("policy.policy:policy", "Adopt, compare, lint, test, shadow and backtest policies."),
        "submit": LazyCommand("act.submit:submit", "Submit intents."),
        "project": LazyCommand("act.project:project", "Hand source events to the projections, which select intents."),
        "inbox": LazyCommand("look.inbox:inbox", "List the proposals that wait for people."),
        "decide": LazyCommand("act.decide:decide", "Answer a proposal that waits for people."),
        **_derived(DerivedCommands("branch", "acting.branches", "List, create and switch branches.")),
        "settle": LazyCommand("act.settle:settle", "Do what is due: time-outs, abandoned executions and runs."),
        "resolve": LazyCommand("act.stuck:resolve", "Say what became of an effect in doubt."),
        "cancel": LazyCommand("act.stuck:cancel", "Cancel a proposal."),
        "adopt": LazyCommand("act.adopt:adopt", "Adopt a changed domain, on purpose."),
        "dev": LazyCommand("act.dev:dev", "Run a program that adopts its changes, and restart it on change."),
        **_derived(
            DerivedCommands(
                "lease", "acting.leases", "Acquire, keep, give back, revoke and list leases.", "lease.lease:lease"
            )
        ),
        "run": LazyCommand("run.run:run", "Run a command under leases, held to what it declares."),
        "worker": LazyCommand("run.worker:worker", "Claim offered effects and perform them."),
        "feed": LazyCommand("run.feed:feed", "Deliver events to other programs, and show how far each feed is."),
        "workspace": LazyCommand("run.workspace:workspace", "Show, keep or replace the workspace of the realm."),
        "backups": LazyCommand("run.backups:backups", "List, show, give back and remove backups."),
        "hooks": LazyCommand("agents.hooks:hooks", "Put coding agents under a realm by their hooks."),
        "mcp": LazyCommand("agents.mcp:mcp", "Serve actions as MCP tools, and govern MCP servers."),
        "serve": LazyCommand("admin.serve:serve", "Serve realms over HTTP."),
        "realm": LazyCommand("admin.realm:realm", "Create, list, move, archive and restore realms of a directory."),
        "clock": LazyCommand("admin.clock:clock", "Confirm that this machine's clock is right."),
        "klis": LazyCommand("lease.klis:klis", "Check and sign manifests; bring lease settings into force."),
        "rights": LazyCommand("admin.rights:rights", "Grant, revoke and list the rights of actors on a server."),
        "token": LazyCommand("admin.token:token", "Create, list and revoke API tokens of actors."),
        "keys": LazyCommand("lease.keys:keys", "Make, register, revoke and list keys of agents."),
    },
    "Look": {
        "log": LazyCommand("look.log:log", "List events, filtered; --follow waits for new ones."),
        "show": LazyCommand("look.show:show", "Show an event, intent, proposal, decision, world or run."),
        "runs": LazyCommand("look.runs:runs", "List the governed runs, newest first."),
        "stuck": LazyCommand("act.stuck:stuck", "List the effects in doubt, which wait for people."),
        "effects": LazyCommand("look.effects:effects", "List the effects that workers perform, and who has them."),
        "actions": LazyCommand("look.actions:actions", "List the actions an actor may take, and why."),
        "domain": LazyCommand("look.domain:domain", "Compile, check and format MEL; print JSON Schemas."),
        "state": LazyCommand("look.state:state", "Print the data at any point in the past, checked."),
        "diff": LazyCommand("look.diff:diff", "Compare two worlds with causes, or two logs."),
        "bisect": LazyCommand("look.bisect:bisect", "Find the first world in which something holds."),
        "trace": LazyCommand("look.trace:trace", "Draw the way from a source event to its worlds, or back."),
        "blame": LazyCommand("look.blame:blame", "Show the origin of each value below a path."),
        **_derived(DerivedCommands("waits", "acting.leases", "Show which requests wait for which leases.")),
        "explain": LazyCommand("look.explain:explain", "Explain a proposal rule by rule, or a verdict about leases."),
        "worlds": LazyCommand("look.worlds:worlds", "Draw the lineage of worlds as a tree."),
        "report": LazyCommand("look.report:report", "Write what happened as one HTML page, for the record."),
    },
    "Prove": {
        "replay": LazyCommand("look.replay:replay", "Rebuild the state from the log alone."),
        "verify": LazyCommand("prove.verify:verify", "Check every hash, id, order and reference of the log."),
        "recheck": LazyCommand("prove.recheck:recheck", "Perform every recorded step again and compare."),
        "whatif": LazyCommand("look.whatif:whatif", "Replay the log with one change and compare."),
        "checkpoint": LazyCommand("prove.checkpoint:checkpoint", "Write a signed tree head; keygen makes a key."),
        "prove": LazyCommand("prove.prove:prove", "Write a receipt for an event, or prove that the log only grew."),
        "export": LazyCommand("prove.export:export", "Write the log as JSON lines with tree heads, or as Parquet."),
        "archive": LazyCommand("prove.archive:archive", "Write the beginning of the log as an archive of files."),
        "cut": LazyCommand("prove.cut:cut", "Remove from the log the contents of archived events."),
        "sql": LazyCommand("prove.sql:sql", "Ask the log in SQL: events, proposals, decisions and worlds."),
        "import": LazyCommand("prove.import_:import_", "Read an exported log into a new one."),
        "salvage": LazyCommand("prove.salvage:salvage", "Save what is left of a damaged log."),
        "doctor": LazyCommand("admin.doctor:doctor", "Check the environment and the log; --rebuild the index."),
        "simulate": LazyCommand(
            "prove.simulate:simulate", "Simulate a realm from a seed, and look for what breaks it."
        ),
    },
}
"""All commands by section, in the order in which --help lists them."""

COMMANDS: Final[Mapping[str, LazyCommand | DerivedCommands]] = {
    name: entry for part in SECTIONS.values() for name, entry in part.items()
}


class LazyGroup(click.Group):
    """The group of all commands, which imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*COMMANDS, *_packaged()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when there is no such name."""
        entry = COMMANDS.get(cmd_name) or _packaged().get(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed without importing the others to suggest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-") and args[0] not in _packaged():
            import difflib

            near = difflib.get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " `worldctl --help` lists them."
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, from the table and the names that packages offer."""
        packaged = _packaged()
        width = max(map(len, [*COMMANDS, *packaged]))
        sections: dict[str, Mapping[str, LazyCommand | DerivedCommands | PackagedCommand]] = {**SECTIONS}
        if packaged:
            sections["From packages"] = packaged
        for title, entries in sections.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.short) for name, entry in entries.items()])


def _packaged() -> dict[str, PackagedCommand]:
    """Return the commands of packages under names of their own."""
    return {name: one for name, one in packaged_commands().items() if name not in COMMANDS}
