"""A proxy on the stdin and stdout of this process, and a look at what an upstream lists."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import anyio
from mcp_types import JSONRPCNotification, JSONRPCRequest

from worldprotocol.agents.mcp.stdio_transport import stdio_transport
from worldprotocol.agents.proxy.governed_call import CallPlace, CallSettings
from worldprotocol.agents.proxy.pins import Pins
from worldprotocol.agents.proxy.realm_client import RealmClient
from worldprotocol.agents.proxy.relay import Relay
from worldprotocol.agents.proxy.upstream import PeerStreams, UpstreamError, connected
from worldprotocol.agents.proxy.upstream_session import UpstreamSession

__all__ = ["UpstreamWords", "described", "pins_of", "propose", "serve"]

FAILED: Final = 1


@dataclass(frozen=True, slots=True)
class UpstreamWords:
    """An upstream, as it is named on the command line.

    Args:
        name: its name in intents and pins.
        words: a command with its arguments, or one URL.
        headers: see ``upstream.connected``.
    """

    name: str
    words: Sequence[str]
    headers: Sequence[str] = ()


def serve(realm: RealmClient, upstream: UpstreamWords, settings: CallSettings, passes: frozenset[str]) -> int:
    """Serve a client on stdin and stdout until it ends them, or SIGINT or SIGTERM, and return the exit code.

    Args:
        realm: where calls are judged.
        upstream: the upstream.
        settings: times.
        passes: see ``relay.PASSABLE``.
    """
    _silence()
    return asyncio.run(_served(realm, upstream, settings, passes))


async def _served(realm: RealmClient, upstream: UpstreamWords, settings: CallSettings, passes: frozenset[str]) -> int:
    async with stdio_transport() as client:
        relay = Relay(PeerStreams(client.receive, client.send), passes)
        try:
            code = await _bridged(relay, realm, upstream, settings)
        except UpstreamError as error:
            return _failed(str(error))
        except Exception as error:  # noqa: BLE001  # calls under way stay unreported, so that they are in doubt
            return _failed(f"The proxy failed: {type(error).__name__}: {error!s:.500}")
    if client.ended_by is not None:
        sys.stderr.write(f"The proxy was ended by {client.ended_by.name}.\n")
    return client.exit_code or code


async def _bridged(relay: Relay, realm: RealmClient, upstream: UpstreamWords, settings: CallSettings) -> int:
    async with realm, connected(upstream.words, upstream.headers) as streams, anyio.create_task_group() as tasks:
        session = UpstreamSession(streams, relay.from_upstream)
        process = str(uuid4())
        tasks.start_soon(_watched, session)
        await relay.run(CallPlace(realm, session, upstream.name, process, process, settings))
        code = FAILED if session.is_ended else 0
        tasks.cancel_scope.cancel()
    return code


async def _watched(session: UpstreamSession) -> None:
    await session.run()
    sys.stderr.write("The upstream has ended; calls are refused from now on.\n")


def _failed(words: str) -> int:
    sys.stderr.write(f"{words}\n")
    return FAILED


def described(upstream: UpstreamWords) -> Pins:
    """Return the pins that agree with what an upstream lists now.

    Raises:
        UpstreamError: it could not be started, or answered something that is not the protocol.
    """
    _silence()
    return asyncio.run(_described(upstream))


async def _described(upstream: UpstreamWords) -> Pins:
    place = connected(upstream.words, upstream.headers, is_watched=True)
    async with place as streams, anyio.create_task_group() as tasks:
        session = UpstreamSession(streams, _ignored)
        tasks.start_soon(session.run)
        try:
            found: Pins | UpstreamError = Pins.listed(*await session.described())
        except UpstreamError as error:
            found = error
        tasks.cancel_scope.cancel()
    if isinstance(found, UpstreamError):
        raise found
    return found


async def _ignored(message: JSONRPCRequest | JSONRPCNotification) -> None:
    """Answer nothing: the look at an upstream offers it no capability."""


def _silence() -> None:
    """Keep lines of the upstream that are no messages out of stderr."""
    for name in ("mcp", "client", "httpx", "httpx2"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


def pins_of(realm: RealmClient, server: str) -> Pins | None:
    """Return the pins of a server; None where it has none.

    Raises:
        RealmError: the realm could not be asked.
    """

    async def read() -> Pins | None:
        async with realm:
            return await realm.pins(server)

    return asyncio.run(read())


def propose(realm: RealmClient, server: str, pins: Pins) -> dict[str, Any]:
    """Propose pins of a server, and return the proposal.

    Raises:
        RealmError: the realm could not be asked, or refused them.
    """

    async def sent() -> dict[str, Any]:
        async with realm:
            return await realm.propose_pins(server, pins)

    return asyncio.run(sent())
