"""Functions that tests run in a process of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any


def count(numbers: list[int]) -> int:
    return sum(numbers)


async def count_later(numbers: list[int]) -> int:
    return sum(numbers)


def write(text: str) -> int:
    return Path("src/a.py").write_text(text)


def pid(_: Any) -> int:
    return os.getpid()
