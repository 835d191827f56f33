"""Mapping of IO calls to predicates on resources, for every source of observations (KLIS-6 section 2.1).

Writing is MUTATES, or PROVIDES for a new file; reading is CONSUMES; deleting is DELETES; a rename is
RENAMES of the old name and PROVIDES of the new one. Paths that an interpreter and a system need in order to run (their
libraries, ``/dev/null``) are not observed, nor is a call that must fail because its file does not
exist. Files outside the workspace are marked as such; no manifest can declare them.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

from host.confinement.naming import HERE, Named, UnknowableError, find, here
from host.system_paths import DEVICES, KERNEL, PROGRAMS, SETTINGS, SHARED_MEMORY, is_below
from host.workspace import IGNORE, PRIVATE, Workspace
from world.code.named_modules import admitted_packages
from world.errors import RefusedError
from world.klis.observation import Seen, outside_resource
from world.klis.predicate import Predicate
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource
from world.klis.resources.url_host import bare_host

__all__ = ["Operations", "RuntimePaths", "printable"]

_SYSTEM: Final = (*PROGRAMS, b"/etc", b"/proc", b"/sys")
_USABLE: Final = (*DEVICES, SHARED_MEMORY, b"/dev/fd")
_NAME_SERVICES: Final = frozenset(
    {b"/run/nscd/socket", b"/var/run/nscd/socket", b"/run/systemd/resolve/io.systemd.Resolve"}
)
"""Sockets of host and user name lookups, which have no side effect."""
_METHODS: Final = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE"), Predicate.CONSUMES),
    "DELETE": Predicate.DELETES,
}
_SCHEMES: Final = {80: "http", 443: "https"}
_DNS: Final = 53
_RESOLVED_FOR_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """Folders that belong to the runtime of an agent and not to its work.

    Args:
        read: absolute paths below which reading is not observed.
        write: absolute paths below which nothing is observed.
        private: absolute paths of files and folders that no agent may touch.
        guarded: absolute paths of files and folders that agents may read and never change, whatever they declared.
        modules: folders of importable code; outside the workspace they may be read, inside they are its content.
        named: those of ``read`` that the operator configured.
        searched: folders that an interpreter searches, although confinement hides their content.
    """

    read: tuple[bytes, ...] = ()
    write: tuple[bytes, ...] = ()
    private: tuple[bytes, ...] = ()
    guarded: tuple[bytes, ...] = ()
    modules: tuple[bytes, ...] = ()
    named: tuple[bytes, ...] = ()
    searched: tuple[bytes, ...] = ()

    @classmethod
    def standard(
        cls,
        *,
        read: Iterable[str | Path] = (),
        write: Iterable[str | Path] = (),
        private: Iterable[str | Path] = (),
        guarded: Iterable[str | Path] = (),
    ) -> RuntimePaths:
        """Return the paths of this system and this interpreter, and further ones of the operator."""
        return cls(
            read=(*_SYSTEM, *_python(), *_real(read)),
            write=(*_USABLE, *_real(write)),
            private=_real(private),
            guarded=_named_and_real(guarded),
            modules=_real(path for path in (*sys.path, *admitted_packages()) if os.path.isabs(path)),
            named=_real(read),
        )

    def for_commands(self) -> RuntimePaths:
        """Return the paths for a child process: programs, libraries and their settings, without the engine's code."""
        settings = _real(map(os.fsdecode, SETTINGS))
        read = (*PROGRAMS, *settings, *KERNEL, *_python(), *self.named)
        return replace(self, read=read, modules=(), searched=self.modules)

    def with_more(self, *, read: Iterable[str | Path] = (), write: Iterable[str | Path] = ()) -> RuntimePaths:
        """Return these paths and further ones."""
        return replace(self, read=(*self.read, *_real(read)), write=(*self.write, *_real(write)))

    def freed(self, root: bytes) -> dict[tuple[bool, bool], tuple[bytes, ...]]:
        """Return the prefixes below which operations are not observed, for one workspace.

        A folder that contains the whole workspace does not exempt its content.

        Args:
            root: of the workspace, absolute.

        Returns:
            Prefixes of paths that end in a slash, by whether the path is written, and whether it is inside.
        """
        outside = (*self.write, *self.read, *self.modules)
        inside = (*self.write, *self.read)
        return {
            (True, False): _prefixes(self.write),
            (False, False): _prefixes(outside),
            (True, True): _prefixes(one for one in self.write if not is_below(root, one)),
            (False, True): _prefixes(one for one in inside if not is_below(root, one)),
        }


