"""What a branch may be called: one rule, checked by the engine, which the façade and the command line use as well.

A name can be typed on a command line, and stands for no other point in the past. Names in a log are not checked again:
the rule is about branches that are made now.
"""

from __future__ import annotations

import re
from typing import Any, Final

from world.errors import RefusedError

__all__ = ["BRANCH_NAME", "HEAD", "check_branch_name"]

BRANCH_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
"""A name in full; one that begins with - would be taken for an option."""

HEAD: Final = "HEAD"
"""What the command line calls the active branch's head; no branch may be called so."""


def check_branch_name(name: Any) -> None:
    """Check the name of a branch that is to be made.

    Args:
        name: the name.

    Raises:
        RefusedError: ``INVALID_NAME``.
    """
    if isinstance(name, str) and BRANCH_NAME.fullmatch(name) and name != HEAD:
        return
    raise RefusedError(
        "INVALID_NAME",
        f"{name!r:.80} is no name for a branch: 1 to 200 of the letters a-z and A-Z, digits and . _ - /, beginning "
        "with a letter, a digit or _, and not HEAD.",
    )
