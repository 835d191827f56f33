"""Upstreams as processes: lines of a limited length, and an end that no process can refuse."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import anyio
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCNotification

from tests.agents.proxy.proxied import until
from worldprotocol.agents.proxy import upstream_process
from worldprotocol.agents.proxy.upstream_process import started

pytestmark = pytest.mark.slow

PING = '{"jsonrpc": "2.0", "method": "ping"}'
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + "/" + str(os.getpid()), "w").close()
while True:
    time.sleep(60)
"""


def received(words: Sequence[str]) -> list[SessionMessage]:
    async def read() -> list[SessionMessage]:
        async with started(words, os.environ) as streams:
            return [one async for one in streams]

    return asyncio.run(read())


def test_a_line_that_is_too_long_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_process, "MAX_LINE_BYTES", 100_000)
    words = [sys.executable, "-c", f"print('{PING}'); print('no message'); print('{PING}'); print('x' * 1_000_000)"]
    found = received(words)
    assert len(found) == 2


def test_an_endless_line_ends_the_connection_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upstream_process, "MAX_LINE_BYTES", 100_000)
    assert received([sys.executable, "-c", "import sys\nwhile True: sys.stdout.write('x' * 65_536)"]) == []


def test_a_process_that_ignores_its_end_is_killed_with_its_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upstream_process, "EXIT_S", 0.2)

    async def start() -> None:
        async with started([sys.executable, "-c", STUBBORN, str(tmp_path)], os.environ):
            while len(list(tmp_path.iterdir())) < 2:
                await anyio.sleep(0.02)

    asyncio.run(start())
    pids = [int(one.name) for one in tmp_path.iterdir()]
    until(lambda: [one for one in pids if is_running(one)], [])


def is_running(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_message_to_a_process_that_has_ended_is_refused() -> None:
    async def send() -> None:
        async with started([sys.executable, "-c", ""], os.environ) as streams:
            assert [one async for one in streams] == []
            message = SessionMessage(JSONRPCNotification(jsonrpc="2.0", method="x" * 10_000_000))
            with pytest.raises(anyio.BrokenResourceError):
                await streams.send(message)

    asyncio.run(send())
