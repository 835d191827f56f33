"""``worldctl doctor``: is everything as it should be, and what to do where it is not."""

from __future__ import annotations

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.listing import tell_table


@command("doctor")
@click.option("--rebuild", is_flag=True, help="Build the index of the log anew from its events.")
@click.option(
    "--secrets", is_flag=True, help="Search all events, the configuration and backups for what has the form of a key."
)
def doctor(desk: CommandContext, *, rebuild: bool, secrets: bool) -> int:
    """Check the environment, the log, its index, what is unsettled, the code in force, the disk and the workspace.

    It reads the log without changing a byte, unless --rebuild is given. It does not check every event: `worldctl
    verify` does. Exit code 1 when something should be done, 3 when the log is damaged.

    --secrets does nothing else than to search; it names event and path, or file and line, and never a value.
    """
    if secrets:
        from worldprotocol.cli.support.health.secrets import tell_secrets

        if rebuild:
            raise click.UsageError("--rebuild and --secrets are two things; run doctor twice.")
        return tell_secrets(desk)
    from worldprotocol.cli.support.health.checks import check_up, rebuild_index

    if rebuild:
        events = rebuild_index(desk)
        desk.out.remark(f"The index was built anew from {events} events.")
    findings, damaged = check_up(desk)
    ok = all(one.ok for one in findings)
    rows = (("ok" if one.ok else "LOOK", one.name, one.facts, one.advice) for one in findings)
    wire = {"ok": ok, "checks": [one.to_wire() for one in findings]}
    tell_table(desk, wire, ("", "check", "found", "what to do"), rows)
    return 3 if damaged else 0 if ok else 1
