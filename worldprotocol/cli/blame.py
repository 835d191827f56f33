"""``worldctl blame``: who last touched a place in the data, and why it was allowed."""

from __future__ import annotations

import click

from worldprotocol.cli.options import Desk, command
from worldprotocol.cli.output import as_text
from worldprotocol.cli.prefix import world_id
from worldprotocol.fate import moment


@command("blame")
@click.argument("path")
@click.option("--world", "world", metavar="WORLD", help="The world to look at: an id or a branch; else HEAD.")
def blame(desk: Desk, path: str, world: str | None) -> None:
    """Say who last touched PATH, such as `stock.tea`, in a world's data.

    From the value back to the patch, the world, the proposal, the actor, the decision and the source event.
    """
    with desk.look() as realm:
        found = realm.blame(path, None if world is None else world_id(realm, world))
    if desk.out.as_json:
        desk.out.document(found.to_wire())
        return
    desk.out.text(f"{found.path} = {as_text(found.value)}")
    desk.out.text(f"world     {found.world.world_id}  sealed {moment(found.world.at)}")
    if found.proposal is None:
        since = "nobody has written there since the realm was founded"
        desk.out.text(f"genesis   {since if found.value is None else 'the realm was founded with it'}")
        return
    for patch in found.patches:
        desk.out.text(f"patch     {as_text(patch.to_wire())}")
    intent, decision = found.proposal.intent, found.decision
    desk.out.text(
        f"proposal  {found.proposal.proposal_id}  {intent.body.type}  attempt {found.proposal.submitted.attempt}"
    )
    desk.out.text(f"actor     {found.proposal.submitted.actor['actorId']} ({found.proposal.submitted.actor['kind']})")
    if decision is not None:
        desk.out.text(f"allowed   by {decision.authority}: {decision.reason}")
    source = intent.meta.origin.source
    desk.out.text(f"source    {source.kind} {source.event_id} through {intent.meta.origin.projection_id}")
