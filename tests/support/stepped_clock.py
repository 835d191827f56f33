"""Processes whose wall clock is off while their boot clock is right, as after a step of the machine's clock.

libfaketime sets the clock of a process, so the whole process sees it, with what the interpreter and SQLite ask for
themselves. Where it is not installed (Debian: ``libfaketime``), the realm in the process is given a clock that is off.
"""

from __future__ import annotations

import glob
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from tests.support.patience import PATIENCE_S

ROOT: Final = Path(__file__).resolve().parents[2]

LIBRARY: Final = next(iter(sorted(glob.glob("/usr/lib/*/faketime/libfaketimeMT.so.1"))), None)
"""The library for programs with threads; None where it is not installed."""


def act_off(address: str, off_ms: int, *what: str) -> dict[str, Any]:
    """Run ``tests.pipeline.clock_child`` with a clock that is off by whole seconds, and return what it printed."""
    environment, own = dict(os.environ), off_ms
    if LIBRARY is not None:
        environment |= {"LD_PRELOAD": LIBRARY, "FAKETIME": f"{off_ms // 1000:+d}", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        own = 0
    command = [sys.executable, "-m", "tests.pipeline.clock_child", address, str(own), *what]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=PATIENCE_S
    )
    told: dict[str, Any] = json.loads(done.stdout)
    return told
