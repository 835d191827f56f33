"""Small languages inside of the words of commands: which texts of them only read and print.

Two readers of one text must agree: regular expressions of sed with the mark inside of brackets, which GNU and BSD read
differently, are not understood.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["is_harmless"]

_TEXT: Final = r"(?:\\.|\[\^?\]?(?:(?!(?P=mark))[^\]\\\n])*\]|(?!(?P=mark))[^\\\n\[])*"
_ADDRESS: Final = r"(?:\d+|\$|/(?:\\.|\[\^?\]?[^\]\\\n/]*\]|[^/\\\n\[])*/)"
_SED: Final = re.compile(
    rf"\s*(?:{_ADDRESS}(?:,\+?{_ADDRESS})?)?\s*!?\s*"
    rf"(?:[pdq=]|s(?P<mark>[^\w\s\\\[\];])" + _TEXT + r"(?P=mark)(?:(?!(?P=mark))[^\\\n]|\\.)*(?P=mark)[gIip\d]*"
    r"|y(?P<other>[^\w\s\\\[\];])(?:(?!(?P=other))[^\\\n])*(?P=other)(?:(?!(?P=other))[^\\\n])*(?P=other))\s*"
)
"""One command of sed that prints, deletes or replaces; others write files or run programs."""

_NOT_OF_JQ: Final = re.compile(
    r"(?<![A-Za-z_])(?:env|ENV|import|include|modulemeta|input_filename|get_search_list)(?![A-Za-z0-9_])|__"
)
"""Names that read the environment or files; white space and comments may stand between ``$`` and its name."""

_FORMAT: Final = re.compile(r"(?!-)(?:[^%]|%%|%-?\d*(?:\.\d+)?[sbqc])*", re.DOTALL)
_OPERATORS: Final = frozenset({"-d", "-e", "-f", "-h", "-L", "-n", "-r", "-s", "-w", "-x", "-z", "-nt", "-ot", "-ef"})
"""Operators of ``test`` that evaluate nothing; shells evaluate what ``-v`` and, some of them, ``-eq`` compare."""


def is_harmless(language: str, text: str) -> bool:
    """Return whether a text only reads and prints.

    Args:
        language: ``sed``, ``jq``, ``printf``, ``plus`` (a format of ``date``), or ``operator`` (a word of ``test``).
        text: the text.
    """
    return _HARMLESS[language](text)


def _is_sed(script: str) -> bool:
    at = 0
    while at < len(script):
        found = _SED.match(script, at)
        if found is None or found.end() == at:
            return False
        at = found.end()
        if at < len(script) and script[at] not in ";\n" and script[at - 1] != "\n":
            return False
        at += 1
    return True


_HARMLESS: Final[Mapping[str, Callable[[str], bool]]] = {
    "sed": _is_sed,
    "jq": lambda text: _NOT_OF_JQ.search(text) is None,
    "printf": lambda text: _FORMAT.fullmatch(text) is not None,
    "plus": lambda text: text.startswith("+"),
    "operator": lambda text: not text.startswith("-") or text in _OPERATORS or text == "-",
}
