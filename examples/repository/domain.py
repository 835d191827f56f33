"""The domain: the tree of a repository's paths, and what may be done to it.

``areas`` holds the top-level folders; each has its ``files`` by path and its ``counts``. A deleted path stays as a
tombstone that says who deleted it and when, until a clean-up removes it. Nothing random and nothing of the wall clock
gets into the state: every time in it is told by the intent, so the same history gives the same worlds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, Field

from world.core import ActionContext, ActionSteps, Domain, Patch, effect, set_, unset
from world.model.paths import format_path

Op = Literal["add", "change", "delete", "rename"]

COUNTED: Mapping[str, Any] = {"present": 0, "deleted": 0, "changes": 0}
"""The counts of an area in which nothing happened yet."""


class Entry(BaseModel):
    """A path: whether it is there, and the last change of it."""

    present: bool
    by: str
    session: str
    at: int
    changes: int


class Counts(BaseModel):
    """Totals of an area, kept with each change so that nobody has to walk the tree."""

    present: int
    deleted: int
    changes: int


class Area(BaseModel):
    """A top-level folder, or ``root`` for the files beside them."""

    files: dict[str, Entry]
    counts: Counts


class Release(BaseModel):
    """A release that was announced, and the number of its mail on the mailing list."""

    at: int
    message: int


class Tree(BaseModel):
    """The state."""

    areas: dict[str, Area] = {}
    releases: dict[str, Release] = {}


class Change(BaseModel):
    """What a branch does to one path; a rename names the old path, the new one is an ``add`` of its own."""

    op: Op
    path: str = Field(pattern="^/")


class Apply(BaseModel):
    """Input of ``change.apply``: one merged branch. ``at`` is its end, in ms since 1970."""

    session: str
    by: str
    at: int
    changes: list[Change] = Field(min_length=1)


class Sweep(BaseModel):
    """Input of ``tombstones.sweep``: which tombstones go, all older than ``before`` (ms since 1970)."""

    before: int
    paths: list[str] = Field(min_length=1)


class Announce(BaseModel):
    """Input of ``release.announce``: which release. ``at`` is its time, in ms since 1970."""

    version: str = Field(pattern=r"^\d+(\.\d+)*$")
    at: int


def area_of(path: str) -> str:
    """Return the area of a path: its top-level folder, or ``root``."""
    top, slash, _ = path.removeprefix("/").partition("/")
    return top if slash else "root"


def place_of(path: str) -> str:
    """Return where a path stands in the data, as a patch path; dots inside of names are escaped."""
    return format_path(("areas", area_of(path), "files", path))


def counts_of(area: str) -> str:
    """Return where the counts of an area stand in the data, as a patch path."""
    return format_path(("areas", area, "counts"))


def entry_of(data: Mapping[str, Any], path: str) -> Mapping[str, Any] | None:
    """Return what the state says of a path, None where it says nothing."""
    entry: Mapping[str, Any] | None = data["areas"].get(area_of(path), {}).get("files", {}).get(path)
    return entry


repository = Domain(
    "urn:example:repository",
    version="1.0.0",
    state=Tree,
    description="The paths of a repository and who changed them last.",
)


def _total(data: Mapping[str, Any], count: str) -> int:
    return sum(area["counts"][count] for area in data["areas"].values())


@repository.computed("present", deps=["areas"])
def present(data: Mapping[str, Any]) -> int:
    """Count the paths that are there."""
    return _total(data, "present")


@repository.computed("deleted", deps=["areas"])
def deleted(data: Mapping[str, Any]) -> int:
    """Count the tombstones."""
    return _total(data, "deleted")


@repository.computed("changes", deps=["areas"])
def changes(data: Mapping[str, Any]) -> int:
    """Count the changes ever made to a path."""
    return _total(data, "changes")


@repository.computed("busiest", deps=["areas"])
def busiest(data: Mapping[str, Any]) -> str | None:
    """Name the area with the most changes; of equals the first by name."""
    ranked = sorted((-area["counts"]["changes"], name) for name, area in data["areas"].items())
    return ranked[0][1] if ranked else None


repository.computed(
    "tombstoneShare",
    expr={
        "kind": "div",
        "left": {"kind": "get", "path": "computed.deleted"},
        "right": {
            "kind": "add",
            "left": {"kind": "get", "path": "computed.present"},
            "right": {"kind": "get", "path": "computed.deleted"},
        },
    },
)


@repository.action("change.apply", version="1")
def apply_change(ctx: ActionContext, branch: Apply) -> list[Patch]:
    """Apply a merged branch to the tree; deleting or renaming what is not there fails it as a whole."""
    if len({change.path for change in branch.changes}) < len(branch.changes):
        ctx.fail("PATH_TWICE", "A branch says once what it does to a path.")
    patches: list[Patch] = []
    counts: dict[str, dict[str, int]] = {}
    for change in branch.changes:
        area = area_of(change.path)
        known = entry_of(ctx.data, change.path)
        was_present = known is not None and known["present"]
        is_present = change.op in ("add", "change")
        if not is_present and not was_present:
            ctx.fail("NO_SUCH_PATH", f"{change.path} is not there to be {change.op}d.", path=change.path)
        if area not in counts:
            counts[area] = {**COUNTED, **ctx.data["areas"].get(area, {}).get("counts", {})}
        counts[area]["changes"] += 1
        counts[area]["present"] += is_present - was_present
        counts[area]["deleted"] += (not is_present) - (known is not None and not was_present)
        entry = {
            "present": is_present,
            "by": branch.by,
            "session": branch.session,
            "at": branch.at,
            "changes": 1 + (known["changes"] if known is not None else 0),
        }
        patches.append(set_(place_of(change.path), entry))
    return patches + [set_(counts_of(area), counted) for area, counted in counts.items()]


@repository.action(
    "tombstones.sweep", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/outbox.jsonl"}]
)
def sweep(ctx: ActionContext, swept: Sweep) -> ActionSteps:
    """Tell the maintainer which tombstones go, then remove them; fails if one of them is none, or too young."""
    gone: dict[str, int] = {}
    for path in swept.paths:
        entry = entry_of(ctx.data, path)
        if entry is None or entry["present"] or entry["at"] >= swept.before:
            ctx.fail("NO_OLD_TOMBSTONE", f"{path} is no tombstone from before {swept.before}.", path=path)
        gone[area_of(path)] = gone.get(area_of(path), 0) + 1
    yield effect("notify.maintainer", subject=f"{len(swept.paths)} tombstones are removed", paths=swept.paths)
    removed = [unset(place_of(path)) for path in swept.paths]
    for area, number in gone.items():
        counts = ctx.data["areas"][area]["counts"]
        removed.append(set_(counts_of(area), {**counts, "deleted": counts["deleted"] - number}))
    return removed


@repository.action(
    "release.announce", version="1", manifest=[{"predicate": "MUTATES", "resource": "FILE:/mailing_list.jsonl"}]
)
def announce(ctx: ActionContext, release: Announce) -> ActionSteps:
    """Send one mail to the mailing list, then record the release; fails if that release was announced before."""
    if release.version in ctx.data["releases"]:
        ctx.fail("ANNOUNCED_ALREADY", f"Release {release.version} was announced before.", version=release.version)
    sent = yield effect("mail.send", subject=f"Release {release.version}")
    place = format_path(("releases", release.version))
    return [set_(place, {"at": release.at, "message": sent["message"]})]
