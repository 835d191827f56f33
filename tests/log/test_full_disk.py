"""A disk that really is full: the error says so, nothing committed is lost, and work goes on when there is room."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).resolve().parents[2]
CHILD = Path(__file__).with_name("disk_child.py")
MOUNT = 'mount -t tmpfs -o size=2m tmpfs "$1"'


@cache
def can_mount() -> bool:
    """Tell whether this machine lets a process mount a small file system in a namespace of its own."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-rm", "sh", "-c", MOUNT, "sh", "/mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


def child(folder: Path, *, mounted: bool) -> dict[str, Any]:
    command = [sys.executable, str(CHILD), str(folder), "ballast" if mounted else "limit"]
    if mounted:
        command = ["unshare", "-rm", "sh", "-c", f'{MOUNT} && shift && exec "$@"', "sh", str(folder), *command]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize("kind", ["a small file system", "a limit on the size of files"])
@pytest.mark.slow
def test_a_disk_without_room_is_said_and_nothing_is_lost(tmp_path: Path, kind: str) -> None:
    """Where no file system may be mounted, both cases use the limit on the size of files."""
    is_mounted = kind == "a small file system" and can_mount()
    told = child(tmp_path, mounted=is_mounted)
    assert (told["code"], told["again"]) == ("STORAGE_FULL", "STORAGE_FULL"), told
    assert "no room" in told["message"]
    assert told["probes"][0] == "STORAGE_FULL"
    assert told["probes"][1] == ("STORAGE_FULL" if is_mounted else None)  # the limit is one of the other process
    assert told["probes_after"] == [None, None]
    assert told["appended"] > 10
    assert told["size"] == told["read"] == told["appended"]
    assert told["after"] == told["reopened"] == told["appended"] + 1
    assert told["findings"] == []
