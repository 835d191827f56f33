"""What a proposal costs in bytes and CPU time, in the engine's process and in PostgreSQL's: the input of docs/scale.md.

Usage: ``python -m bench cost [--proposals N] [--rounds R] [--record FILE]``. Proposals of a pure action by 1, 16 and 64
callers of one process, of an action with one effect, and over HTTP; all are approved at once. Stores: SQLite with
``synchronous=FULL``, and a PostgreSQL server of the benchmark's own, whose tables are analyzed before each measurement.
CPU time is user and system: of this process for the engine, of all its processes for PostgreSQL. Figures are medians of
rounds, with the least and the greatest. Bytes: tables with their indexes; PostgreSQL's WAL, or all that SQLite writes;
a connection, without TLS. Ratios are to one caller on SQLite. ``--record`` stores the figures as JSON; the tables of
docs/scale.md are computed from ``bench/scale_measured.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from bench.bench_requests import intent
from bench.bench_server import server
from bench.bench_writing import Work, at_once
from bench.cost_stores import FileStore, MeasuredStore, ServerStore
from bench.host_effects import make_trivial, works
from bench.http_load import cpu_of, founded, load, served
from bench.written import governed, propose, reopened, states_of_one
from world.audit.verify import verify
from world.log import open_log
from worldprotocol import Realm

CALLERS: Final = (1, 16, 64)
HTTP_CALLERS: Final = 64
FLUSHES: Final = 300
FLUSHED: Final = b"x" * 8_192
READINGS: Final = 5
"""How often a log is opened, read and verified."""

Figures = dict[str, Any]


def spread(values: Iterable[float], digits: int = 0) -> dict[str, float]:
    """Return the median of rounds, the least and the greatest."""
    found = list(values)
    cut = {"median": statistics.median(found), "least": min(found), "most": max(found)}
    return {name: round(value, digits or None) for name, value in cut.items()}


def cpu_of_proposals(store: MeasuredStore, realm: str, work: Work, callers: int, given: argparse.Namespace) -> Figures:
    """Return the CPU time and the wall time of a proposal, and how many proposals share a commit.

    Args:
        store: where the realm is.
        realm: its name.
        work: makes the proposal with a number.
        callers: threads that propose.
        given: ``proposals`` of a round, and ``rounds``.
    """
    found: dict[str, list[float]] = {"engine_us": [], "database_us": [], "wall_us": [], "batch": []}
    store.analyze(realm)
    for turn in range(given.rounds + 1):
        numbers = range(turn * given.proposals, (turn + 1) * given.proposals)
        commits, database, begin, cpu = store.commits(realm), store.cpu(), time.perf_counter(), time.process_time()
        at_once(work, numbers, callers)
        used, taken = time.process_time() - cpu, time.perf_counter() - begin
        database, commits = store.cpu() - database, store.commits(realm) - commits
        if turn:
            found["engine_us"].append(used / given.proposals * 1e6)
            found["database_us"].append(database / given.proposals * 1e6)
            found["wall_us"].append(taken / given.proposals * 1e6)
            found["batch"].append(given.proposals / commits)
    return {name: spread(values, 1 if name == "batch" else 0) for name, values in found.items()}


def bytes_of_proposals(store: MeasuredStore, realm: str, work: Work, count: int) -> dict[str, float]:
    """Return the bytes that a proposal adds: by group of tables, and written in all; one caller, one commit each."""
    sizes, written, commits = store.sizes(realm), store.written(), store.commits(realm)
    at_once(work, range(count), 1)
    found = {name: (size - sizes[name]) / count for name, size in store.sizes(realm).items()}
    found["written"] = (store.written() - written) / count
    states = states_of_one(store.address(realm))
    found["text"], found["events_count"] = sum(map(len, states)), len(states)
    found["commits"] = (store.commits(realm) - commits) / count
    return {name: round(value) for name, value in found.items()}


def variation(work: Work, count: int) -> float:
    """Return the coefficient of variation of the engine's CPU time of a proposal, by one caller."""
    taken = []
    for number in range(count):
        begin = time.thread_time()
        work(number)
        taken.append(time.thread_time() - begin)
    return round(statistics.stdev(taken) / statistics.mean(taken), 2)


