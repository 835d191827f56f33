"""Documents that issuers publish, fetched with limits on size and time and without redirects."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import httpx
import orjson

__all__ = ["FAILURES", "fetched_object"]

MAX_BYTES: Final = 1_000_000
"""Size of a document, in bytes."""

WITHIN_S: Final = 10.0
"""Time for a whole document, in seconds."""

FAILURES: Final = (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError)
"""What ``fetched_object`` raises; a timeout is an ``OSError``."""


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
