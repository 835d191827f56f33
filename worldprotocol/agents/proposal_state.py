"""What programs that act for agents need of a proposal besides its wire form: what it waits for, and its open twin."""

from __future__ import annotations

from typing import Any

from world.events.proposal_events import ProposalSuperseded
from world.model.intent import IntentInstance
from world.read_models.decoding import decoded
from world.state.proposal import Proposal
from worldprotocol.agents.waiting_words import waits_for
from worldprotocol.api.callers.keyed import proposal_of_intent
from worldprotocol.api.realm import Realm

__all__ = ["open_twin", "with_waits"]


def open_twin(realm: Realm, intent: IntentInstance) -> Proposal | None:
    """Return the open, undecided proposal of the same actor with the same intentKey.

    Args:
        realm: the realm.
        intent: the intent that would be submitted.

    Returns:
        The proposal; None where there is none, or the intent was submitted before: then it has a proposal of its own.
    """
    if proposal_of_intent(realm, intent.intent_id) is not None:
        return None
    actor_id, intent_key = intent.meta.origin.actor.actor_id, intent.intent_key
    for one in realm.realm().proposals.values():
        is_same = one.submitted.intent.intent_key == intent_key and one.submitted.actor.actor_id == actor_id
        if is_same and one.status in ("submitted", "evaluating"):
            return one
    return None


def with_waits(realm: Realm, proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON, with what it waits for, or by whom and why it was withdrawn.

    Args:
        realm: its realm.
        proposal: the proposal.

    Returns:
        ``Proposal.to_wire``; an open one has ``waits`` besides: ``for``, in words, and ``people``, whether it waits for
        the answer of a person. One that was withdrawn has ``withdrawn``: ``by`` and ``reason``.
    """
    shown = proposal.to_wire()
    if not proposal.is_terminal:
        shown["waits"] = {"for": waits_for(realm, proposal), "people": proposal.asked is not None}
    elif proposal.status == "superseded":
        events = [decoded(one) for one in realm.log.stream(proposal.proposal_id)]
        last = next((one for one in reversed(events) if isinstance(one, ProposalSuperseded)), None)
        if last is not None and last.by is not None:
            shown["withdrawn"] = {"by": last.by, "reason": last.reason}
    return shown
