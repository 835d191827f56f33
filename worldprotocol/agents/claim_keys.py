"""The keys with which the calls of proposals were claimed, read from the log.

A call may continue the open proposal of an equal call. What joins it to that proposal is the key of its claim alone.
Used by ``worldprotocol.agents.tool_calls``.
"""

from __future__ import annotations

from typing import Final

from world.events.claim_events import EffectClaimed
from world.read_models.decoding import decoded
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import ToolCall, is_claim_of, is_proposed_as
from worldprotocol.api.realm import Realm

__all__ = ["NEWEST", "claims_with_keys", "ended_claimed_by", "have_one_caller", "is_of_another"]

NEWEST: Final = 32
"""How many ended proposals of the same meaning are searched for the claim of a call, the newest first."""


def claims_with_keys(realm: Realm, proposal_id: str) -> list[EffectClaimed]:
    """Return the claims that were made of the effects of a proposal with a key, in order.

    Claims whose contents were removed from a cut log are left out.

    Args:
        realm: the realm.
        proposal_id: an open or an ended proposal.
    """
    events = realm.log.read(stream=proposal_id, skip_archived=True)
    claims = [decoded(one) for one in events if one.topic == EffectClaimed.TOPIC]
    return [one for one in claims if isinstance(one, EffectClaimed) and one.key is not None]


def ended_claimed_by(realm: Realm, actor_id: str, intent_key: str, key: str) -> Proposal | None:
    """Return the ended proposal of an actor whose call was claimed with a key; None where the newest have none.

    Args:
        realm: the realm.
        actor_id: the actor of the proposal.
        intent_key: the meaning of the call.
        key: the key of the call.
    """
    names = [str(name) for (name,) in realm.archive.rows("proposals_by_key", {"of_key": intent_key})]
    opened = realm.realm().proposals
    for name in reversed([one for one in names if one not in opened][-NEWEST:]):
        if any(is_claim_of(key, claim) for claim in claims_with_keys(realm, name)):
            found = realm.proposal(name)
            if found.submitted.actor.actor_id == actor_id:
                return found
    return None


def is_of_another(realm: Realm, call: ToolCall, proposal: Proposal) -> bool:
    """Return whether a proposal is of an equal call: that one has begun it, or proposed it where none has.

    Args:
        realm: the realm.
        call: the call.
        proposal: a proposal that it may have, open or ended.
    """
    if proposal.claims or proposal.ended_claims:
        claims = claims_with_keys(realm, proposal.proposal_id)
        if claims:
            return not any(is_claim_of(call.key, one) for one in claims)
    return not is_proposed_as(call.key, proposal.submitted)


def have_one_caller(call: ToolCall, proposal: Proposal) -> bool:
    """Return whether a call and an equal proposal end with the same session, or neither ends with one, as of a proxy.

    Args:
        call: the call.
        proposal: the proposal, which the call may continue.
    """
    if all(one is None or one.by == "proxy" for one in (call.attended, proposal.submitted.attended)):
        return True
    return (call.trace or {}).get("session") == proposal.session
