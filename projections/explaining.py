"""Why an action is offered in a catalog or is not: its predicate, what it read, and what was missing.

For people who look at a catalog; the catalog itself is made by ``projections.catalog`` and comes out the same.
Source: intent specification 7.4.2 and 7.4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from projections.catalog import ActionCatalog, CatalogProjector, CatalogRequest, catalog_of, pruned
from projections.deciding import Availability, Decider, Judged
from projections.reasons import values_read
from world.core import LocalPredicate

__all__ = ["Explanation", "explain_catalog"]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why one action is offered, or is not.

    Args:
        type: the action.
        offered: whether the catalog has it.
        availability: what is known of it.
        why: one sentence.
        predicate: the expression, ``{"kind": "fn", "name"}`` for a local function, None where there is none.
        reads: the value at every path that the expression names outside of its walks; null where nothing is.
        missing: what it needs and is absent.
    """

    type: str
    offered: bool
    availability: Availability
    why: str
    predicate: Any = None
    reads: Mapping[str, Any] = field(default_factory=dict)
    missing: tuple[str, ...] = ()

    def to_wire(self) -> dict[str, Any]:
        """Return the explanation as JSON."""
        return {
            "type": self.type,
            "offered": self.offered,
            "availability": self.availability.to_wire(),
            "why": self.why,
            "predicate": self.predicate,
            "reads": dict(self.reads),
            "missing": list(self.missing),
        }


def explain_catalog(req: CatalogRequest, projector: CatalogProjector) -> tuple[ActionCatalog, list[Explanation]]:
    """Return a catalog, and why every action of the request is in it or is not.

    Args:
        req: the request.
        projector: what makes the catalog.

    Returns:
        The catalog as the projector makes it, then an explanation of every action: those offered first, in the
        catalog's order, then the others in the request's.
    """
    decider = Decider(req.snapshot, req.actor)
    judged = projector.judge(replace(req, mode="debug"))
    kept = pruned(judged, req.pruning)
    names = {action.type for action, _, _ in kept}
    left = [one for one in judged if one[0].type not in names]
    told = [_explained(one, decider, "") for one in kept]
    told += [_explained(one, decider, _left_out(one[1], req)) for one in left]
    return catalog_of(req, judged), told


def _explained(judged: Judged, decider: Decider, left_out: str) -> Explanation:
    action, told, why = judged
    missing: tuple[str, ...] = ()
    if action.predicate is not None:
        missing = tuple(action.predicate.missing(decider.fields, decider.view.computed))
    predicate = action.available
    if isinstance(predicate, LocalPredicate):
        predicate = {"kind": predicate.kind, "name": predicate.name}
    sentence = f"{why}; {left_out}" if left_out else why
    return Explanation(action.type, not left_out, told, sentence, predicate, values_read(action, decider), missing)


def _left_out(told: Availability, req: CatalogRequest) -> str:
    if req.pruning.keeps(told.status):
        return f"the catalog ends after {req.pruning.max_actions}"
    return "unavailable actions are dropped" if told.status == "unavailable" else "unknown actions are left out"
