"""Every error the engine raises on purpose, in one tree.

    WorldProtocolError          has a stable ``code``, a sentence for people and typed ``details``
    |-- RefusedError            the caller's mistake, or a request that the rules do not allow
    |   |-- ScopeViolationError an agent attempted what it had not declared
    |   |-- StorageFullError    the disk is full; what was committed before stays as it was
    |   |-- LogBusyError        another writer kept the log's lock for too long
    |   `-- WaitTimeoutError    the time of a wait was over; a ``TimeoutError`` too
    |-- UnitEndedError          the server ended a unit of work before its commit; nothing of it was recorded
    |-- DamagedLogError         the history contradicts itself: bytes, hashes, order or references
    `-- DivergenceError         a recheck performed a recorded step again and got another result

A foreign exception that escapes from a public function is a bug.
"""

from __future__ import annotations

import re
from typing import Any, Final

_TWO_STOPS: Final = re.compile(r"(?<=[\w)\]`'\"])\.\.(?=\s|$)")


class WorldProtocolError(Exception):
    """The root of the tree.

    Args:
        code: a stable identifier, a member of ``world.error_codes.ErrorCode`` for errors of the engine.
        message: one sentence that says what is wrong and what to do, for people.
        **details: typed facts about the error (paths, ids, limits with their units).
    """

    exit_code = 1

    def __init__(self, code: str, message: str, /, **details: Any) -> None:
        message = with_single_stops(message)
        super().__init__(message)
        self.code = str(code)
        self.message = message
        self.details = details

    def to_dict(self) -> dict[str, Any]:
        """Return ``{"code", "message", "details"}`` for JSON output."""
        return {"code": self.code, "message": self.message, "details": self.details}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.code, self.message, self.details)


def with_single_stops(message: str) -> str:
    """Return a message in which no sentence ends in two full stops.

    Messages quote others, such as those of a database, which may be sentences already. An ellipsis and ``..`` in paths
    stay.
    """
    return _TWO_STOPS.sub(".", message) if ".." in message else message


def _rebuild(kind: type[WorldProtocolError], code: str, message: str, details: dict[str, Any]) -> WorldProtocolError:
    return kind(code, message, **details)


class RefusedError(WorldProtocolError):
    """The caller's mistake, or a request that the rules do not allow; nothing was changed."""


class StorageFullError(RefusedError):
    """The storage has no room left; everything committed before is still there."""


class LogBusyError(RefusedError):
    """Another writer held the log's lock longer than the caller was willing to wait."""


class WaitTimeoutError(RefusedError, TimeoutError):
    """The time of a wait was over; what the caller waited for may still happen."""


class UnitEndedError(WorldProtocolError):
    """The transaction of a unit of work was ended from outside before its commit; nothing of it was recorded."""


class ScopeViolationError(RefusedError):
    """An agent attempted what it had not declared, and was stopped (KLIS-6 section 3.1; KO-3.1)."""


class DamagedLogError(WorldProtocolError):
    """The history contradicts itself; ``details`` names the first bad place."""

    exit_code = 3


class DivergenceError(WorldProtocolError):
    """A recorded step, performed again from its record, gave another result."""
