"""Why a proposal was decided as it was: every rule in order, which one decided, and what people had to say.

The explanation is made from the record alone. ``worldctl explain`` and the HTTP API use this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from authority import Policy
from world.core import Domain
from world.errors import RefusedError
from world.events.policy_events import PolicyAdopted
from world.events.proposal_events import ProposalJudged
from world.model.record import to_wire
from world.read_models.decoding import decoded, registry_events
from world.state.ports import Case
from world.state.proposal import Proposal
from worldprotocol.api.code_fingerprints import CodeThen
from worldprotocol.api.lookup.point_in_time import PointInTime
from worldprotocol.api.realm import Realm
from worldprotocol.policy_tools.explain import explain_trace, reads_computed
from worldprotocol.policy_tools.recorded_cases import Cases

__all__ = ["LoadedCode", "explain_proposal"]

_LEFT_OUT: Final = (
    "what conditions read is left out: some is computed by the domain as adopted then, which is not available"
)


@dataclass(frozen=True, slots=True)
class LoadedCode:
    """Code by which an explanation evaluates what was read.

    Args:
        domain: returns the loaded domain; raises ``RefusedError`` without one.
        policy: returns a loaded policy by its name; raises ``RefusedError`` without one.
    """

    domain: Callable[[], Domain]
    policy: Callable[[str], Policy]


def explain_proposal(then: PointInTime, proposal_id: str, code: LoadedCode | None) -> dict[str, Any]:
    """Return why a proposal was decided as it was, from the record alone.

    Args:
        then: the point in the past: rulings, answers and adoptions after it are left out.
        proposal_id: the proposal.
        code: loads the domain and the policy, where a condition or a rule needs them; None leaves out the values that
            conditions read.

    Raises:
        RefusedError: ``UNKNOWN_PROPOSAL``.
    """
    world = then.world
    proposal = world.archive.proposal(proposal_id, then.position)
    judged = _first_ruling(then, proposal_id)
    rendered: dict[str, Any] = to_wire(proposal.decision or proposal.ruling) or {}
    before = None if judged is None else judged[0]
    adopted = None if rendered.get("policyHash") is None else _adopted(then, rendered["policyHash"], before)
    case, at_hand = None, None
    if judged is not None and adopted is not None and code is not None:
        case, at_hand = _case(code, world, proposal, judged, adopted[1])
    left_out = judged is not None and adopted is not None and code is not None and case is None
    return {
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


def _policy(rendered: Mapping[str, Any], adopted: tuple[int | None, PolicyAdopted] | None) -> dict[str, Any] | None:
    if rendered.get("policyHash") is None:
        return None
    name = str(rendered["authority"]).partition(":")[2]
    return {"name": name, "hash": rendered["policyHash"], "position": None if adopted is None else adopted[0]}


def _first_ruling(then: PointInTime, proposal_id: str) -> tuple[int, ProposalJudged] | None:
    """Return the ruling of the rules, with its position; later ones come of people's answers."""
    for logged in then.world.log.stream(proposal_id):
        if logged.position > then.position:
            return None
        event = decoded(logged)
        if isinstance(event, ProposalJudged):
            return logged.position, event
    return None


def _adopted(then: PointInTime, policy_hash: str, before: int | None) -> tuple[int | None, PolicyAdopted] | None:
    """Return the adoption by which a policy was in force then; without a position where it was adopted later."""
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
    code: LoadedCode, world: Realm, proposal: Proposal, judged: tuple[int, ProposalJudged], adopted: PolicyAdopted
) -> tuple[Case | None, Policy | None]:
    """Return the case; None where it needs a domain that is not loaded.

    The policy itself is added where it is loaded, has rules in code, and the case is complete.
    """
    policy = _at_hand(code, adopted)
    domain = None
    if policy is not None or reads_computed(adopted.policy):
        domain = _domain(code, world, proposal)
        if domain is None or not _is_of_then(world, domain, judged[0]):
            domain, policy = None, None
            if reads_computed(adopted.policy):
                return None, None
    position, event = judged
    return Cases(world.archive, domain).past(proposal, event.binding, position), policy


def _is_of_then(world: Realm, domain: Domain, position: int) -> bool:
    """Return whether values computed by the loaded domain equal those that were read then."""
    return not CodeThen(world.archive, domain).changed(position)


def _at_hand(code: LoadedCode, adopted: PolicyAdopted) -> Policy | None:
    """Return the adopted policy, where the loaded one is unchanged and has rules in code."""
    if all(one.get("language") != "python" for one in adopted.policy.get("rules", ())):
        return None
    try:
        policy = code.policy(adopted.name).hashed_like(adopted.policy)
    except RefusedError:
        return None
    return policy if policy.hash == adopted.policy_hash else None


def _domain(code: LoadedCode, world: Realm, proposal: Proposal) -> Domain | None:
    """Return the loaded domain in the form of a proposal's schema; None where it has no such form."""
    try:
        loaded = code.domain()
    except RefusedError:
        return None
    schema_hash = proposal.submitted.schema_hash
    rules = [one.rules for one in world.archive.adopted_domains() if one.schema_hash == schema_hash]
    return loaded.in_form(schema_hash, rules[-1] if rules else None)
