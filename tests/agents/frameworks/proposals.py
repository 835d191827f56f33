"""What a realm has recorded of the calls of an agent."""

from __future__ import annotations

from typing import Any

from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm

LARGE: dict[str, Any] = {"order": "o-2", "amount": 300}
"""Arguments of a refund that ann decides."""
SMALL: dict[str, Any] = {"order": "o-1", "amount": 30}
TOO_LARGE: dict[str, Any] = {"order": "o-3", "amount": 3_000}
PAGES: dict[str, Any] = {"pages": ["home", "imprint", "help"]}
"""Arguments of ``publish``, of which the policy leaves home and help."""
NARROWS = {"pages": "pages.{}"}


def states(realm: Realm) -> list[str]:
    """Return the status of each."""
    return [one.status for one in realm.proposals()]


def approve(realm: Realm) -> str:
    """Let ann approve the only proposal that waits, and return its id."""
    [waiting] = realm.inbox()
    realm.decide(waiting.proposal_id, "approve", by="ann")
    return waiting.proposal_id


def reject(realm: Realm, reason: str = "not this one") -> str:
    """Let ann reject the only proposal that waits."""
    [waiting] = realm.inbox()
    realm.decide(waiting.proposal_id, "reject", by="ann", reason=reason)
    return waiting.proposal_id


def result_of(proposal: Proposal) -> Any:
    """Return what was recorded as the result of its call."""
    [answer] = proposal.journal.values()
    return answer.value if answer.error is None else answer.error.code
