"""What every test shares: the project's own pytest plugins."""

from __future__ import annotations

import gc
import signal
from collections.abc import Generator

import pytest

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Leave what the collection makes, which is kept to the end, out of every run of the garbage collector."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


pytest_plugins = [
    "pytester",
    "tests.plugins.forms",
    "tests.plugins.examples",
    "tests.plugins.conformance",
    "tests.plugins.backends",
    "tests.plugins.browser",
    "tests.plugins.npm_programs",
    "tests.plugins.importing",
    "tests.plugins.tiers",
]
