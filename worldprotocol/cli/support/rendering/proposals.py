"""What came of a proposal, as commands print it."""

from __future__ import annotations

from typing import Any, Final

from world.model.record import to_wire
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome
from worldprotocol.cli.support.waiting_for_leases import in_words as lacking_in_words
from worldprotocol.cli.support.waiting_for_leases import leases_wanted

FINDINGS: Final = frozenset({"rejected", "failed", "superseded", "refused"})
"""Results that make the exit code 1."""

CARRIED_ON: Final = (
    "`worldctl settle`, or any other command that acts, carries it on when they are free; `worldctl submit --wait "
    "SECONDS` stays until then."
)


def result_of(world: Realm, proposal: Proposal) -> dict[str, Any]:
    """Return the outcome of a proposal, with the reason and what to look at next."""
    leases = None
    if proposal.wants_leases:
        leases = world.archive.peek(lambda realm: leases_wanted(realm, proposal.proposal_id))
        proposal = proposal if leases is not None else world.proposal(proposal.proposal_id)  # it went on meanwhile
    told: dict[str, Any] = {
        "status": proposal.status,
        "proposalId": proposal.proposal_id,
        "intentId": proposal.submitted.intent.intent_id,
        "intentKey": proposal.submitted.intent.intent_key,
        "type": proposal.submitted.intent.body.type,
        "actor": proposal.submitted.actor.actor_id,
        "branch": proposal.branch,
        "attempt": proposal.submitted.attempt,
    }
    ruling = proposal.asked
    if ruling is not None:
        questions = to_wire(proposal.open_questions)
        told |= {"questions": questions} if questions else {}
        told |= {"waitsFor": list(ruling.ask), "deadline": proposal.deadline, "reason": ruling.reason}
    if leases is not None:
        told["leases"] = leases
    if proposal.decision is not None:
        decided = proposal.decision
        scope = to_wire(decided.approved_scope)
        told["decision"] = {"decision": decided.decision, "reason": decided.reason, "approvedScope": scope}
    if proposal.world_id is not None:
        told["worldId"] = proposal.world_id
    if proposal.error is not None:
        told["failure"] = proposal.error.to_wire()
    return told


def received_as(world: Realm, received: ProjectionOutcome) -> dict[str, Any]:
    """Return the outcome of a source event; its status is ``none`` where no intent was selected."""
    told: dict[str, Any] = {"status": "none"} if received.proposal is None else result_of(world, received.proposal)
    told["projection"] = received.projection_id
    if received.reason is not None:
        told["why"] = received.reason
    return told


def in_words(told: dict[str, Any]) -> list[str]:
    """Return an outcome as a sentence or two, in lines."""
    from world.clock import SystemClock

    if told["status"] == "none":
        return [f"No intent was selected by {told['projection'] or 'any projection'}. {told.get('why', '')}".rstrip()]
    words = [f"{told['status']}: {told['type']} by {told['actor']} on {told['branch']}, proposal {told['proposalId']}"]
    if told["attempt"] > 1:
        words[0] += f", attempt {told['attempt']}"
    if "worldId" in told:
        words.append(f"world {told['worldId']}")
    if "failure" in told:
        words.append(f"{told['failure'].get('code')}: {told['failure'].get('message', '')}")
    elif "leases" in told:
        words += [f"waits {lacking_in_words(told['leases'], SystemClock().now_ms())}", CARRIED_ON]
    elif told["status"] == "evaluating":
        for question in told.get("questions", ()):
            words.append(f"{question['by']['actorId']} asks: {question['reason']}")
        words.append(f"waits for {', '.join(told.get('waitsFor', ()))}: {told.get('reason', '')}")
    elif told["status"] in ("rejected", "superseded") and "decision" in told:
        words.append(f"{told['decision'].get('reason') or ''}")
    return words
