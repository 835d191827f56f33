"""Checking a stored log against itself and against tree heads that were saved elsewhere.

One pass over the stored rows recomputes every leaf from its content and the tree from the leaves, and
compares it with every tree head stored on the way, with the stored chunks, and with the heads given. What it
finds is named with its position, or with the two heads before and after it:

- ``EVENT_CHANGED``: content and leaf hash disagree; ``EVENT_MISSING``: a gap; ``EVENT_UNSEALED``: after the
  last head.
- ``HEAD_CHANGED``: one stored head is wrong while later ones agree with the events.
- ``HEAD_MISSING``: a stored head names the one before it, which is not there.
- ``TREE_MISMATCH``: from some head on, the events do not give the stored roots: changed together with their
  leaves, reordered or replaced, after the last head that agrees.
- ``LOG_TRUNCATED``: a head covers more events than there are.
- ``SAVED_HEAD_MISMATCH``: the events are not those under a head that was given.
- ``STREAM_DISORDER``, ``CHUNK_CHANGED``; ``STORAGE_DAMAGED`` where the rows cannot be read.
- ``EVENT_STRAY``: something in the store belongs to a log that the store does not list (position 0).
- ``SCHEMA_DIFFERS``: the tables are not as this program makes them (``world.audit.verify``; position 0).
- ``CLOCK_MISSING``: the clocks of the last commit are not in a SQLite store (position 0).
- ``FILE_DAMAGED``: what SQLite's own check of the file complains about (position 0; nothing on a server).

A person that can rewrite the whole store can make it agree with itself; only heads kept elsewhere show
that.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.log.log import READ_BATCH, EventLog, next_limit
from world.log.merkle import CHUNK_LEAVES, Chunk, Frontier
from world.log.migration import unlisted_keys
from world.log.sql.queries import statements
from world.log.sql.statement import LOG_SHIFT
from world.log.store import Row
from world.log.values import NO_EVENT, LogFinding, TreeHead, event_leaf
from world.log.views import Progress

MAX_FINDINGS: Final = 100
"""Findings reported at most; a log with that many is beyond listing them."""

_END: Final = TreeHead(1 << 62, b"")
"""More than the number of any log."""

_MEND: Final = "where the events are sound, `worldctl doctor --rebuild` makes the chunks again"
_NO_CHUNK: Final = (1 << 62, b"", b"")


def verify_tree(
    log: EventLog,
    against: TreeHead | Sequence[TreeHead] | None = None,
    progress: Progress | None = None,
    visit: Callable[[Sequence[Row]], None] | None = None,
    is_removed: Callable[[int], bool] | None = None,
    *,
    size: int | None = None,
) -> list[LogFinding]:
    """Check all of a log; an empty list means that it is whole.

    Args:
        log: the log; others may append to it meanwhile.
        against: tree heads saved elsewhere.
        progress: called after every batch with events checked and events in all.
        visit: called with every batch of stored rows (position, stream, version, topic, schema version, state,
            leaf, log id), so that others can look at the events in the same pass.
        is_removed: returns whether the content of the event at a position may have been removed. The leaf hash of an
            event without content is then taken as it is stored, and compared by the tree heads.
        size: size of the stored tree head up to which to check; None is the newest one.

    Returns:
        The findings, at most ``MAX_FINDINGS``, in order of position.

    Source: RFC 9162 section 2.1; design section 2.
    """
    saved = [against] if isinstance(against, TreeHead) else sorted(against or (), key=lambda head: head.size)
    audit = _Audit(log, saved, is_removed or _is_never_removed, log.stored_head().size if size is None else size)
    try:
        audit.run(progress, visit)
    except DamagedLogError as error:
        audit.add(ErrorCode.STORAGE_DAMAGED, audit.position + 1, error.message)
    return sorted(audit.findings, key=lambda finding: finding.position)


def verify_storage(log: EventLog) -> list[LogFinding]:
    """Check the database as a whole: for rows that belong to no log, and whether its pages and indexes are sound.

    For the latter the database itself is asked; see ``Store.problems``.
    """
    return [
        *_strays(log),
        *_lost_clocks(log),
        *(
            LogFinding(ErrorCode.FILE_DAMAGED, 0, f"The database file is damaged: {' '.join(fault.split())}.")
            for fault in log.audit_storage(MAX_FINDINGS)
        ),
    ]


def _lost_clocks(log: EventLog) -> Iterator[LogFinding]:
    """Find deleted clocks of the last commit, without which the next one is compared with the wall clock alone."""
    with suppress(DamagedLogError, TypeError):  # the tree's pass, or opening the log, has said so
        if log.lacks_clocks():
            yield LogFinding(
                ErrorCode.CLOCK_MISSING,
                0,
                "The clocks of the last commit are not in the table wp_clock: the row, or the table, was deleted or "
                "changed. The next commit stores its own; check before that this machine's clock is right.",
            )


def _strays(log: EventLog) -> Iterator[LogFinding]:
    """Find events and tree heads with numbers that no log of the store has; one of each number is enough."""
    sql = statements(log.backend)
    try:
        for after, upto in unlisted_keys(number for number, _ in log.query(sql.read_logs)):
            for statement in (sql.audit, sql.heads):
                for key, *_ in log.query(statement, base=0, low=after, high=upto, count=1):
                    stray = key >> LOG_SHIFT
                    yield LogFinding(
                        ErrorCode.EVENT_STRAY,
                        0,
                        f"The store holds events or tree heads of a log number {stray}, and has no such log.",
                        {"number": stray},
                    )
    except (DamagedLogError, TypeError):
        return  # the tree's pass, or opening the log, has said so


class _Audit:
    """The state of one pass."""

    def __init__(self, log: EventLog, saved: Sequence[TreeHead], is_removed: Callable[[int], bool], size: int) -> None:
        self._is_removed = is_removed
        self.findings: list[LogFinding] = []
        self.position = 0
        self._log = log
        self._end = size
        self._frontier = Frontier()
        self._pending: list[bytes] = []
        self._other: Frontier | None = None  # the tree with recomputed leaves, where they differ from stored ones
        self._other_pending: list[bytes] = []
        self._whole = True  # no leaf is missing so far
        self._good = TreeHead(0, b"")
        self._suspects: list[TreeHead] = []
        self._heads = log.heads(0, self._end)
        self._next = next(self._heads, _END)
        self._saved = list(saved)
        self._saved_good = 0
        self._chunks = _chunk_rows(log)
        self._chunk = next(self._chunks, _NO_CHUNK)

    def add(self, code: ErrorCode, position: int, message: str, **details: Any) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(LogFinding(code, position, message, details))

    def run(self, progress: Progress | None, visit: Callable[[Sequence[Row]], None] | None = None) -> None:
        self._check_saved()
        limit = 128
        while self.position < self._end:
            rows = self._log.audit_rows(self.position, limit)
            self._take(rows)
            if visit is not None:
                visit(rows if not rows or rows[-1][0] <= self._end else [r for r in rows if r[0] <= self._end])
            if len(rows) < limit or rows[-1][0] > self._end:
                break
            limit = next_limit(rows, READ_BATCH)
            if progress is not None:
                progress(self.position, self._end)
        self._finish()
        if progress is not None:
            progress(self._end, self._end)

    def _take(self, rows: Sequence[Row]) -> None:
        """Take in stored rows; one that is as it must be, and at which nothing is to be compared, passes at once."""
        log_id, end, expected = self._log.log_id, self._end, self.position + 1
        is_sound, stop, pending = self._is_sound(), self._next_stop(), self._pending
        for position, stream, version, topic, schema_version, state, leaf, of_log in rows:
            if position > end:
                break
            try:
                found = event_leaf(stream, version, topic, schema_version, state)
            except NO_EVENT:
                found = b""  # equals no other
            if not state and isinstance(leaf, bytes) and self._is_removed(position):
                found = leaf
            if is_sound and found == leaf and expected == position < stop and of_log == log_id:
                pending.append(found)
            else:
                self.position = expected - 1
                self._look_at(position, leaf, found, is_ours=of_log == log_id)
                is_sound, stop, pending = self._is_sound(), self._next_stop(), self._pending
            expected = position + 1
        self.position = expected - 1

    def _is_sound(self) -> bool:
        return self._whole and self._other is None

    def _next_stop(self) -> int:
        """Return the position of the next tree head to compare with."""
        return min(self._next.size, self._saved[0].size if self._saved else _END.size)

    def _look_at(self, position: int, leaf: Any, expected: bytes, *, is_ours: bool) -> None:
        """Take in one row with the leaf that its content has."""
        if position != self.position + 1:
            self._miss(self.position + 1, position - 1)
        self.position = position
        if expected != leaf or not is_ours:
            self.add(
                ErrorCode.EVENT_CHANGED,
                position,
                f"Event {position} was changed: its content and its leaf hash disagree.",
                stored=leaf.hex() if isinstance(leaf, bytes) else repr(leaf),
                computed=expected.hex(),
            )
            if self._other is None:
                self._other, self._other_pending = self._frontier, list(self._pending)
        if self._whole:
            self._grow(leaf if isinstance(leaf, bytes) else expected, expected)

    def _grow(self, leaf: bytes, expected: bytes) -> None:
        self._pending.append(leaf)
        if self._other is not None:
            self._other_pending.append(expected)
        while self._next.size < self.position:  # a head inside a commit that is not there
            self._next = next(self._heads, _END)
        if self._next.size == self.position:
            self._check_head(self._next)
            self._next = next(self._heads, _END)
        if self._saved and self._saved[0].size == self.position:
            self._check_saved()

    def _settle(self) -> None:
        """Bring the tree up to the position."""
        filled: list[Chunk] = []
        self._frontier = self._frontier.extended(self._pending, filled)
        self._pending = []
        if self._other is not None:
            self._other = self._other.extended(self._other_pending)
            self._other_pending = []
        for chunk in filled:
            while self._chunk[0] < chunk.index:
                self._chunk = next(self._chunks, _NO_CHUNK)
            if self._chunk != (chunk.index, chunk.root, chunk.frontier.to_bytes()) and not self._suspects:
                first = chunk.index * CHUNK_LEAVES + 1
                self.add(
                    ErrorCode.CHUNK_CHANGED,
                    first,
                    f"Chunk {chunk.index} of the stored tree is not that of its events; {_MEND}.",
                )

    def _check_head(self, head: TreeHead) -> None:
        self._settle()
        if self._frontier.root() != head.root:
            if self._other is None or self._other.root() != head.root:
                self._suspects.append(head)
                return
            self._frontier, self._other = self._other, None  # the leaf hashes were changed, not the events
        for suspect in self._suspects:
            self.add(
                ErrorCode.HEAD_CHANGED, suspect.size, f"The tree head stored at {suspect.size} events was changed."
            )
        self._suspects, self._good = [], head

    def _check_saved(self) -> None:
        """Compare the tree with the heads given for this size."""
        self._settle()
        while self._saved and self._saved[0].size == self.position:
            head = self._saved.pop(0)
            roots = [self._frontier.root()] + ([self._other.root()] if self._other is not None else [])
            if head.root in roots:
                self._saved_good = head.size
                continue
            self.add(
                ErrorCode.SAVED_HEAD_MISMATCH,
                self._saved_good + 1,
                f"The first {head.size} events are not those under the saved tree head {head}: the log was "
                f"rewritten after event {self._saved_good}.",
                size=head.size,
                saved=head.root_hex,
                computed=roots[0].hex(),
            )

    def _miss(self, first: int, last: int) -> None:
        what = f"Event {first} is" if first == last else f"Events {first} to {last} are"
        self.add(ErrorCode.EVENT_MISSING, first, f"{what} missing.", first=first, last=last)
        self._whole = False

    def _finish(self) -> None:
        if self.position < self._end:
            self.add(
                ErrorCode.LOG_TRUNCATED,
                self.position + 1,
                f"The log ends at event {self.position}; its tree head covers {self._end}.",
                events=self.position,
                head=self._end,
            )
        if self._whole:
            self._report_suspects()
        for head in self._saved:
            self._report_unreached(head)
        self._check_unsealed()
        self._check_links()
        self._check_chunks_beyond()
        for position, stream, version, before in self._log.audit_streams(MAX_FINDINGS):
            self.add(
                ErrorCode.STREAM_DISORDER,
                position,
                f"Event {position} is version {version} of the stream {stream} and follows version {before}.",
                stream=stream,
                version=version,
                before=before,
            )

    def _check_links(self) -> None:
        """Compare the head that each stored head names as the one before it with the one that is there."""
        for size, before, stored in self._log.audit_heads(MAX_FINDINGS):
            if before > stored:
                text = f"The tree head of {before} events is missing: the one of {size} names it as the one before."
                self.add(ErrorCode.HEAD_MISSING, before, text, head=before, next=size)
            else:
                text = f"The tree head stored at {stored} events is of no commit: the one of {size} follows {before}."
                self.add(ErrorCode.HEAD_CHANGED, stored, text)

    def _check_chunks_beyond(self) -> None:
        """Report stored chunks of events that are not there: the log could not grow to where they stand."""
        beyond = [
            index
            for index, *_ in itertools.chain([self._chunk], self._chunks)
            if self._end // CHUNK_LEAVES <= index != _NO_CHUNK[0]
        ]
        whole = self._log.stored_head().size // CHUNK_LEAVES  # others may have appended them meanwhile
        for index in beyond:
            if index >= whole:
                self.add(
                    ErrorCode.CHUNK_CHANGED,
                    index * CHUNK_LEAVES + 1,
                    f"Chunk {index} of the stored tree covers events that are not there; {_MEND}.",
                )

    def _report_suspects(self) -> None:
        if self._suspects:
            bad = self._suspects[0]
            self.add(
                ErrorCode.TREE_MISMATCH,
                self._good.size + 1,
                f"The events after {self._good.size} do not give the tree head of {bad.size}: an event "
                f"from {self._good.size + 1} to {bad.size} was changed, replaced or moved.",
                good=self._good.size,
                bad=bad.size,
            )

    def _report_unreached(self, head: TreeHead) -> None:
        """Report a saved head that could not be compared, since events before it are missing."""
        if head.size > self.position:
            self.add(
                ErrorCode.LOG_TRUNCATED,
                self.position + 1,
                f"A saved tree head covers {head.size} events; the log has {self.position}.",
                events=self.position,
                head=head.size,
            )

    def _check_unsealed(self) -> None:
        known = self._log.stored_head().size
        rows = self._log.audit_rows(known, 1)
        if rows and rows[0][0] > self._log.stored_head().size:
            self.add(
                ErrorCode.EVENT_UNSEALED,
                rows[0][0],
                f"Event {rows[0][0]} is after the last tree head: it was not written by a commit.",
            )


def _is_never_removed(_position: int) -> bool:
    return False


def _chunk_rows(log: EventLog) -> Iterator[tuple[int, bytes, bytes]]:
    after = -1
    while rows := log.audit_chunks(after, READ_BATCH):
        yield from ((index, root, frontier) for index, root, frontier in rows)
        after = rows[-1][0]
