"""``worldctl explain PROPOSAL``: every rule in order, which one decided, what people and leases had to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from worldprotocol.cli.options import Desk

if TYPE_CHECKING:
    from world.core import Domain
    from world.events import PolicyAdopted, ProposalJudged
    from world.ports import Case
    from world.proposal import Proposal
    from worldprotocol.facade import World


def explain_proposal(
    desk: Desk, world: World, proposal_id: str, lease: Mapping[str, Any] | None, *, redact: bool
) -> dict[str, Any]:
    """Return why a proposal was decided as it was, from the record alone.

    Args:
        desk: for the domain, which is loaded only where a condition reads what it makes.
        world: a realm open for looking.
        proposal_id: the proposal.
        lease: the last verdict about its leases, None where there was none.
        redact: leave out the values that conditions read, which may name resources.
    """
    from worldprotocol.explaining import explain_trace

    proposal = world.proposal(proposal_id)
    judged = _first_ruling(world, proposal_id)
    told = dict(proposal.decision or proposal.ruling or {})
    adopted = None if told.get("policyHash") is None else _adopted(world, told["policyHash"])
    case = None if judged is None or redact else _case(desk, world, proposal, judged, adopted)
    return {
        "kind": "proposal",
        "proposalId": proposal_id,
        "status": proposal.status,
        "actor": proposal.submitted.actor,
        "action": proposal.intent.body.type,
        "input": proposal.intent.body.input,
        "branch": proposal.branch,
        "baseWorld": proposal.submitted.base_world,
        "submittedAt": proposal.submitted.at,
        "verdict": told.get("decision", told.get("verdict")),
        "authority": told.get("authority"),
        "reason": told.get("reason"),
        "approvedScope": told.get("approvedScope"),
        "policy": _policy(told, adopted),
        **explain_trace(told.get("trace", ()), None if adopted is None else adopted[1].policy, case),
        "answers": [dict(answer) for answer in proposal.answers],
        "leases": lease,
    }


def proposal_lines(wire: Mapping[str, Any], lease: Callable[[Mapping[str, Any]], Iterator[str]]) -> Iterator[str]:
    """Yield the explanation for people; ``lease`` gives the lines of a verdict."""
    from worldprotocol.explaining import trace_lines

    yield f"proposal {wire['proposalId']}: {wire['status']}"
    yield from ruling_lines(wire)
    yield from trace_lines(wire)
    for answer in wire["answers"]:
        reason = f": {answer['reason']}" if answer.get("reason") else ""
        yield f"  answer    {answer['choice']} by {answer['by']['actorId']}{reason}"
    if wire["leases"] is not None:
        yield "  leases"
        yield from (f"    {line}" for line in lease(wire["leases"]))


def ruling_lines(wire: Mapping[str, Any]) -> Iterator[str]:
    """Yield who wanted what, and what came of it in whose words."""
    from worldprotocol.cli.output import as_text
    from worldprotocol.fate import moment

    yield f"  who       {wire['actor']['actorId']} ({wire['actor']['kind']})"
    yield f"  what      {wire['action']} {'' if wire['input'] is None else as_text(wire['input'])}".rstrip()
    yield f"  when      {moment(wire['submittedAt'])}, on {wire['branch']} at {wire['baseWorld'][:12]}"
    if wire["verdict"] is None:
        yield "  ruling    none was given"
        return
    yield f"  ruling    {wire['verdict']} by {wire['authority']}: {wire['reason']}"
    if wire["approvedScope"] is not None:
        yield f"  within    {as_text(wire['approvedScope'])}"
    policy = wire["policy"]
    if policy is not None:
        place = "" if policy["position"] is None else f", adopted by event {policy['position']}"
        yield f"  policy    {policy['name']} {policy['hash'][:12]}{place}"


def _policy(told: Mapping[str, Any], adopted: tuple[int, PolicyAdopted] | None) -> dict[str, Any] | None:
    if told.get("policyHash") is None:
        return None
    name = str(told["authority"]).partition(":")[2]
    return {"name": name, "hash": told["policyHash"], "position": None if adopted is None else adopted[0]}


def _first_ruling(world: World, proposal_id: str) -> tuple[int, ProposalJudged] | None:
    """Return the ruling of the rules, with its position; later ones come of people's answers."""
    from world.events import ProposalJudged
    from world.views.archive import decoded

    for logged in world.log.stream(proposal_id):
        event = decoded(logged)
        if isinstance(event, ProposalJudged):
            return logged.position, event
    return None


def _adopted(world: World, policy_hash: str) -> tuple[int, PolicyAdopted] | None:
    from world.events import PolicyAdopted
    from world.views.archive import decoded

    for logged in world.log.read(topics=[PolicyAdopted.TOPIC]):
        event = decoded(logged)
        if isinstance(event, PolicyAdopted) and event.policy_hash == policy_hash:
            return logged.position, event
    return None


def _case(
    desk: Desk,
    world: World,
    proposal: Proposal,
    judged: tuple[int, ProposalJudged],
    adopted: tuple[int, PolicyAdopted] | None,
) -> Case | None:
    """Return the case, None where it is not needed, or where only a domain that is not at hand could make it."""
    from worldprotocol.cases import Cases
    from worldprotocol.explaining import reads_computed

    if adopted is None:
        return None
    domain = None
    if reads_computed(adopted[1].policy):
        domain = _domain(desk)
        if domain is None or domain.schema.hash != proposal.submitted.schema_hash:
            return None
    position, event = judged
    return Cases(world.archive, domain).past(proposal, event.binding, position)


def _domain(desk: Desk) -> Domain | None:
    from world.errors import Refused
    from worldprotocol.assemble import load_any_domain
    from worldprotocol.cli.opening import composed

    try:
        config = composed(desk)
        return load_any_domain(config.domain or "", base=config.folder)
    except Refused:
        return None
