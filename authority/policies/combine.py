"""Combination of opinions, strongest first: error, reject, escalate, approve.

Several narrowings restrict together, and an approval beside a narrowing adds nothing to it. Without an approval the
result is a rejection. So a further approval never changes a rejection, and an error never approves.
Source: design section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from authority.policies.opinions import Narrow, RuleResult
from authority.scope import restrict
from world.model.decision import RuleAnswer
from world.model.intent import IntentScope
from world.model.scope_patterns import SCOPE_RULES

COMBINATION: Final = "error, reject, escalate, narrow, approve; else reject"
"""Name of this combination, part of every policy's hash: strongest answer first."""

_STRENGTH: Final[dict[RuleAnswer, int]] = {
    "none": 0,
    "approve": 1,
    "narrow": 2,
    "escalate": 3,
    "reject": 4,
    "error": 5,
}
_BY_STRENGTH: Final = tuple(_STRENGTH)
_FIRST_ALONE: Final = frozenset({"approve", "reject", "error"})


@dataclass(frozen=True, slots=True)
class Combined:
    """Combined result of several opinions.

    Args:
        verdict: approve, reject, or wait for people.
        answer: the answer that decided; ``none`` where no rule had an opinion.
        decisive: indexes of the outcomes that decided, in the order of the rules.
        scope: for approve: the paths that the intent may write; None is no restriction.
        is_empty: whether it was rejected because the narrowings leave no path to write.
    """

    verdict: Literal["approve", "reject", "wait"]
    answer: RuleAnswer
    decisive: tuple[int, ...] = ()
    scope: IntentScope | None = None
    is_empty: bool = False


def combine(heard: Sequence[RuleResult], proposed: IntentScope | None, rules: int = SCOPE_RULES) -> Combined:
    """Combine the opinions of several rules, in their order.

    Args:
        heard: an opinion, None or a fault for each rule.
        proposed: the scope the intent proposes; None is no restriction.
        rules: version of the scope rules (``world.model.scope_patterns``).

    Raises:
        RefusedError: ``SCOPE_TOO_LARGE`` or ``INVALID_VALUE`` where narrowings cannot be computed.
    """
    opinions = [(at, one) for at, one in enumerate(heard) if one is not None]
    strongest = _BY_STRENGTH[max([_STRENGTH[one.answer] for _, one in opinions], default=0)]
    decisive = tuple([at for at, one in opinions if one.answer == strongest])
    if strongest in _FIRST_ALONE:
        decisive = decisive[:1]
    if strongest in ("none", "reject", "error"):
        return Combined("reject", strongest, decisive)
    narrowings = [(at, one.scope) for at, one in opinions if type(one) is Narrow]
    scope = restrict(proposed, [scope for _, scope in narrowings], rules) if narrowings else proposed
    if narrowings and scope is not None and scope.allowed_paths == ():
        return Combined("reject", "narrow", tuple([at for at, _ in narrowings]), is_empty=True)
    return Combined("wait" if strongest == "escalate" else "approve", strongest, decisive, scope)


def reasons(heard: Sequence[RuleResult], places: Sequence[int]) -> str:
    """Return the joined reasons of the outcomes at these indexes."""
    return "; ".join(one.reason for at in places if (one := heard[at]) is not None and one.reason)
