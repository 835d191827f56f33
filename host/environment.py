"""The environment of a host: the workspace that its effects and agents touch, its backups and its path mapping.

Shared by the host's effects, governed runs, and the lease manager, which has a backup taken before each grant
(``world.state.ports.BackupService``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal, TypedDict, Unpack

from host.backups import Backups, resources_to_save
from host.confinement import (
    UNCONFINED,
    Confinement,
    MountTree,
    Rules,
    RunningCommand,
    Runtime,
    StartOptions,
    landlock,
    namespaces,
    rules_for,
    start,
    tree_for,
    watcher,
)
from host.observation.audit import exempt
from host.observation.operations import Operations, RuntimePaths
from host.observation.session_watch import Watch
from host.observation.system_calls import decision_of
from host.system_paths import is_below
from host.workspace import IGNORE, PRIVATE, Workspace
from host.workspace.comparison import FolderNames, compared_names
from host.workspace.hidden import hidden_below, is_hidden
from host.workspace.workspace_id import give_workspace_id, read_workspace_id
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.observation import Declaration
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.triple import Triple

__all__ = ["EnvironmentOptions", "HostEnvironment"]

KEEP_MS: Final = 14 * 86_400_000
"""Default retention of backups of ended sessions, in ms."""

KEEP_BYTES: Final = 10_000_000_000
"""Default limit of the size of all backups together, in bytes."""


class EnvironmentOptions(TypedDict, total=False):
    """Options of ``HostEnvironment``.

    Args:
        keep_ms: retention of backups of ended sessions, in ms.
        keep_bytes: limit of the size of all backups together; beyond it the oldest are deleted.
        namespaces_by: the program that creates the namespaces of commands.
        hidden: names of files that confined commands find empty, unless they are declared by their own names.
    """

    keep_ms: int
    keep_bytes: int
    namespaces_by: namespaces.Wanted
    hidden: Iterable[str]


class HostEnvironment:
    """A workspace, its backups and its system paths; implements ``world.state.ports.BackupService``.

    Args:
        workspace: the folder whose root is ``FILE:/``.
        backups: of that workspace.
        runtime: paths of the operating system, as opposed to an agent's work.
        unwatched: names below the root whose content is not compared, such as ``node_modules``.
        **options: see ``EnvironmentOptions``.
    """

    def __init__(
        self,
        workspace: Workspace,
        backups: Backups,
        runtime: RuntimePaths | None = None,
        unwatched: Iterable[str] = (),
        **options: Unpack[EnvironmentOptions],
    ) -> None:
        """Store the parts; nothing is read yet."""
        private = () if runtime is None else runtime.private
        own = (workspace.relative(path) for path in private)
        self._unwatched = tuple({*(os.fsencode(name).strip(b"/") for name in unwatched), *filter(None, own)})
        self.workspace = workspace
        self.backups = backups
        self.runtime = runtime or RuntimePaths.standard()
        self.keep_ms = options.get("keep_ms", KEEP_MS)
        self.keep_bytes = options.get("keep_bytes", KEEP_BYTES)
        self.namespaces_by: namespaces.Wanted = options.get("namespaces_by", "auto")
        self._hidden = tuple(options.get("hidden", ()))
        self._workspace_id: str | None = None

    @property
    def scratch(self) -> Path:
        """Folder of the engine for records that effects keep across a crash."""
        return self.workspace.private / "effects"

    def is_own(self, resource: Resource) -> bool:
        """Whether a FILE resource belongs to the engine: the log, the backups."""
        path = os.path.join(self.workspace.root_bytes, self.workspace.path_of(resource))
        own = (*self.runtime.private, os.path.join(self.workspace.root_bytes, PRIVATE))
        return any(is_below(path, place) for place in own)

    def is_unwatched(self, relative: bytes) -> bool:
        """Whether the content at a path is not compared: the log's files, and names that the operator excluded."""
        return any(is_below(relative, name) for name in self._unwatched)

    @property
    def readable(self) -> tuple[bytes, ...]:
        """Absolute paths that a command may read without declaring them."""
        own = os.path.join(self.workspace.root_bytes, PRIVATE, IGNORE)
        return (*self.runtime.for_commands().read, *([own] if os.path.exists(own) else []))

    @property
    def writable(self) -> tuple[bytes, ...]:
        """Absolute paths outside the workspace where every operation is allowed."""
        return self.runtime.write

    def operations(
        self,
        declaration: Declaration,
        *,
        confined: bool = False,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
    ) -> Operations:
        """Return the mapping of operations to resources for one session.

        Args:
            declaration: the declared triples; only the hosts that it names are recognized by name.
            confined: whether the kernel confines child processes to the declaration.
            read: further paths that may be read without being declared.
            write: further paths where every operation is allowed, such as a folder for temporary files.
        """
        runtime = (self.runtime.for_commands() if confined else self.runtime).with_more(read=read, write=write)
        hosts = [host for host, _ in declaration.hosts]
        return Operations(self.workspace, runtime=runtime, hosts=hosts, confined=confined)

    def start(
        self,
        watch: Watch,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        read: Iterable[str] = (),
        **options: Unpack[StartOptions],
    ) -> RunningCommand:
        """Start a command confined to the declaration of a watch; see ``host.confinement``.

        Args:
            watch: compares the command's operations with the declaration.
            argv: the command and its arguments.
            env: its environment; its TMPDIR belongs to it alone.
            read: further paths that it may read.
            **options: as for ``host.confinement.start``.

        Raises:
            RefusedError: as ``host.confinement.start``.
        """
        with exempt():  # the engine starts it; the watcher observes the command itself
            return self._start_confined(watch, argv, env, tuple(read), options)

    def _start_confined(
        self, watch: Watch, argv: Sequence[str], env: Mapping[str, str], read: Sequence[str], options: StartOptions
    ) -> RunningCommand:
        if landlock.available().why_not is not None or watcher.available().why_not is not None:
            return start(argv, env=env, confinement=UNCONFINED, **options)
        private = [env["TMPDIR"]] if "TMPDIR" in env else []
        command = shutil.which(argv[0], path=env.get("PATH"))
        operations = self.operations(
            watch.declaration, confined=True, read=[*read, *([] if command is None else [command])], write=private
        )
        triples, runtime = watch.declaration.triples, self.needed(command=command, private=private, execute=read)
        rules = rules_for(triples, self.workspace, runtime)
        decide = decision_of(watch, operations)
        wanted = self.namespaces_by
        while not namespaces.are_missing(wanted):
            tree = self.tree(triples, runtime, rules, [options["cwd"], env.get("HOME", "/")])
            maker = namespaces.likely(wanted)
            try:
                confinement = Confinement(rules, decide, tree, wanted)
                return start(argv, env=env, confinement=confinement, **options)
            except RefusedError as refused:
                if "namespaces" not in refused.details or namespaces.available(wanted).maker == maker:
                    raise
        decide = decision_of(watch, operations, self.hides(triples))
        return start(argv, env=env, confinement=Confinement(rules, decide), **options)

    def needed(self, *, command: str | None, private: Iterable[str], execute: Iterable[str] = ()) -> Runtime:
        """Return the paths that a command needs in order to run.

        Args:
            command: path of the program.
            private: folders that belong to the command alone.
            execute: further paths to read and execute.
        """
        writable_paths = [*private, *map(os.fsdecode, self.writable)]
        return Runtime.standard(command=command, private=writable_paths, read=self.readable, execute=execute)

    def tree(
        self,
        triples: Iterable[Triple],
        runtime: Runtime,
        rules: Rules,
        folders: Iterable[str | bytes | os.PathLike[str] | int],
    ) -> MountTree:
        """Return the file tree for a command in its own namespaces.

        Args:
            triples: the declared triples.
            runtime: the paths that the command needs.
            rules: made of both.
            folders: that must exist in the tree, by path or by descriptor.
        """
        named = (f"/proc/self/fd/{one}" if isinstance(one, int) else one for one in folders)
        own = [*self.runtime.private, os.path.join(self.workspace.root_bytes, PRIVATE)]
        if self._hidden:
            hides = self.hides(triples)
            own += filter(hides, hidden_below(self.workspace.root_bytes, self._hidden))
        existing = [os.path.realpath(os.fsencode(one)) for one in named]
        return tree_for(
            triples, self.workspace, runtime, rules, private=own, guarded=self.runtime.guarded, folders=existing
        )

    def hides(self, triples: Iterable[Triple]) -> Callable[[bytes], bool]:
        """Return a function that says whether an absolute path is hidden from a command.

        Args:
            triples: the declared triples; a file that one of them names itself is not hidden.
        """
        root = self.workspace.root_bytes
        files = [one.resource for one in triples if one.resource.type == "FILE" and not one.resource.subtree]
        shown = {os.path.join(root, self.workspace.path_of(one)) for one in files}

        def is_one(path: bytes) -> bool:
            names = path.removeprefix(root).split(b"/") if is_below(path, root) else ()
            return path not in shown and any(is_hidden(os.fsdecode(name), self._hidden) for name in names)

        return is_one

    # The workspace's id

    def identify(self) -> str | None:
        """Return the id of the workspace, read again; None where it has none yet.

        Raises:
            RefusedError: ``WORKSPACE_COPIED``, ``WORKSPACE_ID_DAMAGED``.
        """
        with exempt():
            self._workspace_id = read_workspace_id(self.workspace)
        return self._workspace_id

    def give_id(self, new_id: str, *, replace: bool = False) -> str:
        """Give the workspace an id, and return the one that it has then.

        Args:
            new_id: the id.
            replace: write it also where the folder has an id.

        Raises:
            RefusedError: as ``identify``.
        """
        with exempt():
            give_workspace_id(self.workspace, new_id, replace=replace)
        return self.identify() or new_id

    # world.state.ports.BackupService

    @property
    def workspace_id(self) -> str | None:
        """Id of the workspace; None where it has none, or one that cannot be used."""
        if self._workspace_id is None:
            with suppress(RefusedError):
                self.identify()
        return self._workspace_id

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Whether a grant of these triples needs a backup."""
        return bool(resources_to_save(triples))

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy in advance, outside the log's lock, so that ``take`` is quick.

        Raises:
            RefusedError: as ``take``.
        """
        self._refuse_own(triples)
        resources = resources_to_save(triples)
        if resources:
            with exempt():  # the engine reads these files, not the session that requests the leases
                self.backups.prepare(resources)

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Back up durably; return whether a backup was needed.

        Raises:
            RefusedError: ``BACKUP_FAILED`` and others; the leases may then not be granted.
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
        """Whether a FILE resource exists in the workspace and does not belong to the engine.

        Symbolic links are followed; a link without a target or out of the workspace does not exist, nor does a file
        that the process may not read.

        Args:
            resource: in canonical form; for a subtree its root is tested.
            session_id: unused.
            before: unused.
        """
        if self.is_own(resource):
            return False
        with exempt():
            return self.workspace.exists(resource)

    def ignored(self) -> NameComparison:
        """Return the differences of names that the workspace's file system ignores; none where it cannot be tested.

        A file is created in ``.klock`` and deleted again.
        """
        with exempt(), suppress(OSError):
            self.workspace.make_private()
            return compared_names(FolderNames(self.workspace.private))
        return BYTE_WISE

    def follow(self, names: NameComparison) -> None:
        """Set how file names are compared."""
        self.workspace.names = names

    def restore(
        self, backup_id: str, *, only: Sequence[Resource] | None = None, fresh: bool = False
    ) -> Mapping[str, Any]:
        """Restore a backup.

        Args:
            backup_id: the verdict's id.
            only: the resources to restore; None for all.
            fresh: also replace unchanged files by new inodes, because a process may still have them open.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``.
        """
        with exempt():
            restored = self.backups.restore(backup_id, only=only, fresh=fresh)
        failed = [
            f"{file_name}: {restored.reasons[file_name]}" if file_name in restored.reasons else file_name
            for file_name in restored.failed
        ]
        return {"restored": list(restored.restored), "removed": list(restored.removed), "failed": failed}

    def _refuse_own(self, triples: Sequence[Triple]) -> None:
        """Raise ``RefusedError`` for a resource that belongs to the engine."""
        for triple in triples:
            if triple.resource.type == "FILE" and self.is_own(triple.resource):
                raise RefusedError(
                    ErrorCode.PRIVATE_PATH,
                    f"{triple.resource.text} belongs to the engine and cannot be granted; remove it from the manifest.",
                    resource=triple.resource.text,
                )
