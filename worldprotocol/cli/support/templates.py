"""Templates of realms: a domain, a policy with cases and a configuration, which ``worldctl init --template`` copies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["NAMES", "copied_template", "names_of", "refuse_existing", "updated_template"]

_PLACE: Final = "worldprotocol"
NAMES: Final = ("coding-agents", "kanban", "ledger", "release")
"""The templates, by name."""


@contextmanager
def copied_template(name: str, folder: Path, *, force: bool) -> Iterator[list[Path]]:
    """Copy the files of a template into a folder, and yield them; where something fails inside, they are as before.

    Args:
        name: one of ``NAMES``.
        folder: exists.
        force: overwrite files that are there.

    Raises:
        RefusedError: ``CONFIG_EXISTS`` where a file is there already; nothing is written then.
    """
    targets = [folder / source.name for source in _sources(name)]
    if not force:
        refuse_existing(*targets)
    before = {target: target.read_bytes() if target.exists() else None for target in targets}
    try:
        for source, target in zip(_sources(name), targets, strict=True):
            target.write_bytes(source.read_bytes())
        yield targets
    except BaseException:
        for target, content in before.items():
            if content is None:
                target.unlink(missing_ok=True)
            else:
                target.write_bytes(content)
        raise


def updated_template(name: str, folder: Path, *, but: str) -> tuple[list[Path], list[Path]]:
    """Write the files of a template into a folder with an earlier copy of it.

    Args:
        name: one of ``NAMES``.
        folder: exists.
        but: name of the file that stays as it is.

    Returns:
        The files that were written, and those that keep the contents from before, ``NAME.before``.
    """
    written, kept = [], []
    for source in _sources(name):
        target, content = folder / source.name, source.read_bytes()
        if source.name == but or (target.exists() and target.read_bytes() == content):
            continue
        if target.exists():
            before = target.with_name(f"{target.name}.before")
            target.replace(before)
            kept.append(before)
        target.write_bytes(content)
        written.append(target)
    return written, kept


def names_of(name: str) -> list[str]:
    """Return the names of the files of a template.

    Args:
        name: one of ``NAMES``.
    """
    return [source.name for source in _sources(name)]


def refuse_existing(*targets: Path, remedy: str = "--force overwrites it") -> None:
    """Refuse to overwrite a file.

    Args:
        targets: the files that would be written.
        remedy: what to do instead.

    Raises:
        RefusedError: ``CONFIG_EXISTS``.
    """
    there = next((one for one in targets if one.exists()), None)
    if there is not None:
        raise RefusedError(ErrorCode.CONFIG_EXISTS, f"{there} is there already; {remedy}.", path=str(there))


def _sources(name: str) -> list[Traversable]:
    return sorted((one for one in (files(_PLACE) / "templates" / name).iterdir() if one.is_file()), key=_name)


def _name(source: Traversable) -> str:
    return source.name
