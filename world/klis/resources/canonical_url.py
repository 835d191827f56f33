r"""URLs whose host each reader reads alike: those of WHATWG, RFC 3986 and Python's ``urllib``.

A URL is judged by its host and then opened by another program. Where two readers find different hosts, such as
``https://evil.example\@github.com/``, what was judged is not what is reached, so the URL is refused: backslashes,
control characters, user info, an absent or percent-encoded host, addresses in another form than their one, a final dot,
labels of several scripts or of more than 63 characters, and names whose international form depends on a mapping, or is
another one for IDNA 2003, as Python's codec has it.
Sources: https://url.spec.whatwg.org/#host-parsing, RFC 3986 section 3.2, UTS 39 section 5.1, UTS 46 section 7.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.url import normal_url
from world.klis.resources.url_host import canonical_host

__all__ = ["CanonicalUrl", "canonical_url"]

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)")
_HOST: Final = re.compile(r"(\[[^\]]*\]|[^:\[\]]*)(?::[0-9]*)?")
_LABELS: Final = re.compile(r"(?:[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?\.)*[a-z0-9_](?:[a-z0-9_-]*[a-z0-9_])?")
_TOGETHER: Final = (
    frozenset({"CJK", "HIRAGANA", "KATAKANA"}),
    frozenset({"CJK", "HANGUL"}),
    frozenset({"CJK", "BOPOMOFO"}),
)
"""Scripts that one word of Japanese, Korean or Chinese may have."""

_DEVIATIONS: Final = frozenset("\u00df\u1e9e\u03c2\u03a3\u200c\u200d")
"""Characters, in either case, that IDNA 2003 and IDNA 2008 encode differently."""

_MAX_LABEL: Final = 63
_DOTS: Final = frozenset("\u3002\uff0e\uff61")
_LEFT_OUT: Final = frozenset({"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"})
_SHOWN_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class CanonicalUrl:
    """A URL that has one reading.

    Args:
        text: its normal form.
        scheme: in lower case.
        host: in its one form, an IPv6 address in brackets.
        port: the port; None is that of the scheme.
    """

    text: str
    scheme: str
    host: str
    port: int | None


@lru_cache(4_096)
def canonical_url(text: str) -> CanonicalUrl:
    """Return the one reading of a URL.

    Args:
        text: an absolute URL with a host.

    Raises:
        RefusedError: ``AMBIGUOUS_URL`` where readers differ, or there is no such URL.
    """
    try:
        return _read(text)
    except ValueError as error:
        shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
        raise RefusedError(
            ErrorCode.AMBIGUOUS_URL,
            f"{shown!a} {error}. Write the host as it is reached: SCHEME://HOST[:PORT]/PATH.",
            url=shown,
        ) from None


def _read(text: str) -> CanonicalUrl:
    if "\\" in text:
        raise ValueError("has a backslash, which some readers take for a slash")
    if text != text.strip() or any(unicodedata.category(one) in _LEFT_OUT and one != " " for one in text):
        raise ValueError("has white space or a control character, which some readers leave out")
    found = _URL.fullmatch(text)
    if found is None:
        raise ValueError("names no scheme and host")
    authority = found[2]
    if "@" in authority:
        raise ValueError("has user info before its host, which may be mistaken for it")
    if "%" in authority:
        raise ValueError("has a percent-encoded host, which only some readers decode")
    named = _HOST.fullmatch(authority)
    if named is None or not named[1]:
        raise ValueError("has no host that can be compared")
    host = _host(named[1])
    origin, path, query = normal_url(text)
    parts = urlsplit(f"{origin}{path}{query}")
    if f"[{parts.hostname}]" != host and parts.hostname != host:
        raise ValueError("has a host that readers take for different ones")
    return CanonicalUrl(f"{origin}{path}{query}", parts.scheme, host, parts.port)


def _host(written: str) -> str:
    host = canonical_host(written)
    if host != _plain(written):
        raise ValueError(f"has a host that is written otherwise than it is read: {host}")
    if host.startswith("["):
        return host
    if _LABELS.fullmatch(host) is None:
        raise ValueError("has a host with a sign that not every reader accepts")
    for label in host.split("."):
        _check_label(label)
    return host


def _plain(written: str) -> str:
    """Return the one form of a host if it is written plainly: in any case, and as IDNA 2003 and 2008 read it unmapped.

    Raises:
        ValueError: it is not.
    """
    if written.isascii():
        return written.lower()
    import idna  # its tables are large, and few hosts need them

    if not _DOTS.isdisjoint(written):
        raise ValueError("has a dot in its host that only some readers take for one")
    if not _DEVIATIONS.isdisjoint(written):
        raise ValueError("has a host with a character that is encoded in two ways; write its xn-- form")
    try:
        plain = idna.encode(written.lower()).decode("ascii")
        by_codec = written.encode("idna").decode("ascii").lower()
    except (idna.IDNAError, UnicodeError):
        raise ValueError("has a host whose international form depends on a mapping") from None
    if by_codec != plain:
        raise ValueError(f"has a host with two international forms: {plain} and {by_codec}")
    if any(one not in (one.lower(), one.lower().upper()) for one in written):
        raise ValueError("has a host with a sign that becomes a letter in lower case and is no capital of it")
    return plain


def _check_label(label: str) -> None:
    if len(label) > _MAX_LABEL:
        raise ValueError(f"has a host with a label of more than {_MAX_LABEL} characters, which no name server has")
    if label[2:4] == "--" and not label.startswith("xn--"):
        raise ValueError("has a host with a reserved label")
    if not label.startswith("xn--"):
        return
    import idna

    try:
        name = idna.decode(label)
    except (idna.IDNAError, UnicodeError):
        raise ValueError("has a host that is no international name (IDNA 2008)") from None
    scripts = {_script(one) for one in name} - {""}
    if len(scripts) > 1 and not any(scripts <= allowed for allowed in _TOGETHER):
        raise ValueError(f"has a label of several scripts, which looks like another: {label}")


def _script(letter: str) -> str:
    """Return the script of a letter, as the first word of its name; empty for digits and signs."""
    return unicodedata.name(letter, "UNNAMED").split(" ")[0] if unicodedata.category(letter)[0] == "L" else ""
