"""Consistency of a decision with its ruling: both must state the same facts.

A decision repeats its ruling, whether rules, people, votes or a time limit determined it. An approving ruling leads to
a rejection only for missing leases, with the engine's own reason. Sources: WP-decision, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from world.model.decision import ENGINE

MARKED: Final = 2
"""First version of ``decision.made`` whose trace shows where the engine overruled a ruling."""

_REPEATED: Final = ("authority", "policyHash", "reason", "approvedScope")
_BY_TIME: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset({"approve", "reject"}),  # rejected where the case cannot be constructed any more
    "reject": frozenset({"reject"}),
    "escalate": frozenset({"wait", "reject"}),
}


def faults_of_decision(
    ruling: Mapping[str, Any], decision: Mapping[str, Any], *, lacks_leases: bool, version: int
) -> Iterator[str]:
    """Yield a sentence for each contradiction between a decision and the last ruling.

    Args:
        ruling: the ruling, in wire form; empty without a ruling.
        decision: the record, in wire form.
        lacks_leases: whether it was rejected after an approval, for its manifest or for leases that were not free.
        version: the stored version of ``decision.made``.
    """
    verdict = "approved" if ruling.get("verdict") == "approve" else "rejected"
    if not lacks_leases and (decision["decision"] != verdict or ruling.get("verdict") == "wait"):
        yield f"the decision {decision['decision']!r} does not follow from the ruling"
        return
    for name in _REPEATED[: 2 if lacks_leases else 4] if ruling else ():
        if decision.get(name) != ruling.get(name):
            yield f"the {name} is not that of the ruling"
    trace, ruling_trace = decision.get("trace") or (), ruling.get("trace")
    if not trace and not ruling_trace and not lacks_leases:
        return
    if version >= MARKED and not _is_engine_outcome_valid(decision, trace, lacks_leases):
        yield "the trace is wrong about whether the engine overruled the ruling"
    elif ruling_trace and _unmarked(ruling_trace, lacks_leases) != _unmarked(_without_engine(trace), lacks_leases):
        yield "the trace is not that of the ruling"


def fits_time_limit(asked: Mapping[str, Any], ruling: Mapping[str, Any]) -> bool:
    """Return whether a ruling is a possible result of the time limit of the previous ruling.

    Args:
        asked: the previous ruling, in wire form.
        ruling: the ruling after the time limit, in wire form.
    """
    return ruling["verdict"] in _BY_TIME[asked.get("onTimeout", "reject")]


def _without_engine(trace: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return trace[:-1] if trace and trace[-1]["rule"] == ENGINE else trace


def _unmarked(trace: Sequence[Mapping[str, Any]], overruled: bool) -> list[dict[str, Any]]:
    """Return the outcomes, without the member ``decisive`` where the engine overruled them."""
    return [{name: one[name] for name in one if name != "decisive" or not overruled} for one in trace]


def _is_engine_outcome_valid(
    decision: Mapping[str, Any], trace: Sequence[Mapping[str, Any]], lacks_leases: bool
) -> bool:
    """Return whether a trace has the engine's outcome if required, as the last and only decisive outcome."""
    engine_outcomes = [one for one in trace if one["rule"] == ENGINE]
    if not engine_outcomes:
        return not lacks_leases
    sources = ("leases",) if lacks_leases else ("policy in force", "case")
    last = trace[-1]
    return (
        decision["decision"] == "rejected"
        and engine_outcomes == [last]
        and last["source"] in sources
        and last == {"rule": ENGINE, "source": last["source"], "answer": "reject", "decisive": True}
        and not any(one.get("decisive") for one in trace[:-1])
    )