def _python() -> tuple[bytes, ...]:
    """Return the folders of this interpreter and its libraries."""
    return _real({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))})


def _named_and_real(paths: Iterable[str | Path]) -> tuple[bytes, ...]:
    """Return paths by their own names, and what they denote where they are links."""
    named = [str(path) for path in paths]
    return tuple(sorted({*map(os.fsencode, map(os.path.abspath, named)), *_real(named)}))


def _prefixes(folders: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(folder.rstrip(b"/") + b"/" for folder in folders)


def _real(paths: Iterable[str | Path]) -> tuple[bytes, ...]:
    return tuple(sorted({os.fsencode(os.path.realpath(path)) for path in paths if str(path)}))


Name = str | bytes | os.PathLike[str] | os.PathLike[bytes] | Named
Start = bytes | int | None


class Operations:
    """Maps calls to operations, for one workspace.

    A path is a name that is resolved here, or a ``Named`` that was resolved by the caller. A relative name starts
    at ``cwd``: a path, a descriptor, or None for this process's working directory. ``UnknowableError`` is raised where
    a name cannot be resolved for another reason than a missing file: the call must not happen then.

    Args:
        workspace: the workspace whose root is ``FILE:/``.
        runtime: the exempt paths; None is those of this system.
        hosts: declared host names, by which connections to their addresses are recognized.
        confined: whether the kernel confines started processes to the same declaration.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        runtime: RuntimePaths | None = None,
        hosts: Iterable[str] = (),
        confined: bool = False,
    ) -> None:
        """Prepare; nothing is resolved yet."""
        self._workspace = workspace
        paths = runtime or RuntimePaths.standard()
        self._freed = paths.freed(workspace.root_bytes)
        self._private = _prefixes((*paths.private, os.path.join(workspace.root_bytes, PRIVATE)))
        self._guarded = _prefixes(paths.guarded)
        self._below = _prefixes([workspace.root_bytes])
        self._searched = frozenset(paths.searched)
        own = os.path.join(workspace.root_bytes, PRIVATE)
        self._for_git = frozenset({own, os.path.join(own, IGNORE)})
        self._hosts = tuple(sorted({bare_host(host) for host in hosts}))
        self._confined = confined
        self._addresses: dict[str, str] = {}
        self._looked_up = float("-inf")

    # Files

    def opened(self, path: Name, flags: int, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of opening a file.

        Args:
            path: as passed; a relative one starts at ``cwd``.
            flags: ``os.O_*``.
            cwd: start of a relative name.
            call: for people.
        """
        if flags & os.O_PATH:
            return []
        if flags & os.O_TMPFILE == os.O_TMPFILE:  # a file without a name is not observed; a link gives it one
            return []
        writes = flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & (os.O_CREAT | os.O_TRUNC))
        file = _named(path, cwd, follow=True)
        if file is None:
            return []
        if file.is_folder:
            return self._done(Predicate.CONSUMES, file, call, names_only=True)
        if not writes:
            return self._done(Predicate.CONSUMES, file, call) if file.is_there else []
        is_new = not file.is_there and flags & os.O_CREAT
        return self._done(Predicate.PROVIDES if is_new else Predicate.MUTATES, file, call)

    def deleted(self, path: Name, *, tree: bool = False, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of deleting a name; ``tree`` includes everything below it."""
        file = _named(path, cwd)
        return [] if file is None or not file.is_there else self._done(Predicate.DELETES, file, call, subtree=tree)

    def renamed(
        self,
        old: Name,
        new: Name,
        *,
        exchange: bool = False,
        cwd: Start = None,
        new_cwd: Start = None,
        call: str = "",
    ) -> list[Seen]:
        """Return the operations of a rename: the old name is removed, the new one created or changed."""
        source, target = _named(old, cwd), _named(new, cwd if new_cwd is None else new_cwd)
        if source is None or target is None or not source.is_there:
            return []
        if exchange:
            return [*self._done(Predicate.RENAMES, source, call), *self._done(Predicate.RENAMES, target, call)]
        replaces = Predicate.MUTATES if target.is_there else Predicate.PROVIDES
        return [*self._done(Predicate.RENAMES, source, call), *self._done(replaces, target, call)]

    def made(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of creating a directory, a link or a special file."""
        file = _named(path, cwd)
        return [] if file is None or file.is_there else self._done(Predicate.PROVIDES, file, call)

    def linked(
        self,
        old: Name,
        new: Name,
        *,
        symbolic: bool,
        cwd: Start = None,
        new_cwd: Start = None,
        call: str = "",
    ) -> list[Seen]:
        """Return the operations of a link: a new name; through a hard link the old file can be changed."""
        made = self.made(new, cwd=cwd if new_cwd is None else new_cwd, call=call)
        file = None if symbolic else _named(old, cwd)
        return made if file is None else [*self._done(Predicate.MUTATES, file, call), *made]

    def listed(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of listing a directory."""
        file = _named(path, cwd, follow=True)
        return [] if file is None or not file.is_there else self._done(Predicate.CONSUMES, file, call, names_only=True)

    def changed(self, path: Name, *, follow: bool = True, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of changing a file's size, mode, owner, times or attributes."""
        file = _named(path, cwd, follow=follow)
        return [] if file is None or not file.is_there else self._done(Predicate.MUTATES, file, call)

    def database(self, name: Any, *, call: str = "") -> list[Seen]:
        """Return the operations of connecting to an SQLite database: its file may be written, unless read-only."""
        text = os.fsdecode(name) if isinstance(name, bytes | os.PathLike) else str(name)
        if text in ("", ":memory:") or "mode=memory" in text:
            return []
        if not text.startswith("file:"):
            return self.opened(text, os.O_RDWR | os.O_CREAT, call=call)
        parts = urlsplit(text)
        options = parse_qs(parts.query)
        path = unquote(parts.path)
        if path in ("", ":memory:"):
            return []
        reads = options.get("mode") == ["ro"] or options.get("immutable") == ["1"]
        return self.opened(path, os.O_RDONLY if reads else os.O_RDWR | os.O_CREAT, call=call)

    # Network and processes

    def connected(self, host: str, port: int, *, call: str = "") -> list[Seen]:
        """Return the operations of a connection: CONSUMES of the URL that its host and port indicate."""
        if port == _DNS and self._hosts:
            return []
        return [self._connection(self._name_of(host), port, call)]

    def bound(self, host: str, port: int, *, call: str = "") -> list[Seen]:
        """Return the operations of listening at an address; port 0, as clients use it, is none."""
        if not port:
            return []
        return [Seen(Predicate.PROVIDES, _url(host or "0.0.0.0", port), call)]

    def local_socket(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return the operations of connecting to a socket in the file system, whose server may have side effects."""
        name = path.path if isinstance(path, Named) else os.fsencode(path)
        if name in _NAME_SERVICES:
            return []
        if not name or name.startswith(b"\0"):
            rendered = "abstract socket " + printable(name[1:])
            return [Seen(Predicate.MUTATES, outside_resource(rendered), call, outside=rendered)]
        return self.changed(path, cwd=cwd, call=call)

    def requested(self, method: str, url: str, *, call: str = "") -> list[Seen]:
        """Return the operations of an HTTP request: GET is CONSUMES, DELETE is DELETES, other methods MUTATES."""
        try:
            resource = canonical_resource(f"URL:{url}")
        except RefusedError:
            return [Seen(Predicate.MUTATES, outside_resource(printable(url.encode())), call, outside=url)]
        return [Seen(_METHODS.get(method.upper(), Predicate.MUTATES), resource, call)]

    def started(
        self,
        executable: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        argv: Sequence[Any] = (),
        *,
        cwd: bytes | None = None,
        call: str = "",
    ) -> list[Seen]:
        """Return the operations of starting a process: itself, and those of an opaque tool in its folder (KO-5.1)."""
        name = os.path.basename(os.fsencode(executable or (argv[0] if argv else b"?")))
        process = canonical_resource(f"PROCESS:{printable(name) or '?'}", literal_stars=True)
        if self._confined:
            return [Seen(Predicate.PROVIDES, process, call, is_held=True)]
        folder = os.getcwdb() if cwd is None else cwd
        relative = self._workspace.relative(folder, follow=True)
        if relative is None:
            text = printable(folder)
            where = Seen(Predicate.MUTATES, outside_resource(text), call, outside=text, opaque_of=process)
        else:
            place = self._workspace.resource_at(relative, subtree=True)
            where = Seen(Predicate.MUTATES, place, call, opaque_of=process)
        return [Seen(Predicate.PROVIDES, process, call), where]

    # Within

    def touched(
        self,
        predicate: Predicate,
        absolute: bytes,
        call: str,
        *,
        follow: bool = False,
        subtree: bool = False,
        names_only: bool = False,
    ) -> list[Seen]:
        """Return the operation on a path that need not exist; an unresolvable path is outside.

        Args:
            predicate: the operation.
            absolute: the path.
            call: for people.
            follow: whether a link in the last name is followed.
            subtree: with everything below it.
            names_only: whether only the names in a directory are read.
        """
        try:
            named = _named(absolute, None, follow=follow)
        except UnknowableError:
            named = None
        if named is None:
            text = printable(absolute)
            return [Seen(predicate, outside_resource(text), call, outside=text)]
        return self._done(predicate, named, call, subtree=subtree, names_only=names_only)

    def _done(
        self, predicate: Predicate, named: Named, call: str, *, subtree: bool = False, names_only: bool = False
    ) -> list[Seen]:
        """Return the operation on a file that need not exist."""
        real = named.path
        place = real + b"/"
        if predicate is Predicate.CONSUMES and (real in self._for_git or (names_only and real in self._searched)):
            return []
        is_engines = place.startswith(self._private) or self._changes_guarded(predicate, place)
        if not is_engines:
            inside = place.startswith(self._below)
            if place.startswith(self._freed[predicate is not Predicate.CONSUMES, inside]):
                return []
            if inside:
                relative = real[len(self._below[0]) :]
                resource = self._workspace.resource_at(relative, subtree=subtree)
                return [Seen(predicate, resource, call, looks=names_only)]
        text = printable(real)
        return [Seen(predicate, outside_resource(text), call, outside=text, is_engines=is_engines)]

    def _changes_guarded(self, predicate: Predicate, place: bytes) -> bool:
        """Whether an operation changes a guarded file, or moves or deletes a folder above one."""
        if predicate is Predicate.CONSUMES or not self._guarded:
            return False
        takes_away = predicate in (Predicate.RENAMES, Predicate.DELETES)
        return place.startswith(self._guarded) or (takes_away and any(one.startswith(place) for one in self._guarded))

    def _connection(self, host: str, port: int, call: str) -> Seen:
        return Seen(Predicate.CONSUMES, _url(host, port), call, address=(host, port))

    def _name_of(self, host: str) -> str:
        """Return the declared name of an address, or the host in its canonical form."""
        host = bare_host(host)
        if host in self._hosts or not self._hosts:
            return host
        if host not in self._addresses and time.monotonic() - self._looked_up > _RESOLVED_FOR_S:
            self._look_up()
        return self._addresses.get(host, host)

    def _look_up(self) -> None:
        self._looked_up = time.monotonic()
        for name in self._hosts:
            try:
                addresses = socket.getaddrinfo(name, None)
            except OSError:
                continue
            self._addresses.update((bare_host(str(entry[4][0])), name) for entry in addresses)


def _named(path: Name, cwd: Start, *, follow: bool = False) -> Named | None:
    """Resolve a name; None for a file without a name, which is not observed.

    Raises:
        UnknowableError: it cannot be resolved.
    """
    if isinstance(path, Named):
        return path
    name = os.fsencode(path)
    if isinstance(cwd, bytes):
        name = os.path.join(cwd, name)
    if not name or b"\0" in name:
        return None
    with here() as view:
        return find(view, name, start=cwd if isinstance(cwd, int) else HERE, follow=follow)


def _url(host: str, port: int) -> Resource:
    scheme = _SCHEMES.get(port, "tcp")
    name = bare_host(host)
    place = f"[{name}]" if ":" in name else name
    try:
        return canonical_resource(f"URL:{scheme}://{place}:{port}/")
    except RefusedError:
        return outside_resource(f"{printable(host.encode())}:{port}")


def printable(name: bytes) -> str:
    """Return a name of any bytes as a text that can be shown and recorded."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
