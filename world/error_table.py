"""The table of error codes: ``error_codes.toml`` beside this module."""

from __future__ import annotations

import tomllib
from enum import StrEnum
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["TabledCode", "error_table"]


@cache
def error_table() -> dict[str, dict[str, Any]]:
    """Return meaning, remedy, exit code and HTTP status of each code."""
    return tomllib.loads((files(__package__) / "error_codes.toml").read_text(encoding="utf-8"))


class TabledCode(StrEnum):
    """Base of an enumeration whose members are rows of the table."""

    @property
    def section(self) -> str:
        """The group of codes that it belongs to."""
        return str(error_table()[self]["section"])

    @property
    def text(self) -> str:
        """What it means, as a part of a sentence."""
        return str(error_table()[self]["text"])

    @property
    def remedy(self) -> str | None:
        """What to do; None where its group says so for all."""
        remedy: str | None = error_table()[self].get("remedy")
        return remedy

    @property
    def exit_code(self) -> int:
        """Exit code of ``worldctl``: 1 for the state of things, 2 for wrong input, 3 for a damaged log."""
        return int(error_table()[self]["exit_code"])

    @property
    def http_status(self) -> int:
        """Status of an HTTP answer with this code (RFC 9110)."""
        return int(error_table()[self]["http_status"])
