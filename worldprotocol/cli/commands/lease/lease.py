"""``worldctl lease``: leases without a proposal, for agents that only want to be kept apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, Group, with_desk
from worldprotocol.cli.support.listing import tell_table
from worldprotocol.cli.support.point_in_time import at_option
from worldprotocol.cli.support.redaction import shown_resources

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm


@click.group("lease", cls=Group)
def lease() -> None:
    """Acquire, keep, give back, revoke and list leases."""


def _holder(function: Any) -> Any:
    for option in (
        click.option("--session", required=True, metavar="ID", help="Its session."),
        click.option("--agent", required=True, metavar="ID", help="The holder."),
    ):
        function = option(function)
    return function


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


@lease.command("heartbeat")
@click.argument("leases", metavar="LEASE...", nargs=-1, required=True)
@_holder
@click.option("--ttl-ms", type=int, help="Another time to live from now on.")
@with_desk
def heartbeat(desk: CommandContext, leases: tuple[str, ...], agent: str, session: str, ttl_ms: int | None) -> None:
    """Extend leases from now on, all or none."""
    with desk.open() as world:
        names = [full_id(world, one) for one in leases]
        done = world.leases.desk.heartbeat(names, agent_id=agent, session_id=session, ttl_ms=ttl_ms)
    rendered = [{"leaseId": one.lease_id, "expiresAt": one.expires_at} for one in done]
    _print(desk, rendered, ("lease", "expires at"))


@lease.command("release")
@click.argument("leases", metavar="LEASE...", nargs=-1, required=True)
@_holder
@with_desk
def release(desk: CommandContext, leases: tuple[str, ...], agent: str, session: str) -> None:
    """Give leases back, all or none; one that ended before keeps its state."""
    with desk.open() as world:
        names = [full_id(world, one) for one in leases]
        states = world.leases.desk.release(names, agent_id=agent, session_id=session)
    _print(desk, [{"leaseId": name, "state": state} for name, state in states.items()], ("lease", "state"))


@lease.command("revoke")
@click.argument("leases", metavar="LEASE...", nargs=-1, required=True)
@click.option("--reason", required=True, help="Why; the log keeps it.")
@click.option("--by", default="operator", show_default=True, metavar="ID", help="Actor that the record names.")
@with_desk
def revoke(desk: CommandContext, leases: tuple[str, ...], reason: str, by: str) -> None:
    """Take leases away from their holders, as the administrator of the log."""
    with desk.open() as world:
        names = [full_id(world, one) for one in leases]
        states = world.leases.desk.revoke(names, by=by, reason=reason)
    _print(desk, [{"leaseId": name, "state": state} for name, state in states.items()], ("lease", "state"))


@lease.command("list")
@click.option("--agent", metavar="ID", help="Only this agent's.")
@click.option("--redact", is_flag=True, help="Hide the paths of resources (KM-7.3): TYPE:#digest.")
@at_option("Those in force at this point in the past; times are judged by then.")
@with_desk
def list_leases(desk: CommandContext, agent: str | None, redact: bool, at: str | None) -> None:
    """List the leases in force, in order of their fencing tokens."""
    from world.read_models.leases import held
    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.cli.support.point_in_time import moment as looked_at

    shown = shown_resources(desk, redact=redact)
    with desk.look() as world:
        then = looked_at(world, at)
        found = held(then.ledger(), now=then.now, agent=agent, shown=shown)
    rows = (
        (
            one["leaseId"],
            one["token"],
            one["agentId"],
            one["sessionId"],
            one["predicate"],
            one["resource"],
            moment(one["expiresAt"]) if one["expiresAt"] is not None else "with its proposal",
        )
        for one in found
    )
    heads = ("lease", "token", "agent", "session", "predicate", "resource", "ends")
    tell_table(desk, found, heads, rows, empty="No lease is in force.")


def full_id(world: Realm, named: str) -> str:
    """Return the lease in force whose id begins like this; what begins none is taken as it is.

    Raises:
        RefusedError: ``AMBIGUOUS`` with the candidates.
    """
    from worldprotocol.api.lookup.id_lookup import the_one

    return the_one(named, world.realm().klis.leases, what="lease")


def _print(desk: CommandContext, rendered: list[dict[str, Any]], heads: tuple[str, ...]) -> None:
    tell_table(desk, rendered, heads, (tuple(one.values()) for one in rendered))
