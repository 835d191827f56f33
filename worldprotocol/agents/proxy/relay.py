"""The proxy between a client and an upstream: what passes, what is judged, and what is held back.

- Calls of tools are judged (``governed_call``). The client sees the tools as they are pinned, and no others, and the
  instructions of the upstream where they are pinned: a description that changed does not reach the agent.
- Resources and prompts of the upstream, and its requests to the client's model or user, are beside the policy; they
  pass only where that was asked for.
- Everything else, such as tasks, is refused: a method that is not known here could make effects.

The protocol is that of the revisions that begin with a handshake; clients that know later ones fall back to it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import anyio
from anyio.abc import TaskGroup
from mcp.shared.message import SessionMessage
from mcp_types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from worldprotocol.agents.proxy.governed_call import CallPlace, GovernedCall, Result
from worldprotocol.agents.proxy.pins import Pins, definition_of, statuses
from worldprotocol.agents.proxy.realm_client import RealmError
from worldprotocol.agents.proxy.upstream import PeerStreams, UpstreamError
from worldprotocol.agents.proxy.upstream_session import UpstreamSession

__all__ = ["PASSABLE", "Relay"]

PASSABLE: Final = ("resources", "prompts", "sampling", "elicitation")
"""What passes only where it was asked for."""

_TO_UPSTREAM: Final[Mapping[str, str]] = {
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "completion/complete": "prompts",
    "logging/setLevel": "",
}
_TO_CLIENT: Final[Mapping[str, str]] = {
    "ping": "",
    "roots/list": "",
    "sampling/createMessage": "sampling",
    "elicitation/create": "elicitation",
}
"""Requests, and what has to be asked for so that they pass; without it they are passed always."""

_NOTES_TO_UPSTREAM: Final = frozenset({"notifications/initialized", "notifications/roots/list_changed"})
"""Notifications that pass, without parameters."""

_PROGRESS: Final = "notifications/progress"
_NOTES_TO_CLIENT: Final[Mapping[str, str]] = {
    "notifications/cancelled": "",
    "notifications/message": "",
    "notifications/tools/list_changed": "",
    "notifications/resources/list_changed": "resources",
    "notifications/resources/updated": "resources",
    "notifications/prompts/list_changed": "prompts",
    "notifications/elicitation/complete": "elicitation",
}

_OF_SERVER: Final[Mapping[str, str]] = {
    "tools": "",
    "logging": "",
    "resources": "resources",
    "prompts": "prompts",
    "completions": "prompts",
}
_OF_CLIENT: Final[Mapping[str, str]] = {"roots": "", "sampling": "sampling", "elicitation": "elicitation"}
"""Capabilities that are stated to the other side, and what has to be asked for."""


HELD_S: Final = 2.0
"""Longest wait until the upstream takes a message that has no answer, in seconds; then the message is dropped."""

HELD_AGAIN_S: Final = 0.05
"""The same, as long as the upstream takes nothing: the client is read meanwhile."""


class Relay:
    """See the module.

    Args:
        client: the connection to the client.
        passes: which of ``PASSABLE`` pass.
    """

    def __init__(self, client: PeerStreams, passes: frozenset[str]) -> None:
        self._client = client
        self._passes = passes | {""}
        self._place: CallPlace | None = None
        self._running: dict[RequestId, anyio.CancelScope] = {}
        self._asked: set[RequestId] = set()
        self._progress: dict[int, str | int] = {}
        self._tokens = count(1)
        self._is_begun = False
        self._is_held = False

    async def run(self, place: CallPlace) -> None:
        """Serve the client until it ends its stream; what it waits for then is given up.

        Args:
            place: where calls are judged and forwarded.
        """
        self._place = place
        async with anyio.create_task_group() as tasks:
            try:
                async for received in self._client.receive:
                    if isinstance(received, SessionMessage):
                        await self._from_client(received.message, tasks)
            finally:
                for scope in list(self._running.values()):
                    scope.cancel()

    @property
    def _upstream(self) -> UpstreamSession:
        assert self._place is not None
        return self._place.upstream

    # From the upstream

    async def from_upstream(self, message: JSONRPCRequest | JSONRPCNotification) -> None:
        """Pass on what the upstream sends by itself, or refuse it."""
        if isinstance(message, JSONRPCNotification) and message.method == _PROGRESS:
            await self._pass_progress(message.params or {})
        elif isinstance(message, JSONRPCNotification):
            if _NOTES_TO_CLIENT.get(message.method, message.method) in self._passes:
                await self._send(message)
        elif _TO_CLIENT.get(message.method, message.method) in self._passes and self._is_begun:
            self._asked.add(message.id)
            await self._send(message)
        else:
            error = ErrorData(code=METHOD_NOT_FOUND, message=f"The proxy does not pass {message.method[:80]!r}.")
            await self._to_upstream(JSONRPCError(jsonrpc="2.0", id=message.id, error=error))

    async def _pass_progress(self, params: Mapping[str, Any]) -> None:
        """Pass on the progress of a request that is open, under the token of the client."""
        token = params.get("progressToken")
        stated = self._progress.get(token) if isinstance(token, int) else None
        if stated is not None:
            told = {**params, "progressToken": stated}
            await self._send(JSONRPCNotification(jsonrpc="2.0", method=_PROGRESS, params=told))

    @contextmanager
    def _progressing(self, params: Mapping[str, Any]) -> Iterator[int | None]:
        """Yield a token of the proxy for the progress of a request; None where the client wants none.

        The token of the client is not passed on, because no decision covers its text.
        """
        meta = params.get("_meta")
        stated = meta.get("progressToken") if isinstance(meta, Mapping) else None
        if not isinstance(stated, str | int):
            yield None
            return
        token = next(self._tokens)
        self._progress[token] = stated
        try:
            yield token
        finally:
            del self._progress[token]

    # From the client

    async def _from_client(self, message: JSONRPCMessage, tasks: TaskGroup) -> None:
        if isinstance(message, JSONRPCRequest):
            if message.id in self._running:
                await self._refuse(message.id, INVALID_REQUEST, f"The request {message.id!r:.80} is still open.")
                return
            self._running[message.id] = scope = anyio.CancelScope()
            tasks.start_soon(self._answer, message, scope)
        elif isinstance(message, JSONRPCNotification):
            if message.method == "notifications/cancelled":
                given = (message.params or {}).get("requestId")
                found = self._running.get(given) if isinstance(given, str | int) else None
                if found is not None:
                    found.cancel()
            elif message.method in _NOTES_TO_UPSTREAM:
                await self._to_upstream(JSONRPCNotification(jsonrpc="2.0", method=message.method))
        elif message.id in self._asked:
            self._asked.discard(message.id)
            await self._to_upstream(message)

    async def _answer(self, request: JSONRPCRequest, scope: anyio.CancelScope) -> None:
        try:
            with scope:
                found = await self._found(request)
                if isinstance(found, JSONRPCError):
                    await self._refuse(request.id, found.error.code, found.error.message, found.error.data)
                else:
                    await self._send(JSONRPCResponse(jsonrpc="2.0", id=request.id, result=dict(found)))
        except (UpstreamError, RealmError) as error:
            await self._refuse(request.id, INTERNAL_ERROR, str(error))
        finally:
            del self._running[request.id]

    async def _found(self, request: JSONRPCRequest) -> Result:
        method, params = request.method, request.params or {}
        if method == "ping":
            return {}
        if method == "initialize":
            return await self._initialized(params)
        if not self._is_begun or _TO_UPSTREAM.get(method, method) not in {*self._passes, "tools/list", "tools/call"}:
            return _error(METHOD_NOT_FOUND, f"The proxy does not pass {method[:80]!r}.")
        if method == "tools/list":
            return {"tools": await self._tools()}
        if method == "tools/call":
            return await self._called(request.id, params)
        with self._progressing(params) as token:
            meta = {} if token is None else {"_meta": {**params["_meta"], "progressToken": token}}
            answer = await self._upstream.ask(method, {**params, **meta})
        return answer if isinstance(answer, JSONRPCError) else answer.result

    async def _initialized(self, params: Mapping[str, Any]) -> Result:
        assert self._place is not None
        able = _kept(params.get("capabilities"), _OF_CLIENT, self._passes)
        answer = await self._upstream.initialize({**params, "capabilities": able})
        if isinstance(answer, JSONRPCError):
            return answer
        told = answer.result
        pins = await self._place.realm.pins(self._place.server)
        self._is_begun = True
        result = {
            "protocolVersion": told["protocolVersion"],
            "capabilities": _kept(told.get("capabilities"), _OF_SERVER, self._passes),
            "serverInfo": _name_of(told.get("serverInfo"), self._place.server),
        }
        instructions = told.get("instructions")
        if pins is not None and isinstance(instructions, str) and instructions == pins.instructions:
            result["instructions"] = instructions
        return result

    async def _tools(self) -> list[dict[str, Any]]:
        """Return the pinned definitions of the tools that are as they were pinned."""
        assert self._place is not None
        pins: Pins | None = await self._place.realm.pins(self._place.server)
        tools = await self._upstream.tools()
        found = statuses(tools, pins)
        return [definition_of(tool) for tool in tools if found.get(str(tool.get("name"))) == "pinned"]

    async def _called(self, request_id: RequestId, params: Mapping[str, Any]) -> Result:
        assert self._place is not None
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not name:
            return _error(INVALID_PARAMS, "The call names no tool.")
        if "task" in params:
            return _error(INVALID_PARAMS, "The proxy makes no calls as tasks; call the tool without one.")
        given = {} if arguments is None else arguments
        with self._progressing(params) as token:
            return await GovernedCall(self._place, json.dumps(request_id), name, given, token).made()

    # Sending

    async def _send(self, message: JSONRPCMessage) -> None:
        try:
            await self._client.send.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # the client has gone

    async def _refuse(self, request_id: RequestId | None, code: int, words: str, data: Any = None) -> None:
        error = ErrorData(code=code, message=words) if data is None else ErrorData(code=code, message=words, data=data)
        await self._send(JSONRPCError(jsonrpc="2.0", id=request_id, error=error))

    async def _to_upstream(self, message: JSONRPCMessage) -> None:
        try:
            with anyio.move_on_after(HELD_AGAIN_S if self._is_held else HELD_S) as waiting:
                await self._upstream.send(message)
        except UpstreamError:
            return  # requests find out that it has ended
        self._is_held = waiting.cancelled_caught


def _error(code: int, words: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=None, error=ErrorData(code=code, message=words))


def _kept(stated: Any, known: Mapping[str, str], passes: frozenset[str]) -> dict[str, Any]:
    """Return the capabilities that are known and pass."""
    found = stated if isinstance(stated, Mapping) else {}
    return {name: found[name] for name, needs in known.items() if name in found and needs in passes}


def _name_of(stated: Any, server: str) -> dict[str, str]:
    found = stated if isinstance(stated, Mapping) else {}
    return {name: str(found.get(name) or default)[:80] for name, default in (("name", server), ("version", "0"))}
