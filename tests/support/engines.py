"""The engine below a realm, for tests that look inside it."""

from __future__ import annotations

from world.engine.protocol import WorldProtocol
from worldprotocol import Realm

__all__ = ["engine_of"]


def engine_of(realm: Realm) -> WorldProtocol:
    """Return the writer of a realm that is open for acting and belongs to no caller."""
    writer = realm._acting
    assert isinstance(writer, WorldProtocol)
    return writer
