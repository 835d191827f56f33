"""Conversion of a declaration to Landlock rules: permitted file operations and connections of a command.

Landlock restricts existing files and folders, and everything below a folder. An existing file has its own rule; to
create, delete or rename a single name, its whole folder needs a rule. Where that grants more than was
declared the folder is listed as widened, and only the watcher enforces exact names. The same applies to files that a
command creates in a folder that it may change: replacing a file needs permission to delete and rename there.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal
from urllib.parse import urlsplit

from host.confinement.landlock import Access, Rules
from host.system_paths import DEVICES, KERNEL, PROGRAMS, SETTINGS, SHARED_MEMORY, is_below
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.triple import Triple

if TYPE_CHECKING:
    from host.workspace.root import Workspace

__all__ = ["Runtime", "readable_folders", "rules_for", "single_names"]

_CONSUME: Final = Access.READ | Access.EXECUTE
_CHANGE: Final = _CONSUME | Access.WRITE
_ALL: Final = _CHANGE | Access.MAKE | Access.REMOVE | Access.REFER
_ON_OWN_FILES: Final = Access.REMOVE | Access.REFER
"""Operations on files that a command created itself; the watcher identifies these files."""
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


@dataclass(frozen=True, slots=True)
class Runtime:
    """Paths that a command needs in order to run, apart from its work.

    Args:
        execute: absolute paths to read and execute below.
        read: paths to read below.
        devices: devices to read, write and control.
        private: folders of the command, where every operation is permitted.
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
        """Return the needs of this system's programs and this interpreter.

        Args:
            command: the program; its file may be read and executed.
            private: folders where every operation is permitted, such as one for temporary files.
            read: further folders of the operator, to read below.
            execute: further folders of the operator, to read and execute below, such as tools in a home directory.
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
        """All paths as configured, including links."""
        return (*self.execute, *self.read, *self.devices, *self.private)

    def grants(self) -> Iterator[tuple[bytes, Access]]:
        """Yield real paths and their permitted operations."""
        for paths, access in (
            (self.execute, _CONSUME),
            (self.read, Access.READ),
            (self.devices, Access.READ | Access.WRITE | Access.CONTROL),
            (self.private, _ALL),
        ):
            for path in paths:
                yield os.path.realpath(path), access


def _places_of(command: str | bytes | None) -> list[bytes]:
    """Return the path of a command's file, and its real path."""
    location = None if command is None else shutil.which(os.fsdecode(command))
    if location is None:
        return []
    named = os.fsencode(os.path.abspath(location))
    return [named, os.path.realpath(named)]


def rules_for(triples: Iterable[Triple], workspace: Workspace, runtime: Runtime) -> Rules:
    """Return the rules that grant the declared triples and the needs of the runtime.

    With any declared file, the names in all folders may be listed.
    Links in the workspace grant nothing: their targets must be declared under their own names.

    Args:
        triples: the manifest's.
        workspace: the workspace whose root is ``FILE:/``.
        runtime: grants besides the declaration. Those inside the workspace are listed as widened; a
            folder that contains the whole workspace is not granted.

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


def single_names(triples: Iterable[Triple], workspace: Workspace) -> dict[bytes, set[bytes]]:
    """Return the folders in which single names are created, deleted or renamed, with these names.

    Args:
        triples: the manifest's.
        workspace: the workspace whose root is ``FILE:/``.
    """
    names: dict[bytes, set[bytes]] = {}
    for triple in triples:
        if triple.resource.type != "FILE":
            continue
        location = _find(workspace, triple.resource)
        makes = triple.predicate in (Predicate.MUTATES, Predicate.PROVIDES) and location.kind == "missing"
        if location.above is not None and (makes or triple.predicate in (Predicate.DELETES, Predicate.RENAMES)):
            name = location.path.removeprefix(location.above).lstrip(b"/").partition(b"/")[0]
            names.setdefault(location.above, set()).add(name)
    return names


def readable_folders(triples: Iterable[Triple], workspace: Workspace) -> tuple[bytes, ...]:
    """Return the folders that a declaration permits to read with everything below.

    Args:
        triples: the manifest's.
        workspace: the workspace whose root is ``FILE:/``.
    """
    reads = [one for one in triples if one.predicate is Predicate.CONSUMES and one.covers]
    located = [_find(workspace, one.resource) for one in reads if one.resource.type == "FILE"]
    return tuple(one.path for one in located if one.kind == "folder")


@dataclass(frozen=True, slots=True)
class _LocatedResource:
    """Location of a resource: its real path, its kind, and the nearest existing folder above it."""

    path: bytes
    kind: Literal["file", "folder", "link", "missing", "outside"]
    above: bytes | None


def _find(workspace: Workspace, resource: Resource) -> _LocatedResource:
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


def _file_grants(triple: Triple, location: _LocatedResource) -> Iterator[Grant]:
    """Yield paths, their permitted operations, and whether these are exactly the declared ones."""
    if location.kind == "outside":
        return
    match triple.predicate:
        case Predicate.CONSUMES | Predicate.DEPENDS_ON:
            yield from _looking(triple, location)
        case Predicate.MUTATES | Predicate.PROVIDES:
            yield from _changing(triple, location)
        case Predicate.DELETES:
            yield from _removing(location, Access(0))
        case Predicate.RENAMES:
            if location.kind != "missing":  # a file must not gain permissions when it is moved elsewhere
                yield location.path, _CHANGE | (Access.MAKE if location.kind == "folder" else Access(0)), False
            yield from _removing(location, Access.REFER)


def _looking(triple: Triple, location: _LocatedResource) -> Iterator[Grant]:
    if location.kind == "file" or (location.kind == "folder" and triple.covers):
        yield location.path, _CONSUME, True


def _changing(triple: Triple, location: _LocatedResource) -> Iterator[Grant]:
    if location.kind == "file":
        yield location.path, _CHANGE, True
    elif location.kind == "folder" and triple.covers:
        yield location.path, _CHANGE | Access.MAKE, True
        yield location.path, _ON_OWN_FILES, False
    elif location.kind == "missing" and location.above is not None:
        yield location.above, _CHANGE | Access.MAKE | (_ON_OWN_FILES if triple.covers else Access(0)), False


def _removing(location: _LocatedResource, more: Access) -> Iterator[Grant]:
    if location.kind == "folder":
        yield location.path, Access.LIST | Access.REMOVE | more, True
    if location.above is not None:
        needed = {"folder": Access.REMOVE_DIR, "missing": Access.REMOVE}.get(location.kind, Access.REMOVE_FILE)
        yield location.above, needed | more, False


def _add(grants: dict[bytes, Access], path: bytes, access: Access) -> None:
    grants[path] = grants.get(path, Access(0)) | access


def _granted(grants: dict[bytes, Access], path: bytes) -> Access:
    """Return the operations granted at a path by its own rule and by the folders above it."""
    granted = Access(0)
    for place, access in grants.items():
        if is_below(path, place):
            granted |= access
    return granted


def _ports(triples: Iterable[Triple]) -> frozenset[int] | None:
    """Return the ports of all declared URLs; None when one of them permits any."""
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
