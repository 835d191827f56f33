"""What ``worldctl doctor`` looks at around governed runs: the kernel, strace, the workspace and its backups."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from host.confinement.namespaces import Wanted
from host.environment import HostEnvironment
from host.observation import tracing
from host.workspace.comparison import FolderNames, compared_names
from world.clock import SystemClock
from world.errors import DamagedLogError
from world.klis.resources.names import NameComparison
from worldprotocol.api.bootstrap import environment_of
from worldprotocol.api.workers import ProcessWorkers
from worldprotocol.cli.support.health.checks import Check
from worldprotocol.cli.support.opening import workspace_of
from worldprotocol.cli.support.output import counted
from worldprotocol.runs.backups import BackupAdministration
from worldprotocol.runs.command import confinement_support

if TYPE_CHECKING:
    from worldprotocol.api.realm import Realm
    from worldprotocol.cli.support.command_context import CommandContext

__all__ = ["names_check", "workspace_checks"]


def workspace_checks(desk: CommandContext) -> Iterator[Check]:
    """Yield what was found; nothing is changed, but for a file that is made and removed again in ``.klock``.

    Raises:
        RefusedError: ``WORKSPACE_MISSING``, ``NOT_A_FOLDER``, and what looking at the log refuses.
    """
    config = desk.settings()
    by = workspace_of(config).namespaces
    yield _confinement(is_wanted=config.workspace is not None, namespaces_by=by)
    strace = tracing.strace_path()
    yield Check("tracer", True, f"strace at {strace}" if strace else "strace is not installed: no --trace")
    premises = environment_of(workspace_of(config), desk.address())
    try:
        by_default = "" if config.workspace is not None else ", for governed runs alone: world.toml has no [workspace]"
        yield Check("workspace", True, f"{premises.workspace.root}{by_default}")
        with desk.look() as world:
            yield from _names(world, premises.workspace.private)
            yield from _kept(world, premises)
            yield _open_runs(world)
    finally:
        premises.workspace.close()


def _names(world: Realm, private: Path) -> Iterator[Check]:
    """Yield how the workspace's file system compares names, where the engine's own folder is there to find out in."""
    try:
        followed = world.archive.peek(lambda realm: realm.klis.in_force.names)
    except DamagedLogError:  # damage is reported by the checks of the log
        return
    if private.is_dir() and os.access(private, os.W_OK):
        with contextlib.suppress(OSError):
            yield names_check(compared_names(FolderNames(private)), followed)


def names_check(found: NameComparison, followed: NameComparison) -> Check:
    """Return whether resources compare names of files as the file system does.

    Args:
        found: what the file system ignores.
        followed: what resources ignore, by the settings in force.
    """
    if followed.united(found) != followed:
        facts = f"the file system {_ignoring(found, 's')}, but leases {_ignoring(followed)}"
        advice = "leases distinguish names of one file: run `worldctl klis configure` while nothing runs"
        return Check("names", False, facts, advice)
    if found != followed:
        return Check("names", True, f"the file system {_ignoring(found, 's')}; leases {_ignoring(followed)}")
    return Check("names", True, f"the file system and leases {_ignoring(found)}")


def _ignoring(names: NameComparison, ending: str = "") -> str:
    differences = (("case", names.ignores_case), ("Unicode normalisation", names.ignores_normal_form))
    ignored = " and ".join(word for word, holds in differences if holds)
    return f"ignore{ending} {ignored}" if ignored else f"compare{ending} byte by byte"


def _confinement(*, is_wanted: bool, namespaces_by: Wanted) -> Check:
    found = confinement_support(namespaces_by)
    if found.why_not is None:
        gaps = f"; not held: {', '.join(found.gaps)}" if found.gaps else ""
        return Check("confinement", True, f"commands are held by {', '.join(found.held_by)}{gaps}")
    advice = "run commands with --unconfined: what they did is found in the content alone" if is_wanted else ""
    return Check("confinement", not is_wanted, f"commands cannot be confined: {found.why_not}", advice)


def _kept(world: Realm, premises: HostEnvironment) -> Iterator[Check]:
    there = BackupAdministration(world.archive, premises, SystemClock().now_ms(), None)
    found = there.list()
    damaged = [one.backup_id for one in found if one.state == "damaged"]
    needed = sum(1 for one in found if one.state == "open")
    facts = f"{counted(len(found), 'backup')}, {needed} of them needed, {there.size_bytes} bytes"
    if damaged:
        yield Check("backups", False, f"{facts}; unreadable: {', '.join(damaged)}", "check the disk; move them away")
    else:
        yield Check("backups", True, facts)
    begun = there.interrupted
    advice = "run `worldctl settle`, or `worldctl backups restore` for one that stays" if begun else ""
    yield Check("rollbacks", not begun, f"interrupted: {', '.join(begun)}" if begun else "none is interrupted", advice)


def _open_runs(world: Realm) -> Check:
    workers = ProcessWorkers()
    try:
        runs = world.archive.peek(lambda realm: list(realm.runs.values()))
    except DamagedLogError:  # damage is reported by the checks of the log
        return Check("runs", False, "not known: the log or its index is damaged", "mend the log first")
    gone = [run.run_id for run in runs if workers.is_gone(run.worker)]
    facts = f"{len(runs)} open" + (f"; of {len(gone)} the process vanished" if gone else "")
    return Check("runs", not gone, facts, "run `worldctl settle`: it gives back what they left" if gone else "")
