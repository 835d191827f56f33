"""``worldctl explain PROPOSAL``: every rule in order, which one decided, what people and leases had to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from world.model.record import to_wire
from worldprotocol.cli.support.command_context import CommandContext

if TYPE_CHECKING:
    from authority import Policy
    from world.core import Domain
    from world.events.policy_events import PolicyAdopted
    from world.events.proposal_events import ProposalJudged
    from world.state.ports import Case
    from world.state.proposal import Proposal
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.support.point_in_time import PointInTime


_LEFT_OUT: Final = (
    "what conditions read is left out: some is computed by the domain as adopted then, which is not available"
)


def explain_proposal(
    desk: CommandContext, then: PointInTime, proposal_id: str, lease: Mapping[str, Any] | None, *, redact: bool
) -> dict[str, Any]:
    """Return why a proposal was decided as it was, from the record alone.

    Args:
        desk: for the domain, which is loaded only where a condition reads what it makes.
        then: the point in the past: rulings, answers and adoptions after it are left out.
        proposal_id: the proposal.
        lease: the last verdict about its leases, None where there was none.
        redact: leave out the input, scopes, conditions and the values that they read, and what rules and people said
            in words of their own: all of them may name resources (KM-7.3).
    """
    from worldprotocol.policy_tools.explain import explain_trace

    world = then.world
    proposal = world.archive.proposal(proposal_id, then.position)
    judged = _first_ruling(then, proposal_id)
    rendered: dict[str, Any] = to_wire(proposal.decision or proposal.ruling) or {}
    before = None if judged is None else judged[0]
    adopted = None if rendered.get("policyHash") is None else _adopted(then, rendered["policyHash"], before)
    case, at_hand = None, None
    if judged is not None and adopted is not None and not redact:
        case, at_hand = _case(desk, world, proposal, judged, adopted[1])
    left_out = judged is not None and adopted is not None and not redact and case is None
    wire = {
        "kind": "proposal",
        "proposalId": proposal_id,
        "status": proposal.status,
        "endedReason": proposal.ended_reason,
        "actor": proposal.submitted.actor.to_wire(),
        "action": proposal.intent.body.type,
        "input": proposal.intent.body.input,
        "branch": proposal.branch,
        "baseWorld": proposal.submitted.base_world,
        "submittedAt": proposal.submitted.at,
        "verdict": rendered.get("decision", rendered.get("verdict")),
        "authority": rendered.get("authority"),
        "reason": rendered.get("reason"),
        "approvedScope": rendered.get("approvedScope"),
        "policy": _policy(rendered, adopted),
        **explain_trace(
            rendered,
            None if adopted is None else adopted[1].policy,
            case,
            proposal.intent.body.scope_proposal,
            at_hand=at_hand,
            proposer=proposal.submitted.actor.actor_id,
        ),
        "note": _LEFT_OUT if left_out else None,
        "answers": to_wire(proposal.answers),
        "error": to_wire(proposal.error),
    }
    return {**(without_words(wire) if redact else wire), "leases": lease}


def without_words(rendered: Any) -> Any:
    """Return the explanation without scopes, and without texts and values of foreign origin."""
    if isinstance(rendered, Mapping):
        return {name: HIDDEN if name in _WORDS and value else without_words(value) for name, value in rendered.items()}
    return [without_words(one) for one in rendered] if isinstance(rendered, (list, tuple)) else rendered


HIDDEN: Final = "(hidden)"
"""Placeholder of words that are not shown."""

_WORDS: Final = frozenset(
    {"input", "reason", "because", "outside", "description", "when", "scope", "approvedScope", "allowedPaths"}
    | {"message", "context"}
)


def proposal_lines(wire: Mapping[str, Any], lease: Callable[[Mapping[str, Any]], Iterator[str]]) -> Iterator[str]:
    """Yield the explanation for people; ``lease`` gives the lines of a verdict."""
    from worldprotocol.policy_tools.explain import trace_lines
    from worldprotocol.terminal_text import visible

    ended = "" if wire["endedReason"] is None else f" ({wire['endedReason']})"
    yield f"proposal {wire['proposalId']}: {wire['status']}{ended}"
    yield from ruling_lines(wire)
    yield from trace_lines(wire)
    if wire["note"] is not None:
        yield f"  note      {wire['note']}"
    for answer in wire["answers"]:
        reason = f": {answer['reason']}" if answer.get("reason") else ""
        to = f" to {answer['to']}" if "to" in answer else ""
        yield visible(f"  answer    {answer['choice']}{to} by {answer['by']['actorId']}{reason}")
    if wire["error"] is not None:
        yield visible(f"  error     {wire['error']['code']}: {wire['error']['message']}")
    if wire["leases"] is not None:
        yield "  leases"
        yield from (f"    {line}" for line in lease(wire["leases"]))


def ruling_lines(wire: Mapping[str, Any]) -> Iterator[str]:
    """Yield the proposal, its outcome and the texts of others about it."""
    from worldprotocol.terminal_text import visible

    yield from map(visible, _ruling(wire))


def _ruling(wire: Mapping[str, Any]) -> Iterator[str]:
    from worldprotocol.api.proposal_summary import moment
    from worldprotocol.json_text import as_text

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


def _policy(rendered: Mapping[str, Any], adopted: tuple[int | None, PolicyAdopted] | None) -> dict[str, Any] | None:
    if rendered.get("policyHash") is None:
        return None
    name = str(rendered["authority"]).partition(":")[2]
    return {"name": name, "hash": rendered["policyHash"], "position": None if adopted is None else adopted[0]}


def _first_ruling(then: PointInTime, proposal_id: str) -> tuple[int, ProposalJudged] | None:
    """Return the ruling of the rules, with its position; later ones come of people's answers."""
    from world.events.proposal_events import ProposalJudged
    from world.read_models.decoding import decoded

    for logged in then.world.log.stream(proposal_id):
        if logged.position > then.position:
            return None
        event = decoded(logged)
        if isinstance(event, ProposalJudged):
            return logged.position, event
    return None


