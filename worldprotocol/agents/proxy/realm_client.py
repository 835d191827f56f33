"""What the MCP proxy asks of the server that has the realm: decisions on calls, their reports, and pins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self
from urllib.parse import quote
from uuid import uuid4

import httpx

from worldprotocol.agents.proxy.events import PROXY
from worldprotocol.agents.proxy.pins import PIN, Pins
from worldprotocol.api.remote.addresses import ServerAddress

__all__ = ["RealmClient", "RealmError"]

CONNECT_S: Final = 10.0
SLACK_S: Final = 30.0
"""Time beyond the stated wait in which an answer has to come, in seconds."""

PASSING: Final = frozenset({408, 429})
"""Statuses below 500 of requests that may be sent again."""


class RealmError(Exception):
    """The realm could not be asked, or refused the request.

    Args:
        message: one sentence.
        is_final: whether the same request, sent again, would be refused again.
    """

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class RealmClient:
    """One realm of a server, asked as the actor of a token; a context manager.

    Args:
        address: the server.
        realm: the name of the realm there.
        token: the token; None where the peer of a Unix socket is verified.
    """

    def __init__(self, address: ServerAddress, realm: str, token: str | None) -> None:
        self._address = address
        self._path = f"/v1/realms/{quote(realm, safe='')}"
        transport = httpx.AsyncHTTPTransport(uds=address.socket) if address.socket is not None else None
        self._http = httpx.AsyncClient(
            base_url=address.base_url,
            transport=transport,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(SLACK_S, connect=CONNECT_S),
            trust_env=not address.is_local,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._http.aclose()

    async def pins(self, server: str) -> Pins | None:
        """Return the pins of a server; None where it has none.

        Raises:
            RealmError: the realm could not be asked.
        """
        answer = await self._send("GET", f"/mcp/{quote(server, safe='')}/pins")
        return Pins.read(answer.get("pins"))

    async def propose_pins(self, server: str, pins: Pins) -> dict[str, Any]:
        """Propose pins of a server, and return the proposal.

        Raises:
            RealmError: the realm could not be asked, or refused them.
        """
        given = {"server": server, **pins.wire()}
        headers = {"Idempotency-Key": f"mcp-pin-{uuid4()}"}
        return await self._send("POST", "/intents", {"type": PIN, "input": given}, headers)

    async def decide(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision on a call that begins.

        Args:
            event: as ``events.begins`` returns it.

        Raises:
            RealmError: the realm could not be asked, or answered something else than a decision.
        """
        answer = await self._event(event, float(event["waitS"]))
        if answer.get("decision") not in ("allow", "deny"):
            raise RealmError("the server answered something else than a decision")
        return answer

    async def send(self, event: Mapping[str, Any]) -> dict[str, Any]:
        """Send an event that needs no decision.

        Raises:
            RealmError: the realm could not be asked, or refused it.
        """
        return await self._event(event, 0.0)

    async def _event(self, event: Mapping[str, Any], wait_s: float) -> dict[str, Any]:
        return await self._send("POST", f"/hooks/{PROXY}", dict(event), wait_s=wait_s)

    async def _send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait_s: float = 0.0,
    ) -> dict[str, Any]:
        timeout = httpx.Timeout(wait_s + SLACK_S, connect=CONNECT_S)
        try:
            answer = await self._http.request(method, self._path + path, json=body, headers=headers, timeout=timeout)
        except ValueError as error:
            raise RealmError(f"the request cannot be written as JSON: {error}", is_final=True) from None
        except (httpx.HTTPError, OSError) as error:
            raise RealmError(f"{self._address.text} does not answer: {str(error) or type(error).__name__}") from None
        try:
            found = answer.json()
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise RealmError(f"{self._address.text} answered {answer.status_code} without a document")
        if answer.is_success:
            return found
        is_final = answer.status_code < 500 and answer.status_code not in PASSING
        raise RealmError(str(found.get("detail") or answer.status_code), is_final=is_final)
