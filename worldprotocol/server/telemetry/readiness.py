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

from world.engine.writability import Writability
from world.error_codes import ErrorCode
from world.errors import WorldProtocolError
from worldprotocol.server.service import HostedRealm

__all__ = ["Readiness", "readiness_of"]

SHOWN: Final = {"pid": "pid", "is_stopped": "isStopped", "held_ms": "heldMs"}
"""Facts about the holder of a lock that an answer shows, with their names there."""

_LOGGER = logging.getLogger("worldprotocol.server")


class Readiness(Struct, frozen=True):
    """Whether a realm would accept a write.

    Args:
        name: of the realm.
        obstacle: what a write would be refused with; None where it would be accepted.
        busy: who holds the lock that a write would wait for; None where it is free.
    """

    name: str
    obstacle: WorldProtocolError | None
    busy: WorldProtocolError | None

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
        wire: dict[str, Any] = {"name": self.name, "ready": self.obstacle is None}
        if self.obstacle is not None:
            wire |= {"code": self.code, "cause": ErrorCode(self.code).text}
        if self.busy is not None:
            wire["busy"] = True
        held = self.obstacle or self.busy
        shown = {} if held is None else {SHOWN[name]: held.details[name] for name in SHOWN if name in held.details}
        return wire | ({"holder": shown} if shown else {})


async def readiness_of(realms: Iterable[HostedRealm]) -> list[Readiness]:
    """Return whether realms would accept a write, each within the time of ``worldprotocol.api.waiting.readiness``.

    A change is noted in the log of the server.

    Args:
        realms: the realms.
    """
    listed = list(realms)
    answers = await asyncio.gather(*(one.probe.answer_async() for one in listed))
    found = [_readiness(one, answer) for one, answer in zip(listed, answers, strict=True)]
    for hosted, one in zip(listed, found, strict=True):
        _note(hosted, one)
    return found


def _readiness(hosted: HostedRealm, answer: Writability) -> Readiness:
    """Return the readiness of a realm; that of one that was moved is why it cannot be opened where it is."""
    obstacle = answer.obstacle
    if obstacle is not None and obstacle.code == ErrorCode.LOG_FENCED and hosted.fault is not None:
        obstacle = hosted.fault
    return Readiness(hosted.name, obstacle, answer.busy)


def _note(hosted: HostedRealm, one: Readiness) -> None:
    if hosted.noted == one.code:
        return
    if one.obstacle is None:
        _LOGGER.warning("The realm %s would accept a write again.", one.name)
    else:
        _LOGGER.warning("The realm %s would not accept a write: %s [%s]", one.name, one.obstacle.message, one.code)
    hosted.noted = one.code
