"""The Merkle tree as a store keeps it: heads, roots at any size, and proofs from stored hashes.

A proof reads at most two chunks of leaf hashes and, for each level of the tree, as many stored chunks as the level is
high: its cost grows with the square of the logarithm of the tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError, RefusedError
from world.log.merkle import (
    CHUNK_BITS,
    CHUNK_LEAVES,
    EMPTY_ROOT,
    Chunk,
    Frontier,
    consistency_proof,
    inclusion_proof,
    node_hash,
    verify_inclusion,
)
from world.log.sql.queries import CHUNKS_AT_ONCE
from world.log.store import Row, Store, check_covered, key_range, newest
from world.log.values import TreeHead

_ALL: Final = 1 << 62
_LEAVES_AT_ONCE: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class InclusionProof:
    """Proof that an event is in the tree of a head (RFC 9162 section 2.1.3).

    Args:
        position: the event's position; its leaf has index ``position - 1``.
        leaf: the event's leaf hash.
        head: the tree.
        path: hashes from the leaf's sibling up.
    """

    position: int
    leaf: bytes
    head: TreeHead
    path: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class ConsistencyProof:
    """Proof that the tree of one head begins the tree of another (RFC 9162 section 2.1.4)."""

    first: TreeHead
    second: TreeHead
    path: tuple[bytes, ...]


class StoredTree:
    """The tree of one log, as committed."""

    def __init__(self, store: Store, log_id: int) -> None:
        """Read the tree of a log in a store."""
        self._store = store
        self._log_id = log_id
        self._covered: tuple[list[Row], TreeHead] | None = None  # rows of the newest head, which covers all events

    def head(self) -> TreeHead:
        """Return the newest tree head.

        Raises:
            DamagedLogError: ``EVENT_UNSEALED`` or ``LOG_GAP`` when it does not cover exactly the events there are.
        """
        rows, covered = self._store.newest_head(self._log_id), self._covered
        if covered is not None and covered[0] is rows:
            return covered[1]
        head, last = _stored_head(rows)
        check_covered(head.size, last)
        self._covered = rows, head
        return head

    def stored_head(self) -> tuple[TreeHead, int]:
        """Return the newest tree head as it is stored, and the position of the last event."""
        return _stored_head(self._store.newest_head(self._log_id))

    def frontier(self, head: TreeHead) -> Frontier:
        """Return the tree of a stored head, ready to grow, from the last chunk before it on.

        Raises:
            DamagedLogError: ``TREE_DAMAGED`` when leaves and head contradict each other.
        """
        last = key_range(self._log_id, -1, head.size // CHUNK_LEAVES - 1)
        chunks = self._store.select(self._store.sql.last_chunk, **last)
        frontier = Frontier()
        if chunks:
            index, _, nodes = chunks[0]
            frontier = Frontier.from_bytes((index + 1) * CHUNK_LEAVES, nodes)
        frontier = frontier.extended(self._leaves(frontier.size, head.size))
        self._check(TreeHead(head.size, frontier.root()), head)
        return frontier

    def mend_chunks(self) -> bool:
        """Make the stored chunks again from the leaf hashes, under the log's lock, where they are not theirs.

        Nothing changes where the leaf hashes do not give the newest tree head, or cannot be read: then the events are
        damaged, and a verification says where.

        Returns:
            Whether chunks were stored.
        """
        store, head = self._store, self.stored_head()[0]
        opening = store.begin(self._log_id, head.size)
        try:
            stored = self._chunks(0, _ALL)
            made = self._made_chunks(TreeHead(opening.size, EMPTY_ROOT if opening.root is None else opening.root))
            if made is None or made == stored:
                return False
            cursor, span = store.cursor(), key_range(self._log_id, -1)
            cursor.execute(store.sql.clear_chunks.sql, store.sql.clear_chunks.bind(**span))
            rows = [(span["base"] + index, root, nodes) for index, root, nodes in made]
            if rows:
                cursor.executemany(store.sql.insert_chunk.sql, rows)
            store.commit(None)
            return True
        except Exception as error:
            ours = store.translate(error)
            if ours is error:
                raise
            raise ours from error
        finally:
            store.end()

    def _made_chunks(self, head: TreeHead) -> list[Row] | None:
        """Return the rows of all chunks as the leaf hashes give them; None where those do not give the head."""
        frontier, filled = Frontier(), list[Chunk]()
        try:
            for after in range(0, head.size, _LEAVES_AT_ONCE):
                frontier = frontier.extended(self._leaves(after, min(head.size, after + _LEAVES_AT_ONCE)), filled)
        except DamagedLogError:
            return None
        if frontier.root() != head.root:
            return None
        return [(one.index, one.root, one.frontier.to_bytes()) for one in filled]

    def _chunks(self, first: int, count: int) -> list[Row]:
        """Return the stored rows of so many chunks at most, from one on."""
        span = key_range(self._log_id, first - 1)
        return [tuple(row) for row in self._store.select(self._store.sql.chunks, count=count, **span)]

    def root_at(self, size: int) -> TreeHead:
        """Return the head of the tree over the first ``size`` events.

        Raises:
            RefusedError: ``NO_SUCH_EVENT`` when the log is shorter.
            DamagedLogError: ``TREE_DAMAGED`` when it is not the head stored for that size.
        """
        self._check_size(size)
        computed = TreeHead(size, self._subtree(0, size))
        stored = self._store.select(self._store.sql.heads, count=1, **key_range(self._log_id, size - 1, size))
        if stored:
            self._check(computed, TreeHead(*stored[0]))
        return computed

    def prove_inclusion(self, position: int, size: int) -> InclusionProof:
        """Prove that an event is in the log as it was with ``size`` events; see ``EventLog``."""
        head = self.root_at(size)
        if not 1 <= position <= size:
            raise _no_such_event(f"There is no event {position} among the first {size}.", position=position)
        [leaf] = self._leaves(position - 1, position)
        path = tuple(inclusion_proof(position - 1, size, self._subtree))
        if not verify_inclusion(leaf, position - 1, size, path, head.root):
            raise _damaged(f"The stored tree does not hold event {position}; run `worldctl verify`.", size)
        return InclusionProof(position, leaf, head, path)

    def prove_consistency(self, first: int, second: int) -> ConsistencyProof:
        """Prove that the log with ``first`` events begins the log with ``second``; see ``EventLog``."""
        self._check_size(max(first, second))
        if not 0 <= first <= second:
            raise RefusedError(ErrorCode.INVALID_INPUT, f"A log of {first} events does not begin one of {second}.")
        path = tuple(consistency_proof(first, second, self._subtree))
        return ConsistencyProof(self.root_at(first), self.root_at(second), path)

    def tile(self, level: int, index: int, width: int) -> bytes:
        """Return hashes of complete subtrees in a row; see ``EventLog``."""
        first = index * CHUNK_LEAVES
        if self.head().size // CHUNK_LEAVES**level < first + width or not 1 <= width <= CHUNK_LEAVES:
            raise _no_such_event(f"The tree has no tile {index} of width {width} at level {level}.", level=level)
        if level == 0:
            return b"".join(self._leaves(first, first + width))
        bits = CHUNK_BITS * (level - 1)  # levels of chunks below one hash
        return b"".join(self._complete([(at << bits, bits) for at in range(first, first + width)]))

    def _check(self, computed: TreeHead, stored: TreeHead) -> None:
        if computed != stored:
            raise _damaged(
                f"The tree head stored at {stored.size} events does not follow from the stored tree; run `worldctl "
                "verify`.",
                stored.size,
            )

    def _check_size(self, size: int) -> None:
        found = self.head().size
        if not 0 <= size <= found:
            raise _no_such_event(f"The log has {found} events, not {size}.", size=size, found=found)

    def _subtree(self, start: int, stop: int) -> bytes:
        """Return the root over a range of leaves, from stored chunks where they fill it."""
        frontier = Frontier()
        if start % CHUNK_LEAVES == 0 and stop - start >= CHUNK_LEAVES:
            first, count = start // CHUNK_LEAVES, (stop - start) // CHUNK_LEAVES
            nodes = self._complete(list(_parts(first, count)))
            frontier = Frontier(count * CHUNK_LEAVES, tuple(nodes))
        return frontier.extended(self._leaves(start + frontier.size, stop)).root()

    def _complete(self, parts: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the roots of complete subtrees, from few stored chunks.

        The tree that a chunk ended has, as its last node, the largest complete subtree that ends there. A subtree that
        is the right half of a larger one is made of its own halves, so that each takes as many chunks as it has levels.

        Args:
            parts: of each the first chunk and the level: it has ``2 ** level`` chunks and begins at a multiple of it.

        Raises:
            DamagedLogError: ``TREE_DAMAGED``.
        """
        wanted = sorted({index for first, level in parts for index, _ in _pieces(first, level)})
        stored: dict[int, Row] = {}
        base = key_range(self._log_id)["base"]
        for start in range(0, len(wanted), CHUNKS_AT_ONCE):
            some = wanted[start : start + CHUNKS_AT_ONCE]
            keys = {f"key{n}": base + some[min(n, len(some) - 1)] for n in range(CHUNKS_AT_ONCE)}
            stored |= {row[0]: row for row in self._store.select(self._store.sql.chunks_at, base=base, **keys)}
        if len(stored) != len(wanted):
            size = CHUNK_LEAVES * max(first + (1 << level) for first, level in parts)
            raise _damaged("Stored parts of the tree are missing; `worldctl doctor --rebuild` makes them again.", size)
        return [_joined([_node(stored[at], level) for at, level in _pieces(*part)]) for part in parts]

    def _leaves(self, after: int, upto: int) -> list[bytes]:
        rows = self._store.select(self._store.sql.leaves, **key_range(self._log_id, after, upto))
        if len(rows) != upto - after:
            raise gap(rows, after)
        leaves = [leaf for _, leaf in rows]
        for offset, leaf in enumerate(leaves):
            if not isinstance(leaf, bytes):
                raise _damaged(f"The leaf hash of event {after + offset + 1} is none; run `worldctl verify`.", upto)
        return leaves


