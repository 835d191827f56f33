"""Resources: what a lease is about, in one canonical form per thing (KLIS-1 section 4, KLIS-6).

A resource is written ``TYPE:name``. Its type says what kind of names it has:

- *paths* (``FILE:/src/main.ts``) are absolute; ``.`` and ``..`` are resolved, redundant slashes removed,
- *URLs* (``URL:https://example.com/api/v1``) are normalised by RFC 3986, their hosts by
``world.klis.resources.url_host``,
- *opaque names* (``SYMBOL:User.authenticate``) are compared exactly as they are written. A type may define a
  ``separator``: then its names are a hierarchy, as in ``TOPIC:orders.eu``.

A path or URL with a final ``/*``, or an opaque name with a final separator and ``*``, is a subtree: the place and
everything below it. No other ``*`` may stand in a path, nor in an opaque name; in a URL, write ``%2A``. Two resources
are the same exactly when their keys are, which is one comparison of strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Literal

from world.code.references import offered
from world.errors import DamagedLogError, RefusedError
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.url import normal_url

__all__ = [
    "STANDARD",
    "Resource",
    "ResourceType",
    "ResourceTypes",
    "canonical_resource",
    "read_resource",
    "recorded_resource",
]

ENTRY_POINTS: Final = "worldprotocol.resource_types"
"""The entry point group under which installed packages offer further types."""

Kind = Literal["path", "url", "opaque"]

_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*")
_TYPE_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]*")
_CANONICAL_PATH: Final = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[^/*]+)+|/")
_AUTHORITY: Final = re.compile(r"(?!\.\.?(?:/|\Z))(?:[A-Za-z][A-Za-z0-9+.-]*://)?[^/*]*(?=/)")
_REMEMBERED: Final = 8_192
_REMEMBERED_CHARS: Final = 256
"""Longer texts are read anew each time, so that nobody can fill the memory with them."""
_FEW: Final = 32


@dataclass(frozen=True, slots=True)
class Resource:
    """One thing, or a subtree of things; equal when they name the same.

    Args:
        type: the type's name, in capitals.
        key: the canonical text without the final ``/*``; a root ends in ``/``.
        subtree: whether everything below belongs to it.
        ancestors: the keys of all places above it, the root first; empty for a root and for opaque names.
        nested: whether to delete or rename it takes along what is below (directories do).
        separator: what stands between the names of its path.
    """

    type: str = field(compare=False)
    key: str
    subtree: bool
    ancestors: tuple[str, ...] = field(compare=False, repr=False)
    nested: bool = field(compare=False, repr=False)
    separator: str = field(default="/", compare=False, repr=False)

    @property
    def depth(self) -> int:
        """How many names lead to it from its root."""
        return len(self.ancestors)

    @property
    def text(self) -> str:
        """The canonical text."""
        if not self.subtree:
            return self.key
        return f"{self.key}{self.separator}*" if self.ancestors else f"{self.key}*"

    def covers(self, other: Resource) -> bool:
        """Tell whether everything the other names belongs to this one; ``X:/c/*`` covers ``X:/c`` too."""
        if self.key == other.key:
            return self.subtree or not other.subtree
        return self.subtree and self._is_above(other)

    def overlaps(self, other: Resource) -> bool:
        """Tell whether something belongs to both (KP-wild)."""
        return (
            self.key == other.key
            or (self.subtree and self._is_above(other))
            or (other.subtree and other._is_above(self))
        )

    def _is_above(self, other: Resource) -> bool:
        depth, ancestors = len(self.ancestors), other.ancestors
        return depth < len(ancestors) and ancestors[depth] == self.key


@dataclass(frozen=True, slots=True)
class ResourceType:
    """A type of resources (KP-6).

    Args:
        name: in capitals, like ``DATABASE_TABLE``.
        kind: what its names are: ``path``, ``url`` or ``opaque``.
        authority: whether a host or namespace may stand before the path. Opaque names may hold anything anyway.
        nested: whether to delete or rename one takes along what is below.
        case_sensitive: whether its paths stay as they are where the operator has differences of paths ignored.
        canonical: brings a name (without type and final ``/*``) into canonical form before the kind's own rules;
            raises ValueError, with the reason as a clause, for a name that has none. Canonical names stay as they are.
        separator: for opaque names: the character between the names of a hierarchy. ``TYPE:a.*`` then covers ``a`` and
            all that begins with ``a.``, and ``TYPE:*`` every name. None: no name covers another, and ``*`` is refused.
    """

    name: str
    kind: Kind
    authority: bool = False
    nested: bool = False
    case_sensitive: bool = False
    canonical: Callable[[str], str] | None = field(default=None, compare=False)
    separator: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return what a replay must know: canonical texts in the log are split by it and not made canonical again."""
        wire: dict[str, Any] = {
            "kind": self.kind,
            "authority": self.authority,
            "nested": self.nested,
            "case_sensitive": self.case_sensitive,
        }
        return wire if self.separator is None else wire | {"separator": self.separator}


class ResourceTypes(Mapping[str, ResourceType]):
    """The types in force, by name; immutable, and compared by identity."""

    __slots__ = ("_types",)

    def __init__(self, *types: ResourceType) -> None:
        """Put types in force.

        Raises:
            RefusedError: ``INVALID_RESOURCE_TYPE`` for a name that is not in capitals, that is given to two different
                types, a kind that does not exist, or a separator that is no single character or not of an opaque type.
        """
        self._types: dict[str, ResourceType] = {}
        for given in types:
            if (
                not isinstance(given, ResourceType)
                or not _TYPE_NAME.fullmatch(given.name)
                or given.kind not in {"path", "url", "opaque"}
            ):
                raise _invalid_type(f"{given!r} is no resource type: a name in capitals, of kind path, url or opaque.")
            if given.separator is not None and (given.kind != "opaque" or not _is_separator(given.separator)):
                raise _invalid_type(
                    f"{given.name} has the separator {given.separator!r}: give one printable character other than '*', "
                    "for a type of kind opaque only."
                )
            if self._types.setdefault(given.name, given) != given:
                raise _invalid_type(f"There are two different resource types {given.name}; rename one of them.")

    def __getitem__(self, name: str) -> ResourceType:
        return self._types[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @staticmethod
    def standard() -> ResourceTypes:
        """Return the types of the specifications."""
        return STANDARD

    @classmethod
    def installed(cls) -> ResourceTypes:
        """Return the standard types and those that installed packages offer.

        Raises:
            RefusedError: ``NOT_LOADED``, ``INVALID_RESOURCE_TYPE``.
        """
        return STANDARD.with_types(*(found for _, found in offered(ENTRY_POINTS)))

    @classmethod
    def recorded(cls, wire: Mapping[str, Mapping[str, Any]]) -> ResourceTypes:
        """Return the standard types and those that ``to_wire`` told, for the texts in a log."""
        return STANDARD.with_types(*(ResourceType(name, **told) for name, told in wire.items()))

    def with_types(self, *types: ResourceType) -> ResourceTypes:
        """Return these types and further ones; refuses what the constructor refuses."""
        return ResourceTypes(*self._types.values(), *types) if types else self

    def to_wire(self) -> dict[str, dict[str, Any]]:
        """Return the types beyond the standard ones, by name."""
        return {name: given.to_wire() for name, given in self._types.items() if name not in STANDARD}


def _is_separator(given: object) -> bool:
    return isinstance(given, str) and len(given) == 1 and given != "*" and not _UNPRINTABLE.search(given)


def _invalid_type(message: str) -> RefusedError:
    return RefusedError("INVALID_RESOURCE_TYPE", message)


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
)
"""The types of the specifications; everything else is refused unless it is registered."""


def read_resource(
    text: str,
    *,
    types: ResourceTypes = STANDARD,
    names: NameComparison = BYTE_WISE,
    max_chars: int = 4_096,
    max_depth: int = 256,
    path: str = "$",
    literal_stars: bool = False,
    plain_hosts: bool = False,
) -> Resource:
    """Read a resource as a manifest names it: only the canonical form is accepted (KM-6.3).

    Args:
        text: ``TYPE:name``; the type in any case.
        types: the types in force.
        names: which differences of paths are ignored (KM-4.2b).
        max_chars: longest text, in characters.
        max_depth: most names in a path.
        path: where the text stands, for the error.
        literal_stars: whether ``*`` in a name of an opaque type without a separator is an ordinary character: for
            manifests that were recorded before it was refused, and for names that were observed.
        plain_hosts: whether hosts of URLs are only compared in lower case: for manifests that were recorded before
            version 3 of their rules.

    Raises:
        RefusedError: ``AMBIGUOUS_RESOURCE`` with the canonical form where there is one, ``UNKNOWN_RESOURCE_TYPE``,
            ``GLOBAL_SCOPE`` for ``TYPE:*`` of a type that does not define what it covers, ``MANIFEST_TOO_LARGE``,
            ``MALFORMED_SCHEMA`` for what is no text.
    """
    resource, canonical = _read(text, (types, names, max_chars, max_depth, literal_stars, plain_hosts), path)
    if canonical:
        return resource
    raise RefusedError(
        "AMBIGUOUS_RESOURCE",
        f"{text!r} at {path} is not canonical; write {resource.text!r}.",
        path=path,
        resource=text,
        canonical=resource.text,
    )


def canonical_resource(
    text: str,
    *,
    types: ResourceTypes = STANDARD,
    names: NameComparison = BYTE_WISE,
    max_chars: int = 4_096,
    max_depth: int = 256,
    path: str = "$",
    literal_stars: bool = False,
) -> Resource:
    """Read a resource as observation and tools name it: brought into canonical form; ``..`` stays at the root.

    Arguments and refusals are those of ``read_resource``, but for texts that only are not canonical.
    """
    return _read(text, (types, names, max_chars, max_depth, literal_stars, False), path)[0]


@lru_cache(_REMEMBERED)
def recorded_resource(text: str, types: ResourceTypes = STANDARD) -> Resource:
    """Return the resource of a canonical text from the log; no foreign code runs and no setting matters.

    Raises:
        DamagedLogError: ``BAD_RESOURCE`` for what was never written there.
    """
    scheme, _, name = text.partition(":")
    try:
        kind = types[scheme]
        if kind.kind == "opaque":
            base, subtree = _opaque_base(kind, name)
            return _resource(kind, base, subtree=subtree)
        subtree = name.endswith("/*")
        if subtree:
            name = name[:-2]
            if len(name) < _root_end(kind, f"{name}/"):
                name += "/"
        return _resource(kind, name, subtree=subtree)
    except (KeyError, ValueError):
        raise DamagedLogError("BAD_RESOURCE", f"The log names the resource {text!r}, which cannot be.") from None


class _UnreadableError(Exception):
    """Why a text names no resource; the caller adds where it stands."""

    def __init__(self, clause: str, code: str = "AMBIGUOUS_RESOURCE", **details: Any) -> None:
        super().__init__(clause)
        self.clause = clause
        self.code = code
        self.details = details


_Choices = tuple[ResourceTypes, NameComparison, int, int, bool, bool]
"""types, names, max_chars, max_depth, literal_stars and plain_hosts."""


def _read(text: str, choices: _Choices, path: str) -> tuple[Resource, bool]:
    """Return the resource, and whether the text is its canonical form."""
    try:
        if len(text) <= _REMEMBERED_CHARS:
            return _parsed(text, *choices)
        return _parse(text, *choices)
    except _UnreadableError as error:
        shown = text if len(text) <= _REMEMBERED_CHARS else f"{text[:_REMEMBERED_CHARS]}..."
        raise RefusedError(
            error.code, f"{shown!r} at {path} {error.clause}.", path=path, resource=shown, **error.details
        ) from None
    except TypeError:
        if isinstance(text, str):
            raise
        raise RefusedError("MALFORMED_SCHEMA", f"{text!r} at {path} is no text.", path=path) from None


def _parse(
    text: str,
    types: ResourceTypes,
    names: NameComparison,
    max_chars: int,
    max_depth: int,
    literal_stars: bool,
    plain_hosts: bool,
) -> tuple[Resource, bool]:
    if len(text) > max_chars:
        raise _too_large("max_resource_chars", max_chars, f"is longer than {max_chars} characters")
    if _UNPRINTABLE.search(text):
        raise _UnreadableError("holds a control character or half a surrogate pair")
    kind, name = _split(text, types)
    if kind.kind == "path":
        base, subtree, canonical = _path(kind, name, names)
        depth = base.count("/") if len(base) > 1 else 0
    elif kind.kind == "url":
        base, subtree, canonical = _url(kind, name, plain_hosts=plain_hosts)
        depth = base.partition("?")[0].count("/") - 2
    else:
        base, subtree, canonical = _opaque(kind, name, literal_stars=literal_stars)
        depth = 0 if kind.separator is None else base.count(kind.separator)
    if depth > max_depth:
        raise _too_large("max_depth", max_depth, f"has more than {max_depth} names")
    return _resource(kind, base, subtree=subtree), canonical


_parsed = lru_cache(_REMEMBERED)(_parse)


def _too_large(limit: str, value: int, clause: str) -> _UnreadableError:
    return _UnreadableError(f"{clause} ({limit})", "MANIFEST_TOO_LARGE", limit=limit, maximum=value)


def _split(text: str, types: ResourceTypes) -> tuple[ResourceType, str]:
    scheme, colon, name = text.partition(":")
    known = types.get(scheme) or types.get(scheme.upper())
    if colon and known is not None:
        return known, name
    if not colon or not _SCHEME.fullmatch(scheme):
        raise _UnreadableError("names no type; write TYPE:name, like FILE:/src/main.ts")
    raise _UnreadableError(
        f"is of an unknown type; the types are {', '.join(types)}", "UNKNOWN_RESOURCE_TYPE", known=list(types)
    )


def _path(kind: ResourceType, name: str, names: NameComparison) -> tuple[str, bool, bool]:
    subtree = name.endswith("/*")
    base = (name[:-2] or "/") if subtree else name
    if not kind.case_sensitive:
        base = names.key(base)
    base = _by_hand(kind, base)
    if _CANONICAL_PATH.fullmatch(base) is None:
        base = _normal_path(kind, base, whole=subtree)
    said = f"{base.removesuffix('/')}/*" if subtree else base
    return base, subtree, said == name


def _normal_path(kind: ResourceType, base: str, *, whole: bool) -> str:
    authority = ""
    if kind.authority:
        found = _AUTHORITY.match(f"{base}/" if whole else base)
        authority = found[0] if found else ""
    rest = base[len(authority) :]
    if rest[:1] != "/" and not (whole and authority and not rest):
        after = "[authority]" if kind.authority else ""
        raise _UnreadableError(f"is relative; {kind.name} names are absolute paths, written {kind.name}:{after}/name")
    if "*" in rest:
        raise _UnreadableError("has a * that is not the final /* of a subtree")
    kept: list[str] = []
    for part in rest.split("/"):
        if part == "..":
            del kept[-1:]
        elif part not in {"", "."}:
            kept.append(part)
    return f"{authority}/{'/'.join(kept)}"


def _url(kind: ResourceType, name: str, *, plain_hosts: bool) -> tuple[str, bool, bool]:
    try:
        origin, path, query = normal_url(_by_hand(kind, name), plain_hosts=plain_hosts)
    except ValueError as error:
        raise _UnreadableError(str(error)) from None
    subtree = name.endswith("/*")
    if subtree:
        if query or "#" in name:
            raise _UnreadableError(
                "is a subtree with a query or fragment; a subtree is a URL without them and a final /*"
            )
        path = path[:-2]
    if "*" in path:
        raise _UnreadableError("has a * that is not the final /* of a subtree; write %2A for the sign itself")
    said = f"{origin}{'' if path == '/' else path}/*" if subtree else f"{origin}{path}{query}"
    return f"{origin}{path or '/'}{query}", subtree, said == name


def _opaque(kind: ResourceType, name: str, *, literal_stars: bool) -> tuple[str, bool, bool]:
    told, subtree = _opaque_base(kind, name)
    base = told if subtree and not told else _by_hand(kind, told)
    if not base and not subtree:
        raise _UnreadableError("has an empty name")
    if base.endswith("/*"):
        raise _UnreadableError(f"is no subtree; {kind.name} names are compared exactly, so name each one")
    if "*" in base and not (literal_stars and kind.separator is None):
        raise _star(kind, base)
    said = f"{base}{kind.separator if base else ''}*" if subtree else base
    return base, subtree, said == name


def _opaque_base(kind: ResourceType, name: str) -> tuple[str, bool]:
    """Split a name of an opaque type into its place and whether it covers what is below."""
    if kind.separator is None:
        return name, False
    if name == "*":
        return "", True
    return (name[:-2], True) if name.endswith(f"{kind.separator}*") else (name, False)


def _star(kind: ResourceType, name: str) -> _UnreadableError:
    if kind.separator is not None:
        return _UnreadableError(f"has a * that is not the final {kind.separator}* of a subtree")
    clause = f"{kind.name} names are compared exactly, so it would cover no other name; name each one"
    if name == "*":
        return _UnreadableError(f"names everything of its type: {clause}", "GLOBAL_SCOPE")
    return _UnreadableError(f"has a *: {clause}")


def _by_hand(kind: ResourceType, base: str) -> str:
    """Apply a type's own rules, which are somebody else's code."""
    if kind.canonical is None:
        return base
    try:
        found = kind.canonical(base)
        again = kind.canonical(found)
    except ValueError as error:
        raise _UnreadableError(str(error) or "has no canonical form") from None
    except Exception as error:
        raise _invalid_type(f"The rules of {kind.name} failed on {base!r}: {type(error).__name__}: {error}.") from error
    if type(found) is not str or found != again or _UNPRINTABLE.search(found):
        raise _invalid_type(f"The rules of {kind.name} give no canonical form of {base!r}: {found!r}, then {again!r}.")
    return found


def _resource(kind: ResourceType, name: str, *, subtree: bool) -> Resource:
    key = f"{kind.name}:{name}"
    if kind.kind == "opaque":
        separator = kind.separator
        above = () if separator is None else _above_opaque(key, len(kind.name) + 1, separator)
        return Resource(kind.name, key, subtree, above, kind.nested, separator or "/")
    root = len(kind.name) + 1 + _root_end(kind, name)
    return Resource(kind.name, key, subtree, _above(key, root, is_url=kind.kind == "url"), kind.nested)


def _root_end(kind: ResourceType, name: str) -> int:
    """Return where a name's root ends, its slash included.

    Raises:
        ValueError: there is no root.
    """
    if kind.kind == "url":
        return name.index("/", name.index("://") + 3) + 1
    if name[:1] == "/":
        return 1
    found = _AUTHORITY.match(name) if kind.authority else None
    if found is None:
        raise ValueError(name)
    return found.end() + 1


def _above(key: str, root: int, *, is_url: bool) -> tuple[str, ...]:
    if len(key) == root:
        return ()
    place = key.partition("?")[0] if is_url else key
    if len(place) == len(key):  # what has a query is below the same URL without it
        place = place[: max(place.rfind("/", root), root)]
    return _line(place, root) if len(place) <= _REMEMBERED_CHARS else _long_line(place, root)


def _above_opaque(key: str, root: int, separator: str) -> tuple[str, ...]:
    if len(key) == root:
        return ()
    keys = [key[:root]]
    at = key.find(separator, root + 1)
    while at >= 0:
        keys.append(key[:at])
        at = key.find(separator, at + 1)
    return tuple(keys)


@lru_cache(_REMEMBERED)
def _line(place: str, root: int) -> tuple[str, ...]:
    """Return the keys from the root down to a place, that included; what stands side by side shares them."""
    keys = [place[:root]]
    at = place.find("/", root + 1)
    while at >= 0:
        keys.append(place[:at])
        at = place.find("/", at + 1)
    if len(place) > root:
        keys.append(place)
    return tuple(keys)


_long_line = lru_cache(_FEW)(_line.__wrapped__)
