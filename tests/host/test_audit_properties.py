"""In-process interception, against whatever is attempted: only what was declared changes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.host.intercepting import Site
from world.errors import ScopeViolationError

NAMES = ["a.txt", "dir/one", "dir/sub/two", "etc/hosts"]
ATTEMPTS: list[Callable[[str], Any]] = [
    lambda name: Path(name).write_text("changed"),
    lambda name: Path(name).open("a").close(),
    lambda name: os.close(os.open(name, os.O_RDWR | os.O_TRUNC)),
    os.remove,
    lambda name: os.rename(name, name + ".moved"),
    lambda name: os.replace("a.txt", name),
    lambda name: os.link(name, name + ".link"),
    lambda name: os.symlink(name, name + ".link"),
    lambda name: shutil.rmtree(os.path.dirname(name) or "dir"),
    lambda name: shutil.copyfile("etc/hosts", name),
    lambda name: os.chmod(name, 0o640),
    lambda name: os.utime(name, (1, 1)),
    lambda name: os.truncate(name, 0),
    lambda name: os.mkdir(name + ".d"),
    lambda name: subprocess.run(["touch", name], check=True),
]


@pytest.mark.requirement("KO-3", "KO-3.2a")
@settings(max_examples=40)
@given(
    declared=st.sets(st.sampled_from(NAMES)),
    attempts=st.lists(st.tuples(st.sampled_from(ATTEMPTS), st.sampled_from(NAMES)), min_size=1, max_size=6),
)
def test_whatever_is_attempted_only_what_was_declared_changes(
    declared: set[str], attempts: list[tuple[Callable[[str], Any], str]]
) -> None:
    home = os.getcwd()
    with tempfile.TemporaryDirectory() as base:
        site = Site(Path(base))
        before = site.content()
        try:
            os.chdir(site.root)
            with site.session("CONSUMES /*", *(f"MUTATES /{name}" for name in declared)):
                for attempt, name in attempts:
                    with contextlib.suppress(ScopeViolationError, OSError):
                        attempt(name)
        finally:
            os.chdir(home)
        after = site.content()
        site.workspace.close()
        allowed = {str(site.root / name) for name in declared}
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        folders = {str(Path(path).parent) for path in changed}
        assert changed - allowed - folders <= set()
