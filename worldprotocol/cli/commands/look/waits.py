"""``worldctl waits``: the graph of waiting requests, why it has no cycle, and which proposals are retried."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import shown_resources
from worldprotocol.cli.support.waiting_for_leases import again, edges

if TYPE_CHECKING:
    from world.klis.ledger import Ledger
    from world.read_models.leases import Lack, Shown, Wait

NO_CIRCLE = (
    "No circle is possible: who waits for a lease is older than its holder, and who waits for its turn behind an older "
    "request holds nothing that anybody waits for."
)


@command("waits")
@click.option("--redact", is_flag=True, help="Hide the paths of resources (KM-7.3): TYPE:#digest.")
@at_option("Requests that waited at this point in the past; times are compared with it.")
def waits(desk: CommandContext, redact: bool, at: str | None) -> None:
    """List the requests that wait for leases, the oldest agent's first, each with what is in its way.

    Then the proposals that hold no place in the queue and are tried again later; `worldctl explain` says what was in
    the way of one.
    """
    from world.read_models.leases import check_edges, lacks
    from world.read_models.leases import waits as waiting

    shown = shown_resources(desk, redact=redact)
    with desk.look() as world:
        then = moment(world, at)
        realm = then.realm()
    ledger = realm.klis.ledger()
    retrying = [_retried(one) for one in lacks(realm) if one.wait is None]
    found = waiting(ledger)
    check_edges(ledger, found)
    rendered = [_described(ledger, one, shown) for one in found]
    if desk.json:
        desk.out.document({"waits": rendered, "circles": [], "retrying": retrying})
        return
    rows = [
        (
            wait["requestId"],
            f"{wait['agentId']} ({wait['priority']})",
            edge["wants"],
            "older than the holder of" if edge["kind"] == "lease" else "its turn comes after",
            f"{edge['holder']} ({edge['holderPriority']})",
            edge["what"],
        )
        for wait in rendered
        for edge in wait["waitsFor"]
    ]
    heads = ("request", "who waits (priority)", "for", "being", "whom (priority)", "what is in the way")
    if rows or not retrying:
        desk.out.table(heads, rows, empty="No request waits for a lease.")
    if rows:
        desk.out.text(NO_CIRCLE)
    if retrying:
        later = [
            (
                one["proposalId"],
                f"{one['agentId']} ({one['priority']})",
                one["attempts"],
                again(one["retryAt"], then.now),
            )
            for one in retrying
        ]
        desk.out.table(("proposal", "who tries again (priority)", "attempts", "again"), later)


def _retried(lack: Lack) -> dict[str, Any]:
    return {
        "proposalId": lack.proposal_id,
        "agentId": lack.agent_id,
        "priority": lack.priority,
        "attempts": lack.dies,
        "retryAt": lack.retry_at,
    }


def _described(ledger: Ledger, wait: Wait, shown: Shown) -> dict[str, Any]:
    request = wait.request
    return {
        "requestId": request.request_id,
        "agentId": request.session.agent_id,
        "sessionId": request.session.session_id,
        "priority": request.session.rank[0],
        "since": request.since,
        "deadline": request.deadline,
        "waitsFor": edges(ledger, wait, shown),
        "more": wait.more,
    }
