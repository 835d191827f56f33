"""The rules for new ids of actors, agents and sessions, and for names of new branches.

They are checked where a name is first recorded; names that a log already holds stay valid.

An id has at most 128 ASCII letters, digits and ``._-@:/``. So no two ids look alike, an id contains neither control
characters nor bidirectional marks, and an id is never ``*``, which means any human. A branch name can be typed on a
command line and cannot be read as another point in the history. Source: intent specification 3.1.
"""

from __future__ import annotations

import re
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

MAX_NEW_ID: Final = 128
"""Maximum length of a new id, in characters."""

ANY_HUMAN: Final = "*"
"""Means any human in a list of actor ids; reserved, so it cannot be an id."""

BRANCH_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,199}")
"""A complete name of a branch; a leading ``-`` is excluded because the command line would read it as an option."""

HEAD: Final = "HEAD"
"""Name of the active branch's head on the command line; reserved, so no branch may have it."""

_NEW_ID: Final = re.compile(rf"[A-Za-z0-9._\-@:/]{{1,{MAX_NEW_ID}}}")


def check_new_id(what: str, given: str) -> None:
    """Check an id that is about to be recorded for the first time.

    Args:
        what: the kind of thing that the id is for, such as ``actor``.
        given: the id.

    Raises:
        RefusedError: ``INVALID_ID``.
    """
    if _NEW_ID.fullmatch(given) is not None:
        return
    reserved = " `*` is reserved; it means any human." if given == ANY_HUMAN else ""
    shown = ascii(given[: MAX_NEW_ID + 1])
    raise RefusedError(
        ErrorCode.INVALID_ID,
        f"{shown} cannot be the id of a new {what}. Use 1 to {MAX_NEW_ID} ASCII letters, digits and "
        f"._-@:/ only.{reserved}",
        what=what,
        id=given,
    )


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
