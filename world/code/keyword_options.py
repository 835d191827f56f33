"""Names of keyword arguments that a typed dictionary defines.

Python checks the names of ``**options: Unpack[...]`` for type checkers only; these functions check them in a call.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

__all__ = ["check_names"]


def check_names(options: Mapping[str, Any], kind: type) -> None:
    """Refuse keyword arguments that a typed dictionary does not define.

    Args:
        options: keyword arguments by name.
        kind: the typed dictionary.

    Raises:
        TypeError: with the name and the nearest defined one.
    """
    known = kind.__annotations__
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; the options are {', '.join(sorted(known))}."
            raise TypeError(f"unexpected keyword argument {name!r}{hint}")
