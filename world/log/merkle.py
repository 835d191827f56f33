"""The Merkle tree over a log's leaf hashes: roots, growth, and proofs that outsiders can check.

Pure functions and one frozen value. Hashing is that of RFC 9162 section 2.1: a leaf is SHA-256(0x00 || data),
a node SHA-256(0x01 || left || right), the empty tree SHA-256 of nothing. Indexes count from 0, so the event
at position p is the leaf at index p - 1.

A ``Frontier`` is all that must be kept to let a tree grow: the roots of its complete subtrees, at most one
for each bit of its size. Proofs are asked from a function that returns the root of a range of leaves, so they
can be made from a list, or from stored subtree roots without reading the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError

HASH_BYTES: Final = 32
"""Length of every hash in the tree."""

EMPTY_ROOT: Final = sha256(b"").digest()
"""Root of the tree without leaves."""

CHUNK_BITS: Final = 8
CHUNK_LEAVES: Final = 1 << CHUNK_BITS
"""Leaves under one stored subtree root; a power of two."""

_LEAF: Final = sha256(b"\x00")
_NODE: Final = sha256(b"\x01")
"""Hashes of the prefixes; a copy costs less than a new hash object."""

Subtree = Callable[[int, int], bytes]
"""Returns the root over the leaves from the first index up to, not including, the second."""


def leaf_hash(data: bytes) -> bytes:
    """Return the hash of a leaf's content (RFC 9162 section 2.1.1)."""
    found = _LEAF.copy()
    found.update(data)
    return found.digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Return the hash of an inner node (RFC 9162 section 2.1.1)."""
    found = _NODE.copy()
    found.update(left + right)
    return found.digest()


@dataclass(frozen=True, slots=True)
class Chunk:
    """A complete subtree of ``CHUNK_LEAVES`` leaves and the state of the tree right after it.

    Args:
        index: which chunk, from 0; it covers the leaves from ``index * CHUNK_LEAVES`` on.
        root: root of the subtree.
        frontier: the whole tree when the chunk was filled.
    """

    index: int
    root: bytes
    frontier: Frontier


@dataclass(frozen=True, slots=True)
class Frontier:
    """A tree that can grow: its size and the roots of its complete subtrees, largest first."""

    size: int = 0
    nodes: tuple[bytes, ...] = ()

    def root(self) -> bytes:
        """Return the root of the whole tree."""
        if not self.nodes:
            return EMPTY_ROOT
        top = self.nodes[-1]
        for node in self.nodes[-2::-1]:
            top = node_hash(node, top)
        return top

    def extended(self, leaves: Iterable[bytes], chunks: list[Chunk] | None = None) -> Frontier:
        """Return the tree with more leaf hashes at its end.

        Args:
            leaves: leaf hashes, in order.
            chunks: a list to which every chunk that gets full on the way is added.
        """
        size, nodes = self.size, list(self.nodes)
        begin = _NODE.copy
        for node in leaves:
            rest, level = size, 0
            while rest & 1:
                joined = begin()
                joined.update(nodes.pop() + node)
                node = joined.digest()
                rest >>= 1
                level += 1
                if level == CHUNK_BITS:
                    filled = node
            nodes.append(node)
            size += 1
            if level >= CHUNK_BITS and chunks is not None:
                chunks.append(Chunk((size >> CHUNK_BITS) - 1, filled, Frontier(size, tuple(nodes))))
        return Frontier(size, tuple(nodes))

    def to_bytes(self) -> bytes:
        """Return the nodes in a row; the size says how many there are."""
        return b"".join(self.nodes)

    @classmethod
    def from_bytes(cls, size: int, data: bytes) -> Frontier:
        """Read what ``to_bytes`` wrote.

        Raises:
            DamagedLogError: ``TREE_DAMAGED`` when the length does not fit the size.
        """
        if len(data) != size.bit_count() * HASH_BYTES:
            raise DamagedLogError(
                ErrorCode.TREE_DAMAGED, f"The stored tree of size {size} has {len(data)} bytes.", size=size
            )
        nodes = (data[at : at + HASH_BYTES] for at in range(0, len(data), HASH_BYTES))
        return cls(size, tuple(nodes))


def tree_root(leaves: Iterable[bytes]) -> bytes:
    """Return the root over leaf hashes (RFC 9162 section 2.1.1)."""
    return Frontier().extended(leaves).root()


def subtrees_of(leaves: Sequence[bytes]) -> Subtree:
    """Return the range-to-root function of a list of leaf hashes, for the proof functions."""
    return lambda start, stop: tree_root(leaves[start:stop])


def inclusion_proof(index: int, size: int, subtree: Subtree) -> list[bytes]:
    """Return the path that proves a leaf to be in a tree (RFC 9162 section 2.1.3.1).

    Args:
        index: the leaf, from 0.
        size: leaves in the tree.
        subtree: range-to-root function of the tree.

    Raises:
        ValueError: the leaf is not in a tree of that size.
    """
    if not 0 <= index < size:
        raise ValueError(f"leaf {index} is not in a tree of {size} leaves")
    path: list[bytes] = []
    start, stop = 0, size
    while stop - start > 1:
        middle = start + _split(stop - start)
        if index < middle:
            path.append(subtree(middle, stop))
            stop = middle
        else:
            path.append(subtree(start, middle))
            start = middle
    path.reverse()
    return path


def verify_inclusion(leaf: bytes, index: int, size: int, path: Sequence[bytes], root: bytes) -> bool:
    """Return whether a path proves that a leaf hash is at an index of the tree with this root (2.1.3.2)."""
    return root_from_leaf(leaf, index, size, path) == root


def root_from_leaf(leaf: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """Return the root to which a path leads from a leaf hash (2.1.3.2).

    Args:
        leaf: the leaf hash.
        index: the leaf, from 0.
        size: leaves in the tree.
        path: hashes from the leaf's sibling up.

    Returns:
        The root; None where the path has not the length that follows from index and size.
    """
    if not 0 <= index < size:
        return None
    place, last, found = index, size - 1, leaf
    for node in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            found = node_hash(node, found)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            found = node_hash(found, node)
        place, last = place >> 1, last >> 1
    return found if last == 0 else None


def consistency_proof(first: int, second: int, subtree: Subtree) -> list[bytes]:
    """Return the path that proves one tree to be the beginning of another (RFC 9162 section 2.1.4.1).

    Args:
        first: leaves in the earlier tree.
        second: leaves in the later tree.
        subtree: range-to-root function of the later tree.

    Raises:
        ValueError: the sizes are not in order.
    """
    if not 0 <= first <= second:
        raise ValueError(f"a tree of {first} leaves does not begin one of {second}")
    if first in (0, second):
        return []
    path: list[bytes] = []
    start, stop, whole = 0, second, True
    while first != stop:
        middle = start + _split(stop - start)
        if first <= middle:
            path.append(subtree(middle, stop))
            stop = middle
        else:
            path.append(subtree(start, middle))
            start, whole = middle, False
    if not whole:
        path.append(subtree(start, stop))
    path.reverse()
    return path


def verify_consistency(first: int, second: int, first_root: bytes, second_root: bytes, path: Sequence[bytes]) -> bool:
    """Return whether a path proves the first tree to be the beginning of the second (2.1.4.2)."""
    if first == 0 <= second:
        return not path and first_root == EMPTY_ROOT
    if 0 < first == second:
        return not path and first_root == second_root
    return root_from_beginning(first, second, first_root, path) == second_root


def root_from_beginning(first: int, second: int, first_root: bytes, path: Sequence[bytes]) -> bytes | None:
    """Return the root to which a path leads from the root of a smaller tree (2.1.4.2).

    Args:
        first: leaves in the smaller tree, at least one.
        second: leaves in the larger tree, more than in the smaller one.
        first_root: root of the smaller tree.
        path: hashes of the consistency proof.

    Returns:
        The root of the larger tree; None where the path does not lead from the smaller one to a tree of that size.
    """
    nodes = [first_root, *path] if first.bit_count() == 1 else list(path)
    if not 0 < first < second or not nodes:
        return None
    place, last = first - 1, second - 1
    while place & 1:
        place, last = place >> 1, last >> 1
    old = new = nodes[0]
    for node in nodes[1:]:
        if last == 0:
            return None
        if place & 1 or place == last:
            old, new = node_hash(node, old), node_hash(node, new)
            while place and not place & 1:
                place, last = place >> 1, last >> 1
        else:
            new = node_hash(new, node)
        place, last = place >> 1, last >> 1
    return new if last == 0 and old == first_root else None


def _split(size: int) -> int:
    """Return the largest power of two below ``size``."""
    return 1 << ((size - 1).bit_length() - 1)