def _adopted(then: PointInTime, policy_hash: str, before: int | None) -> tuple[int | None, PolicyAdopted] | None:
    """Return the adoption by which a policy was in force then; without a position where it was adopted later."""
    from world.events.policy_events import PolicyAdopted
    from world.read_models.decoding import decoded, registry_events

    found: tuple[int | None, PolicyAdopted] | None = None
    for logged in registry_events(then.world.log, PolicyAdopted, upto=then.position):
        event = decoded(logged)
        if isinstance(event, PolicyAdopted) and event.policy_hash == policy_hash:
            if before is None or logged.position < before:
                found = (logged.position, event)
            elif found is None:
                return None, event
    return found


def _case(
    desk: CommandContext, world: Realm, proposal: Proposal, judged: tuple[int, ProposalJudged], adopted: PolicyAdopted
) -> tuple[Case | None, Policy | None]:
    """Return the case; None where it needs a domain that is not loaded.

    The policy itself is added where it is loaded, has rules in code, and the case is complete.
    """
    from worldprotocol.policy_tools.explain import reads_computed
    from worldprotocol.policy_tools.recorded_cases import Cases

    policy = _at_hand(desk, adopted)
    domain = None
    if policy is not None or reads_computed(adopted.policy):
        domain = _domain(desk, world, proposal)
        if domain is None or not _is_of_then(world, domain, judged[0]):
            domain, policy = None, None
            if reads_computed(adopted.policy):
                return None, None
    position, event = judged
    return Cases(world.archive, domain).past(proposal, event.binding, position), policy


def _is_of_then(world: Realm, domain: Domain, position: int) -> bool:
    """Return whether values computed by the loaded domain equal those that were read then."""
    from worldprotocol.api.code_fingerprints import CodeThen

    return not CodeThen(world.archive, domain).changed(position)


def _at_hand(desk: CommandContext, adopted: PolicyAdopted) -> Policy | None:
    """Return the adopted policy, where the loaded one is unchanged and has rules in code."""
    from world.errors import RefusedError
    from worldprotocol.cli.support.opening import composed
    from worldprotocol.policy_tools.hypothetical import policy_named

    if all(one.get("language") != "python" for one in adopted.policy.get("rules", ())):
        return None
    try:
        config = composed(desk)
        policy = policy_named(adopted.name, config.policies, config.folder).hashed_like(adopted.policy)
    except RefusedError:
        return None
    return policy if policy.hash == adopted.policy_hash else None


def _domain(desk: CommandContext, world: Realm, proposal: Proposal) -> Domain | None:
    """Return the loaded domain in the form of a proposal's schema; None where it has no such form."""
    from world.errors import RefusedError
    from worldprotocol.api.bootstrap import load_any_domain
    from worldprotocol.cli.support.opening import composed

    try:
        config = composed(desk)
        loaded = load_any_domain(config.domain or "", base=config.folder, oldest_rules=1)
    except RefusedError:
        return None
    schema_hash = proposal.submitted.schema_hash
    rules = [one.rules for one in world.archive.adopted_domains() if one.schema_hash == schema_hash]
    return loaded.in_form(schema_hash, rules[-1] if rules else None)
