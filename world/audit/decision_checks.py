"""Consistency of a decision with its ruling: both must state the same facts.

A decision repeats its ruling, whether rules, people, votes or a time limit determined it. An approving ruling leads to
a rejection only for missing leases, with the engine's own reason. Sources: WP-decision, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from msgspec import structs

from world.model.decision import ENGINE, DecisionRecord, RuleOutcome, Ruling

MARKED: Final = 2
"""First version of ``decision.made`` whose trace shows where the engine overruled a ruling."""

_REPEATED: Final = (
    ("authority", "authority"),
    ("policyHash", "policy_hash"),
    ("reason", "reason"),
    ("approvedScope", "approved_scope"),
)
_BY_TIME: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset({"approve", "reject"}),  # rejected where the case cannot be constructed any more
    "reject": frozenset({"reject"}),
    "escalate": frozenset({"wait", "reject"}),
}


def faults_of_decision(
    ruling: Ruling | None, decision: DecisionRecord, *, lacks_leases: bool, version: int
) -> Iterator[str]:
    """Yield a sentence for each contradiction between a decision and the last ruling.

    Args:
        ruling: the ruling; None without one.
        decision: the record.
        lacks_leases: whether it was rejected after an approval, for its manifest or for leases that were not free.
        version: the stored version of ``decision.made``.
    """
    ruled = None if ruling is None else ruling.verdict
    verdict = "approved" if ruled == "approve" else "rejected"
    if not lacks_leases and (decision.decision != verdict or ruled == "wait"):
        yield f"the decision {decision.decision!r} does not follow from the ruling"
        return
    for name, attribute in _REPEATED[: 2 if lacks_leases else 4] if ruling is not None else ():
        if getattr(decision, attribute) != getattr(ruling, attribute):
            yield f"the {name} is not that of the ruling"
    trace, ruling_trace = decision.trace, () if ruling is None else ruling.trace
    if not trace and not ruling_trace and not lacks_leases:
        return
    if version >= MARKED and not _is_engine_outcome_valid(decision, trace, lacks_leases):
        yield "the trace is wrong about whether the engine overruled the ruling"
    elif ruling_trace and _unmarked(ruling_trace, lacks_leases) != _unmarked(_without_engine(trace), lacks_leases):
        yield "the trace is not that of the ruling"


def fits_time_limit(asked: Ruling | None, ruling: Ruling) -> bool:
    """Return whether a ruling is a possible result of the time limit of the previous ruling.

    Args:
        asked: the previous ruling; None without one.
        ruling: the ruling after the time limit.
    """
    return ruling.verdict in _BY_TIME["reject" if asked is None else asked.on_timeout]


def _without_engine(trace: Sequence[RuleOutcome]) -> Sequence[RuleOutcome]:
    return trace[:-1] if trace and trace[-1].rule == ENGINE else trace


def _unmarked(trace: Sequence[RuleOutcome], overruled: bool) -> list[RuleOutcome]:
    """Return the outcomes, none of them decisive where the engine overruled them."""
    return [structs.replace(one, decisive=False) if overruled else one for one in trace]


def _is_engine_outcome_valid(decision: DecisionRecord, trace: Sequence[RuleOutcome], lacks_leases: bool) -> bool:
    """Return whether a trace has the engine's outcome if required, as the last and only decisive outcome."""
    engine_outcomes = [one for one in trace if one.rule == ENGINE]
    if not engine_outcomes:
        return not lacks_leases
    sources = ("leases",) if lacks_leases else ("policy in force", "case")
    last = trace[-1]
    return (
        decision.decision == "rejected"
        and engine_outcomes == [last]
        and last.source in sources
        and last == RuleOutcome(ENGINE, last.source, "reject", decisive=True)
        and not any(one.decisive for one in trace[:-1])
    )
