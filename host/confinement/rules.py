"""From a declaration to Landlock rules: what a command may do to files and to whom it may connect.

Landlock knows files and folders that exist, and what is below a folder. So a file that is there is held by itself; to
make, remove or rename a single name, something must be granted for its whole folder. Where that is more than was
declared the folder is told as widened, and only the watcher holds the exact names. So it is with what a command made
itself in a folder that it may change: to write beside and put in place takes removing and renaming there.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, Protocol
from urllib.parse import urlsplit

from host.confinement.landlock import Access, Rules
from host.system_paths import DEVICES, KERNEL, PROGRAMS, SETTINGS, SHARED_MEMORY, is_below
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.triple import Triple

__all__ = ["RuleWorkspace", "Runtime", "rules_for", "single_names"]

_CONSUME: Final = Access.READ | Access.EXECUTE
_CHANGE: Final = _CONSUME | Access.WRITE
_ALL: Final = _CHANGE | Access.MAKE | Access.REMOVE | Access.REFER
_OF_ONES_OWN: Final = Access.REMOVE | Access.REFER
"""What a command may do to what it made itself: which files these are, the watcher knows."""
_NAME_RESOLUTION: Final = 53
_PORTS: Final = {
    "http": 80,
    "https": 443,
    "ws": 80,
    "wss": 443,
    "ftp": 21,
    "ssh": 22,
    "postgres": 5432,
    "postgresql": 5432,
    "mysql": 3306,
    "redis": 6379,
    "rediss": 6379,
    "mongodb": 27017,
}


class RuleWorkspace(Protocol):
    """The workspace, as far as rules ask for it."""

    @property
    def root_bytes(self) -> bytes:
        """The absolute real path of the root."""

    def path_of(self, resource: Resource) -> bytes:
        """Return the path of a FILE resource from the root."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a command needs to run at all, and that is nobody's work.

    Args:
        execute: absolute paths to read and execute below.
        read: to read below.
        devices: to read, write and control.
        private: folders of the command's own, where it may do everything.
    """

    execute: tuple[bytes, ...] = ()
    read: tuple[bytes, ...] = ()
    devices: tuple[bytes, ...] = ()
    private: tuple[bytes, ...] = ()

    @classmethod
    def standard(
        cls,
        *,
        command: str | bytes | None = None,
        private: Iterable[str | bytes] = (),
        read: Iterable[str | bytes] = (),
        execute: Iterable[str | bytes] = (),
    ) -> Runtime:
        """Return what this system's programs and this interpreter need.

        Args:
            command: what will be run; its file may be read and executed, and nothing beside it.
            private: folders to do everything in, such as one for temporary files.
            read: further folders of the operator's, to read below.
            execute: further folders of the operator's, to read and execute below, such as tools in a home directory.
        """
        python = (sys.prefix, sys.base_prefix, sys.exec_prefix)
        return cls(
            execute=(*PROGRAMS, *map(os.fsencode, python), *_places_of(command), *map(os.fsencode, execute)),
            read=(*SETTINGS, *KERNEL, *map(os.fsencode, read)),
            devices=DEVICES,
            private=(SHARED_MEMORY, *map(os.fsencode, private)),
        )

    @property
    def named(self) -> tuple[bytes, ...]:
        """All places as they were named, links in them included."""
        return (*self.execute, *self.read, *self.devices, *self.private)

    def grants(self) -> Iterator[tuple[bytes, Access]]:
        """Yield real paths, and what is granted there."""
        for paths, access in (
            (self.execute, _CONSUME),
            (self.read, Access.READ),
            (self.devices, Access.READ | Access.WRITE | Access.CONTROL),
            (self.private, _ALL),
        ):
            for path in paths:
                yield os.path.realpath(path), access


def _places_of(command: str | bytes | None) -> list[bytes]:
    """Return a command's file, under its name and under that of the file behind it."""
    found = None if command is None else shutil.which(os.fsdecode(command))
    if found is None:
        return []
    named = os.fsencode(os.path.abspath(found))
    return [named, os.path.realpath(named)]


def rules_for(triples: Iterable[Triple], workspace: RuleWorkspace, runtime: Runtime) -> Rules:
    """Return the rules that grant what was declared and what the runtime needs, and nothing else.

    Who may use a file may look for it: with any file declared, the names in all folders may be listed.
    Links in the workspace grant nothing by themselves: what they lead to must be declared under its own name.

    Args:
        triples: the manifest's.
        workspace: whose root is ``FILE:/``.
        runtime: what is granted beside the declaration. What it holds of the workspace is told as widened, but for a
            folder that holds the whole workspace: that is not granted.

    Raises:
        RefusedError: a file's name leads out of the workspace.
    """
    declared = list(triples)
    exact: dict[bytes, Access] = {}
    wide: dict[bytes, Access] = {}
    refers = any(triple.predicate is Predicate.RENAMES for triple in declared)
    for triple in declared:
        if triple.resource.type == "FILE":
            _add(exact, workspace.root_bytes, Access.LIST)
            for path, access, is_exact in _file_grants(triple, _find(workspace, triple.resource)):
                if refers and access & Access.MAKE:
                    access |= Access.REFER
                _add(exact if is_exact else wide, path, access)
    root = workspace.root_bytes
    for path, access in runtime.grants():
        if not is_below(root, path):
            _add(wide if is_below(path, root) else exact, path, access)
    widened = sorted(path for path, access in wide.items() if access & ~_granted(exact, path))
    for path, access in wide.items():
        _add(exact, path, access)
    return Rules(exact, _ports(declared), tuple(widened))


