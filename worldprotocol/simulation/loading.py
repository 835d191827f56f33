"""Loading of the scenario of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from world.code.references import load_reference
from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.simulation.scenario import Scenario

__all__ = ["DEPOT", "load_scenario"]

DEPOT: Final = "worldprotocol.simulation.depot:scenario"
"""The scenario that is simulated where no other is named."""


def load_scenario(reference: str) -> Scenario:
    """Return the scenario of a reference, ``module:attribute`` or ``file.py:attribute``.

    Raises:
        RefusedError: ``NOT_LOADED``; ``NOT_A_SCENARIO`` for something else.
    """
    found = load_reference(reference, base=Path())
    if not isinstance(found, Scenario):
        raise RefusedError(
            ErrorCode.NOT_A_SCENARIO, f"{reference!r} is a {type(found).__name__}; it should be a Scenario."
        )
    return found
