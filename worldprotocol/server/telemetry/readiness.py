"""What a server answers of its realms: whether each would accept a write now, and why one would not.

Anyone may ask, so an answer has the code of the cause, its meaning, and the process that holds the lock, and no path,
address or text of a database; those are in the log of the server.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Final

from msgspec import Struct

from world.error_codes import ErrorCode
from world.errors import WorldProtocolError
from worldprotocol.server.service import HostedRealm

__all__ = ["Readiness", "readiness_of"]

SHOWN: Final = ("pid", "is_stopped", "held_ms")
"""Facts about the holder of a lock that an answer shows."""

_LOGGER = logging.getLogger("worldprotocol.server")


class Readiness(Struct, frozen=True):
    """Whether a realm would accept a write.

    Args:
        name: of the realm.
        obstacle: what a write would be refused with; None where it would be accepted.
    """

    name: str
    obstacle: WorldProtocolError | None

    @property
    def code(self) -> str:
        """The code of the obstacle; empty without one."""
        return "" if self.obstacle is None else self.obstacle.code

    @property
    def is_left_out(self) -> bool:
        """Whether the realm was moved or archived on purpose, which makes no server unready."""
        return self.code == ErrorCode.LOG_FENCED

    def to_wire(self) -> dict[str, Any]:
        """Return it as JSON."""
        if self.obstacle is None:
            return {"name": self.name, "ready": True}
        wire = {"name": self.name, "ready": False, "code": self.code, "cause": ErrorCode(self.code).text}
        held = {name: self.obstacle.details[name] for name in SHOWN if name in self.obstacle.details}
        named = {"pid": "pid", "is_stopped": "isStopped", "held_ms": "heldMs"}
        return wire | ({"holder": {named[name]: value for name, value in held.items()}} if held else {})


async def readiness_of(realms: Iterable[HostedRealm]) -> list[Readiness]:
    """Return whether realms would accept a write, each within the time of ``worldprotocol.api.waiting.readiness``.

    A change is noted in the log of the server.

    Args:
        realms: the realms.
    """
    listed = list(realms)
    obstacles = await asyncio.gather(*(one.probe.obstacle_async() for one in listed))
    found = [Readiness(one.name, obstacle) for one, obstacle in zip(listed, obstacles, strict=True)]
    for hosted, one in zip(listed, found, strict=True):
        _note(hosted, one)
    return found


def _note(hosted: HostedRealm, one: Readiness) -> None:
    if hosted.noted == one.code:
        return
    if one.obstacle is None:
        _LOGGER.warning("The realm %s would accept a write again.", one.name)
    else:
        _LOGGER.warning("The realm %s would not accept a write: %s [%s]", one.name, one.obstacle.message, one.code)
    hosted.noted = one.code
