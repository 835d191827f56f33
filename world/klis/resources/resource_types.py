"""Types of resources and their registry (KLIS-6, KP-6).

A type defines the kind of its names:

- *paths* (``FILE:/src/main.ts``) are absolute; ``.`` and ``..`` are resolved, redundant slashes removed,
- *URLs* (``URL:https://example.com/api/v1``) are normalised by RFC 3986, their hosts by
``world.klis.resources.url_host``,
- *opaque names* (``SYMBOL:User.authenticate``) are compared exactly as they are written. A type may define a
  ``separator``: then its names are a hierarchy, as in ``TOPIC:orders.eu``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from world.code.references import offered
from world.error_codes import ErrorCode
from world.errors import RefusedError

__all__ = ["STANDARD", "UNPRINTABLE", "ResourceType", "ResourceTypes", "invalid_type"]

ENTRY_POINTS: Final = "worldprotocol.resource_types"
"""The entry point group of packages that provide further types."""

Kind = Literal["path", "url", "opaque"]

UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
"""Characters that no resource contains."""

_TYPE_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of resources (KP-6).

    Args:
        name: in capitals, like ``DATABASE_TABLE``.
        kind: the kind of its names: ``path``, ``url`` or ``opaque``.
        authority: whether a host or namespace may precede the path; opaque names may contain anything.
        nested: whether deleting or renaming one includes everything below.
        case_sensitive: whether its paths ignore the setting that equates names.
        canonical: brings a name (without type and final ``/*``) into canonical form before the rules of the kind;
            raises ValueError, with the reason as a clause, for an invalid name. Must be idempotent.
        separator: for opaque names: the separator of a hierarchy. ``TYPE:a.*`` then covers ``a`` and every name that
            begins with ``a.``, and ``TYPE:*`` every name. None: no name covers another, and ``*`` is refused.
    """

    name: str
    kind: Kind
    authority: bool = False
    nested: bool = False
    case_sensitive: bool = False
    canonical: Callable[[str], str] | None = field(default=None, compare=False)
    separator: str | None = None


_RECORDED: Final = ("kind", "authority", "nested", "case_sensitive", "separator")


class ResourceTypes(Mapping[str, ResourceType]):
    """Registry of types by name; immutable, compared by identity."""

    __slots__ = ("_types",)

    def __init__(self, *types: ResourceType) -> None:
        """Create a registry.

        Raises:
            RefusedError: ``INVALID_RESOURCE_TYPE`` for a name that is not in capitals or has two different types, an
                unknown kind, or a separator that is not a single character or not of an opaque type.
        """
        self._types: dict[str, ResourceType] = {}
        for given in types:
            if (
                not isinstance(given, ResourceType)
                or not _TYPE_NAME.fullmatch(given.name)
                or given.kind not in {"path", "url", "opaque"}
            ):
                raise invalid_type(f"{given!r} is no resource type: a name in capitals, of kind path, url or opaque.")
            if given.separator is not None and (given.kind != "opaque" or not _is_separator(given.separator)):
                raise invalid_type(
                    f"{given.name} has the separator {given.separator!r}: give one printable character other than '*', "
                    "for a type of kind opaque only."
                )
            if self._types.setdefault(given.name, given) != given:
                raise invalid_type(f"There are two different resource types {given.name}; rename one of them.")

    def __getitem__(self, name: str) -> ResourceType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @classmethod
    def installed(cls) -> ResourceTypes:
        """Return the standard types and those of installed packages.

        Raises:
            RefusedError: ``NOT_LOADED``, ``INVALID_RESOURCE_TYPE``.
        """
        return STANDARD.with_types(*(found for _, found in offered(ENTRY_POINTS)))

    @classmethod
    def recorded(cls, wire: Mapping[str, Mapping[str, Any]]) -> ResourceTypes:
        """Return the standard types and those of a result of ``to_wire``."""
        return STANDARD.with_types(*(ResourceType(name, **given) for name, given in wire.items()))

    def with_types(self, *types: ResourceType) -> ResourceTypes:
        """Return these types and further ones; raises like the constructor."""
        return ResourceTypes(*self._types.values(), *types) if types else self

    def to_wire(self) -> dict[str, dict[str, Any]]:
        """Return what a replay needs to split canonical texts, of the types beyond the standard ones, by name."""
        return {
            name: {member: value for member in _RECORDED if (value := getattr(given, member)) is not None}
            for name, given in self._types.items()
            if name not in STANDARD
        }


def _is_separator(given: object) -> bool:
    return isinstance(given, str) and len(given) == 1 and given != "*" and not UNPRINTABLE.search(given)


def invalid_type(message: str) -> RefusedError:
    """Return the refusal of a resource type."""
    return RefusedError(ErrorCode.INVALID_RESOURCE_TYPE, message)


STANDARD: Final = ResourceTypes(
    ResourceType("FILE", "path", nested=True),
    ResourceType("API_ENDPOINT", "path"),
    ResourceType("STATE", "path", nested=True, case_sensitive=True),
    ResourceType("URL", "url", authority=True),
    ResourceType("SYMBOL", "opaque"),
    ResourceType("DATABASE_TABLE", "opaque"),
    ResourceType("CONFIG_KEY", "opaque"),
    ResourceType("DB", "opaque", authority=True),
    ResourceType("ENV", "opaque", authority=True),
    ResourceType("PROCESS", "opaque"),
    ResourceType("COMMAND", "opaque"),
    ResourceType("CONTENT", "opaque"),
)
"""The types of the specifications, and the content of a file, which never changes; others must be registered."""
