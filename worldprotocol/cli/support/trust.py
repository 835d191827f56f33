"""Whether the code that a configuration names is the operator's own: by the owners and modes of its files.

Foreign is what a user other than this one and root owns, or may write: by the mode for others, or for a group, unless
that is the owner's private group. Looked at are the configuration's file and folder, the files that its references
name, their folders, and all modules of the packages that they name. Folders above and access control lists are not.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from world.code.named_modules import candidate
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["refuse_untrusted"]

DATA: Final = (".json", ".yaml", ".yml", ".mel", ".toml", ".cedar")


def refuse_untrusted(file: Path, folder: Path, references: Sequence[str]) -> None:
    """Refuse a configuration that names Python code and is foreign, or whose code is.

    Args:
        file: the configuration.
        folder: where its references start.
        references: what it names.

    Raises:
        RefusedError: ``UNTRUSTED_CODE``.
    """
    code = [one for one in references if not one.endswith(DATA)]
    if not code:
        return
    for path in dict.fromkeys([file, folder, *(place for one in code for place in _places(one, folder))]):
        why = _why_foreign(path)
        if why is not None:
            raise RefusedError(
                ErrorCode.UNTRUSTED_CODE,
                f"{path} {why}, and {file} names Python code ({code[0]}), which would run as you. Read that code; then "
                "pass --trust (or set WORLD_TRUST=1), or work on a copy that only you can write.",
                path=str(path),
                reference=code[0],
            )


def _places(reference: str, folder: Path) -> Iterator[Path]:
    """Yield the files and folders below which the code of a reference is."""
    module = reference.rpartition(":")[0]
    if module.endswith(".py"):
        yield from ((folder / module).resolve().parent, folder / module)
        return
    found = candidate(module.partition(".")[0], folder)
    if found is None:
        return
    yield Path(found)
    for inner, _, names in os.walk(found):
        yield Path(inner)
        yield from (Path(inner, name) for name in names if name.endswith((".py", ".so", ".pyc")))


def _why_foreign(path: Path) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return None  # what reads it says that it is missing
    if found.st_uid not in (os.geteuid(), 0):
        return f"belongs to {_user(found.st_uid)}"
    if found.st_mode & stat.S_IWOTH:
        return "can be written by every user"
    if found.st_mode & stat.S_IWGRP and not _is_private(found.st_gid, found.st_uid):
        return f"can be written by the group {_group(found.st_gid)}"
    return None


def _is_private(group: int, owner: int) -> bool:
    """Return whether a group has its owner's name, and no member but the owner."""
    try:
        rendered, user = grp.getgrgid(group), pwd.getpwuid(owner)
    except KeyError:
        return False
    return rendered.gr_name == user.pw_name and user.pw_gid == group and {*rendered.gr_mem} <= {user.pw_name}


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return str(number)
