"""Start of a counterfactual, as a person names it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from worldprotocol.analysis.counterfactual.branching import cut_of
from worldprotocol.api.lookup.id_lookup import proposal_id
from worldprotocol.api.lookup.point_in_time import point_of
from worldprotocol.api.realm import Realm

__all__ = ["start_of"]


def start_of(realm: Realm, begin: str | None, drop: Sequence[str]) -> tuple[int, list[str]]:
    """Return the position of the last event that a counterfactual keeps, and the ids of the dropped proposals.

    Args:
        realm: an open realm.
        begin: the world or the point after which it begins; None is before the first dropped proposal.
        drop: proposals, by the beginnings of their ids.

    Raises:
        RefusedError: as ``point_of`` and ``cut_of``; ``AMBIGUOUS``.
    """
    dropped = [proposal_id(realm, given) for given in drop]
    return cut_of(realm.archive, **_beginning(realm, begin), drop=dropped), dropped


def _beginning(realm: Realm, given: str | None) -> dict[str, Any]:
    """Return the world or the event after which the counterfactual begins."""
    if given is None:
        return {}
    point = point_of(realm, given)
    return {"world": point.world_id} if point.kind in ("world", "branch") else {"position": point.position}
