"""Hooks of git: ``worldctl hooks install git`` writes them, and they run ``worldctl hooks git``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worldprotocol.cli.support.command_context import CommandContext

if TYPE_CHECKING:
    from worldprotocol.api.remote.realm import RemoteRealm

__all__ = ["SHARED", "install_git", "installed_git", "run_git_hook", "uninstall_git"]

SHARED: Final = ("main", "master")
"""Branches that are shared, unless others are named."""

TTL_MS: Final = 120_000
"""Time to live of the leases, where git does not say how its command ended."""


def install_git(
    desk: CommandContext,
    project: str,
    program: Sequence[str],
    options: Sequence[str],
    branches: Sequence[str],
    *,
    dry_run: bool,
) -> None:
    """Write the hooks of a repository, or print them.

    Raises:
        RefusedError: ``INVALID_CONFIG`` where there is no repository, or a hook of someone else.
    """
    from worldprotocol.agents.git_hooks import EVENTS, hook_script

    folder = _hooks(project)
    scripts = {folder / event: hook_script(event, program, options, branches) for event in EVENTS}
    if dry_run:
        for line in "\n".join(scripts.values()).splitlines():
            desk.out.text(line)
        return
    for path, text in scripts.items():
        _check_free(path, text)
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in scripts.items():
        beside = path.with_name(f"{path.name}.new")
        beside.write_text(text, encoding="utf-8")
        beside.chmod(0o755)
        beside.replace(path)
    desk.out.tell(
        {"hooks": [str(path) for path in scripts]},
        f"{folder} has the hooks {' and '.join(EVENTS)}: merges, and updates of {', '.join(branches)}, take leases.",
    )


def uninstall_git(desk: CommandContext, project: str) -> None:
    """Remove the hooks that ``install_git`` wrote."""
    removed = installed_git(project)
    for path in removed:
        path.unlink()
    folder = _hooks(project)
    words = f"Removed {', '.join(path.name for path in removed)} from {folder}." if removed else f"{folder} has none."
    desk.out.tell({"hooks": str(folder), "removed": [path.name for path in removed]}, words)


def installed_git(project: str) -> list[Path]:
    """Return the files of the hooks that ``install_git`` wrote."""
    from worldprotocol.agents.git_hooks import EVENTS, is_own_script

    paths = [_hooks(project) / event for event in EVENTS]
    return [
        path for path in paths if path.exists() and is_own_script(path.read_text(encoding="utf-8", errors="replace"))
    ]


def run_git_hook(
    event: str, state: str, realm: RemoteRealm, *, session: str, branches: Sequence[str], wait_s: float
) -> None:
    """Take the leases of a merge, an update or a push, or give them back after it.

    Args:
        event: the hook.
        state: the first argument that git gives to it.
        realm: the realm on its server.
        session: the unit of work of the git process.
        branches: names of the branches that are shared.
        wait_s: longest wait for leases, in seconds.

    Raises:
        RefusedError: the leases were not granted.
    """
    from worldprotocol.agents.git_hooks import ENDED, EVENTS, GitRepository, changed_by, lacking

    updates = [line.rstrip("\n") for line in sys.stdin]
    desk, agent = realm.leases.desk, realm.caller().actor_id
    if event == EVENTS[0] and state in ENDED:
        own = [str(one["leaseId"]) for one in desk.held() if one["sessionId"] == session]
        if own:
            desk.release(own, agent_id=agent, session_id=session)
        return
    wanted = lacking(changed_by(GitRepository(Path.cwd()), event, updates, branches, os.environ), desk.held())
    if wanted:
        realm.leases.acquire(agent=agent, session=session, resources=wanted, ttl_ms=TTL_MS, timeout=wait_s, retry=True)


def _hooks(project: str) -> Path:
    """Return the folder of the hooks of a repository.

    Raises:
        RefusedError: ``INVALID_CONFIG`` where there is none.
    """
    import subprocess

    from world.error_codes import ErrorCode
    from world.errors import RefusedError
    from worldprotocol.agents.git_hooks import GitRepository

    with suppress(OSError, subprocess.CalledProcessError):
        return GitRepository(project).hooks()
    raise RefusedError(
        ErrorCode.INVALID_CONFIG, f"{Path(project).resolve()} is in no git repository; name one with --project."
    )


def _check_free(path: Path, text: str) -> None:
    from world.error_codes import ErrorCode
    from world.errors import RefusedError
    from worldprotocol.agents.git_hooks import is_own_script

    if path.exists() and not is_own_script(path.read_text(encoding="utf-8", errors="replace")):
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"{path} exists already. Let it run a file with these lines and end where that one fails; nothing was "
            f"written:\n{text}",
        )
