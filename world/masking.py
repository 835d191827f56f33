"""Addresses of logs without their passwords: the one function through which every address goes that is shown."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote_plus

MASK: Final = "***"
"""Replacement of a password."""

URL_START: Final = re.compile(r"[^/@?#]*://|postgres[a-z0-9+]*:", re.IGNORECASE)
"""How a URL begins, a mistyped one of PostgreSQL too."""

_USER: Final = re.compile(r"(/*(?:(?!%3a)[^:@/?#])*(?::|%3a)).*@", re.DOTALL | re.IGNORECASE)
_SECRET: Final = re.compile(r"pass|pwd|secret|token|scram|key", re.IGNORECASE)
_OPTION: Final = re.compile(r"([?&;]+)([^?&;=]*)=", re.DOTALL)
_LOG_NAME: Final = re.compile(r"#[A-Za-z0-9][A-Za-z0-9._-]{0,127}\Z")


def masked(address: str) -> str:
    """Return an address with ``***`` for every password in it; an address without one stays as it is.

    Hidden are the text between the first ``:`` (or ``%3A``) and the last ``@`` of a URL's authority, and the values of
    options whose names contain ``pass``, ``pwd``, ``secret``, ``token``, ``scram`` or ``key``, percent-encoded names
    too. Where a separator is written unencoded in a password, more is hidden than the password, never less.

    Args:
        address: as it was given; it may be malformed. A file's path stays as it is.
    """
    start = URL_START.match(address)
    if start is None:
        return address
    scheme, rest = address[: start.end()], address[start.end() :]
    secret = _first_secret(rest)
    if secret is None:
        return scheme + _USER.sub(rf"\1{MASK}@", rest, count=1)
    name = _LOG_NAME.search(rest)
    shown = _USER.sub(rf"\1{MASK}@", rest[:secret], count=1)
    return f"{scheme}{shown}{MASK}{name.group() if name and name.start() >= secret else ''}"


def _first_secret(rest: str) -> int | None:
    """Return where the value of the first option with a secret begins; all after it is hidden."""
    for option in _OPTION.finditer(rest):
        if _SECRET.search(re.sub(r"\s", "", unquote_plus(option.group(2)))):
            return option.end()
    return None
