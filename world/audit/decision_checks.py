"""How a decision has to follow from the ruling before it: the facts that stand in both are the same ones.

A decision repeats its ruling, whoever ruled: rules, people, those who voted, a time limit. Only for want of leases is
one that was judged well rejected, in the engine's own words. Sources: WP-decision, INT-13.3; design section 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from world.model.decision import ENGINE

MARKED: Final = 2
"""Since this version of ``decision.made``, its trace says where the engine overruled what was ruled."""

_REPEATED: Final = ("authority", "policyHash", "reason", "approvedScope")
_BY_TIME: Final[Mapping[str, frozenset[str]]] = {
    "approve": frozenset({"approve", "reject"}),  # rejected where the case cannot be made any more
    "reject": frozenset({"reject"}),
    "escalate": frozenset({"wait", "reject"}),
}


def faults_of_decision(
    ruling: Mapping[str, Any], decision: Mapping[str, Any], *, lacks_leases: bool, version: int
) -> Iterator[str]:
    """Yield a sentence for each way in which a decision does not follow from the last ruling.

    Args:
        ruling: in wire form; empty where nobody ruled.
        decision: the record, in wire form.
        lacks_leases: it is rejected although it was judged well: for its manifest, or for leases that were not free.
        version: of ``decision.made``, as it was stored.
    """
    verdict = "approved" if ruling.get("verdict") == "approve" else "rejected"
    if not lacks_leases and (decision["decision"] != verdict or ruling.get("verdict") == "wait"):
        yield f"the decision {decision['decision']!r} does not follow from the ruling"
        return
    for name in _REPEATED[: 2 if lacks_leases else 4] if ruling else ():
        if decision.get(name) != ruling.get(name):
            yield f"the {name} is not that of the ruling"
    trace, told = decision.get("trace") or (), ruling.get("trace")
    if not trace and not told and not lacks_leases:
        return
    if version >= MARKED and not _engine_speaks_truly(decision, trace, lacks_leases):
        yield "the trace does not say truly whether the engine overruled what was ruled"
    elif told and _unmarked(told, lacks_leases) != _unmarked(_without_engine(trace), lacks_leases):
        yield "the trace is not that of the ruling"


def fits_time_limit(asked: Mapping[str, Any], ruling: Mapping[str, Any]) -> bool:
    """Tell whether a ruling is one to which the end of the time led, by what the ruling before it says."""
    return ruling["verdict"] in _BY_TIME[asked.get("onTimeout", "reject")]


def _without_engine(trace: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return trace[:-1] if trace and trace[-1]["rule"] == ENGINE else trace


def _unmarked(trace: Sequence[Mapping[str, Any]], overruled: bool) -> list[dict[str, Any]]:
    """Return the outcomes; without the marks of what decided where the engine overruled them."""
    return [{name: one[name] for name in one if name != "decisive" or not overruled} for one in trace]


def _engine_speaks_truly(decision: Mapping[str, Any], trace: Sequence[Mapping[str, Any]], lacks_leases: bool) -> bool:
    """Tell whether the engine's outcome stands where it overruled a ruling, and then last, and alone with its mark."""
    spoken = [one for one in trace if one["rule"] == ENGINE]
    if not spoken:
        return not lacks_leases
    sources = ("leases",) if lacks_leases else ("policy in force", "case")
    last = trace[-1]
    return (
        decision["decision"] == "rejected"
        and spoken == [last]
        and last["source"] in sources
        and last == {"rule": ENGINE, "source": last["source"], "answer": "reject", "decisive": True}
        and not any(one.get("decisive") for one in trace[:-1])
    )
