"""``worldctl doctor --secrets``: what in the log, the configuration and backups has the form of a key."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from worldprotocol.analysis.secret_search import (
    FoundSecret,
    configuration_files,
    search_backups,
    search_files,
    search_log,
)
from worldprotocol.api.config import CONFIG_NAME
from worldprotocol.cli.support.opening import workspace_of

if TYPE_CHECKING:
    from worldprotocol.cli.support.command_context import CommandContext

__all__ = ["tell_secrets"]

MAX_LISTED: Final = 1_000
"""Findings that are listed; all are counted."""

_ADVICE: Final = {
    "log": "the log cannot be changed: revoke the key where it is in force, and hide the events in exports (--redact)",
    "configuration": "move it to a source of secrets and write ${secret:NAME}, or name a file with it",
    "backups": "revoke the key, or remove the backup (worldctl backups prune)",
}


def tell_secrets(desk: CommandContext) -> int:
    """Search, report what was found, and return the exit code: 1 where anything was.

    Raises:
        RefusedError: what looking at the log refuses.
        DamagedLogError: what reading it raises.
    """
    config = desk.settings()
    listed: list[FoundSecret] = []
    counts = {"log": 0, "configuration": 0, "backups": 0}

    def take(found: Iterable[FoundSecret]) -> None:
        for one in found:
            counts[one.where] += 1
            if len(listed) < MAX_LISTED:
                listed.append(one)

    with desk.look() as world, desk.progress("Searching the log") as progress:
        take(search_log(world.log, progress))
    with desk.progress("Searching the configuration") as progress:
        file = desk.config or config.folder / CONFIG_NAME
        take(search_files("configuration", configuration_files(config, Path(file)), progress))
    with desk.progress("Searching backups") as progress:
        take(search_backups(Path(workspace_of(config).root), progress))
    found = sum(counts.values())
    if desk.json:
        rendered = [one.to_wire() for one in listed]
        desk.out.document({"ok": not found, "counts": counts, "found": rendered, "more": found - len(listed)})
        return 1 if found else 0
    rows = [(one.where, one.place, one.form) for one in listed]
    desk.out.table(("where", "place", "form"), rows, empty="Nothing has the form of a key.")
    if found > len(listed):
        desk.out.remark(f"{found - len(listed)} more are not listed.")
    for where, count in counts.items():
        if count:
            desk.out.remark(f"{count} in {where}: {_ADVICE[where]}.")
    return 1 if found else 0
