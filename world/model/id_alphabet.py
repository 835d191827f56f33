"""What new ids of actors, agents and sessions may be made of: one rule, checked where an id is first recorded.

Allowed are the ASCII letters and digits and ``._-@:/``, at most 128 of them. So an id looks like no other id, holds no
control character and no bidirectional mark, and is never ``*``, which stands for any human. Ids that a log already
holds stay valid, whatever they are made of. Source: intent specification 3.1.
"""

from __future__ import annotations

import re
from typing import Final

from world.errors import RefusedError

MAX_NEW_ID: Final = 128
"""Characters of a new id at most."""

ANY_HUMAN: Final = "*"
"""Stands for any human where ids of actors are; it is no id."""

_NEW_ID: Final = re.compile(rf"[A-Za-z0-9._\-@:/]{{1,{MAX_NEW_ID}}}")


def check_new_id(what: str, given: str) -> None:
    """Check an id that is about to be recorded for the first time.

    Args:
        what: of what it is the id, such as ``actor``.
        given: the id.

    Raises:
        RefusedError: ``INVALID_ID``.
    """
    if _NEW_ID.fullmatch(given) is not None:
        return
    reserved = " `*` is reserved; it stands for any human." if given == ANY_HUMAN else ""
    shown = ascii(given[: MAX_NEW_ID + 1])
    raise RefusedError(
        "INVALID_ID",
        f"{shown} cannot be the id of a new {what}: an id has 1 to {MAX_NEW_ID} characters, of the ASCII letters and "
        f"digits and ._-@:/ only.{reserved}",
        what=what,
        id=given,
    )
