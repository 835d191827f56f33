"""Explanations of catalogs: predicate, values read and missing per action.

For debugging; the catalog itself is made by ``projections.catalog`` and is the same as without an explanation.
Source: intent specification 7.4.2 and 7.4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from projections.availability import Availability, Decider, Judged
from projections.catalog import ActionCatalog, CatalogProjector, CatalogRequest, catalog_of, pruned
from projections.reasons import values_read
from world.core import LocalPredicate
from world.model.record import Record

__all__ = ["Explanation", "explain_catalog"]


class Explanation(Record, frozen=True, omit_defaults=True):
    """Reason why one action is offered or left out.

    Args:
        type: the action.
        offered: whether the catalog has it.
        availability: its availability.
        why: one sentence.
        predicate: the expression, ``{"kind": "fn", "name"}`` for a local function, None where there is none.
        reads: the value at every path that the expression names outside of its iterations; null where absent.
        missing: required paths that are absent.
    """

    type: str
    offered: bool
    availability: Availability
    why: str
    predicate: Any
    reads: Mapping[str, Any]
    missing: tuple[str, ...]


def explain_catalog(req: CatalogRequest, projector: CatalogProjector) -> tuple[ActionCatalog, list[Explanation]]:
    """Return a catalog and an explanation of every action of the request.

    Args:
        req: the request.
        projector: the projector that makes the catalog.

    Returns:
        The catalog as the projector makes it, then an explanation of every action: those offered first, in the
        catalog's order, then the others in the request's.
    """
    decider = Decider(req.snapshot, req.actor)
    judged = projector.judge(replace(req, mode="debug"))
    kept = pruned(judged, req.pruning)
    names = {action.type for action, _, _ in kept}
    others = [one for one in judged if one[0].type not in names]
    explanations = [_explained(one, decider, "") for one in kept]
    explanations += [_explained(one, decider, _reason_for_omission(one[1], req)) for one in others]
    return catalog_of(req, judged), explanations


def _explained(judged: Judged, decider: Decider, omission: str) -> Explanation:
    action, availability, why = judged
    missing: tuple[str, ...] = ()
    if action.predicate is not None:
        missing = tuple(action.predicate.missing(decider.fields, decider.view.computed))
    predicate = action.available
    if isinstance(predicate, LocalPredicate):
        predicate = {"kind": predicate.kind, "name": predicate.name}
    sentence = f"{why}; {omission}" if omission else why
    reads = values_read(action, decider)
    return Explanation(action.type, not omission, availability, sentence, predicate, reads, missing)


def _reason_for_omission(availability: Availability, req: CatalogRequest) -> str:
    if req.pruning.keeps(availability.status):
        return f"the catalog ends after {req.pruning.max_actions}"
    return "unavailable actions are dropped" if availability.status == "unavailable" else "unknown actions are left out"
