"""Sign-in of browsers: one-time links, sessions in a cookie, and protection of forms.

A link, or an OIDC issuer, verifies the owner of a browser as an actor of a realm. The session is a token of that actor,
which only a cookie holds: the log shows which actor signed in and how, ``worldctl token revoke`` ends a session, and
all servers of the realm know it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

from fastapi import Request, Response

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.verification import BrowserSession, Verification
from world.state.realm_view import RealmView
from worldprotocol.api.callers.access import NewToken, verify_token
from worldprotocol.server.limits import is_own_origin
from worldprotocol.server.threads import Threads

if TYPE_CHECKING:
    from worldprotocol.server.service import HostedRealm, Service

__all__ = [
    "Links",
    "begun_session",
    "check_form",
    "check_origin",
    "fields_of",
    "form_token",
    "is_secure",
    "session_of",
    "set_session",
    "unset_session",
]

LINK_S: Final = 900.0
"""Time in which a link has to be opened, in seconds."""

BY: Final = "operator"
"""Actor that the records of a session name, as those of ``worldctl token create``."""

FORM: Final = "application/x-www-form-urlencoded"
MAX_FIELDS: Final = 100
_CODE_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class _Link:
    realm: str
    actor_id: str
    expires: float


class Links:
    """One-time links that were not used yet; only digests of their codes are kept.

    Args:
        clock: returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._links: dict[str, _Link] = {}

    def create(self, realm: str, actor_id: str) -> str:
        """Return the code of a new link.

        Args:
            realm: name of the realm.
            actor_id: a registered actor of it.
        """
        code = secrets.token_urlsafe(_CODE_BYTES)
        self._links[_digest(code)] = _Link(realm, actor_id, self._clock() + LINK_S)
        return code

    def actor_of(self, realm: str, code: str) -> str:
        """Return the actor of a link, which stays usable.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``.
        """
        link = self._links.get(_digest(code))
        if link is None or link.realm != realm or self._clock() >= link.expires:
            raise RefusedError(
                ErrorCode.SIGN_IN_REQUIRED,
                "This link was used already, or it has expired; start the server again for another one "
                "(`worldctl serve --sign-in ACTOR`).",
            )
        return link.actor_id

    def use(self, realm: str, code: str) -> str:
        """Return the actor of a link, which cannot be used again.

        Raises:
            RefusedError: ``SIGN_IN_REQUIRED``.
        """
        actor_id = self.actor_of(realm, code)
        del self._links[_digest(code)]
        return actor_id


def session_of(request: Request, realm: RealmView, now_ms: int) -> tuple[Verification, str]:
    """Return the actor that the cookie of a request verifies, and the text of its token.

    Args:
        request: the request.
        realm: the state of the realm.
        now_ms: ms since 1970.

    Raises:
        RefusedError: ``SIGN_IN_REQUIRED``.
    """
    text = request.cookies.get(_cookie(request), "")
    with suppress(RefusedError):
        verified = verify_token(realm, text, now_ms)
        if verified.method != "token":  # an API token is no session
            return verified, text
    raise RefusedError(
        ErrorCode.SIGN_IN_REQUIRED,
        "You are not signed in, or your session has ended; sign in, or open a link that `worldctl serve --sign-in` "
        "prints.",
    )


def begun_session(service: Service, hosted: HostedRealm, actor_id: str, session: BrowserSession) -> NewToken:
    """Record the token of a new session.

    Args:
        service: the service.
        hosted: the realm.
        actor_id: a registered actor.
        session: how the owner of the browser was verified.
    """
    note = "browser session of a one-time link" if session.issuer is None else f"browser session by {session.issuer}"
    ttl = service.config.session_minutes * 60_000
    return hosted.realm.access.create_token(actor_id, by=BY, ttl_ms=ttl, note=note, session=session)


def set_session(request: Request, answer: Response, realm: str, made: NewToken) -> None:
    """Set the cookie of a session: for the pages of one realm, unreadable to scripts, never sent by other sites."""
    answer.set_cookie(
        value=made.token,
        max_age=(made.created.expires_at - made.created.at) // 1000,
        **_cookie_of(request, realm),
    )


def unset_session(request: Request, answer: Response, realm: str) -> None:
    """Delete the cookie of a session."""
    answer.delete_cookie(**_cookie_of(request, realm))


def form_token(session: str) -> str:
    """Return the text that every form of a session holds, which another site cannot know."""
    return hmac.new(session.encode(), b"form", hashlib.sha256).hexdigest()


def check_origin(request: Request) -> None:
    """Refuse what is no form, or one that another site sent.

    Raises:
        RefusedError: ``FOREIGN_SITE``, ``INVALID_VALUE``.
    """
    origin, public_url = request.headers.get("origin"), _service(request).config.public_url
    is_foreign = request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none")
    if is_foreign or (origin is not None and not is_own_origin(origin, request.headers.get("host", ""), public_url)):
        raise RefusedError(ErrorCode.FOREIGN_SITE, "Another site sent this form; send it from a page of this server.")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise RefusedError(ErrorCode.INVALID_VALUE, f"The body is not a form ({FORM}); send it from a page.")


async def fields_of(content: bytes, threads: Threads) -> dict[str, str]:
    """Return the fields of a form, which a thread reads.

    Args:
        content: the body of the request.
        threads: the threads.

    Raises:
        RefusedError: ``INVALID_VALUE`` where it is not a form.
    """

    def run() -> dict[str, str]:
        return dict(parse_qsl(content.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS))

    try:
        return await threads.run(run)
    except ValueError:
        raise RefusedError(ErrorCode.INVALID_VALUE, "The body is not a form; send it from a page.") from None


def check_form(form: dict[str, str], session: str) -> None:
    """Refuse a form without the token of its session.

    Raises:
        RefusedError: ``RIGHT_MISSING``.
    """
    if not hmac.compare_digest(form.get("token", "").encode(), form_token(session).encode()):
        raise RefusedError(
            ErrorCode.RIGHT_MISSING, "The form is not one of your session; open the page again and repeat the answer."
        )


def is_secure(request: Request) -> bool:
    """Return whether the browser's connection has TLS, so that cookies are sent over TLS only."""
    return request.url.scheme == "https" or _service(request).public_url.startswith("https:")


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


def _cookie_of(request: Request, realm: str) -> dict[str, Any]:
    options = {"path": f"/realms/{realm}", "secure": is_secure(request), "httponly": True, "samesite": "strict"}
    return {"key": _cookie(request), **options}


def _cookie(request: Request) -> str:
    """Return the name of the cookie; browsers send the cookies of all ports of a host."""
    return f"world_protocol_{request.url.port or request.url.scheme}"


def _digest(code: str) -> str:
    return hashlib.sha256(code.encode("utf-8", "surrogatepass")).hexdigest()
