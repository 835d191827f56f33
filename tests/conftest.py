"""What every test shares: the project's own pytest plugins."""

from __future__ import annotations

pytest_plugins = [
    "pytester",
    "tests.plugins.examples",
    "tests.plugins.conformance",
    "tests.plugins.backends",
    "tests.plugins.browser",
]
