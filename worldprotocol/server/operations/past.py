"""The parameter ``at``: what a realm was like at a point in the past, as ``--at`` of the command line."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.state.realm_view import RealmView
from worldprotocol.api.lookup.point_in_time import PointInTime, moment
from worldprotocol.server.call import Call

__all__ = ["At", "looked_at", "view_at"]

At = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        description="A point in the past: a position, the id of a world or proposal, a branch, HEAD, or a time.",
    ),
]


def looked_at(call: Call, at: str | None) -> PointInTime:
    """Return the point in time that a request looks at; None is now.

    Raises:
        RefusedError: ``NOT_FOUND``, ``AMBIGUOUS``; ``RIGHT_MISSING`` for a caller that may not read all events, because
            a point is found among all of them.
    """
    if at is not None:
        call.visibility.check_whole()
        if not call.visibility.reads_all and "operator" not in call.visibility.rights:
            raise RefusedError(
                ErrorCode.RIGHT_MISSING, "The past of a realm (`at`) needs the right reader, auditor or operator."
            )
    return moment(call.hosted.realm, at)


def view_at(call: Call, at: str | None) -> RealmView:
    """Return the state of the realm at a point in time.

    Raises:
        RefusedError: as ``looked_at``.
    """
    return call.view if at is None else call.hosted.past.view(looked_at(call, at).position)
