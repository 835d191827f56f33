"""``worldctl waits``: who waits for whom, and why no circle is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.options import Desk, command

if TYPE_CHECKING:
    from world.klis.conflict import Conflict
    from world.klis.ledger import Ledger
    from world.views.leases import Wait

NO_CIRCLE = (
    "No circle is possible: who waits for a lease is older than its holder, and who waits for its turn behind an older "
    "request holds nothing that anybody waits for."
)


@command("waits")
@click.option("--redact", is_flag=True, help="Hide the paths of resources (KM-7.3): TYPE:#digest.")
def waits(desk: Desk, redact: bool) -> None:
    """List the requests that wait for leases, the oldest agent's first, each with what is in its way."""
    from world.views.leases import check_edges, redacted
    from world.views.leases import waits as waiting

    with desk.look() as world:
        ledger = world.realm().klis
    found = waiting(ledger)
    check_edges(ledger, found)
    told = [_described(ledger, one, redacted if redact else str) for one in found]
    if desk.json:
        desk.out.document({"waits": told, "circles": []})
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
        for wait in told
        for edge in wait["waitsFor"]
    ]
    heads = ("request", "who waits (priority)", "for", "being", "whom (priority)", "what is in the way")
    desk.out.table(heads, rows, empty="Nobody waits for a lease.")
    if rows:
        desk.out.text(NO_CIRCLE)


def _described(ledger: Ledger, wait: Wait, shown: Any) -> dict[str, Any]:
    request = wait.request
    return {
        "requestId": request.request_id,
        "agentId": request.session.agent_id,
        "sessionId": request.session.session_id,
        "priority": request.session.rank[0],
        "since": request.since,
        "deadline": request.deadline,
        "waitsFor": [_edge(ledger, request.triples[one.intent], one, shown) for one in wait.conflicts],
        "more": wait.more,
    }


def _edge(ledger: Ledger, wanted: Any, conflict: Conflict, shown: Any) -> dict[str, Any]:
    return {
        "wants": f"{wanted.predicate} {shown(wanted.resource.text)}",
        "kind": "lease" if conflict.lease_id is not None else "turn",
        "holder": conflict.holder,
        "holderSession": conflict.session,
        "holderPriority": ledger.agents[conflict.holder][0],
        "what": f"{conflict.predicate} {shown(conflict.resource)}",
        "leaseId": conflict.lease_id,
        "behind": conflict.request_id,
    }
