"""Hosts as resource names: one text for each place that a URL's host can name.

- IPv6 addresses are written as RFC 5952 says, in brackets. An IPv4-mapped one (``::ffff:127.0.0.1``) is the IPv4
  address, since a connection to it reaches that.
- IPv4 addresses are written as dotted quads, whatever form of ``inet_aton`` they have: ``127.1``, ``0x7f.1``,
  ``0177.0.0.1`` or ``2130706433``. A host whose last part is a number and that is no address names nothing.
- Names are in lower case and ASCII (IDNA 2008 with the mapping of UTS 46), without percent-encoding and final dot;
  a name with an empty part (``a..``) names nothing.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

__all__ = ["bare_host", "canonical_host"]

_NAME: Final = re.compile(r"(?!.*\.(?:\.|\Z))[a-z0-9_~!$&'()+,;=-][a-z0-9._~!$&'()+,;=-]*")
_NUMBER: Final = re.compile(r"0x[0-9a-f]*|0[0-7]*|[1-9][0-9]*")
_ENDS_IN_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)")
_DOTS: Final = re.compile("[\u3002\uff0e\uff61]")
_MAX_CHARS: Final = 1_024


@lru_cache(4_096)
def canonical_host(text: str) -> str:
    """Return the canonical form of a URL's host.

    Args:
        text: the host without user and port; an IPv6 address in brackets or without.

    Raises:
        ValueError: with the reason as a clause, for what names no host.
    """
    host = text
    if len(host) > _MAX_CHARS:
        raise ValueError(f"has a host of more than {_MAX_CHARS} characters")
    if "%" in host:
        if re.search(r"%(?![0-9A-Fa-f]{2})", host):
            raise ValueError("has a % in its host that begins no two hexadecimal digits")
        try:
            host = unquote(host, errors="strict")
        except UnicodeDecodeError:
            raise ValueError("has a host whose percent-encoding is no UTF-8") from None
    if host.startswith("[") or host.count(":") > 1:
        return _ipv6(host)
    if not host.isascii():
        host = _ascii(host)
    host = host.lower().removesuffix(".")
    if _NAME.fullmatch(host) is None:
        raise ValueError("has no host that can be compared")
    return _ipv4(host) if _ENDS_IN_NUMBER.fullmatch(host) else host


def bare_host(text: str) -> str:
    """Return the canonical form of a host without brackets around an IPv6 address.

    What has no canonical form is returned as it is.
    """
    try:
        return canonical_host(text).strip("[]")
    except ValueError:
        return text


def _ipv6(host: str) -> str:
    inner = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if "%" in inner:
        raise ValueError("has an IPv6 address with a zone, which means something on one machine only")
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise ValueError("has a host that is no IPv6 address") from None
    mapped = address.ipv4_mapped
    return f"[{address.compressed}]" if mapped is None else str(mapped)


def _ipv4(host: str) -> str:
    parts = host.split(".")
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError("has a host that ends in a number and is no IPv4 address")
    numbers = [_number(part) for part in parts]
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (5 - len(parts)):
        raise ValueError("has a host that ends in a number and is no IPv4 address")
    value = last + sum(number << 8 * (3 - index) for index, number in enumerate(leading))
    return str(ipaddress.IPv4Address(value))


def _number(part: str) -> int:
    if part.startswith("0x"):
        return int(part[2:] or "0", 16)
    return int(part, 8 if part.startswith("0") else 10)


def _ascii(host: str) -> str:
    import idna  # its tables are large, and few hosts need them

    try:
        return idna.encode(_DOTS.sub(".", host), uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise ValueError("has a host that is no international name (IDNA 2008)") from None
