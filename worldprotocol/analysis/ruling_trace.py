"""Rulings with the traces they had: where a ruling decided at once, its trace stands in the decision alone.

What the engine added to that, because it overruled the ruling, is taken away again.
``worldprotocol.analysis.recheck.recheck`` and what judges cases again import this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from authority.people.questions import OF_PEOPLE
from world.model.decision import ENGINE, RuleOutcome, Ruling


def as_ruled(ruling: Ruling, decision: Mapping[str, Any] | None) -> Ruling:
    """Return a recorded ruling with its trace.

    Args:
        ruling: as its event tells it.
        decision: the decision of its proposal, in wire form; None where there is none.
    """
    if ruling.trace or ruling.verdict == "wait" or decision is None:
        return ruling
    trace = tuple(RuleOutcome.from_wire(one) for one in decision.get("trace", ()))
    if ruling.verdict == "approve" and decision["decision"] == "rejected":
        trace = _approving(trace)
    return replace(ruling, trace=trace)


def _approving(trace: Sequence[RuleOutcome]) -> tuple[RuleOutcome, ...]:
    """Return the trace of an approval that was overruled, with the marks on what approved."""
    said = [one for one in trace if one.rule != ENGINE]
    if said and said[-1].rule in OF_PEOPLE:
        decisive = [len(said) - 1]
    else:  # all narrowings, or the first approval (``authority.policies.combine``)
        decisive = [at for at, one in enumerate(said) if one.answer == "narrow"]
        decisive = decisive or [at for at, one in enumerate(said) if one.answer == "approve"][:1]
    return tuple(replace(one, decisive=at in decisive) for at, one in enumerate(said))
