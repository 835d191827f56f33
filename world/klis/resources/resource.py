"""Resources in canonical form (KLIS-1 section 4).

A resource is written ``TYPE:name``; ``world.klis.resources.resource_types`` defines the types. A path or URL with a
final ``/*``, or an opaque name with a final separator and ``*``, is a subtree: the place and everything below it. Two
resources are equal exactly when their keys are, which is one comparison of strings.
``world.klis.resources.resource_reading`` reads resources from manifests and observations.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.klis.resources.resource_types import STANDARD, ResourceType, ResourceTypes

__all__ = [
    "AUTHORITY",
    "REMEMBERED",
    "REMEMBERED_CHARS",
    "Resource",
    "make_resource",
    "opaque_base",
    "recorded_resource",
]

AUTHORITY: Final = re.compile(r"(?!\.\.?(?:/|\Z))(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^/*]*(?=/)")
REMEMBERED: Final = 8_192
REMEMBERED_CHARS: Final = 256
"""Maximum length of a cached text, which bounds the memory of the caches."""
_FEW: Final = 32


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource or a subtree; equal if type, key and subtree are equal.

    Args:
        type: the type's name, in capitals.
        key: the canonical text without the final ``/*``; a root ends in ``/``.
        subtree: whether it includes everything below.
        ancestors: the keys of all places above it, the root first; empty for a root and for opaque names.
        nested: whether deleting or renaming it includes everything below (as with directories).
        separator: the separator of the names of its path.
    """

    type: str = field(compare=False)
    key: str
    subtree: bool
    ancestors: tuple[str, ...] = field(compare=False, repr=False)
    nested: bool = field(compare=False, repr=False)
    separator: str = field(default="/", compare=False, repr=False)

    @property
    def depth(self) -> int:
        """Number of names below the root."""
        return len(self.ancestors)

    @property
    def text(self) -> str:
        """The canonical text."""
        if not self.subtree:
            return self.key
        return f"{self.key}{self.separator}*" if self.ancestors else f"{self.key}*"

    def covers(self, other: Resource) -> bool:
        """Return whether it includes all of another one; ``X:/c/*`` covers ``X:/c`` too."""
        if self.key == other.key:
            return self.subtree or not other.subtree
        return self.subtree and self._is_above(other)

    def overlaps(self, other: Resource) -> bool:
        """Return whether both have a common place (KP-wild)."""
        return (
            self.key == other.key
            or (self.subtree and self._is_above(other))
            or (other.subtree and other._is_above(self))
        )

    def _is_above(self, other: Resource) -> bool:
        depth, ancestors = len(self.ancestors), other.ancestors
        return depth < len(ancestors) and ancestors[depth] == self.key


@lru_cache(REMEMBERED)
def recorded_resource(text: str, types: ResourceTypes = STANDARD) -> Resource:
    """Return the resource of a canonical text from the log, without foreign code.

    Raises:
        DamagedLogError: ``BAD_RESOURCE`` for a text that is not canonical.
    """
    scheme, _, name = text.partition(":")
    try:
        kind = types[scheme]
        if kind.kind == "opaque":
            base, subtree = opaque_base(kind, name)
            return make_resource(kind, base, subtree=subtree)
        subtree = name.endswith("/*")
        if subtree:
            name = name[:-2]
            if len(name) < _root_end(kind, f"{name}/"):
                name += "/"
        return make_resource(kind, name, subtree=subtree)
    except (KeyError, ValueError):
        raise DamagedLogError(
            ErrorCode.BAD_RESOURCE, f"The log names the resource {text!r}, which cannot be."
        ) from None


def opaque_base(kind: ResourceType, name: str) -> tuple[str, bool]:
    """Split a name of an opaque type into its place and whether it is a subtree."""
    if kind.separator is None:
        return name, False
    if name == "*":
        return "", True
    return (name[:-2], True) if name.endswith(f"{kind.separator}*") else (name, False)


def make_resource(kind: ResourceType, name: str, *, subtree: bool) -> Resource:
    """Return the resource of a canonical name without the final ``/*``."""
    key = f"{kind.name}:{name}"
    if kind.kind == "opaque":
        separator = kind.separator
        above = () if separator is None else _above_opaque(key, len(kind.name) + 1, separator)
        return Resource(kind.name, key, subtree, above, kind.nested, separator or "/")
    root = len(kind.name) + 1 + _root_end(kind, name)
    return Resource(kind.name, key, subtree, _above(key, root, is_url=kind.kind == "url"), kind.nested)


def _root_end(kind: ResourceType, name: str) -> int:
    """Return the end of a name's root, its slash included.

    Raises:
        ValueError: for a name without a root.
    """
    if kind.kind == "url":
        return name.index("/", name.index("://") + 3) + 1
    if name[:1] == "/":
        return 1
    found = AUTHORITY.match(name) if kind.authority else None
    if found is None:
        raise ValueError(name)
    return found.end() + 1


def _above(key: str, root: int, *, is_url: bool) -> tuple[str, ...]:
    if len(key) == root:
        return ()
    place = key.partition("?")[0] if is_url else key
    if len(place) == len(key):  # a URL with a query is below the same URL without it
        place = place[: max(place.rfind("/", root), root)]
    return _line(place, root) if len(place) <= REMEMBERED_CHARS else _long_line(place, root)


def _above_opaque(key: str, root: int, separator: str) -> tuple[str, ...]:
    if len(key) == root:
        return ()
    keys = [key[:root]]
    at = key.find(separator, root + 1)
    while at >= 0:
        keys.append(key[:at])
        at = key.find(separator, at + 1)
    return tuple(keys)


@lru_cache(REMEMBERED)
def _line(place: str, root: int) -> tuple[str, ...]:
    """Return the keys from the root down to a place; cached for siblings."""
    keys = [place[:root]]
    at = place.find("/", root + 1)
    while at >= 0:
        keys.append(place[:at])
        at = place.find("/", at + 1)
    if len(place) > root:
        keys.append(place)
    return tuple(keys)


_long_line = lru_cache(_FEW)(_line.__wrapped__)
