"""Leaves out the tests of programs of npm where these are not installed.

``make npm-packages`` installs them; ``WORLDPROTOCOL_NPM=required`` makes it an error that they are not there.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.npm.install import is_installed, is_required

NEED_ONE = ("test_killed_agents.py", "test_mcp_conformance_suite.py")


def pytest_report_header() -> str:
    """Say whether the programs of npm are there."""
    if is_installed():
        return "npm: installed"
    if is_required():
        raise pytest.UsageError("WORLDPROTOCOL_NPM=required, and `make npm-packages` has not installed the programs.")
    return "npm: not installed, so tests of these programs are left out; `make npm-packages` installs them"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what needs a program of npm where there is none."""
    return True if collection_path.name in NEED_ONE and not is_installed() else None
