"""Traces of rulings: the trace of an immediate ruling is recorded in its decision only.

Additions of the engine, if it overruled the ruling, are removed.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from authority.people.questions import OF_PEOPLE
from world.model.decision import ENGINE, DecisionRecord, RuleOutcome, Ruling


def as_ruled(ruling: Ruling, decision: DecisionRecord | None) -> Ruling:
    """Return a recorded ruling with its trace.

    Args:
        ruling: the ruling of the event.
        decision: the decision of its proposal, if any.
    """
    if ruling.trace or ruling.verdict == "wait" or decision is None:
        return ruling
    trace = decision.trace
    if ruling.verdict == "approve" and decision.decision == "rejected":
        trace = _approving(trace)
    return replace(ruling, trace=trace)


def _approving(trace: Sequence[RuleOutcome]) -> tuple[RuleOutcome, ...]:
    """Return the trace of an overruled approval, with the approving rules as decisive."""
    outcomes = [one for one in trace if one.rule != ENGINE]
    if outcomes and outcomes[-1].rule in OF_PEOPLE:
        decisive = [len(outcomes) - 1]
    else:  # all narrowings, or the first approval (``authority.policies.combine``)
        decisive = [at for at, one in enumerate(outcomes) if one.answer == "narrow"]
        decisive = decisive or [at for at, one in enumerate(outcomes) if one.answer == "approve"][:1]
    return tuple(replace(one, decisive=at in decisive) for at, one in enumerate(outcomes))
