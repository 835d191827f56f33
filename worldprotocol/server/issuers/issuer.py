"""An OIDC issuer: what it publishes about itself, its keys, and the verification of JWTs and ID tokens.

Its documents are fetched with limits on size and time and without redirects. Authlib is imported only where an issuer
has a client (``flows_of``).
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import httpx
import orjson
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from joserfc.jwt import ClaimsOption

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.api.config import OidcConfig
from worldprotocol.server.threads import Threads

if TYPE_CHECKING:
    from worldprotocol.server.issuers.code_flow import CodeFlow

__all__ = ["OidcIssuer", "fetched_object", "flows_of", "refused_sign_in", "shared_key"]

ALGORITHMS: Final = ["RS256", "RS384", "RS512", "PS256", "ES256", "ES384", "EdDSA", "Ed25519"]
"""Accepted algorithms: signatures by key pairs. ``none`` and shared secrets are refused."""

REFRESH_S: Final = 300.0
"""Seconds after which metadata and keys of an issuer are fetched again."""

RETRY_S: Final = 10.0
"""Shortest time between two fetches of the keys of an issuer, in seconds."""

LEEWAY_S: Final = 30
"""Difference of clocks that is accepted in the times of a JWT, in seconds."""

ENDPOINTS: Final = ("authorization_endpoint", "token_endpoint", "jwks_uri", "end_session_endpoint")

MAX_BYTES: Final = 1_000_000
"""Size of a document, in bytes."""

WITHIN_S: Final = 10.0
"""Time for a whole document, in seconds."""

FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)
"""What ``fetched_object`` raises; a timeout is an ``OSError``."""

_PURPOSE: Final = b"world-protocol sign-in cookie v1"


class OidcIssuer:
    """An OIDC issuer, its metadata and its public keys.

    Args:
        config: issuer, audience, client and claim.
        threads: the threads that verify signatures.
        clock: returns monotonic seconds.
    """

    def __init__(self, config: OidcConfig, threads: Threads, clock: Callable[[], float] = time.monotonic) -> None:
        """Create an issuer of which nothing was read; that happens at the first use."""
        self.config = config
        self._threads = threads
        self._clock = clock
        self._keys: KeySet | None = None
        self._keys_read = float("-inf")
        self._metadata: dict[str, Any] | None = None
        self._metadata_read = float("-inf")
        self._failure = ""
        self._failed = float("-inf")
        self._mutex = asyncio.Lock()

    async def metadata(self) -> dict[str, Any]:
        """Return what the issuer publishes about itself (OpenID Connect Discovery).

        Raises:
            RefusedError: ``ISSUER_UNAVAILABLE``.
        """
        async with self._mutex:
            return await self._discovered()

    async def _discovered(self) -> dict[str, Any]:
        now = self._clock()
        if self._metadata is not None and now - self._metadata_read <= REFRESH_S:
            return self._metadata
        self._check_retry()
        try:
            found = await fetched_object(f"{self.config.issuer.rstrip('/')}/.well-known/openid-configuration")
            self._check(found)
        except FAILURES as error:
            raise self._unavailable(error) from None
        self._metadata, self._metadata_read = found, now
        return found

    def _check(self, found: Mapping[str, Any]) -> None:
        """Refuse metadata of another issuer, and endpoints without TLS.

        Raises:
            ValueError: what is wrong.
        """
        issuer = self.config.issuer
        if found.get("issuer") != issuer:
            raise ValueError(f"its metadata is that of the issuer {str(found.get('issuer'))[:200]!r}")
        for name in ENDPOINTS:
            url = found.get(name)
            schemes = f"{issuer.partition(':')[0]}:", "https:"
            if url is not None and not (isinstance(url, str) and url.startswith(schemes)):
                raise ValueError(f"its {name} {str(url)[:200]!r} has no TLS")

    def _check_retry(self) -> None:
        """Refuse to fetch again soon after a failure, so that requests do not wait for an issuer that cannot be used.

        Raises:
            RefusedError: ``ISSUER_UNAVAILABLE``.
        """
        if self._clock() - self._failed <= RETRY_S:
            raise RefusedError(ErrorCode.ISSUER_UNAVAILABLE, self._failure)

    def _unavailable(self, error: Exception) -> RefusedError:
        words = str(error) or type(error).__name__
        if isinstance(error, OSError) and error.filename is not None:  # callers that are not signed in read this
            file = "a file for TLS" if self.config.jwks_file is None else "its jwks_file"
            words = f"{file} cannot be read ({error.strerror})"
        self._failure = f"The issuer {self.config.issuer} cannot be used: {words}. Try again later."
        self._failed = self._clock()
        return RefusedError(ErrorCode.ISSUER_UNAVAILABLE, self._failure)

    async def jwt_claims(self, text: str) -> Mapping[str, Any]:
        """Return the verified claims of a JWT for the configured audience.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``ISSUER_UNAVAILABLE``.
        """
        if self.config.audience is None:
            raise refused_sign_in(f"JWTs of {self.config.issuer} are not accepted here (no audience)")
        return await self._claims(text, {"essential": True, "value": self.config.audience})

    async def id_token_claims(self, text: str, nonce: str) -> Mapping[str, Any]:
        """Return the verified claims of an ID token for the configured client (OpenID Connect Core 3.1.3.7).

        Args:
            text: the ID token.
            nonce: the nonce of the authorization request.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``ISSUER_UNAVAILABLE``.
        """
        client = str(self.config.client_id)
        claims = await self._claims(text, {"essential": True, "value": client})
        audience = claims.get("aud")
        is_for_several = isinstance(audience, list) and len(audience) > 1
        if (is_for_several or "azp" in claims) and claims.get("azp") != client:
            raise refused_sign_in("The ID token was issued to another client")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode("utf-8", "replace"), nonce.encode()):
            raise refused_sign_in("The ID token does not belong to this sign-in: its nonce is another one")
        if not isinstance(claims.get("sub"), str) or not claims["sub"]:
            raise refused_sign_in("The ID token has no subject")
        return claims

    def actor_of(self, claims: Mapping[str, Any]) -> str:
        """Return the actor id that verified claims name.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``.
        """
        name = self.config.actor_claim
        actor = claims.get(name)
        if not isinstance(actor, str) or not actor:
            raise refused_sign_in(f"The token has no text in the claim {name!r}, which names the actor")
        if name == "email" and claims.get("email_verified") is not True:
            raise refused_sign_in("The issuer did not verify the address in the claim 'email', which names the actor")
        return actor

    async def _claims(self, text: str, audience: ClaimsOption) -> Mapping[str, Any]:
        try:
            token = await self._decoded(text, await self._current())
        except (JoseError, ValueError):
            keys = await self._current(renew=True)  # the issuer may have a new key
            try:
                token = await self._decoded(text, keys)
            except (JoseError, ValueError) as error:
                raise refused_sign_in(f"The JWT is not valid: {type(error).__name__}") from None
        registry = jwt.JWTClaimsRegistry(
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self.config.issuer},
            aud=audience,
            exp={"essential": True},
        )
        try:
            registry.validate(token.claims)
        except JoseError as error:
            raise refused_sign_in(f"The JWT is not valid: {error.description or error.error}") from None
        return token.claims

    async def _decoded(self, text: str, keys: KeySet) -> jwt.Token:
        """Return a JWT whose signature a thread has verified."""
        return await self._threads.run(lambda: jwt.decode(text, keys, algorithms=ALGORITHMS))

    async def _current(self, *, renew: bool = False) -> KeySet:
        async with self._mutex:
            age = self._clock() - self._keys_read
            if self._keys is None or age > (RETRY_S if renew else REFRESH_S):
                if self._keys is None:
                    self._check_retry()
                try:
                    self._keys = KeySet.import_key_set(await self._read())
                except RefusedError:
                    if self._keys is None:
                        raise
                except (*FAILURES, JoseError, KeyError, TypeError, AttributeError) as error:
                    if self._keys is None:
                        raise self._unavailable(error) from None
                self._keys_read = self._clock()
            return self._keys

    async def _read(self) -> Any:
        if self.config.jwks_file is not None:
            return orjson.loads(await asyncio.to_thread(Path(self.config.jwks_file).read_bytes))
        url = self.config.jwks_url
        if url is None:
            url = str((await self._discovered())["jwks_uri"])
        return await fetched_object(url)


def refused_sign_in(clause: str) -> RefusedError:
    """Return the refusal of credentials."""
    return RefusedError(ErrorCode.SIGN_IN_REQUIRED, f"{clause}; sign in as docs/server.md describes.")


async def fetched_object(url: str, *, within_s: float = WITHIN_S) -> dict[str, Any]:
    """Return a JSON object.

    Args:
        url: its address.
        within_s: time for the whole document, in seconds.

    Raises:
        httpx.HTTPError: the request failed, or the answer is a redirect or an error.
        TimeoutError: the document did not arrive in time.
        ValueError: the document is too large, or no JSON object.
    """
    body = bytearray()
    async with asyncio.timeout(within_s):
        client = httpx.AsyncClient(timeout=within_s, follow_redirects=False, headers={"Accept-Encoding": "identity"})
        async with client, client.stream("GET", url) as answer:
            answer.raise_for_status()
            async for part in answer.aiter_raw():
                body += part
                if len(body) > MAX_BYTES:
                    raise ValueError(f"{url} has more than {MAX_BYTES} bytes")
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise ValueError(f"{url} is no JSON object")
    return found


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
