"""What ``worldctl doctor`` says of the modes of files that hold events or keys."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from world.masking import masked
from worldprotocol.api.bootstrap import log_files
from worldprotocol.cli.support.health.checks import Check
from worldprotocol.cli.support.opening import workspace_of

if TYPE_CHECKING:
    from worldprotocol.api.config import Config
    from worldprotocol.cli.support.command_context import CommandContext

__all__ = ["mode_checks", "sensitive_files"]


def mode_checks(desk: CommandContext) -> Iterator[Check]:
    """Yield one check: whether other users may read or write what the engine keeps."""
    found = [path for path in sensitive_files(desk.settings(), desk.address()) if _others(path)]
    if not found:
        yield Check("modes", True, "other users can read none of the log, its keys and backups")
        return
    named = ", ".join(f"{path} ({stat.S_IMODE(os.stat(path).st_mode):04o})" for path in found)
    advice = f"run `chmod o= {' '.join(map(str, found))}` unless all users of this machine may read that"
    yield Check("modes", False, f"other users may read: {named}", advice)


def sensitive_files(config: Config, address: str) -> list[Path]:
    """Return the files that may hold events, secrets or keys, as far as they exist.

    Args:
        config: names them.
        address: of the log.
    """
    files = [Path(path) for path in log_files(address)]
    rendered = config.secrets.in_folder(config.folder) if config.secrets is not None else None
    named = [config.checkpoint.key if config.checkpoint else None, config.digests.key if config.digests else None]
    files += [config.folder / Path(name).expanduser() for name in named if name is not None]
    files += [
        Path(name) for name in ((rendered.key, rendered.folder) if rendered is not None else ()) if name is not None
    ]
    if masked(config.log) != config.log:  # it holds a password
        files.append(config.folder / "world.toml")
    files.append(Path(workspace_of(config).root, ".klock"))
    return [path for path in dict.fromkeys(files) if path.exists()]


def _others(path: Path) -> bool:
    return bool(os.stat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH))
