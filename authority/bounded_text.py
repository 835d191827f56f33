"""Texts that are recorded in the log: bounded, and equal in every run."""

from __future__ import annotations

import re
from typing import Final

MAX_WORDS: Final = 2_000
"""Maximum length of a reason in characters; a longer one is truncated and ends in an ellipsis."""

MAX_NAME: Final = 128
"""Maximum length of the name of a rule or policy, in characters."""

_NAME: Final = re.compile(rf"\w[\w.:/\-]{{0,{MAX_NAME - 1}}}")
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


def bounded(text: str) -> str:
    """Return a text truncated to ``MAX_WORDS`` characters, surrogates escaped."""
    if len(text) > MAX_WORDS:
        text = text[: MAX_WORDS - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def error_text(error: BaseException) -> str:
    """Return type and message of an error without memory addresses, which vary."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the error of foreign code may fail in __str__
        message = ""
    kind = type(error).__name__
    return bounded(_ADDRESS.sub("", f"{kind}: {message}" if message else kind))


def listed(names: tuple[str, ...]) -> str:
    """Return ids as a text for people; ``*`` is any human."""
    return " or ".join("any human" if name == "*" else name for name in names)


def is_name(text: object) -> bool:
    """Return whether a text is a valid rule name: letters, digits and ``_ . : / -``."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
