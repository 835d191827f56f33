"""Conversion of rules to the file tree of a command: only granted paths exist.

Granted paths are mounted at their own names, read-only unless they may be changed. Where single names are created or
deleted, their folder is mounted, and everything else in it is covered. In folders of the workspace that only
lead to granted paths, undeclared names exist as empty files and folders, so that a command that searches
for them continues to open them, and the watcher reports the attempt. The engine's own files are always covered.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from host.confinement.landlock import Access, Rules
from host.confinement.rules import Runtime, readable_folders, single_names
from host.system_paths import SHARED_MEMORY, is_below
from world.klis.predicate import Predicate
from world.klis.triple import Triple
from world.model.record import Record

if TYPE_CHECKING:
    from host.workspace.root import Workspace

__all__ = ["FRESH", "MountTree", "tree_for", "tree_of"]

_CHANGING: Final = Access.WRITE | Access.MAKE | Access.REMOVE | Access.REFER
_FRESH: Final = (b"/proc", SHARED_MEMORY, b"/dev/pts", b"/dev/ptmx")
"""Paths that are created anew for each command."""
FRESH: Final = [
    (b"/", int(Access.LIST)),
    (b"/proc", int(Access.READ)),
    (SHARED_MEMORY, int(Access.READ | Access.WRITE | Access.MAKE | Access.REMOVE | Access.REFER)),
    (b"/dev/pts", int(Access.READ | Access.WRITE | Access.CONTROL)),
]
"""Landlock grants there: in the tree, the names of all existing files may be listed."""
_MAX_NAMES: Final = 4_096
"""Most names of undeclared files in the tree."""
_MAX_LINKS: Final = 40


class MountTree(Record, frozen=True):
    """File tree of a command.

    Args:
        mounts: absolute real paths, with whether they may be changed; folders before their content.
        covers: absolute paths in mounts that are covered by an empty file or folder.
        folders: folders that only lead to other paths.
        files: names of undeclared files, which are empty.
        links: absolute paths of links, with their texts.
        network: whether it has the network of this machine; otherwise an empty one of its own.
    """

    mounts: tuple[tuple[bytes, bool], ...] = ()
    covers: tuple[bytes, ...] = ()
    folders: tuple[bytes, ...] = ()
    files: tuple[bytes, ...] = ()
    links: tuple[tuple[bytes, bytes], ...] = ()
    network: bool = True


def tree_for(
    triples: Iterable[Triple],
    workspace: Workspace,
    runtime: Runtime,
    rules: Rules,
    *,
    private: Iterable[bytes] = (),
    guarded: Iterable[bytes] = (),
    folders: Iterable[bytes] = (),
) -> MountTree:
    """Return the tree for a command with these rules.

    Args:
        triples: the manifest's, from which the rules were made.
        workspace: the workspace whose root is ``FILE:/``.
        runtime: from which the rules were made.
        rules: the grants.
        private: absolute paths of the engine's own files and folders.
        guarded: absolute paths that may be read where they are visible, and never changed.
        folders: absolute real paths that must exist at least as empty folders: the working directory, the home.
    """
    declared = list(triples)
    frames = single_names(declared, workspace)
    whole = {path for path, access in rules.grants.items() if access & Access.MAKE and path not in frames}
    if any(triple.predicate is Predicate.RENAMES for triple in declared):
        frames = _together(frames, rules, workspace.root_bytes)
    frames = {path: names for path, names in frames.items() if not _is_within(path, whole)}
    making = _Making(rules.grants, frames, workspace.root_bytes, readable_folders(declared, workspace))
    making.mount()
    for named in runtime.named:
        making.follow(named)
    for path in private:
        making.cover(os.path.realpath(path))
    for path in guarded:
        making.keep(path)
    for path in (workspace.root_bytes, *folders):
        making.lead(path)
    making.show()
    return making.tree(network=rules.net_ports != frozenset())


def tree_of(runtime: Runtime, *, network: bool) -> MountTree:
    """Return a tree with only what every command needs, to test whether it can be created.

    Args:
        runtime: the needed paths.
        network: whether it has the network of this machine.
    """
    making = _Making({os.path.realpath(path): Access.READ for path in runtime.named}, {}, b"/nonexistent")
    making.mount()
    for named in runtime.named:
        making.follow(named)
    return making.tree(network=network)


def _together(frames: dict[bytes, set[bytes]], rules: Rules, root: bytes) -> dict[bytes, set[bytes]]:
    """Return the folders with a common parent: a rename works only within one mount."""
    changed = {path for path, access in rules.grants.items() if access & _CHANGING and is_below(path, root)}
    common = os.path.commonpath([*frames, *changed])
    return {common: set(), **frames} if os.path.isdir(common) else frames


class _Making:
    """A tree under construction."""

    def __init__(
        self,
        grants: Mapping[bytes, Access],
        frames: Mapping[bytes, set[bytes]],
        root: bytes,
        readable: Iterable[bytes] = (),
    ) -> None:
        self._grants = {path: access for path, access in grants.items() if access & ~Access.LIST}
        self._frames = frames
        self._root = root
        self._readable = tuple(readable)
        self._mounts: dict[bytes, bool] = {}
        self._covers: set[bytes] = set()
        self._folders: set[bytes] = set()
        self._files: set[bytes] = set()
        self._links: dict[bytes, bytes] = {}

    def mount(self) -> None:
        """Mount granted paths, and cover undeclared names in folders of single names."""
        for path in sorted({*self._grants, *self._frames}):
            if any(is_below(path, fresh) for fresh in _FRESH) or not os.path.lexists(path):
                continue
            changes = path in self._frames or bool(self._grants[path] & _CHANGING)
            above = _nearest(path, self._mounts)
            if above is None or (changes and not self._mounts[above]):
                self._mounts[path] = changes
            elif not changes and above in self._frames and not self._moves(path):
                self._mounts[path] = False
        for frame in self._frames:
            if _nearest(os.path.dirname(frame), self._frames) is None:
                self._cover_beside(frame)

    def _moves(self, path: bytes) -> bool:
        folder, name = os.path.split(path)
        return name in self._frames.get(folder, ())

    def _cover_beside(self, folder: bytes) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                path = entry.path
                if path in self._grants or self._moves(path) or entry.is_symlink():
                    if path in self._frames:
                        self._cover_beside(path)
                elif entry.is_dir() and self._leads(path):
                    self._cover_beside(path)
                elif _is_within(path, self._readable):
                    self._mounts[path] = False
                else:
                    self._covers.add(path)

    def _leads(self, path: bytes) -> bool:
        return any(is_below(other, path) for other in (*self._grants, *self._frames))

    def follow(self, named: bytes) -> None:
        """Keep the links in a path."""
        at, ahead, links = b"", named.split(b"/")[::-1], 0
        while ahead and links < _MAX_LINKS:
            name = ahead.pop()
            if name in (b"", b"."):
                continue
            if name == b"..":
                at = at.rpartition(b"/")[0]  # empty for the root, whatever the link climbs beyond it
                continue
            place = at + b"/" + name
            try:
                text = os.readlink(place)
            except OSError:
                at = place
                continue
            links += 1
            if _nearest(place, self._mounts) is None:
                self._links[place] = text
            at = b"" if text.startswith(b"/") else at
            ahead.extend(text.split(b"/")[::-1])

    def cover(self, path: bytes) -> None:
        """Cover a path where it would be visible."""
        if _nearest(path, self._mounts) is not None and os.path.lexists(path) and not os.path.islink(path):
            self._covers.add(path)

    def keep(self, path: bytes) -> None:
        """Mount a path read-only where it could be changed."""
        above = _nearest(path, self._mounts)
        is_real = os.path.lexists(path) and not os.path.islink(path)
        if above is not None and self._mounts[above] and is_real and _nearest(path, self._covers) is None:
            self._mounts[path] = False

    def lead(self, path: bytes) -> None:
        """Create a folder, which may be empty."""
        if _nearest(path, self._mounts) is None and os.path.isdir(path):
            self._folders.add(path)

    def show(self) -> None:
        """Create the names in the folders of the workspace that lead to mounts."""
        leading = {self._root, *(path for path in self._folders if is_below(path, self._root))}
        for path in (*self._mounts, *self._folders):
            while is_below(path, self._root) and path != self._root:
                path = os.path.dirname(path)
                leading.add(path)
        for folder in sorted(leading):
            if _nearest(folder, self._mounts) is None and os.path.isdir(folder):
                self._folders.add(folder)
                self._show_names(folder)

    def _show_names(self, folder: bytes) -> None:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.path in self._mounts or len(self._files) + len(self._folders) > _MAX_NAMES:
                    continue
                if entry.is_symlink():
                    self._links[entry.path] = os.readlink(entry.path)
                elif entry.is_dir(follow_symlinks=False):
                    self._folders.add(entry.path)
                else:
                    self._files.add(entry.path)

    def tree(self, *, network: bool) -> MountTree:
        covers = sorted(path for path in self._covers if _nearest(os.path.dirname(path), self._covers) is None)
        return MountTree(
            tuple(sorted(self._mounts.items())),
            tuple(covers),
            tuple(sorted(self._folders)),
            tuple(sorted(self._files)),
            tuple(sorted(self._links.items())),
            network,
        )


def _is_within(path: bytes, folders: Iterable[bytes]) -> bool:
    return any(is_below(path, folder) for folder in folders)


def _nearest(path: bytes, places: Iterable[bytes]) -> bytes | None:
    """Return the innermost of several folders that contains a path, or None."""
    known = places if isinstance(places, dict | set) else set(places)
    while path not in known:
        if path in (b"/", b""):
            return None
        path = os.path.dirname(path)
    return path
