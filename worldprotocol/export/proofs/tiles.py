"""Tiles of the tree and bundles of entries (C2SP tlog-tiles), from which clients compute every proof themselves.

A tile is a row of hashes of complete subtrees, 256 wide or, at the end of the tree, narrower. A bundle holds the
entries below a tile of level 0: the hashed texts of events, each after its length as a big-endian uint16. Tiles and
bundles never change. Source: C2SP tlog-tiles; RFC 6962 section 2.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.log import EventLog
from world.log.merkle import leaf_hash
from worldprotocol.export.proofs.receipt import changed, event_text

__all__ = ["WIDTH", "Tile", "entry_bundle", "read_level", "read_tile"]

WIDTH: Final = 256
"""Hashes in a full tile."""

MAX_LEVEL: Final = 63
MAX_ENTRY_BYTES: Final = 0xFFFF
"""Longest entry of a bundle, whose length is a uint16."""

_LEVEL: Final = re.compile(r"0|[1-9][0-9]?")
_TILE: Final = re.compile(r"(?P<index>(x[0-9]{3}/){0,5}[0-9]{3})(\.p/(?P<width>[1-9][0-9]{0,2}))?")


@dataclass(frozen=True, slots=True)
class Tile:
    """Place of a tile in its level.

    Args:
        index: number of the tile, from 0.
        width: hashes in it.
    """

    index: int
    width: int = WIDTH

    @property
    def path(self) -> str:
        """The tile as the end of a path: ``x001/x234/067.p/112``."""
        text = str(self.index)
        text = text.zfill(-(-len(text) // 3) * 3)
        parts = [text[at : at + 3] for at in range(0, len(text), 3)]
        suffix = "" if self.width == WIDTH else f".p/{self.width}"
        return "/".join([f"x{one}" for one in parts[:-1]] + parts[-1:]) + suffix


def read_level(text: str) -> int:
    """Read the level of a path.

    Raises:
        RefusedError: ``NOT_FOUND`` for a text that is no level.
    """
    if not _LEVEL.fullmatch(text) or int(text) > MAX_LEVEL:
        raise _missing(f"{text[:40]!r} is no level of tiles, which are 0 to {MAX_LEVEL}")
    return int(text)


def read_tile(text: str) -> Tile:
    """Read the end of a path.

    Raises:
        RefusedError: ``NOT_FOUND`` for a text that names no tile; each tile has one name.
    """
    found = _TILE.fullmatch(text)
    if found is not None:
        index = int(found["index"].replace("x", "").replace("/", ""))
        tile = Tile(index, int(found["width"] or WIDTH))
        if tile.path == text and tile.width <= WIDTH:  # the full tile has no width in its name
            return tile
    raise _missing(f"{text[:40]!r} names no tile; a tile is named like 007, x001/x234/067 or 007.p/112")


def entry_bundle(log: EventLog, tile: Tile) -> bytes:
    """Return the entries below a tile of level 0.

    Raises:
        RefusedError: ``NOT_FOUND`` where the log is shorter, or an entry is longer than a bundle can hold.
        DamagedLogError: ``EVENT_CHANGED``, ``LOG_GAP``.
    """
    first = tile.index * WIDTH
    size = log.head().size
    if size < first + tile.width:
        raise _missing(f"The log has {size} events, and the bundle {tile.path} would need {first + tile.width}")
    bundle = bytearray()
    for event in log.read(first, first + tile.width):
        entry = event_text(event).encode()
        if leaf_hash(entry) != event.leaf:
            raise changed(event.position)
        if len(entry) > MAX_ENTRY_BYTES:
            raise _missing(
                f"Event {event.position} has {len(entry)} bytes, and an entry of a bundle at most {MAX_ENTRY_BYTES}; "
                "read the events of this bundle from /log"
            )
        bundle += len(entry).to_bytes(2, "big") + entry
    return bytes(bundle)


def _missing(clause: str) -> RefusedError:
    return RefusedError(ErrorCode.NOT_FOUND, f"{clause}.")
