"""What a salvage found, kept in a temporary database until it can be judged in the order of the log.

Rows come in any order, more than once, and contradict each other; nothing is thrown away before the tree was asked.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final, Self

from world.errors import RefusedError
from world.log import LoggedEvent, TreeHead, event_leaf
from world.log.merkle import HASH_BYTES
from worldprotocol.export.jsonl_lines import event_line

__all__ = ["EventVersion", "ScratchStore", "event_of"]

_TABLES: Final = """
CREATE TABLE event (log INTEGER, position INTEGER, stored BLOB, computed BLOB, line BLOB,
                    UNIQUE (log, position, stored, computed));
CREATE TABLE head (log INTEGER, size INTEGER, root BLOB, saved INTEGER, UNIQUE (log, size, root, saved));
CREATE TABLE chunk (log INTEGER, number INTEGER, root BLOB, UNIQUE (log, number, root));
CREATE TABLE name (log INTEGER, name TEXT, UNIQUE (log, name));
"""
_MAX_POSITION: Final = 1 << 40
_MOST: Final = 8
"""Most versions of one event that are looked at."""


@dataclass(frozen=True, slots=True)
class EventVersion:
    """One version of an event.

    Args:
        position: the position that it states.
        stored: the leaf hash beside it; None where that is none.
        computed: the leaf hash of its content; None where there is no content.
        line: the event as a line of an export; None where there is no content.
    """

    position: int
    stored: bytes | None
    computed: bytes | None
    line: bytes | None

    @property
    def leaves(self) -> tuple[bytes, ...]:
        """The leaf hashes that the tree may have for it; the promised one is first."""
        return tuple(dict.fromkeys(leaf for leaf in (self.stored, self.computed) if leaf is not None))


def event_of(position: int, *columns: Any) -> LoggedEvent | None:
    """Return an event from its columns from stream to state, without a leaf hash; None where they are no texts."""
    stream, version, topic, schema_version, state = columns
    try:
        return LoggedEvent(position, stream.decode(), version, topic.decode(), schema_version, bytes(state), b"")
    except UnicodeDecodeError:
        return None


class ScratchStore:
    """Events, tree heads and roots of chunks of any number of logs."""

    def __init__(self) -> None:
        """Begin with nothing, in a file that vanishes with the process."""
        self._database = sqlite3.connect("", isolation_level=None)
        self._database.executescript(_TABLES)
        self._database.execute("BEGIN")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def add_event(self, log: int, position: int, content: LoggedEvent | None, stored: bytes | None) -> None:
        """Take in an event as it was found; ``content`` is None where it cannot be read."""
        if not 0 < position < _MAX_POSITION:
            return
        line, computed = None, None
        if content is not None:
            try:
                computed = event_leaf(
                    content.stream, content.version, content.topic, content.schema_version, content.state
                )
                line = event_line(LoggedEvent(*_parts(content), computed))
            except (RefusedError, UnicodeError, TypeError, AttributeError):
                line, computed = None, None  # columns of a damaged row may hold anything
        if stored is not None and len(stored) != HASH_BYTES:
            stored = None
        if stored is not None or line is not None:
            row = (log, position, stored or b"", computed or b"", line)
            self._database.execute("INSERT OR IGNORE INTO event VALUES (?, ?, ?, ?, ?)", row)

    def add_head(self, log: int, head: TreeHead, *, saved: bool = False) -> None:
        """Take in a tree head, stored in the log or ``saved`` elsewhere."""
        if 0 < head.size < _MAX_POSITION:
            row = (log, head.size, head.root, saved)
            self._database.execute("INSERT OR IGNORE INTO head VALUES (?, ?, ?, ?)", row)

    def add_chunk(self, log: int, number: int, root: bytes) -> None:
        """Take in the stored root of a chunk of the tree."""
        if 0 <= number < _MAX_POSITION:
            self._database.execute("INSERT OR IGNORE INTO chunk VALUES (?, ?, ?)", (log, number, root))

    def add_name(self, log: int, name: str) -> None:
        """Take in that a log seems to have a name."""
        self._database.execute("INSERT OR IGNORE INTO name VALUES (?, ?)", (log, name))

    def logs(self) -> dict[int, int]:
        """Return the ids of the logs of which sound events were found, with how many."""
        counts = self._database.execute("SELECT log, count(*) FROM event WHERE stored = computed GROUP BY log")
        return dict(counts.fetchall())

    def named(self, name: str) -> set[int]:
        """Return the ids of the logs that seem to have a name."""
        return {log for (log,) in self._database.execute("SELECT log FROM name WHERE name = ?", (name,))}

    def events(self, log: int, after: int = 0, upto: int = _MAX_POSITION) -> Iterator[tuple[int, list[EventVersion]]]:
        """Yield every position in (after, upto] of which something is known, with all that was found there."""
        rows = self._database.execute(
            "SELECT position, stored, computed, line FROM event WHERE log = ? AND position > ? AND position <= ? "
            "ORDER BY position, stored = computed DESC, rowid",
            (log, after, upto),
        )
        found = (
            EventVersion(position, stored or None, computed or None, line) for position, stored, computed, line in rows
        )
        for position, versions in groupby(found, lambda one: one.position):
            yield position, list(versions)[:_MOST]

    def heads(self, log: int, after: int = 0, upto: int = _MAX_POSITION) -> list[tuple[TreeHead, bool]]:
        """Return the tree heads of sizes in (after, upto], in order, each with whether it was saved elsewhere."""
        rows = self._database.execute(
            "SELECT size, root, saved FROM head WHERE log = ? AND size > ? AND size <= ? ORDER BY size, saved",
            (log, after, upto),
        )
        return [(TreeHead(size, root), bool(saved)) for size, root, saved in rows]

    def count_heads(self, log: int) -> int:
        """Return how many tree heads there are."""
        (count,) = self._database.execute("SELECT count(*) FROM head WHERE log = ?", (log,)).fetchone()
        return int(count)

    def chunk(self, log: int, number: int) -> list[bytes]:
        """Return the roots that were found stored for a chunk."""
        rows = self._database.execute("SELECT root FROM chunk WHERE log = ? AND number = ?", (log, number))
        return [root for (root,) in rows.fetchall()[:_MOST]]

    def extent(self, log: int) -> int:
        """Return how many events there should be: as many as the largest tree head covers, else as were found."""
        [(size,)] = self._database.execute("SELECT max(size) FROM head WHERE log = ?", (log,)).fetchall()
        return int(size or self.last(log))

    def last(self, log: int) -> int:
        """Return the last position of which something is known."""
        [(position,)] = self._database.execute("SELECT max(position) FROM event WHERE log = ?", (log,)).fetchall()
        return int(position or 0)


def _parts(event: LoggedEvent) -> tuple[int, str, int, str, int, bytes]:
    return event.position, event.stream, event.version, event.topic, event.schema_version, event.state
