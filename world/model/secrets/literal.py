"""Detection of literals in secret fields, which must not be recorded.

Secret fields are: in any JSON object, the members of ``headers`` with a name in ``SECRET_HEADERS``; in a ``url``, the
user's password and the query parameters with a name in ``SECRET_PARAMETERS``; and fields that a schema marks with
``"secret": true`` or that pydantic declares as ``SecretStr`` or ``SecretBytes`` (``format: password`` and
``writeOnly``). A value with a reference (``${secret:NAME}``) is not a literal. Results are paths, never values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote_plus

from world.errors import RefusedError
from world.model.secrets.references import is_literal

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
    """Return whether a canonical text contains a ``headers`` or ``url`` member that needs a search."""
    return _KEYS.search(text) is not None


def named_literals(value: Any, path: str = "$") -> Iterator[str]:
    """Yield the path of each literal in a field that is secret by its name.

    Args:
        value: JSON.
        path: path of the value itself.
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
                    for header, content in inner.items()
                    if str(header).lower() in SECRET_HEADERS and is_literal(content)
                )
            elif name in {"url", "uri"} and isinstance(inner, str):
                yield from (f"{place} ({what})" for what, text, _, _ in url_secrets(inner) if is_literal(text))
            yield from named_literals(inner, place)


def url_secrets(url: str) -> Iterator[tuple[str, str, int, int]]:
    """Yield the secrets of a URL: description, text, start and end offset."""
    user = _USER_PASSWORD.match(url)
    if user is not None and ":" in user[1]:
        begin = user.start(1) + user[1].index(":") + 1
        yield "password of the user", url[begin : user.end(1)], begin, user.end(1)
    for parameter in _PARAMETER.finditer(url):
        name = unquote_plus(parameter[1])
        if name.lower() in SECRET_PARAMETERS:
            yield f"parameter {name}", parameter[2], parameter.start(2), parameter.end(2)


def is_secret_schema(schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON Schema marks its value as secret."""
    return schema.get("secret") is True or (schema.get("writeOnly") is True and schema.get("format") == "password")


def marked_literals(schema: Any, value: Any, path: str = "$", root: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield the path of each literal that a JSON Schema marks as secret.

    Args:
        schema: JSON Schema of the value, in the form that pydantic generates.
        value: JSON; it need not be valid under the schema.
        path: path of the value itself.
        root: the document in which ``$ref`` is resolved; None is the schema itself.
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
    """Return the error message for literals in secret fields.

    Args:
        what: the thing that has the fields, as the message names it.
        paths: paths of the fields.
    """
    return (
        f"{what} has a literal in the secret field {', '.join(paths)}, which would be recorded. Write "
        "${secret:NAME} there and define the secret under [secrets] in world.toml."
    )


def refuse_literals(what: str, paths: Iterable[str]) -> None:
    """Refuse a value with literals in secret fields.

    Raises:
        RefusedError: ``LITERAL_SECRET`` with ``fields``, where there is at least one path.
    """
    fields = list(dict.fromkeys(paths))
    if fields:
        raise RefusedError(LITERAL_SECRET, literal_message(what, fields), fields=fields)
