"""What every test shares: the project's own pytest plugins."""

from __future__ import annotations

import gc
import signal

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Leave what the collection made, which is kept to the end, out of every later run of the garbage collector."""
    gc.collect()
    gc.freeze()


pytest_plugins = [
    "pytester",
    "tests.plugins.examples",
    "tests.plugins.conformance",
    "tests.plugins.backends",
    "tests.plugins.browser",
    "tests.plugins.npm_programs",
    "tests.plugins.tiers",
]
