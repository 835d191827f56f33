"""Sign-in of browsers at an OIDC issuer: authorization code flow with PKCE (RFC 7636), by Authlib.

What a flow has to remember (state, nonce, code verifier, and the page to return to) is in a signed cookie of the
browser for ten minutes, so that any server of the realm can finish it, and no other browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import httpx2
from authlib.integrations.starlette_client import (  # type: ignore[import-untyped]
    OAuthError,
    StarletteIntegration,
    StarletteOAuth2App,
)
from fastapi import Request
from joserfc.errors import JoseError

from world.error_codes import ErrorCode
from world.errors import RefusedError
from worldprotocol.server.issuers.issuer import OidcIssuer, refused_sign_in

__all__ = ["CodeFlow", "SignedIn"]

TOKEN_S: Final = 10.0
"""Time for the answer of an issuer to a code, in seconds."""

CHALLENGE: Final = "S256"
_ERROR: Final = re.compile(r"[a-z_]{1,60}")
_NEEDED: Final = ("issuer", "authorization_endpoint", "token_endpoint")


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A finished sign-in.

    Args:
        actor_id: the actor that the ID token names.
        subject: subject of the ID token.
        next_page: page to return to.
    """

    actor_id: str
    subject: str
    next_page: str


class _Client(StarletteOAuth2App):  # type: ignore[misc]  # Authlib has no types
    """Authlib's client, with the metadata and the verification of ``OidcIssuer``."""

    def __init__(self, issuer: OidcIssuer, secret: str | None) -> None:
        config = issuer.config
        options = {"scope": " ".join(config.scopes), "code_challenge_method": CHALLENGE, "timeout": TOKEN_S}
        super().__init__(
            StarletteIntegration(config.name),
            config.name,
            client_id=config.client_id,
            client_secret=secret,
            client_kwargs=options,
        )
        self._issuer = issuer

    async def load_server_metadata(self) -> Mapping[str, Any]:
        """Return the endpoints; other members of the metadata would become options of the client.

        Raises:
            RefusedError: ``ISSUER_UNAVAILABLE``.
        """
        found = await self._issuer.metadata()
        methods = found.get("code_challenge_methods_supported")
        lacks = any(not isinstance(found.get(name), str) for name in _NEEDED)
        if lacks or (methods is not None and CHALLENGE not in methods):
            raise RefusedError(
                ErrorCode.ISSUER_UNAVAILABLE,
                f"The issuer {self._issuer.config.issuer} cannot be used: it has no PKCE with {CHALLENGE}, or lacks an "
                "endpoint of the authorization code flow.",
            )
        return {name: found[name] for name in (*_NEEDED, "end_session_endpoint") if name in found}

    async def parse_id_token(self, token: Mapping[str, Any], nonce: str, **_: Any) -> Mapping[str, Any]:
        """Return the verified claims of the ID token."""
        return await self._issuer.id_token_claims(str(token["id_token"]), nonce)


class CodeFlow:
    """The sign-in of browsers at one issuer.

    Args:
        issuer: the issuer, with a client.
        secret: the client's secret; None for a public client.
    """

    def __init__(self, issuer: OidcIssuer, secret: str | None) -> None:
        """Create the client; nothing is sent yet."""
        self.issuer = issuer
        self._client = _Client(issuer, secret)

    async def begin(self, request: Request, redirect_uri: str, next_page: str) -> str:
        """Return the address at the issuer to which the browser is sent.

        Args:
            request: the request, whose session keeps the flow.
            redirect_uri: where the issuer sends the browser back.
            next_page: page to return to.

        Raises:
            RefusedError: ``ISSUER_UNAVAILABLE``.
        """
        made = await self._client.create_authorization_url(redirect_uri)
        url = str(made.pop("url"))
        await self._client.save_authorize_data(request, redirect_uri=redirect_uri, next_page=next_page, **made)
        return url

    async def finish(self, request: Request) -> SignedIn:
        """Return the actor that an answer of the issuer verifies.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``ISSUER_UNAVAILABLE``.
        """
        given = request.query_params
        begun = await self._client.framework.get_state_data(request.session, given.get("state"))
        if begun is None:
            raise refused_sign_in("This sign-in was not begun in this browser, is finished, or took too long")
        await self._check_issuer(given)
        try:
            token = await self._client.authorize_access_token(request)
        except OAuthError as error:
            name = str(error.error)
            raise refused_sign_in(
                f"The issuer {self.issuer.config.issuer} refused: {name if _ERROR.fullmatch(name) else 'no reason'}"
            ) from None
        except (httpx2.HTTPError, httpx2.InvalidURL, JoseError, KeyError, TypeError, ValueError) as error:
            raise RefusedError(
                ErrorCode.ISSUER_UNAVAILABLE,
                f"The issuer {self.issuer.config.issuer} gave no usable answer ({type(error).__name__}). Sign in again "
                "later.",
            ) from None
        claims = token.get("userinfo")
        if claims is None:
            raise refused_sign_in(f"The issuer {self.issuer.config.issuer} returned no ID token")
        return SignedIn(self.issuer.actor_of(claims), str(claims["sub"]), str(begun["next_page"]))

    async def _check_issuer(self, given: Mapping[str, str]) -> None:
        """Refuse an answer of another issuer (RFC 9207), before its code is sent anywhere.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``, ``ISSUER_UNAVAILABLE``.
        """
        found = await self.issuer.metadata()
        stated = given.get("iss")
        is_needed = found.get("authorization_response_iss_parameter_supported") is True
        if stated is None and not is_needed:
            return
        if stated != self.issuer.config.issuer:
            raise refused_sign_in(f"The answer is not one of the issuer {self.issuer.config.issuer}")

    async def logout_url(self) -> str | None:
        """Return where the owner of a session may end it at the issuer, too (RP-Initiated Logout); None if nowhere."""
        if not self.issuer.config.logout:
            return None
        try:
            made = await self._client.create_logout_url(client_id=self.issuer.config.client_id)
        except (RefusedError, RuntimeError):
            return None
        return str(made["url"])
