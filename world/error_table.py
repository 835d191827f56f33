"""The table of error codes: ``error_codes.toml`` beside this module."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["error_table"]


@cache
def error_table() -> dict[str, dict[str, Any]]:
    """Return meaning, remedy, exit code and HTTP status of each code."""
    return tomllib.loads((files(__package__) / "error_codes.toml").read_text(encoding="utf-8"))
