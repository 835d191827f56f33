"""Result of a log in a form that can be compared: the end of every intent, and every world in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalFailed, ProposalSubmitted
from world.state.proposal import Proposal
from worldprotocol.api.realm import Realm


@dataclass(slots=True)
class Account:
    """Result of a log.

    Args:
        ends: by intentId: completed, failed, rejected, or waiting.
        decisions: by intentId: the decision, its authority, and its reason.
        completed: ids of the worlds of completed proposals, in order.
        failed: ids of the worlds of failed ones, in order.
        errors: how often which error made one fail, by its code.
    """

    ends: dict[str, str] = field(default_factory=dict[str, str])
    decisions: dict[str, tuple[str, str, str]] = field(default_factory=dict[str, tuple[str, str, str]])
    completed: list[str] = field(default_factory=list[str])
    failed: list[str] = field(default_factory=list[str])
    errors: Counter[str] = field(default_factory=Counter[str])

    @property
    def statuses(self) -> Counter[str]:
        """How many intents ended how."""
        return Counter(self.ends.values())


def account_of(realm: Realm) -> Account:
    """Return what the events of a world's log come to, without asking any index."""
    account = Account()
    intents: dict[str, str] = {}
    for _, event in realm.events():
        if isinstance(event, ProposalSubmitted):
            intents[event.proposal_id] = event.intent.intent_id
            account.ends[event.intent.intent_id] = "waiting"
        elif isinstance(event, DecisionMade):
            rendered, intent = event.decision, intents[event.proposal_id]
            account.decisions[intent] = (rendered.decision, rendered.authority, rendered.reason)
            account.ends[intent] = rendered.decision
        elif isinstance(event, ProposalCompleted):
            account.ends[intents[event.proposal_id]] = "completed"
            account.completed.append(event.world_id)
        elif isinstance(event, ProposalFailed):
            account.ends[intents[event.proposal_id]] = "failed"
            account.failed.append(event.world_id)
            account.errors[event.error.code] += 1
    return account


def differences(one: Account, other: Account) -> list[str]:
    """Return in which respects two accounts differ, as sentences; none when they are equal."""
    found: list[str] = []
    for noun, mine, others in (
        ("completed worlds", one.completed, other.completed),
        ("failed worlds", one.failed, other.failed),
    ):
        if mine != others:
            pairs = zip(mine, others, strict=False)
            at = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(mine), len(others)))
            found.append(f"the {noun} differ from number {at + 1} on ({len(mine)} and {len(others)} in all)")
    for noun, left, right in (
        ("ends", dict[str, object](one.ends), dict[str, object](other.ends)),
        ("decisions", dict[str, object](one.decisions), dict[str, object](other.decisions)),
    ):
        intents = sorted(name for name in {*left, *right} if left.get(name) != right.get(name))
        if intents:
            found.append(f"the {noun} of {len(intents)} intents differ, the first of them {intents[0]}")
    return found


def proposal_of(realm: Realm, intent_id: str) -> Proposal:
    """Return the proposal that carries an intentId, which must be in the log."""
    ((proposal_id,),) = realm.archive.rows("by_intent", {"of_intent": intent_id})
    return realm.proposal(proposal_id)
