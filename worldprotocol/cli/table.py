"""The commands of ``worldctl``: name, where it is, and its one line of help. A command is imported when it is used."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import click


@dataclass(frozen=True, slots=True)
class Entry:
    """A command that is not loaded yet.

    Args:
        where: ``module:attribute`` of the click command, below ``worldprotocol.cli``.
        short: one line of help for the list of commands.
    """

    where: str
    short: str

    def load(self) -> click.Command:
        """Import the command."""
        module, _, attribute = self.where.partition(":")
        found = getattr(importlib.import_module(f"worldprotocol.cli.{module}"), attribute)
        assert isinstance(found, click.Command)
        return found


SECTIONS: Final[Mapping[str, Mapping[str, Entry]]] = {
    "Act": {
        "init": Entry("init:init", "Found a realm: world.toml and a log."),
        "actor": Entry("actor:actor", "Register actors and bind them to an authority."),
        "policy": Entry("policy:policy", "Adopt, compare, lint, test, shadow and backtest policies."),
        "submit": Entry("submit:submit", "Submit intents or source events."),
        "inbox": Entry("inbox:inbox", "List the proposals that wait for people."),
        "decide": Entry("decide:decide", "Answer a proposal that waits for people."),
        "branch": Entry("branch:branch", "List, create and switch branches."),
        "settle": Entry("settle:settle", "Do what is due: time-outs, abandoned executions and runs."),
        "resolve": Entry("stuck:resolve", "Say what became of an effect in doubt."),
        "cancel": Entry("stuck:cancel", "Call an approved execution off."),
        "adopt": Entry("adopt:adopt", "Adopt a changed domain, on purpose."),
        "lease": Entry("lease:lease", "Acquire, keep, give back, revoke and list leases."),
        "run": Entry("governing:run", "Run a command under leases, held to what it declares."),
        "backups": Entry("backups:backups", "List, show, give back and remove backups."),
        "clock": Entry("clock:clock", "Confirm that this machine's clock is right."),
        "keys": Entry("keys:keys", "Make, register, revoke and list keys of agents."),
    },
    "Look": {
        "log": Entry("log:log", "List events, filtered; --follow waits for new ones."),
        "show": Entry("show:show", "Show an event, intent, proposal, decision, world or run."),
        "runs": Entry("runs:runs", "List the governed runs, newest first."),
        "stuck": Entry("stuck:stuck", "List the effects in doubt, which wait for people."),
        "actions": Entry("actions:actions", "List the actions an actor may take, and why."),
        "state": Entry("state:state", "Print the data at any point in the past, checked."),
        "diff": Entry("diff:diff", "Compare two worlds, and who made each difference, or two logs."),
        "bisect": Entry("bisect:bisect", "Find the first world in which something holds."),
        "trace": Entry("trace:trace", "Draw the way from a source event to its worlds, or back."),
        "blame": Entry("blame:blame", "Say who put every value below a path there, and why."),
        "waits": Entry("waits:waits", "Say who waits for whose leases."),
        "explain": Entry("explain:explain", "Explain a proposal rule by rule, or a verdict about leases."),
        "worlds": Entry("worlds:worlds", "Draw the lineage of worlds as a tree."),
        "report": Entry("report:report", "Write what happened as one HTML page, for the record."),
    },
    "Prove": {
        "replay": Entry("replay:replay", "Rebuild the state from the log alone."),
        "verify": Entry("verify:verify", "Check every hash, id, order and reference of the log."),
        "recheck": Entry("recheck:recheck", "Perform every recorded step again and compare."),
        "whatif": Entry("whatif:whatif", "Tell what had become of it, had something been otherwise."),
        "checkpoint": Entry("checkpoint:checkpoint", "Write a signed tree head; keygen makes a key."),
        "prove": Entry("prove:prove", "Write a receipt for an event, or prove that the log only grew."),
        "export": Entry("export:export", "Write the log as JSON lines with tree heads."),
        "import": Entry("import_:import_", "Read an exported log into a new one."),
        "salvage": Entry("salvage:salvage", "Save what is left of a damaged log."),
        "doctor": Entry("doctor:doctor", "Check the environment and the log; --rebuild the index."),
        "simulate": Entry("simulate:simulate", "Simulate a realm from a seed, and look for what breaks it."),
    },
    "For other implementations": {
        "id": Entry("identity:identity", "Compute keys, hashes and ids from JSON lines."),
        "eval": Entry("evaluate:evaluate", "Evaluate expressions from JSON lines."),
        "klis": Entry("klis:klis", "Manifests: check, sign; run scenarios and sessions of leases."),
        "flow": Entry("flow:flow", "Compute, apply, validate and run flows from JSON lines."),
    },
}
"""All commands by section, in the order in which --help lists them."""

COMMANDS: Final[Mapping[str, Entry]] = {name: entry for part in SECTIONS.values() for name, entry in part.items()}


class LazyGroup(click.Group):
    """The group of all commands, which imports only the one that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command; None when there is no such name."""
        entry = COMMANDS.get(cmd_name)
        return None if entry is None else entry.load()

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that was typed without importing the others to suggest one."""
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else " `worldctl --help` lists them."
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section, from the table alone."""
        width = max(map(len, COMMANDS))
        for title, entries in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), entry.short) for name, entry in entries.items()])