def _parts(first: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the complete subtrees of so many chunks from one on, largest first, each as first chunk and level."""
    while count:
        level = count.bit_length() - 1
        yield first, level
        first, count = first + (1 << level), count - (1 << level)


def _pieces(first: int, level: int) -> Iterator[tuple[int, int]]:
    """Yield the chunks whose stored trees have the nodes of a complete subtree, each with the level of its node."""
    end = first + (1 << level)
    while level and end & -end > 1 << level:  # it is a right half, which the tree that ends there has only as a part
        level -= 1
        yield first + (1 << level) - 1, level
        first += 1 << level
    yield end - 1, level


def _node(row: Row, level: int) -> bytes:
    """Return the root of the subtree with ``2 ** level`` chunks that ends with a stored chunk."""
    index, root, data = row
    node = root if level == 0 else Frontier.from_bytes((index + 1) * CHUNK_LEAVES, data).nodes[-1]
    if not isinstance(node, bytes):
        raise _damaged("A stored part of the tree has no hash; run `worldctl verify`.", index * CHUNK_LEAVES)
    return node


def _joined(nodes: Sequence[bytes]) -> bytes:
    """Return the root over subtrees in a row, each half as large as the one before, but for the last two."""
    top = nodes[-1]
    for node in reversed(nodes[:-1]):
        top = node_hash(node, top)
    return top


def gap(rows: Sequence[Row], after: int) -> DamagedLogError:
    """Return the error for rows that are not all the positions after ``after``."""
    missing = after + len(rows) + 1
    for offset, row in enumerate(rows):
        if row[0] != after + offset + 1:
            missing = after + offset + 1
            break
    return DamagedLogError(
        ErrorCode.LOG_GAP, f"The event at position {missing} is missing from the log.", position=missing
    )


def archived(position: int) -> RefusedError:
    """Return the refusal of an event whose content was removed from the log."""
    return RefusedError(
        ErrorCode.EVENT_ARCHIVED,
        f"The content of event {position} was removed from this log, which has only its hash; `worldctl verify` names "
        "the archive. Import the archives into another log with `worldctl import` and ask there, or give the "
        "contents back with `worldctl cut ARCHIVE... --undo`.",
        position=position,
    )


def refuse_archived(rows: Sequence[Row]) -> None:
    """Refuse rows of which one has no content.

    Args:
        rows: position, stream, version, topic, schema version, state and what else.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` with the first one.
    """
    for row in rows:
        if not row[5]:
            raise archived(row[0])


def _damaged(message: str, size: int) -> DamagedLogError:
    return DamagedLogError(ErrorCode.TREE_DAMAGED, message, size=size)


def _no_such_event(message: str, **details: int) -> RefusedError:
    return RefusedError(ErrorCode.NO_SUCH_EVENT, message, **details)


def _stored_head(rows: Sequence[Row]) -> tuple[TreeHead, int]:
    size, root, last = newest(rows)
    return TreeHead(size, EMPTY_ROOT if root is None else root), last
