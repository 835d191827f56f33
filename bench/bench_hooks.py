"""A hooked call of a tool that policy decides alone, over the server, beside a bare HTTP round trip.

Usage: ``python -m bench hooks [--calls N]``. A realm of the template ``coding-agents`` and its server; an agent that
sends the events of Claude Code one after another on one connection, and on a new connection for each. Every call is
judged, leased, recorded durably and reported. Bare is ``GET /healthz`` on the same connection, in turns with the calls.
To reach on an idle machine: the decision of a call, p50, below 25 ms. Then the decisions of reads of nine agents,
which pause between them, alone and beside a tenth whose command holds the whole project and keeps a processor busy; to
reach: p95 50 ms.
Then the CPU time of the process of a hook, in turns with that of Python that does nothing; to reach: 1.5 times of it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx

from worldprotocol.agents import hook_client
from worldprotocol.api.config import read_config
from worldprotocol.api.realm import Realm

LIMIT_MS = 25.0
LIMIT_RATIO = 1.5
LIMIT_READ_MS = 50.0
READERS = 9
PAUSE_S = 1.0
"""Longest pause of an agent between two reads, in which its model thinks; half of it on average."""
WARM = 20
HOOK = "/v1/realms/main/hooks/claude-code"


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, str]]:
    """Found a realm beside a project, and serve it; yield the URL, and the token of the agent."""
    realm, project = folder / "realm", folder / "project"
    project.mkdir()
    (project / "app.py").write_text("x = 1\n", encoding="utf-8")
    program = [sys.executable, "-m", "worldprotocol"]
    subprocess.run([*program, "init", str(realm), "--template", "coding-agents"], check=True, stdout=subprocess.DEVNULL)
    config = realm / "world.toml"
    text = config.read_text(encoding="utf-8").replace('root = "project"', f"root = {json.dumps(str(project))}")
    text = text.replace("[server]\n", "[server]\nrequests_per_second = 100000\nburst = 100000\n")
    config.write_text(text, encoding="utf-8")
    with Realm.from_config(read_config(config)) as opened:
        opened.register("ann", "human", binding={"kind": "auto_approve"})
        opened.register("bot", "agent", binding={"kind": "policy_rules", "policy": "coding-agents", "ask": ["ann"]})
        opened.register("tester", "agent", binding={"kind": "auto_approve"})
        opened.access.grant("bot", "actor", by="operator")
        token = opened.access.create_token("bot", by="operator").token
    words = [*program, "serve", "--json", "--port", "0"]
    with subprocess.Popen(words, cwd=realm, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"][0], token
        finally:
            process.terminate()


def events(project: Path, number: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the events before and after the number-th call."""
    common = {
        "session_id": "bench",
        "cwd": str(project),
        "permission_mode": "default",
        "tool_name": "Edit",
        "tool_input": {"file_path": str(project / "app.py"), "old_string": "1", "new_string": str(number)},
        "tool_use_id": f"toolu_{os.getpid()}_{number}",
    }
    after = {"hook_event_name": "PostToolUse", "tool_response": {"filePath": "app.py", "success": True}}
    return {**common, "hook_event_name": "PreToolUse"}, {**common, **after}


def timed(send: Callable[[], httpx.Response]) -> tuple[float, httpx.Response]:
    """Return how long a request took, in ms, and its answer."""
    begin = time.perf_counter()
    answer = send()
    return (time.perf_counter() - begin) * 1000, answer


def measure(url: str, token: str, project: Path, calls: int, *, keeps: bool) -> dict[str, list[float]]:
    """Return the times of the bare round trip, of the decisions and of the reports, in ms."""
    found: dict[str, list[float]] = {"GET /healthz": [], "PreToolUse": [], "PostToolUse": []}
    headers = {"Authorization": f"Bearer {token}", **({} if keeps else {"Connection": "close"})}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        for number in range(WARM + calls):
            before, after = events(project, number if keeps else -number - 1)
            bare, _ = timed(lambda: client.get("/healthz"))
            decided, answer = timed(lambda event=before: client.post(HOOK, json=event))  # type: ignore[misc]
            if answer.json()["hookSpecificOutput"]["permissionDecision"] != "allow":
                raise SystemExit(f"the call was not allowed: {answer.text}")
            reported, answer = timed(lambda event=after: client.post(HOOK, json=event))  # type: ignore[misc]
            answer.raise_for_status()
            if number >= WARM:
                for name, taken in zip(found, (bare, decided, reported), strict=True):
                    found[name].append(taken)
    return found


def show(what: str, found: dict[str, list[float]]) -> None:
    """Print one line for each."""
    bare = median(found["GET /healthz"])
    for name, taken in found.items():
        p50, p95 = median(taken), quantiles(taken, n=20)[-1]
        print(
            f"  {name + ', ' + what:<40} p50 {p50:6.2f} ms   p95 {p95:6.2f} ms   to bare {p50 / bare:5.1f}", flush=True
        )


