"""Characters of new ids of actors, agents and sessions; checked where an id is first recorded.

Allowed are at most 128 ASCII letters, digits and ``._-@:/``. So no two ids look alike, an id contains neither control
characters nor bidirectional marks, and an id is never ``*``, which means any human. Ids that a log already holds stay
valid. Source: intent specification 3.1.
"""

from __future__ import annotations

import re
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError

MAX_NEW_ID: Final = 128
"""Maximum length of a new id, in characters."""

ANY_HUMAN: Final = "*"
"""Means any human in a list of actor ids; reserved, so it cannot be an id."""

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
