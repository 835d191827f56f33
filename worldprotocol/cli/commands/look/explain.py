"""``worldctl explain``: the reasons of a decision or a verdict, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import shown_resources

if TYPE_CHECKING:
    pass


@command("explain")
@click.argument("named", metavar="PROPOSAL|VERDICT")
@click.option(
    "--redact",
    is_flag=True,
    help="Hide resources (KM-7.3): TYPE:#digest; and scopes, inputs, conditions, what they read, and all words.",
)
@at_option("What was known of it at this point in the past: answers, rulings and verdicts up to then.")
def explain(desk: CommandContext, named: str, redact: bool, at: str | None) -> None:
    """Explain a proposal (also by its intent or decision) or a verdict, by how its id begins, or a request by its id.

    Of a proposal: every rule in order, its place in the file, its answer and reason, which one decided and what was
    overruled, the values that conditions of policy files read, the answers of people, and the last verdict about its
    leases. Of a
    verdict: the request, the leases in its way, the cell of the matrix and the two ages, and what happened next.
    """
    from worldprotocol.api.lookup.verdict_explanation import find_explained, verdict_wire
    from worldprotocol.cli.support.rendering.proposal_explanation import loaded_code, proposal_lines, without_words
    from worldprotocol.policy_tools.proposal_explanation import explain_proposal

    shown = shown_resources(desk, redact=redact)
    with desk.look() as world:
        then = moment(world, at)
        proposal_id, found = find_explained(then, named)
        lease = None if found is None else verdict_wire(then, *found, shown)
        wire = lease
        if proposal_id is not None:
            code = None if redact else loaded_code(desk)
            wire = {**explain_proposal(then, proposal_id, code), "leases": lease}
    if redact:
        wire = without_words(wire)
    assert wire is not None
    desk.out.tell(wire, *(_lines(wire) if proposal_id is None else proposal_lines(wire, _lines)))


def _lines(wire: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.api.proposal_summary import moment

    again = ", judged again in the queue" if wire["cause"] == "queue" else ""
    yield f"verdict {wire['verdictId']}: {wire['status']}{again}"
    yield f"  when      {moment(wire['at'])}, event {wire['position']}"
    yield f"  who       {wire['agentId']} (priority {wire['priority']}), session {wire['sessionId']}"
    yield f"  request   {wire['requestId']}"
    if wire["channel"]:
        yield "  channel   " + ", ".join(f"{name} {value}" for name, value in wire["channel"].items())
    for one in wire["asked"]:
        yield f"  asked     {one['predicate']} {one['resource']}"
    for reason in wire["reasons"]:
        yield f"  conflict  {reason}"
    if wire["moreConflicts"]:
        yield "  conflict  and more than these"
    yield f"  why       {wire['rule']}"
    if wire["retryAfterMs"] is not None:
        yield f"  retry     after {wire['retryAfterMs']} ms"
    for one in wire["leases"]:
        yield f"  lease     {one['leaseId']}, token {one['token']}: {one['predicate']} {one['resource']}"
    for one in wire["after"]:
        more = one.get("status") or one.get("reason") or ", ".join(one.get("leaseIds", ()))
        yield f"  then      event {one['position']}, {moment(one['at'])}: {one['topic']} {more}"
