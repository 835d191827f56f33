"""Names of realms: in paths of servers, and in directories."""

from __future__ import annotations

import re
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["NAME", "check_realm_name"]

NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


def check_realm_name(name: str) -> str:
    """Return the name of a realm.

    Raises:
        RefusedError: ``INVALID_NAME``.
    """
    if not NAME.fullmatch(name):
        raise RefusedError(
            ErrorCode.INVALID_NAME,
            f"{name[:80]!r} is no name of a realm: 1 to 63 lower-case letters, digits and `. _ -`, beginning with "
            "a letter or a digit.",
        )
    return name
