"""The premises of a host: the workspace that its effects and its agents touch, with its backups and its map.

One object for all who need them: the host's effects, governed runs, and the lease desk, which has a backup made before
it grants (``world.state.ports.Keeper``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

from host.backups import Backups, resources_to_save
from host.confinement import (
    MountTree,
    Rules,
    RunningCommand,
    Runtime,
    landlock,
    namespaces,
    rules_for,
    start,
    tree_for,
    watcher,
)
from host.observation.audit import exempt
from host.observation.operations import Operations, RuntimePaths
from host.observation.system_calls import judged_by
from host.observation.watch import Watch
from host.system_paths import is_below
from host.workspace import IGNORE, PRIVATE, Workspace
from host.workspace.comparison import FolderNames, compared_names
from world.errors import RefusedError
from world.klis.observation import Declaration
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.triple import Triple

__all__ = ["HostEnvironment"]

KEEP_MS: Final = 14 * 86_400_000
"""How long backups of ended sessions are kept, unless it is said otherwise; in ms."""

KEEP_BYTES: Final = 10_000_000_000
"""How large all backups may become together, unless it is said otherwise."""


class HostEnvironment:
    """A workspace, its backups and what is known of its surroundings; implements ``world.state.ports.Keeper``.

    Args:
        workspace: whose root is ``FILE:/``.
        backups: of that workspace.
        runtime: what belongs to the system and not to anybody's work.
        unwatched: names below the root whose content is not compared, such as ``node_modules``.
        keep_ms: how long backups of ended sessions are kept, in ms.
        keep_bytes: how large all backups together may become before the oldest of them go.
        namespaces_by: what may make the namespaces of commands.
    """

    def __init__(
        self,
        workspace: Workspace,
        backups: Backups,
        runtime: RuntimePaths | None = None,
        unwatched: Iterable[str] = (),
        *,
        keep_ms: int = KEEP_MS,
        keep_bytes: int = KEEP_BYTES,
        namespaces_by: namespaces.Wanted = "auto",
    ) -> None:
        """Put together; nothing is read yet."""
        private = () if runtime is None else runtime.private
        own = (workspace.relative(path) for path in private)
        self._unwatched = tuple({*(os.fsencode(name).strip(b"/") for name in unwatched), *filter(None, own)})
        self.workspace = workspace
        self.backups = backups
        self.runtime = runtime or RuntimePaths.standard()
        self.keep_ms = keep_ms
        self.keep_bytes = keep_bytes
        self.namespaces_by: namespaces.Wanted = namespaces_by

    @property
    def scratch(self) -> Path:
        """A folder of the engine's own, for what effects have to remember across a crash."""
        return self.workspace.private / "effects"

    def is_own(self, resource: Resource) -> bool:
        """Tell whether a FILE resource is the engine's own: the log, the backups."""
        path = os.path.join(self.workspace.root_bytes, self.workspace.path_of(resource))
        own = (*self.runtime.private, os.path.join(self.workspace.root_bytes, PRIVATE))
        return any(is_below(path, place) for place in own)

    def is_unwatched(self, relative: bytes) -> bool:
        """Tell whether the content at a place is not compared: the log's own files, and what the operator named."""
        return any(is_below(relative, name) for name in self._unwatched)

    @property
    def readable(self) -> tuple[bytes, ...]:
        """What a command may read without its being declared, absolute."""
        own = os.path.join(self.workspace.root_bytes, PRIVATE, IGNORE)
        return (*self.runtime.for_commands().read, *([own] if os.path.exists(own) else []))

    @property
    def writable(self) -> tuple[bytes, ...]:
        """Where everything is allowed outside of the workspace, absolute."""
        return self.runtime.write

    def operations(
        self,
        declaration: Declaration,
        *,
        confined: bool = False,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
    ) -> Operations:
        """Return the mapping of operations for one session.

        Args:
            declaration: what was declared; only the hosts that it names are known by their names.
            confined: whether the operating system holds child processes to the declaration.
            read: further places that may be read without being declared.
            write: further places where everything is allowed, such as a folder for temporary files.
        """
        runtime = (self.runtime.for_commands() if confined else self.runtime).with_more(read=read, write=write)
        hosts = [host for host, _ in declaration.hosts]
        return Operations(self.workspace, runtime=runtime, hosts=hosts, confined=confined)

    def start(
        self, watch: Watch, argv: Sequence[str], *, env: Mapping[str, str], read: Iterable[str] = (), **more: Any
    ) -> RunningCommand:
        """Start a command that is held to a watch's declaration, as far as the kernel can; see ``host.confinement``.

        Args:
            watch: judges what the command does.
            argv: the command and its arguments.
            env: its environment; its TMPDIR is its own.
            read: further places that it may read.
            **more: as for ``host.confinement.start``.

        Raises:
            RefusedError: as ``host.confinement.start``.
        """
        with exempt():  # starting it is the engine's doing; what the command does is watched in its own way
            return self._started(watch, argv, env, tuple(read), more)

    def _started(
        self, watch: Watch, argv: Sequence[str], env: Mapping[str, str], read: Sequence[str], more: Mapping[str, Any]
    ) -> RunningCommand:
        if landlock.available().why_not is not None or watcher.available().why_not is not None:
            return start(argv, env=env, rules=None, decide=None, unconfined=True, **more)
        private = [env["TMPDIR"]] if "TMPDIR" in env else []
        command = shutil.which(argv[0], path=env.get("PATH"))
        operations = self.operations(
            watch.declaration, confined=True, read=[*read, *([] if command is None else [command])], write=private
        )
        triples, runtime = watch.declaration.triples, self.needed(command=command, private=private, execute=read)
        rules = rules_for(triples, self.workspace, runtime)
        decide = judged_by(watch, operations)
        wanted = self.namespaces_by
        while not namespaces.are_missing(wanted):
            tree = self.tree(triples, runtime, rules, [more["cwd"], env.get("HOME", "/")])
            maker = namespaces.likely(wanted)
            try:
                return start(argv, env=env, rules=rules, tree=tree, namespaces_by=wanted, decide=decide, **more)
            except RefusedError as refused:
                if "namespaces" not in refused.details or namespaces.available(wanted).maker == maker:
                    raise
        return start(argv, env=env, rules=rules, decide=decide, **more)

    def needed(self, *, command: str | None, private: Iterable[str], execute: Iterable[str] = ()) -> Runtime:
        """Return what a command needs to run at all.

        Args:
            command: what will be run.
            private: folders of the command's own.
            execute: further places to read and execute.
        """
        mine = [*private, *map(os.fsdecode, self.writable)]
        return Runtime.standard(command=command, private=mine, read=self.readable, execute=execute)

    def tree(
        self, triples: Iterable[Triple], runtime: Runtime, rules: Rules, folders: Iterable[str | bytes | int]
    ) -> MountTree:
        """Return what exists for a command in namespaces of its own.

        Args:
            triples: what was declared.
            runtime: what the command needs.
            rules: made of both.
            folders: that are there at least, by path or by descriptor.
        """
        named = (f"/proc/self/fd/{one}" if isinstance(one, int) else one for one in folders)
        own = (*self.runtime.private, os.path.join(self.workspace.root_bytes, PRIVATE))
        there = [os.path.realpath(os.fsencode(one)) for one in named]
        return tree_for(triples, self.workspace, runtime, rules, private=own, folders=there)

    # world.state.ports.Keeper

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Tell whether there is anything to back up for these claims."""
        return bool(resources_to_save(triples))

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy ahead, outside of the log's lock, so that ``take`` is quick.

        Raises:
            RefusedError: as ``take``.
        """
        self._refuse_own(triples)
        resources = resources_to_save(triples)
        if resources:
            with exempt():  # whoever asks for leases within a session does not touch these files himself
                self.backups.prepare(resources)

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Back up, durably, and return whether there was anything to back up.

        Raises:
            RefusedError: ``BACKUP_FAILED`` and the like; then the leases may not be granted.
        """
        self._refuse_own(triples)
        resources = resources_to_save(triples)
        if not resources:
            return False
        with exempt():
            self.workspace.make_private()
            self.backups.take(backup_id, resources, at=at, note=note)
        return True

    def exists(self, resource: Resource, *, session_id: str, before: Literal["grant", "execution"]) -> bool:
        """Tell whether a FILE resource exists in the workspace, and is not the engine's own.

        Symbolic links are followed; a link that leads to nothing or out of the workspace does not exist, nor does what
        the process may not look at.

        Args:
            resource: in canonical form; of a subtree its root counts.
            session_id: plays no part.
            before: plays no part.
        """
        if self.is_own(resource):
            return False
        with exempt():
            return self.workspace.exists(resource)

    def ignored(self) -> NameComparison:
        """Return which differences of names the workspace's file system ignores; none where it cannot be asked.

        A file is made in ``.klock`` and removed again.
        """
        with exempt(), suppress(OSError):
            self.workspace.make_private()
            return compared_names(FolderNames(self.workspace.private))
        return BYTE_WISE

    def follow(self, names: NameComparison) -> None:
        """Compare names of files like this from now on."""
        self.workspace.names = names

    def restore(
        self, backup_id: str, *, only: Sequence[Resource] | None = None, fresh: bool = False
    ) -> Mapping[str, Any]:
        """Give back what was backed up.

        Args:
            backup_id: the verdict's id.
            only: these places of it; None is all.
            fresh: put also what is unchanged on new inodes, because somebody may still hold it open.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``.
        """
        with exempt():
            done = self.backups.restore(backup_id, only=only, fresh=fresh)
        failed = [f"{name}: {done.reasons[name]}" if name in done.reasons else name for name in done.failed]
        return {"restored": list(done.restored), "removed": list(done.removed), "failed": failed}

    def _refuse_own(self, triples: Sequence[Triple]) -> None:
        """Refuse to grant what is the engine's own, to whomever."""
        for triple in triples:
            if triple.resource.type == "FILE" and self.is_own(triple.resource):
                raise RefusedError(
                    "PRIVATE_PATH",
                    f"{triple.resource.text} is the engine's own; nobody can be granted anything there. Leave it out.",
                    resource=triple.resource.text,
                )
