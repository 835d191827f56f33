"""An intent over HTTP beside the same ``act`` in process, with 64 callers each; and bare round trips of the server.

Usage: ``python -m bench requests [--seconds S] [--rounds N]``. Each realm is a log of its own in SQLite with
``synchronous=FULL``. CPU time is that of the whole process that holds the realm, user and system: in process, 64
threads that call ``act``; over HTTP, the server, without the process of the load, which has 64 connections. The
measurements take turns, so that each round is under the same conditions; a ratio is the median of those of the rounds.
To reach: an intent over HTTP costs at most 1.5 times of the same ``act`` in process.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import orjson
import psutil

from bench.http_load import CALLERS, PATH, acting, cpu_of, founded, load, request, served
from bench.realms import MEMBERS

LIMIT = 1.5
Measured = Callable[[float], tuple[int, float]]
"""Runs for so many seconds; returns how many requests were answered, and the CPU seconds that they took."""


def intent(token: str, number: int) -> bytes:
    """Return the request that submits the number-th intent."""
    body = {"type": "counter.raise", "input": {"counter": f"c{number % MEMBERS}", "by": number % 7 + 1}}
    return request("POST", f"{PATH}/intents", token, orjson.dumps(body))


def of_server(port: int, process: psutil.Process, make: Callable[[int], bytes]) -> Measured:
    """Return what sends requests to a server."""

    def run(seconds: float) -> tuple[int, float]:
        before = cpu_of(process)
        done = load(port, make, seconds)
        return done, cpu_of(process) - before

    return run


def measure(measured: dict[str, Measured], seconds: float, rounds: int) -> dict[str, list[tuple[int, float]]]:
    """Run all in turns, after one turn that is not counted."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in measured}
    for number in range(rounds + 1):
        for name, run in measured.items():
            done = run(seconds)
            if number:
                found[name].append(done)
    return found


def show(found: dict[str, list[tuple[int, float]]], base: str, seconds: float) -> float:
    """Print one line for each; return the last ratio to the base."""
    ratio = 1.0
    cpu = {name: [used / done for done, used in rounds] for name, rounds in found.items()}
    for name, rounds in found.items():
        ratio = median(mine / of_base for mine, of_base in zip(cpu[name], cpu[base], strict=True))
        rate = median(done for done, _ in rounds) / seconds
        print(
            f"  {name:<46} {rate:>7,.0f}/s   CPU {median(cpu[name]) * 1e6:>6,.0f} us   ratio {ratio:5.2f}", flush=True
        )
    return ratio


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement in a round")
    parser.add_argument("--rounds", type=int, default=5, help="counted")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-requests-") as name:
        address, token = founded(str(Path(name, "http.db")))
        base = f"act in process, {CALLERS} threads"
        with acting(founded(str(Path(name, "act.db")))[0]) as act, served(address) as (port, process):
            bare, read = request("GET", "/healthz", token), request("GET", PATH, token)
            measured = {
                base: act,
                f"GET /healthz, {CALLERS} connections": of_server(port, process, lambda _: bare),
                "GET of the realm, signed in": of_server(port, process, lambda _: read),
                f"POST /intents, {CALLERS} connections": of_server(port, process, partial(intent, token)),
            }
            ratio = show(measure(measured, given.seconds, given.rounds), base, given.seconds)
    print(f"  to reach: at most {LIMIT} times of act in process; measured {ratio:.2f}", flush=True)


if __name__ == "__main__":
    main()
