"""Patterns of names of files, which tools read in different ways: what any of them may match.

Search tools of agents hand a pattern to ripgrep, git or a library; some split it at commas and spaces first. So a
pattern is read as everything that one of them may take it for. Of ``*``, ``?``, classes of letters and digits, and
braces with commas the matches are known; whatever else means something to one of them (other classes, backslashes,
parentheses, quotes, ``#``, ``:`` or ``!`` at the beginning) may match any name. Sources: the manuals of ripgrep
(``--glob``), gitignore(5), gitglossary(7) "pathspec", picomatch.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final

from worldprotocol.agents.command_words import MAX_ALTERNATIVES, alternatives

__all__ = ["covers", "folded", "read_patterns", "without_classes"]

_CLASS: Final = re.compile(r"\[(?:[A-Za-z0-9_](?:-[A-Za-z0-9_])?)+\]")
_UNCLEAR: Final = re.compile(r"[\\\[\]{}()|;\"'`\x00-\x1f\x7f]|^[#:~^!]")
_ANY_DEPTH: Final = re.compile(r"\*{2,}/?")
_SEPARATOR: Final = re.compile(r"[,\s]+")


def read_patterns(texts: Iterable[str]) -> tuple[list[str], bool]:
    """Return what texts may mean to a tool, with no signs but ``*`` and ``?``, and whether that is all they may match.

    Args:
        texts: patterns, or lists of them; those that begin with ``!`` leave names out, and are not returned.
    """
    found: list[str] = []
    is_clear = True
    for text in texts:
        wide = _CLASS.sub("?", text)
        for piece in dict.fromkeys((wide.strip(), *_pieces(wide), *_without_braces(wide))):
            if not piece or (piece[0] == "!" and _UNCLEAR.search(piece[1:]) is None):
                continue
            each = [one.strip() for one in alternatives(piece)]
            is_clear &= len(each) <= MAX_ALTERNATIVES and all(map(_is_clear, each))
            found += each
    return list(dict.fromkeys(found)), is_clear


def covers(pattern: str, names: Sequence[str]) -> bool:
    """Return whether a pattern may match a file, a folder above it, or the end of the path of either.

    Args:
        pattern: as ``read_patterns`` returns it.
        names: of the path of the file.
    """
    kept = "/".join(one for one in pattern.split("/") if one not in ("", "."))
    if not kept:
        return bool(pattern)  # the folder itself
    wide = _ANY_DEPTH.sub("*", folded(kept))
    parts = [folded(one) for one in names]
    ends = range(1, len(parts) + 1)
    return any(fnmatchcase("/".join(parts[first:end]), wide) for end in ends for first in range(end))


def without_classes(pattern: str) -> str:
    """Return a pattern of a shell that matches all that one with classes does: ``*`` is in place of those not known.

    Args:
        pattern: of one name.
    """
    wide = _CLASS.sub("?", pattern)
    begin, end = wide.find("["), wide.rfind("]")
    return f"{wide[:begin]}*{wide[end + 1 :]}" if 0 <= begin < end else wide.replace("[", "[[]")


def folded(text: str) -> str:
    """Return a name as file systems compare it that ignore case and forms of Unicode."""
    kept = "".join(one for one in text if unicodedata.category(one) != "Cf") if not text.isascii() else text
    return unicodedata.normalize("NFC", kept).casefold()


def _is_clear(pattern: str) -> bool:
    has_signs = "*" in pattern or "?" in pattern
    return _UNCLEAR.search(pattern) is None and not (has_signs and ".." in pattern.split("/"))


def _pieces(text: str) -> Iterator[str]:
    """Yield the parts between commas and spaces outside of braces."""
    depth, begin = 0, 0
    for at, sign in enumerate(text):
        depth += (sign == "{") - (sign == "}")
        if depth <= 0 and _SEPARATOR.match(sign):
            yield text[begin:at]
            begin = at + 1
    yield text[begin:]


def _without_braces(text: str) -> Iterator[str]:
    """Yield the parts between all commas and spaces that have no braces: some tools split there, too."""
    return (one for one in _SEPARATOR.split(text) if "{" not in one and "}" not in one)
