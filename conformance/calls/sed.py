"""Check of sed scripts for side effects beyond the output (IEEE 1003.1, sed)."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["touches_more"]

_ADDRESS: Final = re.compile(
    r"\s*(?:(?:\d+(?:~\d+)?|\$|[+~]\d+|/(?:\\.|[^/\\])*/[IM]*|\\(.)(?:\\.|(?!\1)[^\\])*\1[IM]*)\s*,?\s*)*!?\s*",
    re.DOTALL,
)
_SUBSTITUTION: Final = re.compile(r"[sy]([^\\\n])(?:\\.|(?!\1)[^\\])*\1(?:\\.|(?!\1)[^\\])*\1([A-Za-z0-9]*)", re.DOTALL)
_PLAIN: Final = re.compile(r"[dDpPgGhHxnNlqQ=zF][ \t]*\d*|[btT:][^;\n}]*|[aic][^\n]*(?:\\\n[^\n]*)*|[{}]")


def touches_more(script: str) -> bool:
    """Return whether a script accesses files, runs commands, or is unreadable.

    Args:
        script: one script, as ``-e`` takes it.
    """
    at = 0
    while True:
        while at < len(script) and script[at] in "; \t\n":
            at += 1
        if at >= len(script):
            return False
        address = _ADDRESS.match(script, at)
        at = address.end() if address else at
        if found := _SUBSTITUTION.match(script, at):
            if not set(found[2]) <= set("gpIiMm0123456789"):
                return True
        else:
            found = _PLAIN.match(script, at)
        if found is None:
            return True
        at = found.end()
