"""Templates of realms: a domain, a policy with cases and a configuration, which ``worldctl init --template`` copies."""

from __future__ import annotations

from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["NAMES", "copy_template"]

_PLACE: Final = "worldprotocol"
NAMES: Final = ("coding-agents", "kanban", "ledger", "release")
"""The templates, by name."""


def copy_template(name: str, folder: Path, *, force: bool) -> list[Path]:
    """Copy the files of a template into a folder, and return them.

    Args:
        name: one of ``NAMES``.
        folder: exists.
        force: overwrite files that are there.

    Raises:
        RefusedError: ``CONFIG_EXISTS`` where a file is there already; nothing is written then.
    """
    sources = [one for one in (files(_PLACE) / "templates" / name).iterdir() if one.is_file()]
    targets = {source: folder / source.name for source in sorted(sources, key=_name)}
    there = [target for target in targets.values() if target.exists()]
    if there and not force:
        raise RefusedError(
            ErrorCode.CONFIG_EXISTS, f"{there[0]} is there already; --force overwrites it.", path=str(there[0])
        )
    for source, target in targets.items():
        target.write_bytes(source.read_bytes())
    return list(targets.values())


def _name(source: Traversable) -> str:
    return source.name
