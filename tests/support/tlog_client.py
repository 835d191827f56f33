"""A client of tiled transparency logs, written from the specifications alone; it shares no code with the product.

C2SP signed-note, tlog-checkpoint and tlog-tiles; RFC 6962 section 2.1 for trees and proofs. It fetches the tiles that a
tree of the checkpoint's size has, and computes every hash, root and proof itself.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

Fetch = Callable[[str], bytes]
"""Returns the resource at a path below the log's prefix; raises where there is none."""


def leaf(entry: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + entry).digest()


def node(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


def index_path(number: int) -> str:
    """Return a tile's index as path elements."""
    path = f"{number % 1000:03d}"
    while number >= 1000:
        number //= 1000
        path = f"x{number % 1000:03d}/{path}"
    return path


def open_checkpoint(data: bytes, key: str) -> tuple[str, int, bytes]:
    """Return origin, size and root of a checkpoint that a key signed.

    Args:
        data: the checkpoint.
        key: ``name+id+base64``; an Ed25519 key.
    """
    text, _, signatures = data.decode().rpartition("\n\n")
    text += "\n"
    name, key_id, encoded = key.split("+", 2)
    public = base64.b64decode(encoded, validate=True)
    assert public[0] == 1
    expected = hashlib.sha256(name.encode() + b"\n" + public).digest()[:4]
    assert expected.hex() == key_id
    for line in signatures.splitlines():
        dash, signer, signature = line.split(" ")
        raw = base64.b64decode(signature, validate=True)
        if dash == "\u2014" and signer == name and raw[:4] == expected:
            Ed25519PublicKey.from_public_bytes(public[1:]).verify(raw[4:], text.encode())
            origin, size, root, *_ = text.splitlines()
            return origin, int(size), base64.b64decode(root, validate=True)
    raise AssertionError("no signature by the key")


@dataclass
class Tree:
    """The tree of a checkpoint, as its tiles show it.

    Args:
        fetch: fetches a resource.
        size: leaves.
        fetched: paths of all tiles that were fetched.
    """

    fetch: Fetch
    size: int
    fetched: dict[str, bytes] = field(default_factory=dict)

    def tile(self, level: int, number: int) -> list[bytes]:
        """Return the hashes of a tile of this tree."""
        width = min(256, self.size // 256**level - 256 * number)
        assert width > 0, "an empty tile is not part of a tree"
        path = f"tile/{level}/{index_path(number)}" + ("" if width == 256 else f".p/{width}")
        if path not in self.fetched:
            self.fetched[path] = self.fetch(path)
        data = self.fetched[path]
        assert len(data) == 32 * width
        return [data[at : at + 32] for at in range(0, len(data), 32)]

    def hash(self, start: int, stop: int) -> bytes:
        """Return the hash over a range of leaves: from a tile where it is a complete subtree, else from two parts."""
        width = stop - start
        if width & (width - 1) == 0 and start % width == 0:
            level, height = divmod(width.bit_length() - 1, 8)
            first = start // 256**level
            hashes = self.tile(level, first // 256)[first % 256 :][: 1 << height]
            while len(hashes) > 1:
                hashes = [node(hashes[at], hashes[at + 1]) for at in range(0, len(hashes), 2)]
            return hashes[0]
        middle = start + (1 << ((width - 1).bit_length() - 1))
        return node(self.hash(start, middle), self.hash(middle, stop))

    def root(self) -> bytes:
        return self.hash(0, self.size)

    def inclusion(self, index: int) -> list[bytes]:
        """Return the audit path of a leaf (RFC 6962 section 2.1.1)."""

        def path(start: int, stop: int) -> list[bytes]:
            if stop - start == 1:
                return []
            middle = start + (1 << ((stop - start - 1).bit_length() - 1))
            if index < middle:
                return [*path(start, middle), self.hash(middle, stop)]
            return [*path(middle, stop), self.hash(start, middle)]

        return path(0, self.size)

    def consistency(self, first: int) -> list[bytes]:
        """Return the consistency proof of an older size (RFC 6962 section 2.1.2)."""

        def subproof(start: int, stop: int, *, is_known: bool) -> list[bytes]:
            if first == stop:
                return [] if is_known else [self.hash(start, stop)]
            middle = start + (1 << ((stop - start - 1).bit_length() - 1))
            if first <= middle:
                return [*subproof(start, middle, is_known=is_known), self.hash(middle, stop)]
            return [*subproof(middle, stop, is_known=False), self.hash(start, middle)]

        return [] if first == self.size else subproof(0, self.size, is_known=True)

    def entries(self) -> list[bytes]:
        """Return all entries, each checked against its leaf in the tile of level 0."""
        found: list[bytes] = []
        for number in range(-(-self.size // 256)):
            hashes = self.tile(0, number)
            suffix = "" if len(hashes) == 256 else f".p/{len(hashes)}"
            bundle, at = self.fetch(f"tile/entries/{index_path(number)}{suffix}"), 0
            for expected in hashes:
                length = int.from_bytes(bundle[at : at + 2], "big")
                entry, at = bundle[at + 2 : at + 2 + length], at + 2 + length
                assert leaf(entry) == expected
                found.append(entry)
            assert at == len(bundle)
        return found


def is_included(entry_leaf: bytes, index: int, size: int, path: list[bytes], root: bytes) -> bool:
    """Return whether an audit path proves a leaf (RFC 9162 section 2.1.3.2)."""
    fn, sn, found = index, size - 1, entry_leaf
    for one in path:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            found = node(one, found)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            found = node(found, one)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and found == root


def is_consistent(first: int, second: int, path: list[bytes], older: bytes, newer: bytes) -> bool:
    """Return whether a proof leads from an older root to a newer one (RFC 9162 section 2.1.4.2)."""
    if first == second:
        return not path and older == newer
    if first & (first - 1) == 0:
        path = [older, *path]
    fn, sn = first - 1, second - 1
    while fn & 1:
        fn, sn = fn >> 1, sn >> 1
    if not path:
        return False
    fr = sr = path[0]
    for one in path[1:]:
        if sn == 0:
            return False
        if fn & 1 or fn == sn:
            fr, sr = node(one, fr), node(one, sr)
            while fn and not fn & 1:
                fn, sn = fn >> 1, sn >> 1
        else:
            sr = node(sr, one)
        fn, sn = fn >> 1, sn >> 1
    return sn == 0 and (fr, sr) == (older, newer)
