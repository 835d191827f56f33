"""What the tree says about what was found: which events are those that were committed, and which only seem so.

One pass over the chunks of the tree, in order. Where all leaf hashes of a chunk were found, its root is computed; where
some are lost, its stored root replaces it, so that the tree continues behind the gap. Where two versions are possible
(a stored leaf hash and another content, a stored root and other leaves), both are carried along until a tree head
agrees with one of them. A tree head that agrees proves every leaf that went into it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from world.log import TreeHead
from world.log.merkle import CHUNK_LEAVES, Frontier, tree_root
from worldprotocol.export.jsonl_lines import Progress
from worldprotocol.export.salvage.scratch import EventVersion, ScratchStore

__all__ = ["ProvenEvents", "judge"]

_MOST_TREES: Final = 8
_BY_ROOT: Final[tuple[bytes, ...]] = ()
"""Marks a chunk of which only the stored root was left, so that its leaves are not proven."""


@dataclass(frozen=True, slots=True)
class _Tree:
    """One possible tree: its chunks as leaves, and what was taken for the chunks since a tree head agreed last."""

    frontier: Frontier = field(default_factory=Frontier)
    taken: tuple[tuple[int, tuple[bytes, ...]], ...] = ()

    def grown(self, root: bytes, number: int, leaves: tuple[bytes, ...]) -> _Tree:
        return _Tree(self.frontier.extended([root]), (*self.taken, (number, leaves)))


@dataclass(slots=True)
class ProvenEvents:
    """What was proven.

    Args:
        by_stored: every event up to here that is not in ``unproven`` is under a tree head stored in the log.
        by_saved: the same, under a tree head that was saved elsewhere.
        agreed: sizes of the tree heads that agree, in order.
        contradicted: tree heads saved elsewhere that could be computed, and do not agree.
        unproven: the chunks whose stored root had to do, by number: up to where their leaves are proven for themselves,
            under a stored head and under a saved one.
        has_heads: whether any tree head was found at all.
    """

    by_stored: int = 0
    by_saved: int = 0
    agreed: array[int] = field(default_factory=lambda: array("q"))
    contradicted: list[TreeHead] = field(default_factory=list)
    unproven: dict[int, tuple[int, int]] = field(default_factory=dict)
    has_heads: bool = True
    _leaves: dict[int, bytes] = field(default_factory=dict)

    def proof(self, position: int) -> str:
        """Return what proves the leaf at a position: ``saved``, ``stored``, or ``none``."""
        stored, saved = self.unproven.get((position - 1) // CHUNK_LEAVES, (self.by_stored, self.by_saved))
        if position <= saved:
            return "saved"
        return "stored" if position <= stored else "none"

    def choose(self, versions: Sequence[EventVersion]) -> EventVersion | None:
        """Return the version of an event that is what its leaf says, and its leaf what the tree says."""
        position = versions[0].position
        wanted = None
        if self.proof(position) != "none":
            wanted = self._leaves.get(position, versions[0].leaves[0])
        for one in versions:
            if one.line is not None and one.computed == (wanted or one.stored):
                return one
        return None

    def last_agreed(self, upto: int) -> int:
        """Return the largest size, up to this one, for which a tree head agrees; 0 where none does."""
        at = bisect_right(self.agreed, upto)
        return self.agreed[at - 1] if at else 0

    def settle(self, number: int, leaves: tuple[bytes, ...], usual: Sequence[bytes]) -> None:
        """Keep which leaves a chunk has, as far as they are not the ones that one would take first."""
        if leaves is _BY_ROOT:
            self.unproven[number] = self.by_stored, self.by_saved
            return
        for offset, leaf in enumerate(leaves):
            if leaf != usual[offset]:
                self._leaves[number * CHUNK_LEAVES + offset + 1] = leaf


@dataclass(slots=True)
class _Chunk:
    """What is known of a chunk of the tree.

    Args:
        number: of the chunk, from 0.
        rows: the possible sequences of its leaf hashes up to the first that is lost; the usual one comes first.
    """

    number: int
    rows: list[tuple[bytes, ...]]

    @property
    def start(self) -> int:
        return self.number * CHUNK_LEAVES

    @property
    def known(self) -> int:
        return len(self.rows[0])


def judge(scratch: ScratchStore, log: int, progress: Progress | None = None) -> ProvenEvents:
    """Compare all that was found with all tree heads.

    Args:
        scratch: what was found.
        log: of which log.
        progress: called with positions done and positions in all.
    """
    return _SalvagePass(scratch, log).run(progress)


class _SalvagePass:
    """The state of the pass."""

    def __init__(self, scratch: ScratchStore, log: int) -> None:
        self._scratch, self._log = scratch, log
        self._judged = ProvenEvents(has_heads=scratch.count_heads(log) > 0)
        self._trees = [_Tree()]
        self._usual: dict[int, tuple[bytes, ...]] = {}

    def run(self, progress: Progress | None) -> ProvenEvents:
        number, last = 0, self._scratch.last(self._log)
        while self._trees:
            chunk = self._read(number)
            if chunk.known == 0 and chunk.start >= last and not self._scratch.chunk(self._log, number):
                break
            self._within(chunk)
            self._behind(chunk)
            number += 1
            if progress is not None:
                progress(min(number * CHUNK_LEAVES, last), last)
        return self._judged

    def _read(self, number: int) -> _Chunk:
        """Return the possible leaves of a chunk: as promised, and as the contents have them."""
        start = number * CHUNK_LEAVES
        promised, computed = list[bytes](), list[bytes]()
        found = self._scratch.events(self._log, start, start + CHUNK_LEAVES)
        for expected, (position, versions) in enumerate(islice(found, CHUNK_LEAVES), start + 1):
            if position != expected:
                break
            leaves = tuple(dict.fromkeys(leaf for one in versions for leaf in one.leaves))
            promised.append(leaves[0])
            computed.append(leaves[-1])
        rows = [tuple(promised)] if promised == computed else [tuple(promised), tuple(computed)]
        self._usual[number] = rows[0]
        return _Chunk(number, rows)

    def _within(self, chunk: _Chunk) -> None:
        """Compare with the tree heads in the middle of a chunk, up to the first leaf that is lost."""
        heads = self._scratch.heads(self._log, chunk.start, chunk.start + min(chunk.known, CHUNK_LEAVES - 1))
        if not heads:
            return
        tries = [(tree, row, _Growing(tree.frontier)) for tree in self._trees for row in chunk.rows]
        for head, is_saved in heads:
            offset = head.size - chunk.start
            right = [one for one in tries if one[2].root(one[1], offset) == head.root]
            if not right:
                self._disagree(head, is_saved)
                continue
            tree, row, _ = right[0]
            self._agree(head, is_saved, tree, (chunk.number, row[:offset]))
            chunk.rows = [one for one in chunk.rows if one[:offset] == row[:offset]]
            tries = [(self._trees[0], one, grown) for _, one, grown in right if one in chunk.rows]

    def _behind(self, chunk: _Chunk) -> None:
        """Extend the trees by a chunk, and compare with the tree heads at its end."""
        roots: dict[bytes, tuple[bytes, ...]] = {}
        if chunk.known == CHUNK_LEAVES:
            roots = {tree_root(row): row for row in reversed(chunk.rows)}
        for root in self._scratch.chunk(self._log, chunk.number):
            roots.setdefault(root, _BY_ROOT)
        grown = [tree.grown(root, chunk.number, leaves) for tree in self._trees for root, leaves in roots.items()]
        self._trees = grown[:_MOST_TREES]
        end = chunk.start + CHUNK_LEAVES
        for head, is_saved in self._scratch.heads(self._log, end - 1, end) if grown else ():
            right = [tree for tree in self._trees if tree.frontier.root() == head.root]
            if right:
                self._agree(head, is_saved, right[0])
            else:
                self._disagree(head, is_saved)

    def _agree(
        self, head: TreeHead, is_saved: bool, tree: _Tree, part: tuple[int, tuple[bytes, ...]] | None = None
    ) -> None:
        judged = self._judged
        for number, leaves in (*tree.taken, *(() if part is None else (part,))):
            judged.settle(number, leaves, self._usual.get(number, ()))
            if part is None or number != part[0]:
                self._usual.pop(number, None)
        self._trees = [_Tree(tree.frontier)]
        judged.by_stored = max(judged.by_stored, head.size)
        if is_saved:
            judged.by_saved = max(judged.by_saved, head.size)
        if not judged.agreed or judged.agreed[-1] != head.size:
            judged.agreed.append(head.size)

    def _disagree(self, head: TreeHead, is_saved: bool) -> None:
        if is_saved:
            self._judged.contradicted.append(head)


class _Growing:
    """The root of a tree as leaves are added to it one by one."""

    __slots__ = ("_done", "_frontier")

    def __init__(self, chunks: Frontier) -> None:
        self._frontier = Frontier(chunks.size * CHUNK_LEAVES, chunks.nodes)
        self._done = 0

    def root(self, leaves: Sequence[bytes], upto: int) -> bytes:
        """Return the root with the first leaves of a sequence; how many never gets less."""
        self._frontier = self._frontier.extended(leaves[self._done : upto])
        self._done = upto
        return self._frontier.root()
