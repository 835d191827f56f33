"""Which differences of names are ignored: one comparison for leases, observation, effects and backups (KM-4.2b).

A file system may ignore case, or take the composed and the decomposed form of a letter for one. What a realm follows is
recorded with the KLIS settings (``lower_case``, ``normal_form``); names that have the same key are one name.

The key approximates what file systems do. Case is ignored by ``str.lower``: names that differ by a letter with several
forms in lower case (final sigma) or by a fold to several letters (sharp s and ``ss``) keep different keys, and so do
names that differ only by code points that a file system ignores, such as U+200B.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from unicodedata import is_normalized, normalize

__all__ = ["BYTE_WISE", "NameComparison"]

_DIGITS: Final = "(?:25|2[Aa]|[01][0-9A-Fa-f]|7[Ff]|[89A-Fa-f][0-9A-Fa-f])"
_ESCAPE: Final = re.compile(f"(%{_DIGITS})")
"""How a name holds a byte that cannot stand in it (``host.workspace.names``); its digits are no letters."""
_ESCAPED: Final = re.compile(_DIGITS)
"""What follows a percent sign that stands for itself and is written ``%25``."""


class NameComparison(NamedTuple):
    """Which differences of names are ignored.

    Args:
        ignores_case: whether ``a`` and ``A`` are one name.
        ignores_normal_form: whether the composed (NFC) and the decomposed form (NFD) of a letter are one name.
    """

    ignores_case: bool = False
    ignores_normal_form: bool = False

    @property
    def is_byte_wise(self) -> bool:
        """Whether no difference is ignored."""
        return not (self.ignores_case or self.ignores_normal_form)

    def key(self, name: str) -> str:
        """Return what a name is compared by, itself a name: in lower case, in normal form C, or as it is.

        Args:
            name: of a path, written as in a resource.
        """
        if self.ignores_case:
            name = name.lower()
        if self.ignores_normal_form and not is_normalized("NFC", name):
            name = _composed(name)
        return name

    def united(self, other: NameComparison) -> NameComparison:
        """Return the comparison that ignores what either ignores."""
        return NameComparison(
            self.ignores_case or other.ignores_case, self.ignores_normal_form or other.ignores_normal_form
        )


def _composed(name: str) -> str:
    """Return a name in normal form C, its escapes as they were."""
    parts = _ESCAPE.split(name)
    for at in range(0, len(parts), 2):
        plain = normalize("NFC", parts[at])
        if at and parts[at - 1] == "%25" and _ESCAPED.match(parts[at]) and not _ESCAPED.match(plain):
            parts[at - 1] = "%"  # what follows has become no escape, so the sign needs none
        parts[at] = plain
    return "".join(parts)


BYTE_WISE: Final = NameComparison()
"""No difference is ignored, as by most file systems of Linux."""
