"""Names of files: conversion between paths below a workspace and names in resources.

A path is bytes; a resource's name is printable Unicode without ``*``. Other bytes are written ``%XX``
in upper-case hex: control characters, the separators U+2028 and U+2029, ``*``, and bytes that are not
UTF-8. A ``%`` is written ``%25`` only where it would otherwise be read as such an escape, so that ``a%20b`` is
unchanged. Each path has one name and each name at most one path.
Source: design section 8.
"""

from __future__ import annotations

import re
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.names import BYTE_WISE, NameComparison

__all__ = ["name_of", "path_of"]

_ESCAPED: Final = "(?:25|2[Aa]|[01][0-9A-Fa-f]|7[Ff]|[89A-Fa-f][0-9A-Fa-f])"
"""Hex digits of escapable bytes: ``%``, ``*``, control characters and bytes beyond ASCII; a path has no NUL."""
_TO_ESCAPE: Final = re.compile(
    rf"[\x00-\x1f*\x7f-\x9f\u2028\u2029\udc80-\udcff]|%(?=(?!00){_ESCAPED})",
)
_ESCAPE: Final = re.compile(rf"%(?!00)({_ESCAPED})".encode())


def name_of(relative: bytes) -> str:
    """Return the name of a path below the root: ``b"src/a.py"`` is ``"/src/a.py"``, the root itself ``"/"``.

    Args:
        relative: names separated by single slashes, none of them ``.`` or ``..``.
    """
    return "/" + _TO_ESCAPE.sub(_escape, relative.decode("utf-8", "surrogateescape"))


def path_of(name: str, *, names: NameComparison = BYTE_WISE) -> bytes:
    """Return the path of a name, the inverse of ``name_of``.

    Args:
        name: begins with a slash.
        names: the comparison by which the name was normalized, its escapes included.

    Raises:
        RefusedError: ``AMBIGUOUS_RESOURCE`` for a text that is not the name of a path, with the intended name where
            there is one.
    """
    try:
        path = _ESCAPE.sub(_unescape, name.encode("utf-8"))[1:]
    except UnicodeEncodeError:
        raise _ambiguous(name, None) from None
    segments = path.split(b"/")
    if name[:1] != "/" or b"\0" in path or b"." in segments or b".." in segments or (path and b"" in segments):
        raise _ambiguous(name, None)
    canonical_name = name_of(path)
    if names.key(canonical_name) != names.key(name):
        raise _ambiguous(name, canonical_name)
    return path


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogateescape"))


def _unescape(match: re.Match[bytes]) -> bytes:
    return bytes.fromhex(match[1].decode())


def _ambiguous(name: str, canonical: str | None) -> RefusedError:
    shown = ascii(name[:256])
    if canonical is None:
        return RefusedError(
            ErrorCode.AMBIGUOUS_RESOURCE,
            f"{shown} is not the name of a file; write an absolute path without . and .. in it.",
            resource=name,
        )
    return RefusedError(
        ErrorCode.AMBIGUOUS_RESOURCE,
        f"{shown} is not the canonical name of this file; write {canonical!r}.",
        resource=name,
        canonical=canonical,
    )
