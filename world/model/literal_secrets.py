"""Secret fields whose value is a literal: what must not be recorded, because it is the secret itself.

Secret are, in any JSON object, the members of ``headers`` with the names of ``SECRET_HEADERS``, and in a ``url`` the
password of its user and the parameters of its query with the names of ``SECRET_PARAMETERS``; and what a schema marks
with ``"secret": true``, or pydantic as ``SecretStr`` or ``SecretBytes`` (``format: password`` and ``writeOnly``). A
value with a reference (``${secret:NAME}``) is no literal. Found are paths, never values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from world.errors import RefusedError
from world.model.secret_references import is_literal

__all__ = [
    "LITERAL_SECRET",
    "SECRET_HEADERS",
    "SECRET_PARAMETERS",
    "is_secret_schema",
    "literal_message",
    "marked_literals",
    "may_name_secrets",
    "named_literals",
    "refuse_literals",
    "url_secrets",
]

LITERAL_SECRET: Final = "LITERAL_SECRET"
"""The code of a secret field whose value is not a reference."""

SECRET_HEADERS: Final = frozenset(
    {
        "authorization",
        "proxy-authorization",
        "cookie",
        "cookie2",
        "set-cookie",
        "set-cookie2",
        "authentication-info",
        "proxy-authentication-info",
        "x-api-key",
        "api-key",
        "apikey",
        "x-auth-token",
        "x-access-token",
        "x-goog-api-key",
        "x-amz-security-token",
        "private-token",
        "x-gitlab-token",
        "x-vault-token",
        "x-shopify-access-token",
        "x-functions-key",
        "ocp-apim-subscription-key",
    }
)
"""Names of HTTP headers whose values are secret, in lower case."""

SECRET_PARAMETERS: Final = frozenset(
    {
        "access_token",
        "auth_token",
        "refresh_token",
        "id_token",
        "private_token",
        "token",
        "api_key",
        "api-key",
        "apikey",
        "client_secret",
        "secret",
        "password",
        "passwd",
        "pwd",
        "x-amz-signature",
        "x-amz-security-token",
        "x-goog-signature",
    }
)
"""Names of parameters of a URL's query whose values are secret, in lower case."""

_USER_PASSWORD: Final = re.compile(r"\s*[A-Za-z][A-Za-z0-9+.-]*:/*([^/?#]*)@")
_PARAMETER: Final = re.compile(r"[?&;]([^?&;=#]*)=([^&;#]*)")
_KEYS: Final = re.compile(rb'"(?:headers|url|uri)":["{]', re.IGNORECASE)


def may_name_secrets(text: bytes) -> bool:
    """Return whether a canonical text holds a ``headers`` or ``url`` at all, so that it is worth searching."""
    return _KEYS.search(text) is not None


def named_literals(value: Any, path: str = "$") -> Iterator[str]:
    """Yield the path of each literal in a field that is secret by its name.

    Args:
        value: JSON.
        path: of the value itself.
    """
    if isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from named_literals(inner, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            place, name = f"{path}.{key}", str(key).lower()
            if name == "headers" and isinstance(inner, Mapping):
                yield from (
                    f"{place}.{header}"
                    for header, told in inner.items()
                    if str(header).lower() in SECRET_HEADERS and is_literal(told)
                )
            elif name in {"url", "uri"} and isinstance(inner, str):
                yield from (f"{place} ({what})" for what, told, _, _ in url_secrets(inner) if is_literal(told))
            yield from named_literals(inner, place)


def url_secrets(url: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the secrets of a URL: what it is, the text, and where that begins and ends."""
    user = _USER_PASSWORD.match(url)
    if user is not None and ":" in user[1]:
        begin = user.start(1) + user[1].index(":") + 1
        yield "password of the user", url[begin : user.end(1)], begin, user.end(1)
    for found in _PARAMETER.finditer(url):
        name = unquote_plus(found[1])
        if name.lower() in SECRET_PARAMETERS:
            yield f"parameter {name}", found[2], found.start(2), found.end(2)


def is_secret_schema(schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON Schema marks its value as secret."""
    return schema.get("secret") is True or (schema.get("writeOnly") is True and schema.get("format") == "password")


def marked_literals(schema: Any, value: Any, path: str = "$", root: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield the path of each literal that a JSON Schema marks as secret.

    Args:
        schema: of the value, as pydantic writes it.
        value: JSON; it need not fit the schema.
        path: of the value itself.
        root: the whole document, where ``$ref`` leads; None is the schema itself.
    """
    if not isinstance(schema, Mapping):
        return
    document = schema if root is None else root
    if "$ref" in schema:
        schema = {**document.get("$defs", {}).get(str(schema["$ref"]).rpartition("/")[2], {}), **schema}
    if is_secret_schema(schema) and is_literal(value):
        yield path
        return
    for options in ("anyOf", "oneOf", "allOf"):
        for option in schema.get(options, ()):
            yield from marked_literals(option, value, path, document)
    if isinstance(value, Mapping):
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, inner in value.items():
            yield from marked_literals(properties.get(key, others), inner, f"{path}.{key}", document)
    elif isinstance(value, list | tuple):
        first = schema.get("prefixItems", ())
        for index, inner in enumerate(value):
            items = first[index] if index < len(first) else schema.get("items")
            yield from marked_literals(items, inner, f"{path}[{index}]", document)


def literal_message(what: str, paths: Iterable[str]) -> str:
    """Return the sentence that refuses literals.

    Args:
        what: holds them.
        paths: of the fields.
    """
    return (
        f"{what} has a literal in the secret field {', '.join(paths)}, which would be recorded. Write "
        f"${{secret:NAME}} there "
        "and define the secret under [secrets] in world.toml."
    )


def refuse_literals(what: str, paths: Iterable[str]) -> None:
    """Refuse a value with literals in secret fields.

    Raises:
        RefusedError: ``LITERAL_SECRET`` with ``fields``, where there is at least one path.
    """
    found = list(dict.fromkeys(paths))
    if found:
        raise RefusedError(LITERAL_SECRET, literal_message(what, found), fields=found)
