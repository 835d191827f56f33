"""Secrets of one effect: resolved only if the effect's touches do not depend on their values.

The user and the query of a URL may hold a reference: the resource is named without the user, and its query with the
reference. No other part of a resource's name (scheme, host, port and path of a URL, a file, a process) may hold one:
leases, manifests and confinement use that name.
"""

from __future__ import annotations

from typing import Any

from host.effects import EffectHandler
from host.secrets.secrets import ResolvedSecrets, Secrets
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.klis.resources.resource_reading import canonical_resource
from world.model.secrets.references import references

__all__ = ["resolved_for"]


def resolved_for(handler: EffectHandler, params: Any, secrets: Secrets) -> ResolvedSecrets:
    """Replace the references in an effect's parameters by the values of their secrets.

    Args:
        handler: the effect's handler.
        params: with references.
        secrets: the secrets of the host.

    Raises:
        RefusedError: ``SECRET_IN_RESOURCE``, and as ``Secrets.resolve`` and ``EffectHandler.triples``.
    """
    names = references(params)
    if not names:
        return secrets.resolve(params, ())
    named = handler.triples(params)
    resolved = secrets.resolve(params, [text for _, text in named])
    try:
        actual = handler.triples(resolved.params)
    except RefusedError as refused:  # its message may hold a value
        message = resolved.mask.text(refused.message)
        raise RefusedError(refused.code, message, **resolved.mask.value(refused.details)) from None
    if [(verb, _without_query(text)) for verb, text in named] != [
        (verb, _without_query(text)) for verb, text in actual
    ]:
        raise RefusedError(
            ErrorCode.SECRET_IN_RESOURCE,
            f"The resources that {handler.type} touches depend on the value of a secret ({', '.join(names)}); "
            "nothing was sent. Use the reference in a header, the body, the environment, or a URL's query or user.",
            names=list(names),
        )
    return resolved


def _without_query(text: str) -> str:
    resource = canonical_resource(text, literal_stars=True) if text.upper().startswith("URL:") else None
    return text if resource is None else resource.text.partition("?")[0]
