"""What claims of DEPENDS_ON require to exist: checked when they are leased and before an execution (KLIS-1 section 3).

- FILE: something has to exist at that place of the workspace. This is an observation of the environment, so the log
  records it. Where there is no workspace, it is not checked.
- STATE: the data of a world has to have a value there, null included. The world is the base world of a proposal for its
  own branch, the world that an execution starts from, and the head of the branch for everything else. This follows from
  the log, and ``recheck`` computes it again.
- Other types have no existence check.

Of a subtree, its root has to exist. A claim that is leased as a stronger one (CONSUMES, PROVIDES) is not checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

from world.errors import RefusedError
from world.events.resource_values import ResourceExistence
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.triple import Triple
from world.model.paths import is_present
from world.model.record import to_wire
from world.model.short_repr import listed

__all__ = ["RESOURCE_ABSENT", "Base", "absent_in", "absent_message", "check_existence", "observe"]

RESOURCE_ABSENT: Final = "RESOURCE_ABSENT"
"""The error's code where a resource that has to exist does not."""

MAX_NAMED: Final = 3
"""Absent resources that a message names."""

Existence = Sequence[ResourceExistence]


class Base(NamedTuple):
    """The world on which one branch is looked at; other branches are looked at on their heads."""

    branch: str
    world_id: str


def observe(
    triples: Iterable[Triple],
    *,
    head_of: Callable[[str], str | None],
    data_of: Callable[[str], Any],
    base: Base | None,
    file_exists: Callable[[Resource], bool | None],
) -> list[ResourceExistence]:
    """Return whether the resources exist that claims depend on, as the log records it.

    Args:
        triples: what is leased.
        head_of: gives the id of the head of a branch, None where there is no such branch.
        data_of: gives the data of a world.
        base: the world to look at for one branch; None is its head.
        file_exists: returns whether a FILE resource exists; None where that cannot be checked.

    Returns:
        An observation for each resource that was checked, in the order of the claims.
    """
    found = []
    for triple in triples:
        if triple.predicate is not Predicate.DEPENDS_ON:
            continue
        exists: bool | None = None
        if triple.resource.type == "FILE":
            exists = file_exists(triple.resource)
        elif triple.resource.type == "STATE":
            exists = _state_exists(triple.resource, head_of, data_of, base)
        if exists is not None:
            found.append(ResourceExistence(triple.resource.text, exists))
    return found


def absent_in(existence: Existence | None) -> list[str]:
    """Return the resources that an observation found absent."""
    return [one.resource for one in existence or () if not one.exists]


def absent_message(existence: Existence) -> str:
    """Return the sentences that say what is absent and what to do about it."""
    absent = absent_in(existence)
    named = listed(absent, MAX_NAMED)
    those = "it does" if len(absent) == 1 else "they do"
    return f"DEPENDS_ON requires {named} to exist, and {those} not. Create what is missing, or do not depend on it."


def check_existence(existence: Existence) -> None:
    """Refuse a grant where something does not exist that has to.

    Raises:
        RefusedError: ``RESOURCE_ABSENT`` with ``existence``, the observation, in its details.
    """
    if absent_in(existence):
        raise RefusedError(RESOURCE_ABSENT, absent_message(existence), existence=to_wire(existence))


def _state_exists(
    resource: Resource, head_of: Callable[[str], str | None], data_of: Callable[[str], Any], base: Base | None
) -> bool:
    names = [_name(segment) for segment in resource.key.removeprefix("STATE:/").split("/") if segment]
    if not names:
        return True
    branch, *path = names
    world_id = base.world_id if base is not None and base.branch == branch else head_of(branch)
    return world_id is not None and is_present(data_of(world_id), path, with_length=False)


def _name(segment: str) -> str:
    """Return the name of a segment of a STATE path; ``proposal_manifest`` escapes it."""
    return "" if segment == "%" else unquote(segment)
