"""A realm that the MCP server uses by the operations of a server, with the rights and redactions of the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from projections.catalog import ActionCatalog
from world.clock import SystemIds
from world.model.intent import IntentBody
from worldprotocol.agents.mcp.realm_access import PAGE, SUBMITTED_S, McpActor
from worldprotocol.api.remote.connection import RealmRequest, ServerConnection, resource
from worldprotocol.api.remote.parts import catalog_of

__all__ = ["ApiRealm", "Send", "sender"]

Send: TypeAlias = Callable[[RealmRequest], Awaitable[Any]]
"""Sends a request to a realm and returns the JSON of the answer; it raises the problem of a refusal."""

WITH_WAITS: Final[Mapping[str, Any]] = {"waits": True}
WAIT_S: Final = 20.0
"""Longest wait of one request, in seconds."""


def sender(connection: ServerConnection) -> Send:
    """Return what sends requests over a connection, without holding a thread."""

    async def send(request: RealmRequest) -> Any:
        return connection.json_of(await connection.send_async(request))

    return send


class ApiRealm:
    """A realm behind the operations of a server.

    Args:
        send: sends a request as the caller.
        inbox_url: the page where people answer; None where it is not known.
        position: returns the position of the last event; None asks the server.
    """

    def __init__(self, send: Send, inbox_url: str | None, position: Callable[[], int] | None = None) -> None:
        self._position = position
        self._send = send
        self.inbox_url = inbox_url
        self._ids = SystemIds()

    async def identity(self) -> McpActor:
        """Return the verified actor and its present rights."""
        found = await self._get("")
        return McpActor(found["name"], found["actorId"], frozenset(found["rights"]))

    async def position(self) -> int:
        """Return the position of the last event."""
        found: int = (await self._get(""))["position"] if self._position is None else self._position()
        return found

    async def catalog(self) -> ActionCatalog:
        """Return all actions of the domain with their availability to the actor."""
        return catalog_of(await self._get("/actions", {"mode": "debug", "all": True}))

    # Proposals

    async def submit(self, body: IntentBody, key: str | None, trace: Mapping[str, Any]) -> dict[str, Any]:
        """Submit an intent, or return the open, undecided proposal of the same meaning; see ``RealmPort``."""
        asked = {**body.to_wire(), "trace": dict(trace), "continueOpen": True}
        return await self._post("/intents", asked, key, {"within": SUBMITTED_S})

    async def proposal(self, proposal_id: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Return a proposal once it has ended, or after a time; see ``RealmPort``."""
        path, wait = resource("proposals", proposal_id), min(wait_s, WAIT_S)
        found: dict[str, Any] = await self._send(RealmRequest(method="GET", path=path, query=WITH_WAITS, wait_s=wait))
        return found

    async def withdraw(self, proposal_id: str, reason: str) -> dict[str, Any]:
        """Withdraw an undecided proposal of the actor."""
        return await self._post(f"{resource('proposals', proposal_id)}:cancel", {"reason": reason}, None)

    # Reading

    async def patches(self, world_id: str) -> Sequence[Any]:
        """Return the patches from the parent of a world, JSON."""
        found: Sequence[Any] = (await self.world(world_id)).get("patches", ())
        return found

    async def inbox(self) -> Any:
        """Return what waits for the actor, with a preview of each approval."""
        return await self._get("/inbox", {"limit": PAGE})

    async def worlds(self) -> Any:
        """Return the newest worlds."""
        return await self._get("/worlds", {"limit": PAGE})

    async def world(self, world_id: str) -> Any:
        """Return a world with its patches."""
        return await self._get(resource("worlds", world_id))

    async def state(self, world_id: str) -> Any:
        """Return the data of a world."""
        return await self._get(f"{resource('worlds', world_id)}/state")

    async def branches(self) -> Any:
        """Return the branches."""
        return await self._get("/branches")

    # Leases

    async def leases(self, *, own: bool) -> Any:
        """Return the leases in force; ``own`` are those of the actor alone."""
        return await self._get("/leases/held" if own else "/leases")

    async def acquire(self, wanted: Mapping[str, Any], key: str | None) -> dict[str, Any]:
        """Request leases for the actor, all or none; see ``RealmPort``."""
        return await self._post("/leases", dict(wanted), key)

    async def release(self, lease_ids: Sequence[str], session_id: str, key: str | None) -> dict[str, str]:
        """Release leases of the actor, all or none, and return the state of each."""
        body = {"leaseIds": list(lease_ids), "sessionId": session_id}
        states: dict[str, str] = (await self._post("/leases:release", body, key))["states"]
        return states

    async def _get(self, path: str, query: Mapping[str, Any] | None = None) -> Any:
        return await self._send(RealmRequest(method="GET", path=path, query=query or {}))

    async def _post(
        self, path: str, body: Any, key: str | None, query: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        request = RealmRequest(method="POST", path=path, body=body, query=query or {}, key=key or self._ids.new_id())
        found: dict[str, Any] = await self._send(request)
        return found
