"""The six predicates and their compatibility matrix (KLIS-1, KLIS-2).

The matrix is copied from the protocol specification; everything else is derived from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["GROUPS", "GROUP_OF", "OPPOSED", "Predicate", "compatible", "read_predicate"]


class Predicate(StrEnum):
    """Effect of an agent on a resource (KM-3, KP-1)."""

    PROVIDES = "PROVIDES"
    CONSUMES = "CONSUMES"
    MUTATES = "MUTATES"
    DELETES = "DELETES"
    DEPENDS_ON = "DEPENDS_ON"
    RENAMES = "RENAMES"


_MATRIX: Final = """
    PROVIDES    F T F F T F
    CONSUMES    T T F F T F
    MUTATES     F F F F F F
    DELETES     F F F F F F
    DEPENDS_ON  T T F F T F
    RENAMES     F F F F F F
"""
_ROWS: Final = {Predicate(line.split()[0]): line.split()[1:] for line in _MATRIX.strip().splitlines()}
_COMPATIBLE: Final[Mapping[tuple[Predicate, Predicate], bool]] = {
    (held, requested): cell == "T"
    for held, row in _ROWS.items()
    for requested, cell in zip(Predicate, row, strict=True)
}

GROUPS: Final = tuple(dict.fromkeys(tuple(row) for row in _ROWS.values()))
"""The distinct rows of the matrix: predicates of one group have equal conflicts."""
GROUP_OF: Final[Mapping[Predicate, int]] = {predicate: GROUPS.index(tuple(row)) for predicate, row in _ROWS.items()}
OPPOSED: Final[Mapping[Predicate, tuple[int, ...]]] = {
    requested: tuple(sorted({GROUP_OF[held] for held in Predicate if not _COMPATIBLE[held, requested]}))
    for requested in Predicate
}
"""The groups whose predicates conflict with a requested one."""


def compatible(held: Predicate, requested: Predicate) -> bool:
    """Return whether two agents may hold these predicates at once (KP-2a, KP-2b)."""
    return _COMPATIBLE[held, requested]


def read_predicate(text: object, path: str = "$") -> Predicate:
    """Return the predicate of a name, without a default (KM-3).

    Args:
        text: one of the six names, in capitals.
        path: its path, for the error.

    Raises:
        RefusedError: ``INVALID_PREDICATE``.
    """
    try:
        return Predicate(text)  # type: ignore[arg-type]  # any other value raises
    except ValueError:
        raise RefusedError(
            ErrorCode.INVALID_PREDICATE,
            f"{text!r} at {path} is no predicate; the six are {', '.join(Predicate)}.",
            path=path,
            predicate=str(text),
        ) from None
