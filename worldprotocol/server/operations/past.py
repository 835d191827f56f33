"""The parameter ``at``: what a realm was like at a point in the past, as ``--at`` of the command line."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

__all__ = ["At"]

At = Annotated[
    str | None,
    Query(
        min_length=1,
        max_length=200,
        description="A point in the past: a position, the id of a world or proposal, a branch, HEAD, or a time.",
    ),
]
