"""The projection: a merged branch is the wish to apply its changes, written nowhere but where it says.

It translates and judges nothing: who may do what is the policy's business, what is possible the domain's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

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
    payload = request.source.payload
    if not isinstance(payload, Mapping) or "session" not in payload:
        return NoIntent("The event is no merged branch: it names no session.")
    told = cast("Mapping[str, Any]", payload)
    scope: list[Mapping[str, str]] = told["scope"]
    changes = [{"op": OPS[triple["predicate"]], "path": triple["resource"].removeprefix("FILE:")} for triple in scope]
    paths = [change["path"] for change in changes]
    return IntentBody.read(
        {
            "type": "change.apply",
            "input": {"session": told["session"], "by": told["agent"], "at": told["endMs"], "changes": changes},
            "scopeProposal": scope_of(paths),
        }
    )


def scope_of(paths: Iterable[str]) -> IntentScope:
    """Return the narrowest scope in which these paths can be changed: each of them, and the counts of their areas."""
    paths = tuple(paths)
    counted = sorted({area_of(path) for path in paths})
    places = [place_of(path) for path in paths] + [counts_of(area) for area in counted]
    return IntentScope.read({"allowedPaths": [f"data.{place}" for place in places]})
