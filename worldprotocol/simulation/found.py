"""Finding of a simulation: a violated requirement and the contradicting facts."""

from __future__ import annotations

__all__ = ["BrokenError", "hold"]


class BrokenError(AssertionError):
    """A requirement does not hold.

    Args:
        requirement: its id, as ``docs/conformance.md`` lists it.
        what: one sentence.
    """

    def __init__(self, requirement: str, what: str) -> None:
        super().__init__(f"{requirement}: {what}")
        self.requirement = requirement
        self.what = what


def hold(requirement: str, what: str, holds: object) -> None:
    """Raise ``BrokenError`` where something does not hold.

    Args:
        requirement: its id.
        what: what is wrong then.
        holds: whether it does.
    """
    if not holds:
        raise BrokenError(requirement, what)
