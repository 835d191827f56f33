"""Comparison of names with ignored differences of case and normal form (KM-4.2b).

It is shared by leases, observation, effects and backups. A file system may ignore case, or equate the composed and the
decomposed form of a letter. The KLIS settings record the comparison of a realm (``lower_case``, ``normal_form``); names
with equal keys are equal.

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
"""Escape of a byte in a name (``host.workspace.names``); its digits are not letters."""
_ESCAPED: Final = re.compile(_DIGITS)
"""Digits after a literal percent sign, which is written ``%25``."""


class NameComparison(NamedTuple):
    """Ignored differences of names.

    Args:
        ignores_case: whether ``a`` and ``A`` are equal.
        ignores_normal_form: whether the composed (NFC) and the decomposed form (NFD) of a letter are equal.
    """

    ignores_case: bool = False
    ignores_normal_form: bool = False

    @property
    def is_byte_wise(self) -> bool:
        """Whether no difference is ignored."""
        return not (self.ignores_case or self.ignores_normal_form)

    def key(self, name: str) -> str:
        """Return the comparison key of a name: lower case, normal form C, or unchanged.

        Args:
            name: a name of a path, written as in a resource.
        """
        if self.ignores_case:
            name = name.lower()
        if self.ignores_normal_form and not is_normalized("NFC", name):
            name = _composed(name)
        return name

    def united(self, other: NameComparison) -> NameComparison:
        """Return the comparison that ignores the differences of both."""
        return NameComparison(
            self.ignores_case or other.ignores_case, self.ignores_normal_form or other.ignores_normal_form
        )


def _composed(name: str) -> str:
    """Return a name in normal form C with unchanged escapes."""
    parts = _ESCAPE.split(name)
    for at in range(0, len(parts), 2):
        plain = normalize("NFC", parts[at])
        if at and parts[at - 1] == "%25" and _ESCAPED.match(parts[at]) and not _ESCAPED.match(plain):
            parts[at - 1] = "%"  # the following text is no longer an escape
        parts[at] = plain
    return "".join(parts)


BYTE_WISE: Final = NameComparison()
"""Comparison byte by byte, as in most file systems of Linux."""
