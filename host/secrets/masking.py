"""The one function that removes the values of secrets from what an effect gave back.

Removed are the value itself and its usual encodings: percent-encoded, escaped as in JSON and HTML, hexadecimal, and
Base64 in all three alignments, also within other text (``Basic`` credentials). A text that begins with the end of a
secret or ends with its beginning, because it was cut, loses that part as well. Any other transformation, such as
compression or encryption, is not found.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import quote, quote_plus

from world.masking import MASK

__all__ = ["MIN_SECRET_CHARS", "ValueMask"]

MIN_SECRET_CHARS: Final = 6
"""Shorter values are refused: masking them would hide and thereby disclose parts of ordinary text."""

_MIN_PART: Final = 4
"""Characters of a cut secret at the edge of a text from which on it is masked."""


class ValueMask:
    """Masks some values.

    Args:
        values: of secrets.
    """

    __slots__ = ("_edges", "_pattern")

    def __init__(self, values: Iterable[str]) -> None:
        """Compile all forms, the longest first."""
        forms = {form for value in values for form in _forms(value)}
        self._edges = sorted(forms, key=len, reverse=True)
        longest_first = "|".join(re.escape(form) for form in self._edges)
        self._pattern = re.compile(longest_first) if forms else None

    def text(self, text: str) -> str:
        """Return a text with ``***`` in place of every form of a value."""
        if self._pattern is None:
            return text
        return self._without_cut_parts(self._pattern.sub(MASK, text))

    def value(self, value: Any) -> Any:
        """Return a JSON value with every text masked, keys too, and numbers that hold a secret replaced by ``***``."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(str(key)): self.value(inner) for key, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool) and self._pattern.search(repr(value)):
            return MASK
        return value

    def _without_cut_parts(self, text: str) -> str:
        for form in self._edges:
            for size in range(min(len(form) - 1, len(text)), _MIN_PART - 1, -1):
                if text.startswith(form[-size:]):
                    text = MASK + text[size:]
                    break
            for size in range(min(len(form) - 1, len(text)), _MIN_PART - 1, -1):
                if text.endswith(form[:size]):
                    text = text[:-size] + MASK
                    break
        return text


def _forms(value: str) -> Iterable[str]:
    data = value.encode()
    yield value
    for line in value.splitlines():  # of a value of several lines, such as a PEM key, each line counts
        if len(line) >= MIN_SECRET_CHARS:
            yield line
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda found: found[0].lower(), encoded)
    yield from (
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
    )
    yield from (html.escape(value), html.escape(value, quote=False))
    yield from (data.hex(), data.hex().upper(), repr(value)[1:-1])
    for shift in range(3):
        # Characters that also hold bits of a neighbouring byte are left out: they depend on the text around the value.
        begin, end = (0, 2, 3)[shift], (8 * (shift + len(data))) // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            inner = encode(b"\0" * shift + data).decode()[begin:end]
            if len(inner) >= MIN_SECRET_CHARS:
                yield inner
