"""Counts what SQLite does for the statements of this process: steps of its virtual machine, so that no time decides."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import pytest

EACH: Final = 10
"""Steps of one statement between two counts."""

WHOLE: Final = re.compile(r"PRAGMA (integrity|quick)_check|SELECT count\(\*\)(?: AS \w+)?\s+FROM \w+\s*$")
"""Statements that read a whole file or table in one step."""


class Steps:
    """The number of steps since the last look."""

    def __init__(self) -> None:
        self._next = itertools.count(1).__next__  # atomic, whichever threads count
        self._seen = 0
        self.whole: list[str] = []

    def note(self) -> int:
        """Count ``EACH`` steps; SQLite goes on where it is 0."""
        self._next()
        return 0

    def trace(self, sql: str) -> None:
        """Keep a statement that reads a whole file or table in one step."""
        if WHOLE.match(sql) and "sqlite_schema" not in sql:
            self.whole.append(sql)

    def taken(self) -> int:
        """Return the steps since the last call."""
        now = self._next()
        steps, self._seen = (now - 1 - self._seen) * EACH, now
        return steps


@contextmanager
def counted(patch: pytest.MonkeyPatch) -> Iterator[Steps]:
    """Count the steps of every connection that is opened meanwhile, in all threads."""
    steps, connect = Steps(), sqlite3.connect

    def counting(*arguments: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*arguments, **named)
        connection.set_progress_handler(steps.note, EACH)
        connection.set_trace_callback(steps.trace)
        return connection

    with patch.context() as patched:
        patched.setattr(sqlite3, "connect", counting)
        yield steps
