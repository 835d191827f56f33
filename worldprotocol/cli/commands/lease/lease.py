"""``worldctl lease``: leases without a proposal, for agents that only want to be kept apart."""

from __future__ import annotations

from typing import Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk


@click.group("lease", cls=Group)
def lease() -> None:
    """Acquire, keep, give back, revoke and list leases."""


@lease.command("acquire")
@click.argument("resources", metavar="[RESOURCE]...", nargs=-1)
@click.option("--agent", metavar="ID", help="Requesting agent.")
@click.option("--session", metavar="ID", help="Its unit of work, whose leases never conflict; a new one if not given.")
@click.option("--predicate", default="MUTATES", show_default=True, help="For what, one of the six.")
@click.option("--manifest", metavar="JSON|YAML", help="A whole manifest, in place of the above: @file or -.")
@click.option("--ttl-ms", type=int, help="Time to live without a heartbeat; by default that of [klis].")
@click.option("--wait", type=float, default=0, metavar="SECONDS", help="Wait so long where the rules allow waiting.")
@click.option("--retry", is_flag=True, help="After Die ask again, when the verdict says, until --wait is over.")
@click.option("--require-signature", is_flag=True, help="Accept a signed manifest only.")
@click.option("--by", metavar="ID", help="The caller; the agent itself unless it is a --manifest.")
@with_desk
def acquire(
    desk: CommandContext, resources: tuple[str, ...], manifest: str | None, wait: float, agent: str | None, **more: Any
) -> None:
    """Get leases on all of the resources, or none: FILE:/src/app.py, FILE:/docs/*, DATABASE_TABLE:users ...

    Nothing keeps them alive but `worldctl lease heartbeat`. Exit code 1 says that they were not granted, and why.
    """
    from worldprotocol.cli.support.input_reading import read_manifest_document

    if manifest is None and (agent is None or not resources):
        raise click.UsageError("Name the agent and the resources: --agent ID RESOURCE..., or give --manifest.")
    if manifest is not None and (agent is not None or resources):
        raise click.UsageError("A manifest names the agent and the resources; leave out --agent and the resources.")
    document = None if manifest is None else read_manifest_document(manifest)
    with desk.open() as world:
        got = world.leases.acquire(agent=agent, resources=resources, manifest=document, timeout=wait, **more)
    wire: dict[str, Any] = {
        "verdictId": got.verdict.verdict_id,
        "agentId": got.agent,
        "sessionId": got.session,
        "leases": [one.to_wire() for one in got.verdict.leases],
        "ttlMs": got.ttl_ms,
    }
    if desk.json:
        desk.out.document(wire)
        return
    rows = [(one.lease_id, one.token, one.predicate, one.resource) for one in got.verdict.leases]
    desk.out.table(("lease", "token", "predicate", "resource"), rows)
    desk.out.remark(f"{got.agent}, session {got.session}: for {got.ttl_ms} ms from now, and from every heartbeat.")