def with_effects(address: str) -> Realm:
    """Return a new realm whose one action makes effects that do nothing."""
    world = Realm.create(address, domain=works, effects=[make_trivial])
    world.register("ann", "agent", binding={"kind": "auto_approve"})
    return world


def make_effect(world: Realm, number: int) -> None:
    """Submit the number-th proposal with one effect, and wait until its world is sealed."""
    done = world.act("ann", "trivial", {"caller": f"c{number % 32}", "effects": 1})
    if done.status != "completed":
        raise SystemExit(f"The proposal ended as {done.status}: {done.error}")


def exchanged(port: int, request: bytes) -> int:
    """Return the bytes of a request and of its answer."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(request)
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(65_536)
        head, _, body = answer.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body += connection.recv(65_536)
    return len(request) + len(head) + 4 + len(body)


def over_http(store: MeasuredStore, given: argparse.Namespace) -> Figures:
    """Return what a proposal over HTTP costs: CPU time of the server and of the database, and bytes both ways."""
    address, token = founded(store.address("http"))
    found: dict[str, list[float]] = {"engine_us": [], "database_us": [], "batch": []}
    with served(address) as (port, process):
        load(port, partial(intent, token), given.seconds, HTTP_CALLERS)
        store.analyze("http")
        for _ in range(given.rounds):
            commits, cpu, database = store.commits("http"), cpu_of(process), store.cpu()
            done = load(port, partial(intent, token), given.seconds, HTTP_CALLERS)
            cpu, database, commits = cpu_of(process) - cpu, store.cpu() - database, store.commits("http") - commits
            found["engine_us"].append(cpu / done * 1e6)
            found["database_us"].append(database / done * 1e6)
            found["batch"].append(done / commits)
        wire = exchanged(port, intent(token, 1))
    figures = {name: spread(values, 1 if name == "batch" else 0) for name, values in found.items()}
    return {**figures, "bytes": wire}


def traffic(world: Realm, work: Work, count: int, folder: Path) -> int:
    """Return the bytes of a proposal on the connection that writes to PostgreSQL, both ways, as libpq traces them."""
    writer = world.log._store._writer  # type: ignore[attr-defined]
    with Path(folder, "traced").open("w+", encoding="utf-8") as file:
        writer.pgconn.trace(file.fileno())
        at_once(work, range(count), 1)
        writer.pgconn.untrace()
        file.seek(0)
        lines = [line.split("\t") for line in file]
    return round(sum(int(line[2]) + 1 for line in lines if line[1] in {"F", "B"}) / count)


def flush_us(folder: Path) -> dict[str, int]:
    """Return how long this machine's disk takes to make 8 KiB durable."""
    taken = []
    with Path(folder, "flushed").open("wb", buffering=0) as file:
        for _ in range(FLUSHES):
            file.write(FLUSHED)
            begin = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append((time.perf_counter() - begin) * 1e6)
    cuts = statistics.quantiles(taken, n=100)
    return {"median": round(cuts[49]), "p90": round(cuts[89]), "p99": round(cuts[98])}


def reading(address: str) -> Figures:
    """Return the CPU time of opening a realm, and of reading and verifying an event of its log."""

    def opened() -> None:
        with reopened(address) as world:
            world.data()

    def read() -> None:
        with open_log(address, read_only=True) as log:
            for _ in log.read():
                pass

    def verified() -> None:
        with open_log(address, read_only=True) as log:
            if not verify(log).ok:
                raise SystemExit("The log is not sound.")

    with open_log(address, read_only=True) as log:
        events = log.head().size
    works: dict[str, tuple[Callable[[], None], int]] = {
        "open_us": (opened, 1),
        "read_event_us": (read, events),
        "verify_event_us": (verified, events),
    }
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(READINGS):
        for name, (work, among) in works.items():
            begin = time.process_time()
            work()
            found[name].append((time.process_time() - begin) / among * 1e6)
    return {"events": events, **{name: spread(values, 1) for name, values in found.items()}}


