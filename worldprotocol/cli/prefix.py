"""Ids by unique prefix, as people type them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from world.errors import Refused
from worldprotocol.cli.finding import head_named
from worldprotocol.facade import World

MAX_CANDIDATES: Final = 10
"""Most candidates named for an ambiguous prefix."""


def the_one(given: str, candidates: Iterable[str], *, what: str) -> str:
    """Return the candidate that begins as given; what fits none is returned as it is, to be refused by name.

    Raises:
        Refused: ``AMBIGUOUS_PREFIX`` with the candidates.
    """
    found = sorted({one for one in candidates if one.startswith(given)}) if given else []
    if given in found or not found:
        return given
    if len(found) > 1:
        some = ", ".join(found[:MAX_CANDIDATES])
        raise Refused(
            "AMBIGUOUS_PREFIX",
            f"{given!r} begins several {what}s: {some}{', ...' if len(found) > MAX_CANDIDATES else ''}.",
            candidates=found[:MAX_CANDIDATES],
        )
    return found[0]


def proposal_id(world: World, given: str) -> str:
    """Return the id of the proposal that begins as given, among open ones first, then among all.

    Raises:
        Refused: ``AMBIGUOUS_PREFIX``.
    """
    waiting = [proposal.proposal_id for proposal in world.inbox()]
    if any(one.startswith(given) for one in waiting):
        return the_one(given, waiting, what="waiting proposal")
    return the_one(given, _indexed(world, "proposal_prefix", given), what="proposal")


def world_id(world: World, given: str) -> str:
    """Return the id of the world that begins as given, or is the head of the branch of that name, or of ``HEAD``.

    Raises:
        Refused: ``AMBIGUOUS_PREFIX``.
    """
    return head_named(world, given) or the_one(given, _indexed(world, "world_prefix", given), what="world")


def _indexed(world: World, name: str, given: str) -> list[str]:
    if not given.isascii():
        return []
    rows = world.archive.rows(name, low=given, high=given + "~", most=MAX_CANDIDATES + 1)
    return [str(row[0]) for row in rows]
