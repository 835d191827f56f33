"""Words for people that end up in the log: bounded, and the same in every run."""

from __future__ import annotations

import re
from typing import Final

MAX_WORDS: Final = 2_000
"""Characters of a reason; what is longer is cut and ends in an ellipsis."""

MAX_NAME: Final = 128
"""Characters in the name of a rule or policy."""

_NAME: Final = re.compile(rf"\w[\w.:/\-]{{0,{MAX_NAME - 1}}}")
_ADDRESS: Final = re.compile(r" at 0x[0-9A-Fa-f]+")


def bounded(text: str) -> str:
    """Return the text cut to ``MAX_WORDS`` characters, with what UTF-8 cannot carry written as escapes."""
    if len(text) > MAX_WORDS:
        text = text[: MAX_WORDS - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def told(error: BaseException) -> str:
    """Return an error as words: type and message, without memory addresses, which differ in every run."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the error of somebody else's code may be unable to tell itself
        message = ""
    kind = type(error).__name__
    return bounded(_ADDRESS.sub("", f"{kind}: {message}" if message else kind))


def listed(names: tuple[str, ...]) -> str:
    """Return ids as people read them; ``*`` is any human."""
    return " or ".join("any human" if name == "*" else name for name in names)


def is_name(text: object) -> bool:
    """Tell whether a text can name a rule or a policy: letters, digits and ``_ . : / -``, no spaces."""
    return isinstance(text, str) and _NAME.fullmatch(text) is not None
