"""A relay on 127.0.0.1 that signs in requests of clients which have no credentials of their own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit


@asynccontextmanager
async def signed_in(url: str, token: str, seen: Callable[[bytes], None]) -> AsyncIterator[str]:
    """Yield the address of a relay to a server, which adds the header Authorization to each request.

    Args:
        url: the server.
        token: the API token.
        seen: is called with the body of each request.
    """
    upstream = urlsplit(url)
    field = f"Authorization: Bearer {token}\r\n".encode()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward requests; each head ends in an empty line, each body has its length."""
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            first, _, rest = head.partition(b"\r\n")
            writer.write(first + b"\r\n" + field + rest)
            lengths = [one for one in rest.lower().split(b"\r\n") if one.startswith(b"content-length:")]
            if lengths:
                body = await reader.readexactly(int(lengths[0].partition(b":")[2]))
                seen(body)
                writer.write(body)
            await writer.drain()

    async def back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()

    async def until_closed(piping: Coroutine[None, None, None]) -> None:
        with suppress(OSError, EOFError):
            await piping

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        of_server, to_server = await asyncio.open_connection(upstream.hostname, upstream.port)
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(until_closed(one)) for one in (forward(reader, to_server), back(of_server, writer))
            ]
            await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for one in running:
                one.cancel()
        for closing in (writer, to_server):
            closing.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        host, port = server.sockets[0].getsockname()
        yield f"http://{host}:{port}"
