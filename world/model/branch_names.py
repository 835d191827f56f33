"""The rule for branch names, shared by the engine, the public API and the command line.

A branch name can be typed on a command line and cannot be read as another point in the history. The rule applies to
new branches; names that a log already holds are not checked again.
"""

from __future__ import annotations

import re
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["BRANCH_NAME", "HEAD", "check_branch_name"]

BRANCH_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
"""A complete name; a leading ``-`` is excluded because the command line would read it as an option."""

HEAD: Final = "HEAD"
"""Name of the active branch's head on the command line; reserved, so no branch may have it."""


def check_branch_name(name: Any) -> None:
    """Check the name of a new branch.

    Args:
        name: the name; a value that is not a string is refused.

    Raises:
        RefusedError: ``INVALID_NAME``.
    """
    if isinstance(name, str) and BRANCH_NAME.fullmatch(name) and name != HEAD:
        return
    raise RefusedError(
        ErrorCode.INVALID_NAME,
        f"{name!r:.80} is not a valid branch name. Use 1 to 200 of the letters a-z and A-Z, digits and . _ - /; begin "
        "with a letter, a digit or _. HEAD is reserved.",
    )
