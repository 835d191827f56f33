"""Comparison of a workspace before and after a run with what the run declared: it finds every change, afterwards."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from host.observation import Watch
from host.workspace import Workspace
from host.workspace.differences import EntryDifference, differences
from host.workspace.scan import Scan
from world.klis.observation import Seen
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource

__all__ = ["ContentFindings", "findings"]

_BY_KIND: Final = {
    "created": (Predicate.PROVIDES,),
    "changed": (Predicate.MUTATES,),
    "mode": (Predicate.MUTATES,),
    "deleted": (Predicate.DELETES, Predicate.RENAMES),
}


@dataclass(slots=True)
class ContentFindings:
    """Result of a comparison.

    Args:
        changes: made by the run.
        undeclared: those of them that were not declared.
        foreign: made by others.
    """

    changes: list[EntryDifference] = field(default_factory=list)
    undeclared: list[EntryDifference] = field(default_factory=list)
    foreign: list[EntryDifference] = field(default_factory=list)


def findings(
    before: Scan, after: Scan, watch: Watch, workspace: Workspace, is_foreign: Callable[[bytes, Resource], bool]
) -> ContentFindings:
    """Compare two scans, and report the changes to the watch of a run.

    Args:
        before: the scan when it began.
        after: the scan when it ended.
        watch: of the run.
        workspace: the workspace.
        is_foreign: whether another process made an undeclared change of a path below the root.
    """
    found = ContentFindings()
    for difference in differences(before, after, workspace.names):
        predicates = _BY_KIND.get(difference.kind)
        if predicates is None:
            continue
        resource = workspace.resource_at(difference.relative)
        seen = [Seen(one, resource, f"found {difference.kind} in the content") for one in predicates]
        declared = next((one for one in seen if not watch.outside([one])), None)
        if declared is not None:
            found.changes.append(difference)
            watch.note([declared], depth="content")
        elif is_foreign(difference.relative, resource):
            found.foreign.append(difference)
        else:
            found.changes.append(difference)
            found.undeclared.append(difference)
            watch.note(seen[:1], depth="content")
    return found
