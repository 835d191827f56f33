"""Leaves the modules of slow tests alone in the run of the quick ones.

They need not be imported, nor rewritten by pytest, to be left out: that is a quarter of all modules, in every worker.
A module is one of slow tests if its ``pytestmark`` begins with ``pytest.mark.slow``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.plugins.conformance import QUICK

_IS_SLOW = re.compile(r"^pytestmark = \[?pytest\.mark\.slow\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out a module of slow tests where only the quick ones run."""
    if config.option.markexpr != QUICK or collection_path.suffix != ".py":
        return None
    return True if _IS_SLOW.search(collection_path.read_text(encoding="utf-8")) else None
