"""The handler of the letters of ``tests.cli.mailroom``, for tests of ``worldctl worker``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from worldprotocol import handler


@handler("mail.send", time_limit_ms=600_000)
def send(params: Any, call: Any) -> Any:
    """Send a letter; while there is a named pipe ``gate``, wait until somebody writes to it."""
    if Path("gate").exists():
        os.write(1, b"handed over\n")
        Path("gate").read_text()
    return f"to {params['to']}"
