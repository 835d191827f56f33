"""Search for secrets in a log, in configuration files and in backups: places and forms, never values."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import orjson

from world.model.record import Record
from worldprotocol.analysis.secret_forms import json_findings, line_findings, may_hold_secrets
from worldprotocol.api.bootstrap import EventLog
from worldprotocol.api.config import Config

__all__ = ["FoundSecret", "configuration_files", "search_backups", "search_files", "search_log"]

Progress = Callable[[int, int], None]

_MAX_LINE: Final = 1 << 20
"""Bytes of a line that are searched at once; longer lines are searched in pieces that overlap."""
_OVERLAP: Final = 4_096
_EVERY: Final = 1_000


class FoundSecret(Record, frozen=True):
    """Location of a suspected secret.

    Args:
        where: ``log``, ``configuration`` or ``backups``.
        place: event and path, or file and line.
        form: kind of the secret.
    """

    where: str
    place: str
    form: str


def search_log(log: EventLog, progress: Progress) -> Iterator[FoundSecret]:
    """Yield the findings in events, in the order of the log.

    Raises:
        DamagedLogError: an event cannot be read.
    """
    size = log.head().size
    for event in log.read(0):
        if event.position % _EVERY == 0:
            progress(event.position, size)
        if may_hold_secrets(event.state):
            for path, form in json_findings(orjson.loads(event.state)):
                yield FoundSecret("log", f"event {event.position} ({event.topic}) {path}", form)
    progress(size, size)


def configuration_files(config: Config, file: Path) -> list[Path]:
    """Return the configuration file and the files of its references, without key files."""
    named = [config.domain or "", *config.projections, *config.policies, *config.effects]
    found = [file]
    for reference in named:
        if reference.endswith((".yaml", ".yml", ".json", ".mel", ".toml", ".cedar")):
            found.append(config.folder / reference)
            continue
        module, colon, _ = reference.rpartition(":")
        name = module if colon else reference
        found.append(
            config.folder
            / (name if name.endswith((".py", ".toml", ".yaml", ".yml", ".mel", ".cedar")) else _module(name))
        )
    return [path for path in dict.fromkeys(found) if path.is_file()]


def search_files(where: str, files: list[Path], progress: Progress) -> Iterator[FoundSecret]:
    """Yield the findings in files, by line; files without read permission are skipped."""
    for done, path in enumerate(files):
        progress(done, len(files))
        try:
            with path.open("rb") as source:
                for number, line in _lines(source):
                    yield from (FoundSecret(where, f"{path}:{number}", form) for form in line_findings(line))
        except PermissionError:
            continue
    progress(len(files), len(files))


def search_backups(root: Path, progress: Progress) -> Iterator[FoundSecret]:
    """Yield the findings below ``.klock/backups`` of a workspace.

    Args:
        root: root of the workspace.
        progress: called with files done and in all.
    """
    folder = root / ".klock" / "backups"
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    yield from search_files("backups", files, progress)


def _module(name: str) -> str:
    return f"{name.replace('.', '/')}.py"


def _lines(source: Any) -> Iterator[tuple[int, str]]:
    number, begins, kept = 1, True, b""
    while piece := source.readline(_MAX_LINE):
        text = piece if begins else kept + piece
        yield number, text.decode("utf-8", "replace")
        begins = piece.endswith(b"\n")
        number += begins
        kept = b"" if begins else piece[-_OVERLAP:]
