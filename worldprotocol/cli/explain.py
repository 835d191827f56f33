"""``worldctl explain``: why a proposal was decided, or a verdict given, as it was, and what became of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click

from worldprotocol.cli.options import Desk, command

if TYPE_CHECKING:
    from world.events import VerdictGiven
    from worldprotocol.facade import World


AT_LEAST_ONCE_ALLOWED: Final[dict[str, Any]] = {
    "max_triples": 1 << 53,
    "max_resource_chars": 1 << 53,
    "max_depth": 1 << 53,
    "min_subtree_depth": 0,
}
"""What a recorded manifest was once within, whatever the limits are today."""


@command("explain")
@click.argument("named", metavar="PROPOSAL|VERDICT")
@click.option(
    "--redact",
    is_flag=True,
    help="Hide the paths of resources (KM-7.3): TYPE:#digest; inputs, what conditions read, and all words.",
)
def explain(desk: Desk, named: str, redact: bool) -> None:
    """Explain a proposal (also by its intent or decision) or a verdict, by how its id begins, or a request by its id.

    Of a proposal: every rule in order, where it stands, what it said and why, which one decided and what was overruled,
    the values that conditions of policy files read, the answers of people, and the last verdict about its leases. Of a
    verdict: who asked for what, what was in the way, the cell of the matrix and the two ages, and what happened next.
    """
    from worldprotocol.cli.explain_proposal import explain_proposal, proposal_lines

    with desk.look() as world:
        proposal_id, found = _find(world, named)
        lease = None if found is None else _verdict_wire(world, *found, redact=redact)
        wire = lease if proposal_id is None else explain_proposal(desk, world, proposal_id, lease, redact=redact)
    assert wire is not None
    if desk.json:
        desk.out.document(wire)
        return
    for line in _lines(wire) if proposal_id is None else proposal_lines(wire, _lines):
        desk.out.text(line)


def _verdict_wire(world: World, position: int, verdict: VerdictGiven, *, redact: bool) -> dict[str, Any]:
    from world.views.leases import explain as explained
    from world.views.leases import redacted

    shown: Any = redacted if redact else str
    why = explained(world.realm().klis, verdict, _asked(world, position, verdict), shown)
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
        "leases": [{**one, "resource": shown(one["resource"])} for one in verdict.leases],
        "after": list(_after(world, position, verdict)),
    }


def _find(world: World, named: str) -> tuple[str | None, tuple[int, VerdictGiven] | None]:
    """Return the proposal, if it is one, and the verdict: the named one, or the last one about it."""
    from world.errors import Refused
    from world.events import VerdictGiven
    from world.views.archive import decoded
    from worldprotocol.cli.finding import candidates

    bounds = {"low": named, "high": named + "\U0010ffff", "most": 20}
    verdicts = [str(row[0]) for row in world.archive.rows("verdict_prefix", **bounds)] if named else []
    proposals = [str(row[0]) for row in world.archive.rows("proposal_prefix", **bounds)] if named else []
    if named and not verdicts + proposals:
        proposals = [name for kind, name in candidates(world, named) if kind in ("intent", "decision")]
    found = [named] if named in verdicts + proposals else verdicts + proposals
    if len(found) > 1:
        listed = "\n".join(f"  {one}" for one in found)
        raise Refused(
            "AMBIGUOUS",
            f"{named!r} begins several verdicts and proposals; write more of it:\n{listed}",
            candidates=found,
        )
    if found and found[0] in verdicts:
        position = int(world.archive.rows("verdict", of_verdict=found[0])[0][0])
        event = decoded(world.log.event_at(position))
        assert isinstance(event, VerdictGiven)
        return None, (position, event)
    request = found[0] if found else named
    about = [(at, event) for at, event in _verdicts(world, 0) if event.request_id == request]
    if not found and not about:
        raise Refused(
            "NOT_FOUND",
            f"No proposal and no verdict has an id that begins with {named!r}, and no verdict is about a request of "
            "that id; `worldctl log --topic verdict.given` lists them.",
        )
    return found[0] if found else None, about[-1] if about else None


def _verdicts(world: World, after: int) -> Iterator[tuple[int, VerdictGiven]]:
    from world.events import VerdictGiven
    from world.views.archive import decoded

    for logged in world.log.read(after, topics=[VerdictGiven.TOPIC]):
        event = decoded(logged)
        assert isinstance(event, VerdictGiven)
        yield logged.position, event


def _asked(world: World, position: int, verdict: VerdictGiven) -> list[dict[str, Any]]:
    """Return the effective triples that a verdict is about."""
    from world.klis.manifest import ENGINE_ONLY, read_manifest

    first = verdict
    if verdict.manifest is None:  # judged again: the manifest stands in the last verdict before that has one
        first = [one for at, one in _verdicts(world, 0) if at < position and _begins(one, verdict.request_id)][-1]
    ledger = world.realm().klis
    manifest = read_manifest(
        first.manifest or {},
        settings=replace(ledger.in_force, **AT_LEAST_ONCE_ALLOWED),
        types=ledger.types,
        wide=ENGINE_ONLY,
    )
    return [{"predicate": one.predicate.value, "resource": one.resource.text} for one in manifest.triples]


def _begins(verdict: VerdictGiven, request_id: str) -> bool:
    return verdict.request_id == request_id and verdict.manifest is not None


def _after(world: World, position: int, verdict: VerdictGiven) -> Iterator[dict[str, Any]]:
    """Yield what the log says later about the request and its leases."""
    from world.events import LeasesExpired, LeasesReleased, LeasesRevoked, RequestWithdrawn, VerdictGiven
    from world.views.archive import decoded

    own = {one["leaseId"] for one in verdict.leases}
    kinds = (VerdictGiven, LeasesReleased, LeasesExpired, LeasesRevoked, RequestWithdrawn)
    for logged in world.log.read(position, topics=[kind.TOPIC for kind in kinds]):
        event = decoded(logged)
        told = {"position": logged.position, "at": event.at, "topic": logged.topic}
        if isinstance(event, VerdictGiven) and event.request_id == verdict.request_id:
            yield {**told, "status": event.status, "verdictId": event.verdict_id}
        elif isinstance(event, RequestWithdrawn) and event.request_id == verdict.request_id:
            yield {**told, "reason": event.reason}
        elif isinstance(event, LeasesReleased | LeasesExpired | LeasesRevoked) and own & set(event.lease_ids):
            why = {"by": event.by, "reason": event.reason} if isinstance(event, LeasesRevoked) else {}
            yield {**told, "leaseIds": sorted(own & set(event.lease_ids)), **why}


def _lines(wire: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.fate import moment

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
