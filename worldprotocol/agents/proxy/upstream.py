"""The MCP server behind the proxy: a process that speaks over its stdin and stdout, or a URL of streamable HTTP."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Protocol

import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from world.errors import RefusedError
from world.klis.resources.canonical_url import canonical_url
from worldprotocol.agents.proxy.http_transport import MAX_BODY_BYTES, LimitedTransport
from worldprotocol.agents.proxy.upstream_process import started

__all__ = ["PeerStreams", "UpstreamError", "connected", "is_url"]

OWN_VARIABLES: Final = "WORLDCTL_"
"""Environment variables that begin so are the proxy's, such as its token; the upstream does not get them."""


class UpstreamError(Exception):
    """The upstream could not be started, ended, did not answer in time, or answered something that is no answer."""


_TIMES: Final = httpx2.Timeout(30.0, read=None)


class Receiver(Protocol):
    """Messages of a peer, until it ends."""

    def __aiter__(self) -> AsyncIterator[SessionMessage | Exception]:
        """Iterate over them."""
        ...


class Sender(Protocol):
    """Takes messages for a peer."""

    async def send(self, item: SessionMessage, /) -> None:
        """Send one."""
        ...


@dataclass(frozen=True, slots=True)
class PeerStreams:
    """Messages of JSON-RPC from a peer, and to it.

    Args:
        receive: its messages; an exception is a line or answer that could not be read.
        send: messages to it.
        is_http: whether messages to it need headers.
    """

    receive: Receiver
    send: Sender
    is_http: bool = False


def is_url(words: Sequence[str]) -> bool:
    """Return whether the words that name an upstream are a URL, and not a command."""
    return len(words) == 1 and words[0].startswith(("http://", "https://"))


@asynccontextmanager
async def connected(
    words: Sequence[str], headers: Sequence[str] = (), *, is_watched: bool = False
) -> AsyncIterator[PeerStreams]:
    """Connect to an upstream; at the end of the context a process is stopped, with its children.

    Args:
        words: a command with its arguments, or one URL.
        headers: names of environment variables whose text, ``NAME: VALUE``, is a header of requests to a URL.
        is_watched: whether a person reads stderr; see ``upstream_process.started``.

    Raises:
        UpstreamError: it could not be started.
    """
    if is_url(words):
        _check(words[0])
        fields = dict(_header(name) for name in headers)
        async with (
            httpx2.AsyncClient(headers=fields, timeout=_TIMES, transport=LimitedTransport()) as http,
            streamable_http_client(words[0], http_client=http, max_sse_event_size=MAX_BODY_BYTES) as (receive, send),
        ):
            yield PeerStreams(receive, send, is_http=True)
        return
    environment = {name: text for name, text in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    manager = started(words, environment, is_watched=is_watched)
    try:
        streams = await manager.__aenter__()
    except (OSError, ValueError) as error:
        raise UpstreamError(f"The upstream {words[0]!r} cannot be started: {error}.") from None
    try:
        yield PeerStreams(streams, streams)
    finally:
        await manager.__aexit__(None, None, None)


def _check(url: str) -> None:
    """Raise ``UpstreamError`` for a URL that names no server."""
    try:
        canonical_url(url)
        httpx2.URL(url)
    except (RefusedError, httpx2.InvalidURL, ValueError):
        raise UpstreamError("The URL of the upstream names no server; write `https://HOST:PORT/PATH`.") from None


def _header(variable: str) -> tuple[str, str]:
    name, found, value = os.environ.get(variable, "").partition(":")
    if not found or not (name + value).isascii() or not (name + value).isprintable():
        raise UpstreamError(
            f"The environment variable {variable} has no header; write `NAME: VALUE` into it, a line of ASCII."
        )
    return name.strip(), value.strip()
