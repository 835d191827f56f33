"""Reading of resources from manifests, tools and observations.

A manifest must write the canonical form; observations are brought into it. No ``*`` is allowed in a path or an opaque
name except in the final ``/*`` of a subtree; in a URL it is written ``%2A``. The texts of refusals are recorded in
rejections of proposals and must not change.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.canonical_url import canonical_url
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import (
    AUTHORITY,
    REMEMBERED,
    REMEMBERED_CHARS,
    Resource,
    make_resource,
    opaque_base,
)
from world.klis.resources.resource_types import STANDARD, UNPRINTABLE, ResourceType, ResourceTypes, invalid_type
from world.klis.resources.url import normal_url
from world.klis.settings import MANIFEST_RULES

__all__ = ["canonical_resource", "read_resource", "recorded_url"]

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_+.-]*")
_CANONICAL_PATH: Final = re.compile(r"(?:/(?!\.\.?(?:/|\Z))[^/*]+)+|/")


def read_resource(
    text: str,
    *,
    types: ResourceTypes = STANDARD,
    names: NameComparison = BYTE_WISE,
    max_chars: int = 4_096,
    max_depth: int = 256,
    path: str = "$",
    rules: int = MANIFEST_RULES,
) -> Resource:
    """Read a resource of a manifest in canonical form (KM-6.3).

    Args:
        text: ``TYPE:name``; the type in any case.
        types: the types in force.
        names: which differences of paths are ignored (KM-4.2b).
        max_chars: maximum length, in characters.
        max_depth: maximum number of names in a path.
        path: the path of the text, for the error.
        rules: version of the manifest rules. Before 2, ``*`` in a name of an opaque type without a separator is an
            ordinary character; before 3, hosts of URLs are only converted to lower case.

    Raises:
        RefusedError: ``AMBIGUOUS_RESOURCE`` with the canonical form where there is one, ``UNKNOWN_RESOURCE_TYPE``,
            ``GLOBAL_SCOPE`` for ``TYPE:*`` of a type that does not define what it covers, ``MANIFEST_TOO_LARGE``,
            ``MALFORMED_SCHEMA`` for a value that is not a string.
    """
    resource, canonical = _read(text, (types, names, max_chars, max_depth, rules < 2, rules < 3), path)
    if canonical:
        return resource
    raise RefusedError(
        ErrorCode.AMBIGUOUS_RESOURCE,
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
    """Read an observed resource and bring it into canonical form.

    ``..`` stops at the root. ``literal_stars`` accepts ``*`` in names of opaque types without a separator. Other
    arguments and refusals are those of ``read_resource``, but the text need not be canonical; also ``AMBIGUOUS_URL``.
    """
    found = _read(text, (types, names, max_chars, max_depth, literal_stars, False), path)[0]
    if types[found.type].kind == "url":
        canonical_url(text.partition(":")[2])
    return found


def recorded_url(text: str) -> Resource:
    """Read a URL of a recorded manifest, which may have several readings; refuses as ``read_resource`` does."""
    return _read(text, (STANDARD, BYTE_WISE, len(text), 256, False, False), "$")[0]


class _UnreadableError(Exception):
    """Raised for an invalid text; the caller adds its path."""

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
        if len(text) <= REMEMBERED_CHARS:
            return _parsed(text, *choices)
        return _parse(text, *choices)
    except _UnreadableError as error:
        shown = text if len(text) <= REMEMBERED_CHARS else f"{text[:REMEMBERED_CHARS]}..."
        raise RefusedError(
            error.code, f"{shown!r} at {path} {error.clause}.", path=path, resource=shown, **error.details
        ) from None
    except TypeError:
        if isinstance(text, str):
            raise
        raise RefusedError(ErrorCode.MALFORMED_SCHEMA, f"{text!r} at {path} is no text.", path=path) from None


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
    if UNPRINTABLE.search(text):
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
    return make_resource(kind, base, subtree=subtree), canonical


_parsed = lru_cache(REMEMBERED)(_parse)


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
    base = _by_own_rules(kind, base)
    if _CANONICAL_PATH.fullmatch(base) is None:
        base = _normal_path(kind, base, whole=subtree)
    said = f"{base.removesuffix('/')}/*" if subtree else base
    return base, subtree, said == name


def _normal_path(kind: ResourceType, base: str, *, whole: bool) -> str:
    authority = ""
    if kind.authority:
        found = AUTHORITY.match(f"{base}/" if whole else base)
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
        origin, path, query = normal_url(_by_own_rules(kind, name), plain_hosts=plain_hosts)
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
    rendered, subtree = opaque_base(kind, name)
    base = rendered if subtree and not rendered else _by_own_rules(kind, rendered)
    if not base and not subtree:
        raise _UnreadableError("has an empty name")
    if base.endswith("/*"):
        raise _UnreadableError(f"is no subtree; {kind.name} names are compared exactly, so name each one")
    if "*" in base and not (literal_stars and kind.separator is None):
        raise _star(kind, base)
    said = f"{base}{kind.separator if base else ''}*" if subtree else base
    return base, subtree, said == name


def _star(kind: ResourceType, name: str) -> _UnreadableError:
    if kind.separator is not None:
        return _UnreadableError(f"has a * that is not the final {kind.separator}* of a subtree")
    clause = f"{kind.name} names are compared exactly, so it would cover no other name; name each one"
    if name == "*":
        return _UnreadableError(f"names everything of its type: {clause}", "GLOBAL_SCOPE")
    return _UnreadableError(f"has a *: {clause}")


def _by_own_rules(kind: ResourceType, base: str) -> str:
    """Apply a type's own rules, which are foreign code."""
    if kind.canonical is None:
        return base
    try:
        found = kind.canonical(base)
        again = kind.canonical(found)
    except ValueError as error:
        raise _UnreadableError(str(error) or "has no canonical form") from None
    except Exception as error:
        raise invalid_type(f"The rules of {kind.name} failed on {base!r}: {type(error).__name__}: {error}.") from error
    if type(found) is not str or found != again or UNPRINTABLE.search(found):
        raise invalid_type(f"The rules of {kind.name} give no canonical form of {base!r}: {found!r}, then {again!r}.")
    return found
