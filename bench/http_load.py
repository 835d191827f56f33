"""Load for the benchmarks of the server: a server in a process of its own, and many connections in another one.

Requests are bytes that were made before, and answers are read no further than to their end, so that the load costs less
than what it measures. The CPU time of a server is that of its whole process, user and system.
"""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import psutil

from bench.written import governed, propose, reopened

CALLERS = 64
PATH = "/v1/realms/main"


def founded(address: str) -> tuple[str, str]:
    """Make a realm of one actor who acts and reads; return its address, and a token of the actor."""
    with governed(address) as world:
        for right in ("actor", "reader"):
            world.access.grant("ann", right, by="operator")
        return address, world.access.create_token("ann", by="operator").token


def _serve(address: str, channel: Connection, options: dict[str, Any]) -> None:
    """Serve a realm until SIGTERM; the port is sent once the server listens."""
    from worldprotocol.api.config import ServerConfig
    from worldprotocol.server.service import RealmToServe, Service
    from worldprotocol.server.serving import serve

    config = ServerConfig(port=0, requests_per_second=1_000_000, burst=1_000_000, max_waits=100_000, **options)
    service = Service.of(config, [RealmToServe("main", reopened(address))])
    serve(service, None, lambda addresses: channel.send(int(addresses[0].rpartition(":")[2])))


@contextmanager
def served(address: str, **options: Any) -> Iterator[tuple[int, psutil.Process]]:
    """Serve a realm in another process; yield the port and the process.

    Args:
        address: the log.
        **options: further members of ``ServerConfig``.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(address, there, options))
    process.start()
    there.close()
    try:
        yield here.recv(), psutil.Process(process.pid)
    finally:
        assert process.pid is not None
        os.kill(process.pid, signal.SIGTERM)
        process.join()


def cpu_of(process: psutil.Process) -> float:
    """Return the CPU time that a process used, in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def request(method: str, path: str, token: str, body: bytes = b"") -> bytes:
    """Return a request as bytes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", f"Authorization: Bearer {token}"]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def _answered(reader: asyncio.StreamReader) -> int:
    """Read one answer, and return its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    await reader.readexactly(length)
    return int(head[9:12])


async def _caller(port: int, make: Callable[[int], bytes], number: int, until: float, counts: list[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < until:
        writer.write(make(number))
        status = await _answered(reader)
        if status != 200:
            raise SystemExit(f"The server answered {status}.")
        counts[0] += 1
        number += CALLERS
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def _load(port: int, make: Callable[[int], bytes], callers: int, seconds: float) -> int:
    counts, until = [0], time.monotonic() + seconds
    await asyncio.gather(*(_caller(port, make, number, until, counts) for number in range(callers)))
    return counts[0]


def load(port: int, make: Callable[[int], bytes], seconds: float, callers: int = CALLERS) -> int:
    """Send requests over many connections for so long; return how many were answered.

    Args:
        port: of the server.
        make: returns the request with a number.
        seconds: time.
        callers: connections.
    """
    return asyncio.run(_load(port, make, callers, seconds))


def _act(address: str, channel: Connection, callers: int) -> None:
    """Propose from threads for as many seconds as are received; send how many, and their CPU seconds. 0 ends it."""
    world = reopened(address)
    while seconds := channel.recv():
        counts, begin, cpu = [0] * callers, time.perf_counter(), time.process_time()

        def one(caller: int, counts: list[int] = counts, end: float = begin + seconds) -> None:
            while time.perf_counter() < end:
                propose(world, caller + counts[caller])
                counts[caller] += 1

        running = [threading.Thread(target=one, args=(caller,)) for caller in range(callers)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        channel.send((sum(counts), time.process_time() - cpu))
    world.close()


@contextmanager
def acting(address: str, callers: int = CALLERS) -> Iterator[Callable[[float], tuple[int, float]]]:
    """Open a realm in another process; yield what proposes there for so many seconds.

    It returns how many proposals ended, and the CPU seconds of that process.

    Args:
        address: the log.
        callers: threads.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_act, args=(address, there, callers))
    process.start()
    there.close()

    def run(seconds: float) -> tuple[int, float]:
        here.send(seconds)
        done, cpu = here.recv()
        return done, cpu

    try:
        yield run
    finally:
        here.send(0)
        process.join()