def single_names(triples: Iterable[Triple], workspace: RuleWorkspace) -> dict[bytes, set[bytes]]:
    """Return the folders in which single names are made, removed or renamed, each with these names.

    Args:
        triples: the manifest's.
        workspace: whose root is ``FILE:/``.
    """
    names: dict[bytes, set[bytes]] = {}
    for triple in triples:
        if triple.resource.type != "FILE":
            continue
        found = _find(workspace, triple.resource)
        makes = triple.predicate in (Predicate.MUTATES, Predicate.PROVIDES) and found.kind == "missing"
        if found.above is not None and (makes or triple.predicate in (Predicate.DELETES, Predicate.RENAMES)):
            name = found.path.removeprefix(found.above).lstrip(b"/").partition(b"/")[0]
            names.setdefault(found.above, set()).add(name)
    return names


@dataclass(frozen=True, slots=True)
class _LocatedResource:
    """Where a resource is: its real path, what is there, and the nearest folder above it that exists."""

    path: bytes
    kind: Literal["file", "folder", "link", "missing", "outside"]
    above: bytes | None


def _find(workspace: RuleWorkspace, resource: Resource) -> _LocatedResource:
    root, relative = workspace.root_bytes, workspace.path_of(resource)
    if not relative:
        return _LocatedResource(root, "folder", None)
    folder, name = os.path.split(os.path.join(root, relative))
    folder = os.path.realpath(folder)
    path = os.path.join(folder, name)
    while not os.path.isdir(folder) and is_below(folder, root):
        folder = os.path.dirname(folder)
    if not is_below(folder, root):
        return _LocatedResource(path, "outside", None)
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return _LocatedResource(path, "missing", folder)
    return _LocatedResource(path, "folder" if stat.S_ISDIR(mode) else "link" if stat.S_ISLNK(mode) else "file", folder)


Grant = tuple[bytes, Access, bool]


def _file_grants(triple: Triple, found: _LocatedResource) -> Iterator[Grant]:
    """Yield paths, what is granted there, and whether that is no more than was declared."""
    if found.kind == "outside":
        return
    match triple.predicate:
        case Predicate.CONSUMES | Predicate.DEPENDS_ON:
            yield from _looking(triple, found)
        case Predicate.MUTATES | Predicate.PROVIDES:
            yield from _changing(triple, found)
        case Predicate.DELETES:
            yield from _removing(found, Access(0))
        case Predicate.RENAMES:
            if found.kind != "missing":  # moved to where more is granted than here, a file would gain: it must not
                yield found.path, _CHANGE | (Access.MAKE if found.kind == "folder" else Access(0)), False
            yield from _removing(found, Access.REFER)


def _looking(triple: Triple, found: _LocatedResource) -> Iterator[Grant]:
    if found.kind == "file" or (found.kind == "folder" and triple.covers):
        yield found.path, _CONSUME, True


def _changing(triple: Triple, found: _LocatedResource) -> Iterator[Grant]:
    if found.kind == "file":
        yield found.path, _CHANGE, True
    elif found.kind == "folder" and triple.covers:
        yield found.path, _CHANGE | Access.MAKE, True
        yield found.path, _OF_ONES_OWN, False
    elif found.kind == "missing" and found.above is not None:
        yield found.above, _CHANGE | Access.MAKE | (_OF_ONES_OWN if triple.covers else Access(0)), False


def _removing(found: _LocatedResource, more: Access) -> Iterator[Grant]:
    if found.kind == "folder":
        yield found.path, Access.LIST | Access.REMOVE | more, True
    if found.above is not None:
        needed = {"folder": Access.REMOVE_DIR, "missing": Access.REMOVE}.get(found.kind, Access.REMOVE_FILE)
        yield found.above, needed | more, False


def _add(grants: dict[bytes, Access], path: bytes, access: Access) -> None:
    grants[path] = grants.get(path, Access(0)) | access


def _granted(grants: dict[bytes, Access], path: bytes) -> Access:
    """Return what is granted at a path by itself and by the folders above it."""
    granted = Access(0)
    for place, access in grants.items():
        if is_below(path, place):
            granted |= access
    return granted


def _ports(triples: Iterable[Triple]) -> frozenset[int] | None:
    """Return the ports of all declared places; None when one of them may have any."""
    ports: set[int] = set()
    for triple in triples:
        if triple.resource.type in ("URL", "DB"):
            name = triple.resource.key.partition(":")[2]
            if "://" not in name:
                if triple.resource.type == "URL":
                    return None
                continue
            try:
                parts = urlsplit(name)
                port = parts.port or _PORTS.get(parts.scheme)
            except ValueError:
                return None
            if port is None:
                return None
            ports |= {port, _NAME_RESOLUTION}
    return frozenset(ports)
