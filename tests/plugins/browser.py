"""The browser in which pages are opened, where the machine has one: Chromium or Chrome, found by name.

``WORLDPROTOCOL_BROWSER`` names another one; ``required`` there makes it an error that none is found, as in continuous
integration. Where there is none, the tests that need it (``test_in_a_browser*.py``) are not collected, and the first
lines of the run say so; the same pages are read by a parser in any case.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
NEEDS_ONE = "test_in_a_browser"
ALONE = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-component-update",
    "--disable-background-networking",
    "--no-first-run",
)


def installed() -> str | None:
    """Return the path of the browser; None where there is none.

    Raises:
        pytest.UsageError: one is required, or named, and is not there.
    """
    wanted = os.environ.get("WORLDPROTOCOL_BROWSER", "")
    names = NAMES if wanted in ("", "required") else (wanted,)
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None and wanted:
        raise pytest.UsageError(f"WORLDPROTOCOL_BROWSER={wanted}, and there is none of {', '.join(names)}.")
    return found


def pytest_report_header() -> str:
    """Say which browser opens the pages."""
    found = installed()
    return f"browser: {found}" if found else "browser: none, so pages are parsed and not opened; see tests/plugins"


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave out what needs a browser where there is none."""
    return True if collection_path.name.startswith(NEEDS_ONE) and installed() is None else None


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Start the browser, without a window; its event loop ends with the module, so that others may run theirs."""
    from playwright.sync_api import sync_playwright

    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses to run as root otherwise
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=installed(), args=[*ALONE, *as_root])
        yield started
        started.close()
