"""Exit codes of errors."""

from __future__ import annotations

from world.error_codes import ErrorCode
from world.errors import RefusedError, WorldProtocolError


def exit_code_of(error: WorldProtocolError) -> int:
    """Return 2 for wrong input, 3 for a damaged log, 1 for the state of things.

    A code that is not the engine's, such as one of a package, has the exit code of the error's class.
    """
    try:
        return ErrorCode(error.code).exit_code if isinstance(error, RefusedError) else error.exit_code
    except ValueError:
        return error.exit_code
