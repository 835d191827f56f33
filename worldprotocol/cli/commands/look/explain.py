"""``worldctl explain``: the reasons of a decision or a verdict, and its outcome."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from world.error_codes import ErrorCode
from worldprotocol.cli.support.command_context import CommandContext, command
from worldprotocol.cli.support.point_in_time import at_option, moment
from worldprotocol.cli.support.redaction import shown_resources

if TYPE_CHECKING:
    from world.events.lease_events import VerdictGiven
    from world.klis.ledger_view import ReadableLedger
    from world.log import LoggedEvent
    from world.read_models.leases import Shown
    from worldprotocol.cli.support.point_in_time import PointInTime

KINDS: Final = ("verdict", "proposal", "intent", "decision")
"""What can be explained."""

AT_LEAST_ONCE_ALLOWED: Final[dict[str, Any]] = {
    "max_triples": 1 << 53,
    "max_resource_chars": 1 << 53,
    "max_depth": 1 << 53,
    "min_subtree_depth": 0,
    "manifest_rules": 1,
}
"""What a recorded manifest was once within, whatever the limits are today."""


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
    from worldprotocol.cli.support.rendering.proposal_explanation import explain_proposal, proposal_lines, without_words

    shown = shown_resources(desk, redact=redact)
    with desk.look() as world:
        then = moment(world, at)
        proposal_id, found = _find(then, named)
        lease = None if found is None else _verdict_wire(then, *found, shown)
        if redact:
            lease = without_words(lease)
        wire = lease if proposal_id is None else explain_proposal(desk, then, proposal_id, lease, redact=redact)
    assert wire is not None
    desk.out.tell(wire, *(_lines(wire) if proposal_id is None else proposal_lines(wire, _lines)))


def _verdict_wire(then: PointInTime, position: int, verdict: VerdictGiven, shown: Shown) -> dict[str, Any]:
    from world.read_models.leases import explain as explained

    ledger = then.ledger()
    why = explained(ledger, verdict, _asked(then, ledger, position, verdict), shown)
    return {
        "verdictId": verdict.verdict_id,
        "position": position,
        "at": verdict.at,
        "status": verdict.status,
        "cause": verdict.cause,
        "agentId": verdict.agent_id,
        "priority": why.rank[0],
        "sessionId": verdict.session_id,
        "requestId": verdict.request_id,
        "channel": verdict.channel,
        "asked": [dict(one) for one in why.asked],
        "reasons": list(why.reasons),
        "moreConflicts": verdict.more_conflicts,
        "rule": why.rule,
        "retryAfterMs": verdict.retry_after_ms,
        "leases": [{**one.to_wire(), "resource": shown(one.resource)} for one in verdict.leases],
        "after": list(_after(then, ledger, position, verdict)),
    }


def _find(then: PointInTime, named: str) -> tuple[str | None, tuple[int, VerdictGiven] | None]:
    """Return the proposal, if it is one, and the verdict: the named one, or the last one about it."""
    from world.errors import RefusedError
    from world.read_models.lineage import number
    from worldprotocol.api.lookup.id_lookup import candidates, only

    found = only(named, candidates(then.world, named, KINDS) if named else [])
    kind, name = found or ("request", named)
    if kind == "verdict":
        position = number(then.world.archive.rows("verdict", {"of_verdict": name})[0][0])
        then.check_seen(f"Verdict {name} was given", position)
        return None, (position, _verdict(then, position))
    positions = _about(then, name, then.position)
    if found is None and not positions:
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"No proposal and no verdict has an id that begins with {named!r}, and no verdict is about a request of "
            f"that id{'' if then.point is None else f' up to event {then.position}'}; "
            "`worldctl log --topic verdict.given` lists them.",
        )
    last = (positions[-1], _verdict(then, positions[-1])) if positions else None
    return None if found is None else name, last


def _about(then: PointInTime, request: str, upto: int) -> list[int]:
    """Return the positions of the verdicts about a request up to an event."""
    from world.read_models.lineage import number

    rows = then.world.archive.rows("verdicts_of_request", {"of_request": request})
    return sorted(position for (at,) in rows if (position := number(at)) <= upto)


def _verdict(then: PointInTime, position: int) -> VerdictGiven:
    from world.events.lease_events import VerdictGiven
    from world.read_models.decoding import decoded
    from world.read_models.live.state_loading import index_damaged

    event = decoded(then.world.log.event_at(position))
    if not isinstance(event, VerdictGiven):
        raise index_damaged("it misplaces a verdict")
    return event


def _asked(then: PointInTime, ledger: ReadableLedger, position: int, verdict: VerdictGiven) -> list[dict[str, Any]]:
    """Return the effective triples that a verdict is about."""
    from world.klis.manifest import ENGINE_ONLY, read_manifest
    from world.read_models.live.state_loading import index_damaged

    first = verdict
    if verdict.manifest is None:  # judged again: the manifest is that of the last verdict before that has one
        before = (_verdict(then, at) for at in reversed(_about(then, verdict.request_id, position - 1)))
        found = next((one for one in before if one.manifest is not None), None)
        if found is None:
            raise index_damaged("it lacks the verdict that has a request's manifest")
        first = found
    manifest = read_manifest(
        first.manifest or {},
        settings=replace(ledger.in_force, **AT_LEAST_ONCE_ALLOWED),
        types=ledger.types,
        wide=ENGINE_ONLY,
    )
    return [{"predicate": one.predicate.value, "resource": one.resource.text} for one in manifest.triples]


def _after(then: PointInTime, ledger: ReadableLedger, position: int, verdict: VerdictGiven) -> Iterator[dict[str, Any]]:
    """Yield what the log says later about the request and its leases, up to the point in time."""
    from world.events.lease_events import LeasesRevoked, RequestWithdrawn, VerdictGiven
    from world.read_models.request_events import ends_of_leases, events_of_request

    archive, own = then.world.archive, {one.lease_id for one in verdict.leases}
    given = archive.event_at(position)
    found: list[tuple[LoggedEvent, Any]] = [
        *events_of_request(archive, verdict.request_id, after=position, ledger=ledger),
        *ends_of_leases(archive.log, given, {one for one in own if one not in ledger.leases}),
    ]
    for logged, event in sorted(found, key=lambda one: one[0].position):
        if logged.position > then.position:
            return
        rendered = {"position": logged.position, "at": event.at, "topic": logged.topic}
        if isinstance(event, VerdictGiven):
            yield {**rendered, "status": event.status, "verdictId": event.verdict_id}
        elif isinstance(event, RequestWithdrawn):
            yield {**rendered, "reason": event.reason}
        else:
            why = {"by": event.by, "reason": event.reason} if isinstance(event, LeasesRevoked) else {}
            yield {**rendered, "leaseIds": sorted(own & set(event.lease_ids)), **why}


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