def reads_of(url: str, token: str, project: Path, reader: int, calls: int) -> list[float]:
    """Read a file so often as one agent, each read with its report, and return the times of the decisions, in ms."""
    found, chance = [], random.Random(reader)
    common = {
        "session_id": f"reader-{reader}",
        "cwd": str(project),
        "permission_mode": "default",
        "tool_name": "Read",
        "tool_input": {"file_path": str(project / "app.py")},
    }
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False) as client:
        for number in range(calls):
            time.sleep(chance.uniform(0.0, PAUSE_S))
            event = {**common, "tool_use_id": f"toolu_{time.monotonic_ns()}_{reader}_{number}"}
            before = {**event, "hook_event_name": "PreToolUse"}
            taken, answer = timed(lambda event=before: client.post(HOOK, json=event))  # type: ignore[misc]
            if answer.json()["hookSpecificOutput"]["permissionDecision"] != "allow":
                raise SystemExit(f"the read was not allowed: {answer.text}")
            found.append(taken)
            client.post(HOOK, json={**event, "hook_event_name": "PostToolUse", "tool_response": {}}).raise_for_status()
    return found


@contextmanager
def commanded(realm: Path) -> Iterator[None]:
    """Hold what a command holds that may change the whole project, and keep a processor busy meanwhile."""
    scope = [{"predicate": "MUTATES", "resource": "FILE:/*"}]
    manifest = {"ver": "1.0", "session_id": "tests", "agent_id": "tester", "scope": scope}
    with Realm.from_config(read_config(realm / "world.toml")) as opened:
        held = [one.lease_id for one in opened.leases.desk.request(manifest, by="tester").leases]
        assert held
        with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
            try:
                yield
            finally:
                process.kill()
        opened.leases.desk.release(held, agent_id="tester", session_id="tests")


def measure_reads(url: str, token: str, folder: Path, calls: int) -> None:
    """Print how long reads of several agents wait, alone and beside a command."""

    def all_read() -> list[float]:
        with ThreadPoolExecutor(READERS) as pool:
            each = pool.map(lambda one: reads_of(url, token, folder / "project", one, calls), range(READERS))
            return [taken for found in each for taken in found]

    alone = all_read()
    with commanded(folder / "realm"):
        beside = all_read()
    for what, found in (("alone", alone), ("beside a command", beside)):
        p50, p95, to_alone = median(found), quantiles(found, n=20)[-1], median(found) / median(alone)
        print(
            f"  {f'Read of {READERS} agents, {what}':<40} p50 {p50:6.2f} ms   p95 {p95:6.2f} ms   "
            f"to alone {to_alone:5.2f}",
            flush=True,
        )
    load = os.getloadavg()[0]
    print(
        f"  to reach: p95 below {LIMIT_READ_MS:g} ms; measured {quantiles(beside, n=20)[-1]:.2f} ms at load {load:.1f}"
    )


def cpu_ms(command: list[str], given: str, environment: dict[str, str]) -> float:
    """Return the CPU time of a process, in ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{command} failed: {done.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def measure_client(url: str, token: str, project: Path, calls: int) -> None:
    """Print the CPU time of the client of hooks beside that of Python doing nothing.

    The first call leaves a guard, and the end of the session ends it.
    """
    python = [sys.executable, "-I", "-S"]
    hook = [*python, hook_client.FILE, "claude-code", "--server", url, "--realm", "main"]
    bare, asked = [], []
    for number in range(1 + calls):
        given = [json.dumps(one) for one in events(project, calls + number)]
        bare.append(cpu_ms([*python, "-c", "pass"], "", dict(os.environ)))
        asked += [cpu_ms(hook, one, {"WORLDCTL_TOKEN": token}) for one in given][:1]  # the report is not counted
    ends = {"hook_event_name": "SessionEnd", "session_id": "bench", "cwd": str(project)}
    cpu_ms(hook, json.dumps(ends), {"WORLDCTL_TOKEN": token})
    ratio = median(asked[1:]) / median(bare[1:])
    print(
        f"  {'CPU of the client of hooks':<40} p50 {median(asked[1:]):6.2f} ms   to bare Python {ratio:5.2f}",
        flush=True,
    )
    print(f"  to reach: {LIMIT_RATIO:g} times bare Python; measured {ratio:.2f}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200, help="counted, of each kind")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-hooks-") as name, served(Path(name)) as (url, token):
        kept = measure(url, token, Path(name) / "project", given.calls, keeps=True)
        show("one connection", kept)
        show("a new connection each", measure(url, token, Path(name) / "project", given.calls, keeps=False))
        measure_reads(url, token, Path(name), max(3, given.calls // 10))
        measure_client(url, token, Path(name) / "project", given.calls)
    decided = median(kept["PreToolUse"])
    print(f"  to reach: a decision below {LIMIT_MS:g} ms; measured {decided:.2f} ms", flush=True)


if __name__ == "__main__":
    main()
