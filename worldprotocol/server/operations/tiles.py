"""Operations on the Merkle tree as static resources: tiles and bundles of entries (C2SP tlog-tiles).

Tiles hold hashes only, which every reader may have. Bundles hold the texts of events, so they need the right to read
all of them. Both are immutable and may be kept by the caller's own cache; shared caches may not, because they need
sign-in. A name that names nothing is not found, as with files.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from typing import Annotated, Final

from fastapi import Header, Response

from worldprotocol.export.proofs.tiles import entry_bundle, read_level, read_tile
from worldprotocol.server.call import Authorized, Call
from worldprotocol.server.operation_table import handles

OCTETS: Final = "application/octet-stream"
FOREVER: Final = "private, max-age=31536000, immutable"

IfNoneMatch = Annotated[str | None, Header(alias="If-None-Match")]


@handles("tiles.read")
async def read_one_tile(call: Authorized, level: str, tile: str, if_none_match: IfNoneMatch = None) -> Response:
    """Return a tile: up to 256 hashes of 32 bytes, `/tile/<L>/<N>` or, where it is not full, `/tile/<L>/<N>.p/<W>`."""

    def run() -> bytes:
        found = read_tile(tile)
        return call.hosted.realm.log.tile(read_level(level), found.index, found.width)

    return await _immutable(call, run, if_none_match, accepted="")


@handles("tiles.entries")
async def read_entries(
    call: Authorized,
    tile: str,
    if_none_match: IfNoneMatch = None,
    accept_encoding: Annotated[str, Header(alias="Accept-Encoding")] = "",
) -> Response:
    """Return the entries below a tile of level 0, each after its length; compressed with gzip where that is accepted.

    The entry of an event is the text whose hash is its leaf. A bundle with an event of more than 65,535 bytes is not
    served, because the format cannot hold it; `/log` has its events.
    """
    log = call.hosted.realm.log
    return await _immutable(call, lambda: entry_bundle(log, read_tile(tile)), if_none_match, accepted=accept_encoding)


async def _immutable(call: Call, make: Callable[[], bytes], if_none_match: str | None, *, accepted: str) -> Response:
    """Return bytes that never change, or that the caller has them already."""

    def run() -> tuple[bytes, str]:
        data = make()
        digest = hashlib.sha256(data).hexdigest()
        if _takes_gzip(accepted):
            return gzip.compress(data, 6, mtime=0), f'"{digest}-gzip"'
        return data, f'"{digest}"'

    data, tag = await call.run(run)
    headers = {"ETag": tag, "Cache-Control": FOREVER, "Vary": "Accept-Encoding"}
    if if_none_match is not None and tag in if_none_match:
        return Response(status_code=304, headers=headers)
    if tag.endswith('-gzip"'):
        headers["Content-Encoding"] = "gzip"
    return Response(data, 200, headers, OCTETS)


def _takes_gzip(accepted: str) -> bool:
    """Return whether a caller accepts gzip (RFC 9110 section 12.5.3)."""
    for part in accepted.lower().split(","):
        name, _, weight = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False
