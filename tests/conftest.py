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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, object, object]:
    """Collect no garbage while pytest parses the source of a test that failed.

    Finalizers of objects that tests left would run amid the parser, which CPython before 3.11.8 ends with
    ``SystemError: AST constructor recursion depth mismatch``; the process of the tests dies of it.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return (yield)
    finally:
        if was_enabled:
            gc.enable()


@pytest.fixture
def pytester(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """Let the runs of projects import, of the plugins that are installed, those alone that tests use.

    The others take two seconds of each run: within this process, too, where pytester forgets what a run imported.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_PLUGINS", "xdist.plugin,_hypothesis_pytestplugin,worldprotocol.pytest_plugin")
    return pytester


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
