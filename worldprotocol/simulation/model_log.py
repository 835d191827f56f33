"""Independent model of the log's bytes: positions, streams and the Merkle tree (RFC 9162)."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Any

import orjson
import rfc8785

from worldprotocol.simulation.found import hold

__all__ = ["LogModel", "canonical", "digest", "text_of"]

_UNUSUAL = re.compile(rb"\d[.eE]|[^\x20-\x7e]|\\|\d{16}")


def canonical(value: Any) -> bytes:
    """Return the RFC 8785 text of a value; the library that defines it is asked only where ``orjson`` may differ."""
    text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return rfc8785.dumps(value) if _UNUSUAL.search(text) else text


@lru_cache(maxsize=4_096)
def _name(text: str) -> bytes:
    return canonical(text)


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical text, in hex."""
    return sha256(canonical(value)).hexdigest()


class LogModel:
    """What every log is: gapless, in order, and only ever longer."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self.size = 0
        self.leaves: list[bytes] = []
        self.versions: dict[str, int] = {}
        self._peaks: list[tuple[int, bytes]] = []

    def take(self, row: Sequence[Any]) -> Any:
        """Take in a stored row: position, stream, version, topic, schema version, state, leaf; returns the state."""
        position, stream, version, topic, schema_version, state, leaf = row[:7]
        hold("CARD-log", f"event {position} follows {self.size}", position == self.size + 1)
        hold("CARD-log", f"{stream} continues with {version}", version == self.versions.get(stream, 0) + 1)
        names = _name(stream), _name(topic)
        content = b'{"schemaVersion":%d,"state":%b,"stream":%b,"topic":%b,"version":%d}'
        own = sha256(b"\x00" + content % (schema_version, state, *names, version)).digest()
        hold("CARD-log", f"the leaf of event {position} is the hash of its content", own == leaf)
        self.size, self.versions[stream] = position, version
        self.leaves.append(own)
        self._grow(own)
        return orjson.loads(state)

    def _grow(self, node: bytes) -> None:
        size = 1
        while self._peaks and self._peaks[-1][0] == size:
            _, left = self._peaks.pop()
            node, size = sha256(b"\x01" + left + node).digest(), 2 * size
        self._peaks.append((size, node))

    def root(self) -> bytes:
        """Return the root of the tree over all events taken in."""
        if not self._peaks:
            return sha256(b"").digest()
        node = self._peaks[-1][1]
        for _, left in reversed(self._peaks[:-1]):
            node = sha256(b"\x01" + left + node).digest()
        return node


def text_of(value: Any) -> str:
    """Return the text of a part of a body, as its key is made of it."""
    return "null" if value is None else canonical(value).decode() if not isinstance(value, str) else json.dumps(value)
