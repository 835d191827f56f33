"""Differences between two scans of a workspace."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from host.workspace.names import name_of
from host.workspace.stamps import Stamp
from world.klis.resources.names import BYTE_WISE, NameComparison

__all__ = ["DifferenceKind", "EntryDifference", "differences"]

DifferenceKind = Literal["created", "changed", "deleted", "mode", "touched"]


@dataclass(frozen=True, slots=True)
class EntryDifference:
    """Difference of one entry between two scans.

    Args:
        kind: ``created``; ``deleted``; ``changed``: other bytes, another target, or another kind of entry; ``mode``:
            permissions or owner alone; ``touched``: written, replaced or linked without a change of content.
        relative: its path below the root.
        before: its stamp in the first scan, None if it did not exist.
        after: its stamp in the second scan, None if it does not exist.
    """

    kind: DifferenceKind
    relative: bytes
    before: Stamp | None
    after: Stamp | None


def differences(
    before: Mapping[bytes, Stamp], after: Mapping[bytes, Stamp], names: NameComparison = BYTE_WISE
) -> list[EntryDifference]:
    """Return the differences of two scans, sorted by path.

    A folder whose times only show that entries were created, deleted or replaced in it is not reported, because those
    are; the root is compared by kind and permissions alone. A deleted and a created entry are one changed entry where
    their names are equal under ``names``, and no other entry has that name.

    Args:
        before: the first scan.
        after: the second.
        names: which differences of names are ignored.
    """
    respelled = {} if names.is_byte_wise else _respelled(before, after, names)
    before = {respelled.get(path, path): was for path, was in before.items()}
    others = {now for was, now in respelled.items() if was.rpartition(b"/")[2] != now.rpartition(b"/")[2]}
    results = [EntryDifference("deleted", path, was, None) for path, was in before.items() if path not in after]
    folders = []
    for path, now in after.items():
        was = before.get(path)
        if was == now and path not in others:
            continue
        kind = "changed" if path in others else _kind(was, now)
        if kind == "touched" and now.kind == "dir":
            folders.append(EntryDifference(kind, path, was, now))
        else:
            results.append(EntryDifference(kind, path, was, now))
    explained = {_folder_of(each.relative) for each in results if _is_other_entry(each)}
    explained |= {_folder_of(each.relative) for each in folders if _is_other_entry(each)}
    results += [each for each in folders if each.relative and each.relative not in explained]
    return sorted(results, key=lambda each: each.relative)


def _respelled(
    before: Mapping[bytes, Stamp], after: Mapping[bytes, Stamp], names: NameComparison
) -> dict[bytes, bytes]:
    """Return the paths of the first scan that have another spelling in the second, with that spelling."""
    gone, come = _unique(before, names), _unique(after, names)
    both = ((gone[key], come[key]) for key in gone.keys() & come.keys())
    return {was: now for was, now in both if was != now}


def _unique(paths: Iterable[bytes], names: NameComparison) -> dict[str, bytes]:
    """Return the paths by their comparison key, without those that share it."""
    results: dict[str, list[bytes]] = defaultdict(list)
    for path in paths:
        results[names.key(name_of(path))].append(path)
    return {key: same[0] for key, same in results.items() if len(same) == 1}


def _kind(was: Stamp | None, now: Stamp) -> DifferenceKind:
    if was is None:
        return "created"
    if was.kind != now.kind or was.content != now.content:
        return "changed"
    unknown = now.content is None and now.kind == "file"
    if unknown and (was.size, was.mtime_ns, was.ino) != (now.size, now.mtime_ns, now.ino):
        return "changed"
    return "mode" if (was.mode, was.uid, was.gid) != (now.mode, now.uid, now.gid) else "touched"


def _is_other_entry(each: EntryDifference) -> bool:
    """Whether an entry was created, deleted, or replaced by another inode, as its folder's times show."""
    if each.before is None or each.after is None:
        return True
    return (each.before.dev, each.before.ino) != (each.after.dev, each.after.ino)


def _folder_of(relative: bytes) -> bytes:
    return relative.rpartition(b"/")[0]
