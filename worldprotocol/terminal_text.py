"""Words of others on a terminal: nothing in them begins a line, steers the terminal or turns the reading around."""

from __future__ import annotations

import re
from typing import Final

_STEERING: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def visible(words: str, keep: str = "") -> str:
    r"""Return words with every character that steers as an escape to be seen, such as ``\u001b``.

    These are the control characters (C0, DEL, C1), the separators of lines and paragraphs, what turns the direction of
    reading, and half surrogates, which cannot be printed.

    Args:
        words: any text.
        keep: characters that stay as they are.
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), words)


def _escaped(char: str) -> str:
    return _SHORT.get(char) or f"\\u{ord(char):04x}"
