"""The projection: a merged branch is the intent to apply its changes, and to write only the stated paths.

It translates and judges nothing: who may do what is the policy's business, what is possible the domain's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from examples.repository.domain import Op, area_of, counts_of, place_of
from projections import NoIntent, ProjectionRequest, projection
from world.model.intent import IntentBody, IntentScope

OPS: Final[Mapping[str, Op]] = {
    "PROVIDES": "add",
    "MUTATES": "change",
    "DELETES": "delete",
    "RENAMES": "rename",
}
"""What each predicate of a branch's scope does to the path it names."""


@projection("repository.branch")
def branch(request: ProjectionRequest) -> IntentBody | NoIntent:
    """Select ``change.apply`` for a merged branch; for any other event nothing."""
    rendered = request.source.payload
    if not isinstance(rendered, Mapping) or "session" not in rendered:
        return NoIntent("The event is no merged branch: it names no session.")
    changes = [
        {"op": OPS[triple["predicate"]], "path": triple["resource"].removeprefix("FILE:")}
        for triple in rendered["scope"]
    ]
    paths = [change["path"] for change in changes]
    return IntentBody.read(
        {
            "type": "change.apply",
            "input": {
                "session": rendered["session"],
                "by": rendered["agent"],
                "at": rendered["endMs"],
                "changes": changes,
            },
            "scopeProposal": scope_of(paths),
        }
    )


def scope_of(paths: Iterable[str]) -> IntentScope:
    """Return the narrowest scope in which these paths can be changed: each of them, and the counts of their areas."""
    paths = tuple(paths)
    counted = sorted({area_of(path) for path in paths})
    places = [place_of(path) for path in paths] + [counts_of(area) for area in counted]
    return IntentScope.read({"allowedPaths": [f"data.{place}" for place in places]})
