"""What a folder holds, as plain values to compare: the tests' own reading, apart from the code they test."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from host.workspace import Workspace
from tests.support.patience import PATIENCE_S
from world.klis.resources.resource import Resource
from world.klis.resources.resource_reading import canonical_resource

Tree = dict[bytes, tuple[Any, ...]]


def tree_of(root: Path | bytes, *, times: bool = True, skip: tuple[bytes, ...] = (b".klock",)) -> Tree:
    """Return every path below a folder with its kind, mode, owner, content or target, time and hard links."""
    base = os.fsencode(root)
    found: Tree = {}
    inodes: dict[tuple[int, int], bytes] = {}
    waiting = [b""]
    while waiting:
        folder = waiting.pop()
        for name in sorted(os.listdir(os.path.join(base, folder))):
            relative = os.path.join(folder, name)
            if relative in skip:
                continue
            found[relative] = _seen(base, relative, inodes, times=times)
            if found[relative][0] == "dir":
                waiting.append(relative)
    if times:
        found[b""] = _seen(base, b"", inodes, times=times)
    return found


def _seen(base: bytes, relative: bytes, inodes: dict[tuple[int, int], bytes], *, times: bool) -> tuple[Any, ...]:
    path = os.path.join(base, relative)
    look = os.lstat(path)
    time = look.st_mtime_ns if times else 0
    owner = (look.st_uid, look.st_gid)
    if stat.S_ISLNK(look.st_mode):
        return ("link", os.readlink(path), owner, time)
    if stat.S_ISDIR(look.st_mode):
        return ("dir", look.st_mode, owner, time)
    if not stat.S_ISREG(look.st_mode):
        return ("other", look.st_mode, owner, time)
    first = inodes.setdefault((look.st_dev, look.st_ino), relative) if look.st_nlink > 1 else relative
    content = hashlib.sha256(Path(os.fsdecode(path)).read_bytes()).hexdigest()
    return ("file", look.st_mode, owner, time, content, look.st_nlink, first)


def file(text: str) -> Resource:
    """Return the resource of a file's name."""
    return canonical_resource(f"FILE:{text}")


def make(root: Path, files: dict[str, str]) -> None:
    """Write files, and the folders that lead to them."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def workspace(folder: Path, **options: Any) -> Workspace:
    """Return a new workspace in ``folder/ws``."""
    (folder / "ws").mkdir(exist_ok=True)
    return Workspace(folder / "ws", **options)


def as_somebody_else(act: Callable[[Path], str]) -> str:
    """Return what a function says that is called in a process of its own, without the rights of the superuser."""
    folder = Path(tempfile.mkdtemp())
    here = Path(__file__)
    command = [sys.executable, str(here.with_name("somebody.py")), f"tests.host.{act.__module__.rpartition('.')[2]}"]
    environment = {**os.environ, "PYTHONPATH": str(here.parents[2])}
    try:
        done = subprocess.run(
            [*command, act.__name__, str(folder)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        return done.stdout or done.stderr
    finally:
        shutil.rmtree(folder)
