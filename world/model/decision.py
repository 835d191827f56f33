"""Rulings of an Authority and the decision record (World Protocol: WP-decision; intent specification 13.3).

A ``Ruling`` is an Authority's verdict on a case with the outcome of every rule; a ``DecisionRecord`` is the single
terminal decision about a proposal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, cast

import msgspec

from world.model.actor import ActorRef
from world.model.intent import IntentScope
from world.model.member_types import Identifier, Text
from world.model.record import Record, Shown
from world.model.short_repr import short_repr

RuleAnswer = Literal["approve", "reject", "narrow", "escalate", "abstain", "delegate", "none", "error"]
Verdict = Literal["approve", "reject", "wait"]
HumanChoice = Literal["approve", "reject", "narrow", "abstain", "ask", "reply", "delegate", "escalate"]
OnTimeout = Literal["approve", "reject", "escalate"]
VoteRule = Literal["unanimous", "majority", "threshold"]

HUMAN_ANSWER: Final = "human answer"
"""Rule name in the outcome of a person's answer; names of rules contain no spaces."""

ENGINE: Final = "the engine"
"""Rule name in the outcome of a rejection by the engine, which overrules the ruling (``world.model.overruling``)."""

REMARKS: Final = frozenset({"ask", "reply"})
"""Answers that are recorded without an effect on the ruling: a question, and the proposer's reply to it."""


class Quorum(Record, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """Number of required approvals, where one approval is not enough.

    Args:
        rule: all members, more than half of them, or ``threshold`` of them.
        threshold: the number of members, for the rule ``threshold``.
    """

    rule: VoteRule
    threshold: Annotated[int, msgspec.Meta(ge=1)] | None = None

    def needed(self, members: int) -> int:
        """Return how many approvals are required of ``members`` members."""
        if self.rule == "threshold":
            return self.threshold or 1
        return members if self.rule == "unanimous" else members // 2 + 1


class RuleOutcome(Record, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """Outcome of one rule for one case.

    Args:
        rule: the rule's name in its policy.
        source: location of the rule (distribution, module and line), for people.
        answer: approve, reject, narrow, escalate, none (the rule does not apply) or error (which rejects); answers of
            people also abstain and delegate.
        reason: the text that the rule gave.
        scope: the narrower scope, for ``narrow``.
        to: ids of the actors that may answer, for ``escalate``; id of the actor that answers instead, for ``delegate``.
        quorum: for ``escalate``: how many of ``to`` must approve; None is any one of them.
        decisive: True for the outcome that decided; where the engine overruled a ruling, True for the engine's outcome.
    """

    rule: str
    source: str
    answer: RuleAnswer
    reason: str = ""
    scope: IntentScope | None = None
    to: tuple[str, ...] = ()
    quorum: Quorum | None = None
    decisive: bool = False


class Ruling(Record, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """An Authority's verdict on a case; equal cases give equal rulings.

    Args:
        verdict: approve, reject, or wait (for people).
        authority: name of the authority, such as ``auto_approve`` or ``policy_rules:repository``.
        reason: one sentence for people.
        approved_scope: for approve: the paths that the intent may write; None is no restriction.
        trace: the outcome of every rule, in order.
        policy_hash: hash of the policy that was applied; None where no policy was applied.
        ask: for wait: ids of the actors that may answer; ``*`` means any human.
        on_timeout: for wait: what happens when the time limit has passed.
        timeout_ms: for wait: how long to wait, in milliseconds; None is without limit.
        step: number of escalations to a further step of the binding's chain.
    """

    verdict: Verdict
    authority: str
    reason: str
    approved_scope: IntentScope | None = None
    trace: tuple[RuleOutcome, ...] = ()
    policy_hash: str | None = None
    ask: tuple[str, ...] = ()
    on_timeout: OnTimeout = "reject"
    timeout_ms: int | None = None
    step: Annotated[int, msgspec.Meta(ge=1)] = 0
    SHOWN: ClassVar = {
        "approved_scope": Shown("verdict", "approve"),
        "ask": Shown("verdict", "wait"),
        "on_timeout": Shown("verdict", "wait"),
        "timeout_ms": Shown("verdict", "wait", unless=None),
    }


class HumanAnswer(Record, frozen=True, kw_only=True):
    """Answer of a person to a waiting proposal.

    ``ask`` records a question and ``reply`` an answer to one; neither changes the ruling. ``delegate`` transfers the
    person's vote to ``to``, and ``escalate`` passes the decision to the next step of the binding's chain. ``shown``
    is the hash of what the person was shown; None where that was not stated.
    """

    answer_id: Identifier
    by: ActorRef
    choice: HumanChoice
    scope: IntentScope | None = None
    to: Identifier | None = None
    reason: Text = ""
    shown: Identifier | None = None


def voters(binding: Mapping[str, Any]) -> list[str]:
    """Return the ids of the voters in all steps of a binding; each must be registered."""
    return [member for one in (binding, *binding.get("then", ())) for member in one.get("members", ())]


class DecisionRecord(Record, frozen=True, forbid_unknown_fields=False, omit_defaults=True):
    """The single terminal decision about a proposal (WP-decision).

    ``approved_scope`` applies to approvals only: a copy of the proposed scope, a narrower one, or None for no
    restriction (INT-13.3).
    """

    decision_id: str
    proposal_id: str
    authority: str
    decision: Literal["approved", "rejected"]
    reason: str
    decided_at: int
    approved_scope: IntentScope | None = cast("None", msgspec.UNSET)
    policy_hash: str | None = None
    trace: tuple[RuleOutcome, ...] = ()
    SHOWN: ClassVar = {"approved_scope": Shown("decision", "approved")}

    def __post_init__(self) -> None:
        is_absent = cast(object, self.approved_scope) is msgspec.UNSET
        if self.decision == "approved" and is_absent:
            raise ValueError("an approval must have an approvedScope")
        if self.decision == "rejected" and not is_absent and self.approved_scope is not None:
            raise ValueError("a rejection must not have an approvedScope")
        if is_absent:
            msgspec.structs.force_setattr(self, "approved_scope", None)

    @property
    def decisive_rules(self) -> list[str]:
        """Names of the rules, or answers of people, that decided."""
        return [one.rule for one in self.trace if one.decisive]

    def __repr__(self) -> str:
        return short_repr(self, f"{self.decision} by {self.authority}", f"proposal {self.proposal_id}", self.reason)
