"""The outcome of a proposal, as commands print it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from world.model.record import to_wire
from world.read_models.live.offered_effects import offered_of
from world.state.proposal import Proposal, held_words
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome
from worldprotocol.cli.support.waiting_for_leases import in_words as lacking_in_words
from worldprotocol.cli.support.waiting_for_leases import leases_wanted

FINDINGS: Final = frozenset({"rejected", "failed", "superseded", "refused"})
"""Results that make the exit code 1."""

WAITING: Final = 4
"""Exit code of a proposal that still waits for people, leases or effects."""

HELD: Final = 5
"""Exit code of a proposal that is held until an adoption."""

_UNDER_WAY: Final = frozenset({"submitted", "evaluating", "approved", "executing"})


def exit_code_of(results: Iterable[Mapping[str, Any]]) -> int:
    """Return the exit code of results: 1 for a finding, before 5 for a held one, before 4 for a waiting one."""
    codes = {_exit_code(one) for one in results}
    return next((code for code in (1, HELD, WAITING) if code in codes), 0)


def _exit_code(result: Mapping[str, Any]) -> int:
    if result["status"] in FINDINGS:
        return 1
    if result["status"] not in _UNDER_WAY:
        return 0
    return HELD if "held" in result and not result.get("isCallerAwaited") else WAITING


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
    rendered: dict[str, Any] = {
        "status": proposal.status,
        "proposalId": proposal.proposal_id,
        "intentId": proposal.submitted.intent.intent_id,
        "intentKey": proposal.submitted.intent.intent_key,
        "type": proposal.submitted.intent.body.type,
        "actor": proposal.submitted.actor.actor_id,
        "branch": proposal.branch,
        "attempt": proposal.submitted.attempt,
    }
    if proposal.held is not None and (proposal.held.cause != "caller" or leases is None):
        rendered["held"] = held_words(proposal.held)
        if proposal.held.cause == "caller":
            rendered["isCallerAwaited"] = True
    ruling = proposal.asked
    if ruling is not None:
        questions = to_wire(proposal.open_questions)
        rendered |= {"questions": questions} if questions else {}
        rendered |= {"waitsFor": list(ruling.ask), "deadline": proposal.deadline, "reason": ruling.reason}
    if leases is not None:
        rendered["leases"] = leases
    if proposal.decision is not None:
        decided = proposal.decision
        scope = to_wire(decided.approved_scope)
        rendered["decision"] = {"decision": decided.decision, "reason": decided.reason, "approvedScope": scope}
    if offered := list(offered_of(proposal)):
        rendered["offered"] = [{"effect": one.effect, "state": one.state} for one in offered]
    if proposal.world_id is not None:
        rendered["worldId"] = proposal.world_id
    if proposal.ended_reason is not None:
        rendered["endedReason"] = proposal.ended_reason
    if proposal.error is not None:
        rendered["failure"] = proposal.error.to_wire()
    return rendered


def received_as(world: Realm, received: ProjectionOutcome) -> dict[str, Any]:
    """Return the outcome of a source event; its status is ``none`` where no intent was selected."""
    rendered: dict[str, Any] = {"status": "none"} if received.proposal is None else result_of(world, received.proposal)
    rendered["projection"] = received.projection_id
    if received.reason is not None:
        rendered["why"] = received.reason
    return rendered


def in_words(outcome: dict[str, Any]) -> list[str]:
    """Return an outcome as a sentence or two, in lines."""
    from world.clock import SystemClock

    if outcome["status"] == "none":
        selecting = outcome["projection"] or "any projection"
        return [f"No intent was selected by {selecting}. {outcome.get('why', '')}".rstrip()]
    doing = f"{outcome['type']} by {outcome['actor']} on {outcome['branch']}"
    words = [f"{outcome['status']}: {doing}, proposal {outcome['proposalId']}"]
    if outcome["attempt"] > 1:
        words[0] += f", attempt {outcome['attempt']}"
    words += [*([outcome["endedReason"]] if "endedReason" in outcome else []), *_held_in_words(outcome)]
    if "worldId" in outcome:
        words.append(f"world {outcome['worldId']}")
    if "failure" in outcome:
        words.append(f"{outcome['failure'].get('code')}: {outcome['failure'].get('message', '')}")
    elif "offered" in outcome:
        waiting = ", ".join(f"{one['effect']} ({one['state']})" for one in outcome["offered"])
        words.append(f"workers perform: {waiting}; `worldctl effects` lists them")
    elif "leases" in outcome:
        words += [f"waits {lacking_in_words(outcome['leases'], SystemClock().now_ms())}", CARRIED_ON]
    elif outcome["status"] == "evaluating" and "waitsFor" in outcome:
        for question in outcome.get("questions", ()):
            words.append(f"{question['by']['actorId']} asks: {question['reason']}")
        words.append(f"waits for {', '.join(outcome['waitsFor'])}: {outcome.get('reason', '')}")
    elif outcome["status"] in ("rejected", "superseded") and "decision" in outcome:
        words.append(f"{outcome['decision'].get('reason') or ''}")
    return words


def _held_in_words(outcome: Mapping[str, Any]) -> list[str]:
    """Return why a proposal is held, and what to do where that is not its caller's matter."""
    if "held" not in outcome:
        return []
    if outcome.get("isCallerAwaited"):
        return [outcome["held"]]
    return [f"held: {outcome['held']}; `worldctl inbox` lists what is held, `worldctl doctor` what to do"]
