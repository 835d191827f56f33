"""Normalisation of URLs as resource names (RFC 3986, sections 6.2.2 and 6.2.3).

Scheme and host are lower case, the host is in its one form (``world.klis.resources.url_host``), a default or empty port
is dropped, percent-encoding is in upper case and never hides an unreserved character, dot segments are resolved. The
query is kept. A fragment never reaches a server and credentials are no part of a resource's name, so both are dropped.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from world.klis.resources.url_host import canonical_host

__all__ = ["normal_url"]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?")
_AUTHORITY: Final = re.compile(r"(?:.*@)?(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()+,;=-]+)(?::([0-9]*))?")
_ANY_AUTHORITY: Final = re.compile(r"(?:.*@)?(\[[^\]]*\]|[^:\[\]]+)(?::([0-9]*))?")
_PERCENT: Final = re.compile(r"%([0-9A-Fa-f]{2})?")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}
_LAST_PORT: Final = 65_535


def normal_url(text: str, *, plain_hosts: bool = False) -> tuple[str, str, str]:
    """Return the normal form of a URL in three pieces.

    Args:
        text: an absolute URL with a host and without control characters.
        plain_hosts: whether hosts are only brought into lower case, as manifests before version 3 of their rules.

    Returns:
        Origin (``https://example.com``), path (``/`` at least) and query (empty, or beginning with ``?``).

    Raises:
        ValueError: with the reason as a clause, for what is no such URL.
    """
    found = _URL.fullmatch(text)
    if found is None:
        raise ValueError("is relative; a URL names scheme and host, like URL:https://example.com/api")
    scheme, authority, path, query = found.groups()
    scheme = scheme.lower()
    origin = f"{scheme}://{_host(scheme, authority, plain=plain_hosts)}"
    return origin, _without_dots(_encoded(path, "/")), _encoded(query or "", "/?")


def _host(scheme: str, authority: str, *, plain: bool) -> str:
    found = (_AUTHORITY if plain else _ANY_AUTHORITY).fullmatch(authority)
    if found is None:
        raise ValueError("has no host that can be compared")
    host, port = found[1].lower() if plain else canonical_host(found[1]), found[2]
    if not port:
        return host
    if len(port.lstrip("0")) > len(str(_LAST_PORT)) or int(port) > _LAST_PORT:
        raise ValueError(f"has no valid port; ports are numbers up to {_LAST_PORT}")
    return host if int(port) == _DEFAULT_PORTS.get(scheme) else f"{host}:{int(port)}"


def _encoded(text: str, also: str) -> str:
    return quote(_PERCENT.sub(_triplet, text), safe=f"%:@!$&'()*+,;={also}")


def _triplet(found: re.Match[str]) -> str:
    if found[1] is None:
        raise ValueError("has a % that begins no two hexadecimal digits; write %25 for the sign itself")
    character = chr(int(found[1], 16))
    return character if character in _UNRESERVED else found[0].upper()


def _without_dots(path: str) -> str:
    kept: list[str] = []
    names = path.split("/")[1:]
    for name in names:
        if name == "..":
            del kept[-1:]
        elif name != ".":
            kept.append(name)
    if names and names[-1] in {".", ".."}:
        kept.append("")  # what ends in a dot segment names a directory
    return "/" + "/".join(kept)
