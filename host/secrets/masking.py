"""Removal of secret values from the results of effects.

The value itself and its usual encodings are removed: percent-encoded, escaped as in JSON, Python, HTML and the shell,
in any mix and with repeated escaping (JSON within JSON), hexadecimal
with or without separators, and Base64 in all three alignments, with or without line breaks, also within other text
(``Basic`` credentials). A text that begins with the end of a
secret or ends with its beginning, because it was truncated, loses that part as well. Other transformations, such as
compression or encryption, are not recognized.
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
"""Shorter values are refused: masking them would also replace, and so disclose, parts of ordinary text."""

_MIN_PART: Final = 4
"""Shortest part of a truncated secret at the edge of a text that is masked, in characters."""


_MAX_MIXED: Final = 1_024
"""Longest value, in bytes, whose mixed encodings are recognized; of longer ones only the separate encodings are."""

_LETTERS: Final = re.compile(r"\\+|[^\\]", re.DOTALL)
_ESCAPE: Final = r"\\{1,8}"
_ESCAPE_OR_NOT: Final = r"\\{0,8}"
_BROKEN: Final = r"(?:\s|\\[rn]){0,8}"
"""Line breaks and indentation within Base64."""

_OF_BASE64: Final = {"+": r"[+-]", "/": r"\\{0,8}[/_]"}
"""The two letters that differ in the URL-safe alphabet."""

_NAMES: Final = {"&": ["amp"], "<": ["lt"], ">": ["gt"], '"': ["quot"], "'": ["apos"]}
_OTHERWISE: Final = {" ": ["+"], "'": ["'\"'\"'", "'\\''"]}
"""Encodings of a character in a form and in a quoted shell word."""

_CONTROLS: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}


class ValueMask:
    """Masks a set of values.

    Args:
        values: the secrets.
    """

    __slots__ = ("_edges", "_pattern")

    def __init__(self, values: Iterable[str]) -> None:
        """Compile patterns of all forms, the longest first."""
        lines = {
            line
            for value in values
            for line in (
                value,
                *value.splitlines(),
            )  # each line of a multi-line value, such as a PEM key, is masked too
            if line == value or len(line) >= MIN_SECRET_CHARS
        }
        longest_first = sorted(lines, key=len, reverse=True)
        self._edges = sorted({form for line in lines for form in _forms(line)}, key=len, reverse=True)
        patterns = [pattern for line in longest_first for pattern in _patterns(line)]
        self._pattern = re.compile("|".join(patterns)) if patterns else None

    def text(self, text: str) -> str:
        """Replace every form of a value in a text by ``***``."""
        if self._pattern is None:
            return text
        return self._without_cut_parts(self._pattern.sub(MASK, text))

    def value(self, value: Any) -> Any:
        """Mask every text of a JSON value, keys included, and replace numbers that hold a secret by ``***``."""
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


def _patterns(value: str) -> Iterable[str]:
    data = value.encode()
    if len(data) > _MAX_MIXED:
        yield from map(re.escape, sorted(set(_forms(value)), key=len, reverse=True))
        return
    yield "".join(map(_written, _LETTERS.findall(value)))
    yield "[ :-]?".join(map(_hexadecimal, data))
    for form in _base64_forms(data):
        yield _BROKEN.join(_OF_BASE64.get(letter, letter) for letter in form)


def _written(letters: str) -> str:
    """Return a pattern of all encodings of one character of a value, or of several backslashes in a row.

    Libraries escape different characters and differ in case, so all escapes may be mixed.
    """
    first, count = letters[0], len(letters)
    if first == "\\":
        return rf"(?:\\{{{count},{8 * count}}}|(?:{'|'.join(_escaped(first))}){{{count}}})"
    if first.isascii() and (first.isalnum() or first == "_"):
        return first
    return f"(?:{'|'.join([*_escaped(first), _ESCAPE_OR_NOT + re.escape(first)])})"


def _escaped(letter: str) -> Iterable[str]:
    code = ord(letter)
    yield "".join(f"%(?:25){{0,3}}{_hexadecimal(byte)}" for byte in letter.encode())
    yield (
        _ESCAPE
        + "".join(f"x{_hexadecimal(byte)}" for byte in letter.encode()[:1])
        + "".join(f"{_ESCAPE}x{_hexadecimal(byte)}" for byte in letter.encode()[1:])
    )
    if code < 1 << 8:
        yield f"{_ESCAPE}x{_hexadecimal(code)}"
    if code >= 1 << 16:
        yield f"{_ESCAPE}U{''.join(map(_hexadecimal, code.to_bytes(4, 'big')))}"
    units = letter.encode("utf-16-be")
    yield "".join(f"{_ESCAPE}u{_hexadecimal(units[at])}{_hexadecimal(units[at + 1])}" for at in range(0, len(units), 2))
    names = "".join(f"|{name}" for name in _NAMES.get(letter, ()))
    yield f"&(?:amp;){{0,3}}(?:#0{{0,6}}{code}|#[xX]0{{0,6}}(?i:{code:x}){names});"
    yield from map(re.escape, _OTHERWISE.get(letter, ()))
    if letter in _CONTROLS:
        yield f"{_ESCAPE}{_CONTROLS[letter]}"


def _hexadecimal(byte: int) -> str:
    return "".join(f"[{one}{one.upper()}]" if one.isalpha() else one for one in f"{byte:02x}")


def _forms(value: str) -> Iterable[str]:
    data = value.encode()
    yield value
    for encoded in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield encoded
        yield re.sub(r"%[0-9A-F]{2}", lambda match: match[0].lower(), encoded)
    yield from (
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        json.dumps(value)[1:-1].replace("/", "\\/"),
    )
    yield from (html.escape(value), html.escape(value, quote=False))
    yield from (data.hex(), data.hex().upper(), repr(value)[1:-1])
    for form in _base64_forms(data):
        yield from (form, form.replace("+", "-").replace("/", "_"))


def _base64_forms(data: bytes) -> Iterable[str]:
    for shift in range(3):
        # Characters that also hold bits of a neighbouring byte are left out: they depend on the surrounding text.
        begin, end = (0, 2, 3)[shift], (8 * (shift + len(data))) // 6
        inner = base64.b64encode(b"\0" * shift + data).decode()[begin:end]
        if len(inner) >= MIN_SECRET_CHARS:
            yield inner
