"""A session of the proxy with its upstream: requests under ids of the proxy, their answers, and the list of tools.

Only answers to open requests are taken, each once. What cannot be read as JSON-RPC is dropped, as are answers to
requests that the proxy did not make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any, Final

import anyio
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from worldprotocol.agents.proxy.upstream import PeerStreams, UpstreamError

__all__ = ["UpstreamSession"]

ANSWER_S: Final = 60.0
"""Time in which the upstream has to answer requests that are no calls, and list all of its tools, in seconds."""

MAX_PAGES: Final = 100
MAX_TOOLS: Final = 5_000

Reply = JSONRPCResponse | JSONRPCError


class UpstreamSession:
    """See the module.

    Args:
        streams: the connection.
        take: takes the requests and notifications that the upstream sends by itself.
    """

    def __init__(
        self, streams: PeerStreams, take: Callable[[JSONRPCRequest | JSONRPCNotification], Awaitable[None]]
    ) -> None:
        self._streams = streams
        self._take = take
        self._open: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = count(1)
        self._version: str | None = None
        self.is_http = streams.is_http
        self.is_ended = False

    async def run(self) -> None:
        """Take what the upstream sends until it ends; requests that are open then raise ``UpstreamError``."""
        try:
            async for received in self._streams.receive:
                if isinstance(received, SessionMessage):
                    await self._received(received.message)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # the same as its end
        finally:
            self.is_ended = True
            for waiting in list(self._open.values()):
                if not waiting.done():
                    waiting.set_exception(UpstreamError("The upstream ended before it answered."))

    async def _received(self, message: JSONRPCMessage) -> None:
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            await self._take(message)
            return
        waiting = self._open.get(message.id) if isinstance(message.id, int) else None
        if waiting is not None and not waiting.done():
            waiting.set_result(message)

    async def send(self, message: JSONRPCMessage) -> None:
        """Send a message.

        Raises:
            UpstreamError: the upstream has ended.
        """
        named = {"MCP-Protocol-Version": self._version} if self._version is not None else None
        metadata = ClientMessageMetadata(headers=named) if self._streams.is_http else None
        try:
            await self._streams.send.send(SessionMessage(message, metadata))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise UpstreamError("The upstream has ended.") from None

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a notification.

        Raises:
            UpstreamError: the upstream has ended.
        """
        given = {} if params is None else {"params": params}
        await self.send(JSONRPCNotification(jsonrpc="2.0", method=method, **given))

    async def ask(
        self,
        method: str,
        params: dict[str, Any] | None,
        limit_s: float = ANSWER_S,
    ) -> Reply:
        """Return the answer to a request; one that is given up is cancelled.

        Args:
            method: its method.
            params: its parameters.
            limit_s: longest wait, in seconds.

        Raises:
            UpstreamError: the upstream has ended, or did not answer in time.
        """
        number = next(self._numbers)
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        if self.is_ended:
            raise UpstreamError("The upstream has ended.")
        self._open[number] = waiting
        given = {} if params is None else {"params": params}
        try:
            with anyio.fail_after(limit_s):
                await self.send(JSONRPCRequest(jsonrpc="2.0", id=number, method=method, **given))
                return await waiting
        except TimeoutError:
            raise UpstreamError(f"The upstream did not answer {method} within {limit_s:g} s.") from None
        finally:
            del self._open[number]
            if not waiting.done() or waiting.cancelled():
                await self._cancel(number, method)

    async def _cancel(self, number: int, method: str) -> None:
        if method == "initialize" or self.is_ended:
            return
        with anyio.move_on_after(1.0, shield=True):
            try:
                await self.notify(
                    "notifications/cancelled", {"requestId": number, "reason": "The request was given up."}
                )
            except UpstreamError:
                return

    async def initialize(self, params: dict[str, Any]) -> Reply:
        """Begin the protocol, in a revision that begins with a handshake, and return the answer.

        Args:
            params: of the client's request; the newest such revision takes the place of others.

        Raises:
            UpstreamError: as ``ask``, and for an answer in a revision that is not known.
        """
        wanted = params.get("protocolVersion")
        version = wanted if wanted in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION
        answer = await self.ask("initialize", {**params, "protocolVersion": version})
        if isinstance(answer, JSONRPCResponse):
            told = answer.result.get("protocolVersion")
            if told not in HANDSHAKE_PROTOCOL_VERSIONS:
                raise UpstreamError(f"The upstream speaks the protocol revision {told!r:.80}, which is not known here.")
            self._version = told
        return answer

    async def described(self) -> tuple[list[dict[str, Any]], str | None]:
        """Begin the protocol for the proxy itself, and return the listed tools and the instructions.

        Raises:
            UpstreamError: it ended, or answered something that is not the protocol.
        """
        answer = await self.initialize({"capabilities": {}, "clientInfo": {"name": "worldctl", "version": "1"}})
        if isinstance(answer, JSONRPCError):
            raise UpstreamError(f"The upstream refused initialize: {answer.error.message!r:.300}")
        await self.notify("notifications/initialized")
        instructions = answer.result.get("instructions")
        return await self.tools(), instructions if isinstance(instructions, str) else None

    async def tools(self) -> list[dict[str, Any]]:
        """Return all tools that the upstream lists now.

        Raises:
            UpstreamError: it ended, did not answer in time, or answered something else than tools.
        """
        tools: list[dict[str, Any]] = []
        cursor: str | None = None
        end = anyio.current_time() + ANSWER_S
        for _ in range(MAX_PAGES):
            given = {} if cursor is None else {"cursor": cursor}
            answer = await self.ask("tools/list", given, max(0.0, end - anyio.current_time()))
            tools += _tools_in(answer)
            following = answer.result.get("nextCursor") if isinstance(answer, JSONRPCResponse) else None
            if len(tools) > MAX_TOOLS:
                break
            if following is None:
                return tools
            if not isinstance(following, str):
                break
            cursor = following
        raise UpstreamError(
            f"The upstream lists tools without an end; at most {MAX_TOOLS} on {MAX_PAGES} pages are read."
        )


def _tools_in(answer: Reply) -> list[dict[str, Any]]:
    if isinstance(answer, JSONRPCError):
        raise UpstreamError(f"The upstream refused tools/list: {answer.error.message!r:.300}")
    tools = answer.result.get("tools")
    if not isinstance(tools, list) or not all(isinstance(one, dict) for one in tools):
        raise UpstreamError("The upstream answered tools/list with something else than tools.")
    return tools
