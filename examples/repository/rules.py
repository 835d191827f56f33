"""The policy: who may change what at once, what a person looks at first, and what is refused.

=================================  =====================================================================
documentation                      is approved at once, however wide
other changes                      are approved, unless another rule objects
the workflows that build it        may be changed by members of the project only
core modules                       a newcomer's change of them goes to the maintainer
more than ``WIDE`` paths           go to the maintainer
clean-ups                          may be proposed by the system only, and may write the named tombstones
                                   and their counts, nothing else
announcements of releases          go to the maintainer: a mail cannot be taken back
a branch signed by somebody else   is refused
=================================  =====================================================================

A newcomer has fewer than ``EXPERIENCED`` completed changes in the log before this one: the rule asks the history, so
the same branch may be judged otherwise a year later, and a recheck still comes to the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from authority import Approve, Escalate, Narrow, Opinion, Policy, Reject, rule
from examples.repository.branches import scope_of
from examples.repository.domain import entry_of
from world.state.ports import Case

WIDE: Final = 20
"""Paths from which on a change is looked at by a person, unless it is documentation only."""

EXPERIENCED: Final = 3
"""Completed changes after which nobody is a newcomer any more."""

MAINTAINER: Final = "maintainer"
"""The actor who is asked."""

CORE: Final = ("/src/", "/flask/", "/flask.py")
WORKFLOWS: Final = ("/.github/workflows/", "/.travis.yml", "/.appveyor.yml", "/.azure-pipelines")
DOCUMENTATION: Final = ("/docs/", "/CHANGES", "/README", "/CONTRIBUTING", "/AUTHORS", "/LICENSE")


def paths_of(case: Case) -> list[str]:
    """Return the paths that a ``change.apply`` names; none for any other action."""
    told = case.intent.body.input
    if case.intent.body.type != "change.apply" or not isinstance(told, Mapping):
        return []
    changes: list[Mapping[str, str]] = cast("Mapping[str, Any]", told)["changes"]
    return [change["path"] for change in changes]


def is_core(path: str) -> bool:
    """Tell whether a path belongs to the core modules."""
    return path.startswith(CORE)


def is_documentation(path: str) -> bool:
    """Tell whether a path is documentation."""
    return path.startswith(DOCUMENTATION) or path.endswith((".rst", ".md"))


@rule
def signed_by_its_author(case: Case) -> Opinion | None:
    """A branch is applied in its own author's name."""
    told: Any = case.intent.body.input
    if paths_of(case) and told["by"] != case.actor.actor_id:
        return Reject(f"the branch is signed by {told['by']}, and {case.actor.actor_id} proposes it")
    return None


@rule
def workflows_are_for_members(case: Case) -> Opinion | None:
    """What builds and releases the project is changed by its members."""
    touched = [path for path in paths_of(case) if path.startswith(WORKFLOWS)]
    if touched and (case.actor.meta or {}).get("role") != "member":
        return Reject(f"{touched[0]} builds the project, and {case.actor.actor_id} is no member of it")
    return None


@rule
def newcomers_ask_before_they_change_the_core(case: Case) -> Opinion | None:
    """Whoever completed few changes so far shows a change of the core to the maintainer."""
    touched = [path for path in paths_of(case) if is_core(path)]
    if not touched:
        return None
    completed = case.history.count(actor_id=case.actor.actor_id, outcome="completed")
    if completed >= EXPERIENCED:
        return None
    return Escalate(MAINTAINER, f"{touched[0]} is core, and {case.actor.actor_id} completed {completed} changes before")


@rule
def wide_changes_are_looked_at(case: Case) -> Opinion | None:
    """A change of many paths is shown to the maintainer, unless all of it is documentation."""
    paths = paths_of(case)
    if len(paths) > WIDE and not all(map(is_documentation, paths)):
        return Escalate(MAINTAINER, f"{len(paths)} paths at once, and more than {WIDE} are looked at")
    return None


@rule
def documentation_is_welcome(case: Case) -> Opinion | None:
    """Documentation is approved at once."""
    paths = paths_of(case)
    return Approve("documentation only") if paths and all(map(is_documentation, paths)) else None


@rule
def ordinary_changes_pass(case: Case) -> Opinion | None:
    """A change that no other rule objects to is approved within the scope it proposes."""
    return Approve("nothing speaks against it") if paths_of(case) else None


@rule
def clean_ups_touch_tombstones_only(case: Case) -> Opinion | None:
    """A clean-up is the system's, and is held to the tombstones it names."""
    told: Any = case.intent.body.input
    if case.intent.body.type != "tombstones.sweep":
        return None
    if case.actor.kind != "system":
        return Reject(f"clean-ups are the scheduler's business, not {case.actor.actor_id}'s")
    alive = [path for path in told["paths"] if (entry_of(case.view.data, path) or {}).get("present", True)]
    if alive:
        return Reject(f"{alive[0]} is no tombstone")
    return Narrow(scope_of(told["paths"]), f"{len(told['paths'])} tombstones and the counts of their areas")


@rule
def announcements_are_approved_before(case: Case) -> Opinion | None:
    """The maintainer approves what all readers of the mailing list get."""
    told: Any = case.intent.body.input
    if case.intent.body.type != "release.announce":
        return None
    return Escalate(MAINTAINER, f"release {told['version']}: a mail cannot be taken back")


policy = Policy(
    "repository",
    [
        signed_by_its_author,
        workflows_are_for_members,
        newcomers_ask_before_they_change_the_core,
        wide_changes_are_looked_at,
        documentation_is_welcome,
        ordinary_changes_pass,
        clean_ups_touch_tombstones_only,
        announcements_are_approved_before,
    ],
)
"""Named ``repository`` in the actors' bindings."""
