"""What every test shares: the project's own pytest plugins."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and child processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "pytester",
    "tests.plugins.examples",
    "tests.plugins.conformance",
    "tests.plugins.backends",
    "tests.plugins.browser",
]
