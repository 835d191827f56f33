"""Reader of call texts that returns their attempted side effects.

Three kinds of text are read: functions of Node and Python (``fs.readFile('/b.txt')``, ``open('/a', 'w')``), requests
(``GET https://example.com/api/v1``) and command lines (``rm -rf /c``). Names become canonical, relative ones are
resolved against the working directory. An unknown call is an opaque tool: it is assumed to change anything below its
working directory, unless its process is declared (KLIS-6 section 5; KO-5.1). Nothing is executed and no file is read.
Source: KLIS-6 section 2.1.
"""

from __future__ import annotations

import re
from typing import Final

from conformance.calls.commands import shell
from conformance.calls.functions import functions
from conformance.calls.place import CallLocation, malformed
from world.klis.observation import Seen
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource_types import STANDARD, ResourceTypes

__all__ = ["MAX_CALL_CHARS", "read_call"]

MAX_CALL_CHARS: Final = 16_384
"""Maximum length of a call text, in characters."""

_REQUEST: Final = re.compile(
    r"\s*(GET|HEAD|OPTIONS|TRACE|POST|PUT|PATCH|DELETE)\s+([^\s'\"]+)(?:\s+HTTP/[\d.]+)?\s*", re.IGNORECASE
)
_QUOTED: Final = re.compile(r"'(?:\\.|[^'\\])*'|\"(?:\\.|[^\"\\])*\"", re.DOTALL)
_CODE: Final = re.compile(r"[A-Za-z0-9_\])]\(|process\.env(?!\w)|os\.environ(?!\w)")
_CODE_WORDS: Final = frozenset(
    {"await", "return", "new", "with", "const", "let", "var", "import", "from", "async", "yield", "(await", "(async"}
)
_SUBSTITUTION: Final = re.compile(r"\$\([^)]*\)?")


def read_call(
    text: str,
    *,
    cwd: str = "/",
    exists: bool | None = None,
    types: ResourceTypes = STANDARD,
    names: NameComparison = BYTE_WISE,
) -> tuple[Seen, ...]:
    """Return the distinct side effects of a call, in the order of the text.

    Args:
        text: the call.
        cwd: the working directory, an absolute path.
        exists: whether a file that is written exists; a write to a missing one is PROVIDES. With None, unknown, a
            write is MUTATES.
        types: the resource types in force.
        names: which differences of paths are ignored.

    Raises:
        RefusedError: ``INVALID_CALL`` for a text that is not a call, with the fault.
    """
    if not isinstance(text, str) or not text.strip():
        malformed("A call is a text, such as fs.readFile('/b.txt'), rm -rf /c or GET https://example.com/.")
    if len(text) > MAX_CALL_CHARS:
        malformed(f"The call has more than {MAX_CALL_CHARS} characters.")
    if "\0" in text:
        malformed("The call holds a NUL.")
    if not isinstance(cwd, str) or not cwd.startswith("/"):
        malformed(f"The working directory {cwd!r} is no absolute path.")
    place = CallLocation(text, cwd=cwd, exists=exists, types=types, names=names)
    if found := _REQUEST.fullmatch(text):
        seen = list(place.request(found[1], found[2]))
    elif _is_code(text):
        seen = list(functions(text, place))
    else:
        seen = list(shell(text, place))
    return tuple(dict.fromkeys(seen))


def _is_code(text: str) -> bool:
    """Return whether a text begins like code: ``name(``, ``name =`` or a keyword."""
    words = _SUBSTITUTION.sub("", _QUOTED.sub("''", text)).split(None, 2)
    if not words:
        return False
    assigns = len(words) > 1 and words[1].startswith("=") and not words[1].startswith("==")
    return assigns or words[0] in _CODE_WORDS or _CODE.search(words[0]) is not None
