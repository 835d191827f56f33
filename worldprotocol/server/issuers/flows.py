"""The code flows of a server, and the key of their cookies. Authlib is imported only where an issuer has a client."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from worldprotocol.server.issuers.code_flow import CodeFlow
    from worldprotocol.server.issuers.issuer import OidcIssuer

__all__ = ["flows_of", "shared_key"]

_PURPOSE: Final = b"world-protocol sign-in cookie v1"


def flows_of(issuers: Iterable[OidcIssuer], client_secrets: Mapping[str, str]) -> dict[str, CodeFlow]:
    """Return the code flow of each issuer that has a client, by name.

    Args:
        issuers: the issuers.
        client_secrets: by name, the secret of the client.
    """
    wanted = [one for one in issuers if one.config.client_id is not None]
    if not wanted:
        return {}
    from worldprotocol.server.issuers.code_flow import CodeFlow

    return {one.config.name: CodeFlow(one, client_secrets.get(one.config.name)) for one in wanted}


def shared_key(client_secrets: Mapping[str, str]) -> str:
    """Return a key that all servers with the same client secrets have.

    Args:
        client_secrets: by name of the issuer; at least one.
    """
    joined = "\n".join(f"{name}={client_secrets[name]}" for name in sorted(client_secrets))
    return hmac.new(joined.encode(), _PURPOSE, hashlib.sha256).hexdigest()
