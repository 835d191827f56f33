"""Events over SSE to many readers: time from the commit to each reader, CPU time of a delivery, memory of a reader.

Usage: ``python -m bench streams [--readers N] [--intents N] [--idle N] [--beside N]``. All readers follow one realm in
SQLite; one caller submits intents over HTTP, each after the events of the one before have reached all readers. The time
of an event is from its own `at`, which precedes its commit, to the moment when the bytes are read; the process that
reads them has a core of its own at best. CPU time is that of the server, user and system, for each event of each
reader; the readers' memory is the growth of the server's resident memory. To reach: 1,000 readers get an event within
100 ms.

The last line is of a caller that writes without a pause, alone and beside many readers, which another process reads:
time of a write, and CPU time of the server for it. To reach: 1.5 times the time of a write alone.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import selectors
import socket
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median, quantiles

import orjson
import psutil

from bench.bench_requests import intent
from bench.http_load import PATH, cpu_of, founded, request, served

WITHIN_MS = 100
ENDED = b"event: proposal.completed"


class Readers:
    """Connections that follow the log; each notes when the last event of an intent arrived."""

    def __init__(self, port: int, token: str, count: int) -> None:
        """Connect, and wait until each stream has begun."""
        self._selector = selectors.DefaultSelector()
        self.sockets: list[socket.socket] = []
        asked = request("GET", f"{PATH}/log/stream", token)
        for _ in range(count):
            one = socket.create_connection(("127.0.0.1", port), timeout=60)
            one.sendall(asked)
            begun = one.recv(65_536)
            assert begun.startswith(b"HTTP/1.1 200 "), begun
            one.setblocking(False)
            self._selector.register(one, selectors.EVENT_READ)
            self.sockets.append(one)
        self._rest: dict[socket.socket, bytes] = dict.fromkeys(self.sockets, b"")

    def next(self) -> tuple[list[float], int, int]:
        """Wait for the end of one intent on every stream; return the arrivals, the events and the recorded time."""
        arrivals: list[float] = []
        events, at = 0, 0
        while len(arrivals) < len(self.sockets):
            for key, _ in self._selector.select(60):
                one = key.fileobj
                assert isinstance(one, socket.socket)
                data = self._rest[one] + one.recv(1 << 20)
                now = time.time()
                begin = data.find(ENDED)
                end = data.find(b"\r\n\r\n", begin)
                if begin < 0 or end < 0:
                    self._rest[one] = data
                    continue
                arrivals.append(now)
                self._rest[one] = data[end + 4 :]
                if not at:
                    events = data[: end + 4].count(b"event: ")
                    content = data[begin:end].partition(b"data: ")[2]
                    at = orjson.loads(content.split(b"\r\n")[0])["state"]["at"]
        return arrivals, events, at

    def take(self) -> None:
        """Read and discard what has arrived."""
        for key, _ in self._selector.select(0):
            one = key.fileobj
            assert isinstance(one, socket.socket)
            one.recv(1 << 20)

    def close(self) -> None:
        """Close the connections."""
        for one in self.sockets:
            one.close()


def post(port: int, data: bytes) -> None:
    """Send one request, and read its answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        one.sendall(data)
        assert one.recv(65_536).startswith(b"HTTP/1.1 200 ")


def deliver(port: int, process: psutil.Process, token: str, readers: int, intents: int) -> None:
    """Measure deliveries, and print them."""
    memory = process.memory_info().rss
    streams = Readers(port, token, readers)
    held = (process.memory_info().rss - memory) / readers
    late: list[float] = []
    delivered, cpu = 0, 0.0
    for number in range(intents + 1):
        before = cpu_of(process)
        post(port, intent(token, number))
        arrivals, events, at = streams.next()
        if number:  # the first one warms up
            cpu += cpu_of(process) - before
            delivered += events * readers
            late += [(one - at / 1_000) * 1_000 for one in arrivals]
    streams.close()
    parts = quantiles(late, n=100)
    share = sum(one <= WITHIN_MS for one in late) / len(late)
    print(
        f"  {readers:>6,} readers: median {parts[49]:6.1f} ms   99 % {parts[98]:6.1f} ms   all {max(late):6.1f} ms   "
        f"within {WITHIN_MS} ms {share:6.1%}   CPU {cpu / delivered * 1e6:5.1f} us a delivery   "
        f"{held / 1024:5.1f} KiB a reader",
        flush=True,
    )


def idle(port: int, process: psutil.Process, token: str, readers: int, seconds: float) -> None:
    """Measure readers to whom nothing is sent but what keeps their connections open, and print it."""
    memory = process.memory_info().rss
    streams = Readers(port, token, readers)
    held = (process.memory_info().rss - memory) / readers
    before = cpu_of(process)
    time.sleep(seconds)
    share = (cpu_of(process) - before) / seconds
    streams.close()
    print(f"  {readers:>6,} idle readers: {held / 1024:5.1f} KiB a reader   {share:6.1%} of a core", flush=True)


def answered(one: socket.socket) -> None:
    """Read one answer."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += one.recv(65_536)
    head, _, body = data.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += one.recv(65_536)


def written(port: int, process: psutil.Process, token: str, first: int, count: int) -> tuple[float, float]:
    """Return the median time of a write of one caller, and the CPU time of the server for each, in seconds."""
    times, before = [], cpu_of(process)
    with socket.create_connection(("127.0.0.1", port), timeout=60) as one:
        for number in range(first, first + count):
            begin = time.perf_counter()
            one.sendall(intent(token, number))
            answered(one)
            times.append(time.perf_counter() - begin)
    return median(times), (cpu_of(process) - before) / count


def _drain(port: int, token: str, count: int, channel: Connection) -> None:
    """Read streams until something is received."""
    streams = Readers(port, token, count)
    channel.send(None)
    while not channel.poll():
        streams.take()
        time.sleep(0.02)
    streams.close()


def beside(port: int, process: psutil.Process, token: str, readers: int, intents: int) -> None:
    """Measure writes alone and beside readers, and print them."""
    context = multiprocessing.get_context("spawn")
    written(port, process, token, 10_000, intents)
    alone, cpu = written(port, process, token, 20_000, intents)
    here, there = context.Pipe()
    drain = context.Process(target=_drain, args=(port, token, readers, there))
    drain.start()
    here.recv()
    written(port, process, token, 30_000, intents)
    time.sleep(5)  # the readers have what was written
    busy, busy_cpu = written(port, process, token, 40_000, intents)
    here.send(None)
    drain.join()
    print(
        f"  a write: {alone * 1e3:6.1f} ms, {cpu * 1e3:5.1f} ms of CPU   beside {readers:,} readers: "
        f"{busy * 1e3:6.1f} ms, {busy_cpu * 1e3:5.1f} ms of CPU   {busy / alone:5.2f}",
        flush=True,
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=1_000, help="that get every event")
    parser.add_argument("--intents", type=int, default=20, help="submitted one after the other")
    parser.add_argument("--idle", type=int, default=5_000, help="readers without events")
    parser.add_argument("--beside", type=int, default=2_000, help="readers beside a caller that writes")
    given = parser.parse_args()
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    with tempfile.TemporaryDirectory(prefix="bench-streams-") as name:
        address, token = founded(str(Path(name, "world.db")))
        with served(address) as (port, process):
            for readers in sorted({1, 100, given.readers}):
                deliver(port, process, token, readers, given.intents)
            idle(port, process, token, given.idle, 20)
            beside(port, process, token, given.beside, 100)


if __name__ == "__main__":
    main()