def measure(store: MeasuredStore, given: argparse.Namespace, folder: Path) -> Figures:
    """Measure one store; print and return its figures."""
    count = given.proposals * given.rounds
    found: Figures = {"bytes": {}, "cpu": {}}
    with governed(store.address("pure")) as world:
        work = partial(propose, world)
        at_once(work, range(given.proposals), 1)
        found["reading"] = [reading(store.address("pure"))]
        found["bytes"]["pure"] = bytes_of_proposals(store, "pure", work, count)
        if isinstance(store, ServerStore):
            found["bytes"]["pure"]["database_connection"] = traffic(world, work, given.proposals, folder)
        store.analyze("pure")
        found["variation"] = variation(work, count)
        for callers in CALLERS:
            found["cpu"][f"pure, {callers}"] = cpu_of_proposals(store, "pure", work, callers, given)
    with with_effects(store.address("effect")) as world:
        work = partial(make_effect, world)
        at_once(work, range(given.proposals), 1)
        found["bytes"]["effect"] = bytes_of_proposals(store, "effect", work, count)
        found["cpu"]["effect, 1"] = cpu_of_proposals(store, "effect", work, 1, given)
    found["cpu"][f"http, {HTTP_CALLERS}"] = over_http(store, given)
    found["reading"].append(reading(store.address("pure")))
    return found


def show(name: str, found: Figures, base: float) -> None:
    """Print the figures of a store."""
    print(name)
    for kind, sizes in found["bytes"].items():
        print(f"  bytes, {kind:<9} " + "  ".join(f"{part} {size:,}" for part, size in sizes.items()))
    for kind, cost in found["cpu"].items():
        engine, database, batch = cost["engine_us"], cost["database_us"], cost["batch"]["median"]
        print(
            f"  {kind:<9} CPU of the engine {engine['median']:>6,.0f} us"
            f" ({engine['least']:,.0f} to {engine['most']:,.0f})"
            f"   of the database {database['median']:>6,.0f} us   {batch:>5.1f} a commit"
            f"   ratio {engine['median'] / base:5.2f}",
            flush=True,
        )
    for read in found["reading"]:
        print(
            f"  {read['events']:,} events: open {read['open_us']['median'] / 1e3:,.0f} ms, an event read "
            f"{read['read_event_us']['median']:.1f} us, verified {read['verify_event_us']['median']:.1f} us",
            flush=True,
        )


def machine() -> Figures:
    """Return what the figures depend on."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    model = next((line.partition(": ")[2] for line in info if line.startswith("model name")), platform.machine())
    return {
        "processor": model,
        "cores": psutil.cpu_count(),
        "python": platform.python_version(),
        "load": round(psutil.getloadavg()[0], 1),
    }


def main() -> None:
    """Measure, print, and store."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--proposals", type=int, default=400, help="in each round")
    parser.add_argument("--rounds", type=int, default=5, help="that are counted, after one that is not")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each round over HTTP")
    parser.add_argument("--record", type=Path, help="the file to store the figures in, as JSON")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-cost-")))
        database = ServerStore(stack.enter_context(server()))
        stack.callback(database.close)
        found: Figures = {"machine": machine() | {"postgresql": database.version}, "flush_us": flush_us(folder)}
        for store in (FileStore(folder), database):
            found[store.name] = measure(store, given, folder)
            show(store.name, found[store.name], found["sqlite"]["cpu"]["pure, 1"]["engine_us"]["median"])
        print(f"  8 KiB made durable in {found['flush_us']['median']:,} us, median; {found['machine']}")
    if given.record:
        given.record.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
