"""What IO calls do, as predicates on resources: the one mapping for all who see such calls (KLIS-6 section 2.1).

Writing is MUTATES, or PROVIDES where the file is not there yet; reading is CONSUMES; removing is DELETES; a rename is
RENAMES of the old name and PROVIDES of the new one. What an interpreter and a system need to run at all (their own
libraries, ``/dev/null``) is nothing worth observing, and neither is a call that must fail because what it asks for does
not exist. Files outside of the workspace are told as such; no manifest can declare them.
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
"""Where names of hosts and users are looked up; to ask there is no effect."""
_METHODS: Final = {
    **dict.fromkeys(("GET", "HEAD", "OPTIONS", "TRACE"), Predicate.CONSUMES),
    "DELETE": Predicate.DELETES,
}
_SCHEMES: Final = {80: "http", 443: "https"}
_DNS: Final = 53
_RESOLVED_FOR_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class RuntimePaths:
    """Folders that belong to what runs an agent and not to its work.

    Args:
        read: absolute paths below which reading is not observed.
        write: absolute paths below which nothing is observed.
        private: absolute paths of files and folders that no agent may touch, wherever they lie.
        modules: folders of importable code; outside of the workspace they may be read, inside they are its content.
        named: those of ``read`` that the operator named.
        searched: folders whose names an interpreter looks for, though the walls show it none of them.
    """

    read: tuple[bytes, ...] = ()
    write: tuple[bytes, ...] = ()
    private: tuple[bytes, ...] = ()
    modules: tuple[bytes, ...] = ()
    named: tuple[bytes, ...] = ()
    searched: tuple[bytes, ...] = ()

    @classmethod
    def standard(
        cls, *, read: Iterable[str | Path] = (), write: Iterable[str | Path] = (), private: Iterable[str | Path] = ()
    ) -> RuntimePaths:
        """Return the paths of this system and this interpreter, with more of the operator's."""
        return cls(
            read=(*_SYSTEM, *_python(), *_real(read)),
            write=(*_USABLE, *_real(write)),
            private=_real(private),
            modules=_real(path for path in (*sys.path, *admitted_packages()) if os.path.isabs(path)),
            named=_real(read),
        )

    def for_commands(self) -> RuntimePaths:
        """Return the paths of a process of its own: programs, libraries and their settings, but no code of ours."""
        settings = _real(map(os.fsdecode, SETTINGS))
        read = (*PROGRAMS, *settings, *KERNEL, *_python(), *self.named)
        return replace(self, read=read, modules=(), searched=self.modules)

    def with_more(self, *, read: Iterable[str | Path] = (), write: Iterable[str | Path] = ()) -> RuntimePaths:
        """Return these paths and more."""
        return replace(self, read=(*self.read, *_real(read)), write=(*self.write, *_real(write)))

    def freed(self, root: bytes) -> dict[tuple[bool, bool], tuple[bytes, ...]]:
        """Return below what nothing is worth observing, for one workspace.

        A folder that holds the whole workspace frees nothing in it.

        Args:
            root: of the workspace, absolute.

        Returns:
            Prefixes of paths that end in a slash, by whether something is written, and whether it lies inside.
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
    """Return the folders of this interpreter and of its libraries."""
    return _real({sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.realpath(sys.executable))})


def _prefixes(folders: Iterable[bytes]) -> tuple[bytes, ...]:
    return tuple(folder.rstrip(b"/") + b"/" for folder in folders)


def _real(paths: Iterable[str | Path]) -> tuple[bytes, ...]:
    return tuple(sorted({os.fsencode(os.path.realpath(path)) for path in paths if str(path)}))


Name = str | bytes | os.PathLike[str] | os.PathLike[bytes] | Named
Start = bytes | int | None


class Operations:
    """Turns calls into what they do, for one workspace.

    A path is a name that is looked up here, or a ``Named`` that was looked up where it was used. A relative name starts
    at ``cwd``: a path, a descriptor, or None for this process's working directory. ``UnknowableError`` is raised where
    a name cannot be looked up for any other reason than that nothing is there: the call must not happen then.

    Args:
        workspace: whose root is ``FILE:/``.
        runtime: what is not observed; None is this system's.
        hosts: names of hosts that were declared, so that a connection to one of their addresses is known as theirs.
        confined: whether the operating system holds the processes that are started to the same declaration.
    """

    def __init__(
        self,
        workspace: Workspace,
        *,
        runtime: RuntimePaths | None = None,
        hosts: Iterable[str] = (),
        confined: bool = False,
    ) -> None:
        """Prepare; nothing is looked up yet."""
        self._workspace = workspace
        paths = runtime or RuntimePaths.standard()
        self._freed = paths.freed(workspace.root_bytes)
        self._private = _prefixes((*paths.private, os.path.join(workspace.root_bytes, PRIVATE)))
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
        """Return what opening a file is.

        Args:
            path: as it was given; a relative one starts at ``cwd``.
            flags: ``os.O_*``.
            cwd: where a relative name starts.
            call: for people.
        """
        if flags & os.O_PATH:
            return []
        if flags & os.O_TMPFILE == os.O_TMPFILE:  # without a name it is nobody's business; a link gives it one
            return []
        writes = flags & os.O_ACCMODE != os.O_RDONLY or bool(flags & (os.O_CREAT | os.O_TRUNC))
        found = _named(path, cwd, follow=True)
        if found is None:
            return []
        if found.is_folder:
            return self._done(Predicate.CONSUMES, found, call, looks=True)
        if not writes:
            return self._done(Predicate.CONSUMES, found, call) if found.is_there else []
        is_new = not found.is_there and flags & os.O_CREAT
        return self._done(Predicate.PROVIDES if is_new else Predicate.MUTATES, found, call)

    def deleted(self, path: Name, *, tree: bool = False, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return what removing a name is; ``tree`` is with everything below it."""
        found = _named(path, cwd)
        return [] if found is None or not found.is_there else self._done(Predicate.DELETES, found, call, subtree=tree)

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
        """Return what moving a name is: it is taken away at one place, and given or changed at the other."""
        source, target = _named(old, cwd), _named(new, cwd if new_cwd is None else new_cwd)
        if source is None or target is None or not source.is_there:
            return []
        if exchange:
            return [*self._done(Predicate.RENAMES, source, call), *self._done(Predicate.RENAMES, target, call)]
        replaces = Predicate.MUTATES if target.is_there else Predicate.PROVIDES
        return [*self._done(Predicate.RENAMES, source, call), *self._done(replaces, target, call)]

    def made(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return what making a directory, a link or a special file is."""
        found = _named(path, cwd)
        return [] if found is None or found.is_there else self._done(Predicate.PROVIDES, found, call)

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
        """Return what a link is: a new name; behind a hard one the old file can be changed."""
        made = self.made(new, cwd=cwd if new_cwd is None else new_cwd, call=call)
        found = None if symbolic else _named(old, cwd)
        return made if found is None else [*self._done(Predicate.MUTATES, found, call), *made]

    def listed(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return what reading the names in a directory is."""
        found = _named(path, cwd, follow=True)
        return [] if found is None or not found.is_there else self._done(Predicate.CONSUMES, found, call, looks=True)

    def changed(self, path: Name, *, follow: bool = True, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return what changing a file's size, mode, owner, times or attributes is."""
        found = _named(path, cwd, follow=follow)
        return [] if found is None or not found.is_there else self._done(Predicate.MUTATES, found, call)

    def database(self, name: Any, *, call: str = "") -> list[Seen]:
        """Return what connecting to an SQLite database is: its file may be written, unless it says otherwise."""
        text = os.fsdecode(name) if isinstance(name, bytes | os.PathLike) else str(name)
        if text in ("", ":memory:") or "mode=memory" in text:
            return []
        if not text.startswith("file:"):
            return self.opened(text, os.O_RDWR | os.O_CREAT, call=call)
        parts = urlsplit(text)
        asked = parse_qs(parts.query)
        path = unquote(parts.path)
        if path in ("", ":memory:"):
            return []
        reads = asked.get("mode") == ["ro"] or asked.get("immutable") == ["1"]
        return self.opened(path, os.O_RDONLY if reads else os.O_RDWR | os.O_CREAT, call=call)

    # Network and processes

    def connected(self, host: str, port: int, *, call: str = "") -> list[Seen]:
        """Return what a connection is: to the place of some URL, as far as can be told from it."""
        if port == _DNS and self._hosts:
            return []
        return [self._connection(self._name_of(host), port, call)]

    def bound(self, host: str, port: int, *, call: str = "") -> list[Seen]:
        """Return what listening at an address is; port 0 is any, as clients ask for it."""
        if not port:
            return []
        return [Seen(Predicate.PROVIDES, _url(host or "0.0.0.0", port), call)]

    def local_socket(self, path: Name, *, cwd: Start = None, call: str = "") -> list[Seen]:
        """Return what connecting to a socket in the file system is: whoever listens there does things."""
        name = path.path if isinstance(path, Named) else os.fsencode(path)
        if name in _NAME_SERVICES:
            return []
        if not name or name.startswith(b"\0"):
            told = "abstract socket " + printable(name[1:])
            return [Seen(Predicate.MUTATES, outside_resource(told), call, outside=told)]
        return self.changed(path, cwd=cwd, call=call)

    def requested(self, method: str, url: str, *, call: str = "") -> list[Seen]:
        """Return what an HTTP request is: GET CONSUMES, DELETE DELETES, everything that sends MUTATES."""
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
        """Return what starting a process is: the process, and what an opaque tool may do where it works (KO-5.1)."""
        name = os.path.basename(os.fsencode(executable or (argv[0] if argv else b"?")))
        process = canonical_resource(f"PROCESS:{printable(name) or '?'}", literal_stars=True)
        if self._confined:
            return [Seen(Predicate.PROVIDES, process, call, is_held=True)]
        folder = os.getcwdb() if cwd is None else cwd
        relative = self._workspace.relative(folder, follow=True)
        if relative is None:
            told = printable(folder)
            where = Seen(Predicate.MUTATES, outside_resource(told), call, outside=told, opaque_of=process)
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
        looks: bool = False,
    ) -> list[Seen]:
        """Return what was done to a path, whether or not it is there now; what cannot be looked up was done outside.

        Args:
            predicate: what is done.
            absolute: the path.
            call: for people.
            follow: whether a link as the last name stands for what it leads to.
            subtree: with everything below it.
            looks: whether only the names in a directory are read.
        """
        try:
            named = _named(absolute, None, follow=follow)
        except UnknowableError:
            named = None
        if named is None:
            told = printable(absolute)
            return [Seen(predicate, outside_resource(told), call, outside=told)]
        return self._done(predicate, named, call, subtree=subtree, looks=looks)

    def _done(
        self, predicate: Predicate, named: Named, call: str, *, subtree: bool = False, looks: bool = False
    ) -> list[Seen]:
        """Return what doing something to a file is, whether or not it is there."""
        real = named.path
        place = real + b"/"
        if predicate is Predicate.CONSUMES and (real in self._for_git or (looks and real in self._searched)):
            return []
        is_engines = place.startswith(self._private)
        if not is_engines:
            inside = place.startswith(self._below)
            if place.startswith(self._freed[predicate is not Predicate.CONSUMES, inside]):
                return []
            if inside:
                relative = real[len(self._below[0]) :]
                resource = self._workspace.resource_at(relative, subtree=subtree)
                return [Seen(predicate, resource, call, looks=looks)]
        told = printable(real)
        return [Seen(predicate, outside_resource(told), call, outside=told, is_engines=is_engines)]

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
                found = socket.getaddrinfo(name, None)
            except OSError:
                continue
            self._addresses.update((bare_host(str(entry[4][0])), name) for entry in found)


def _named(path: Name, cwd: Start, *, follow: bool = False) -> Named | None:
    """Return where a name leads; None for a file without a name, which is nobody's business.

    Raises:
        UnknowableError: it cannot be looked up.
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
    place = f"[{host}]" if ":" in host else host
    try:
        return canonical_resource(f"URL:{scheme}://{place}:{port}/")
    except RefusedError:
        return outside_resource(f"{printable(host.encode())}:{port}")


def printable(name: bytes) -> str:
    """Return a name as a text that can be shown and recorded, whatever its bytes are."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)
