"""What leases cost: acquire and release, wake-ups, verdicts, memory, replay, and durable grants.

Usage: ``python -m bench leases [--seconds S] [--events N] [--past N] [--grants N] [--folder DIR] [--postgres URL]``.
The ledger is the real one with its desk; the events are made and folded but not stored, except for the durable grants.
All ratios are taken within one run: the pair of acquire and release is measured in turns on all ledgers.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import statistics
import tempfile
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bench.bench_pipeline import raw
from bench.realms import BenchRealm
from world.events.base import Event
from world.events.codec import decode_event, encode_event
from world.events.lease_events import AgentRegistered, KlisConfigured, LeasesReleased, VerdictGiven
from world.events.resource_values import GrantedLease
from world.klis.kernel import arbitrate
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.settings import KlisSettings

HELD = (0, 100, 1_000, 10_000, 100_000)
PAST = 1_000_000
FLAT, BUDGET_US = 1.2, 8.0
ROUNDS = 15
CALLERS = 64
WAITING = (100, 1_000, 10_000)
CHANNEL = {"kind": "vouched", "by": "bench"}
SETTINGS = KlisSettings(max_triples=10_000)


class Office:
    """A desk on a ledger in memory, and what a caller needs to ask it."""

    def __init__(self) -> None:
        """Begin with an empty ledger."""
        self.ledger = Ledger()
        self._ids = itertools.count()
        self.desk = LeaseManager(self.ledger, emit=self.ledger.fold, new_id=lambda: f"id-{next(self._ids)}")
        self.desk.configure(SETTINGS, 0, by="bench")
        self.now = 1

    def acquire(self, manifest: Manifest) -> list[str]:
        """Take the leases of a manifest."""
        verdict = self.desk.request(manifest, self.now, channel=CHANNEL, options=RequestOptions(until_sealed=True))
        return [lease.lease_id for lease in verdict.leases]

    def take_and_give_back(self, manifest: Manifest) -> None:
        """Acquire and release: what is measured."""
        leases = self.acquire(manifest)
        self.desk.release(leases, self.now, agent_id=manifest.agent_id, session_id=manifest.session_id)

    def hold(self, count: int) -> None:
        """Let many sessions hold one file each."""
        for number in range(count):
            self.acquire(manifest(f"holder-{number % 997}", f"s{number}", f"MUTATES {path(number)}"))


def path(number: int) -> str:
    """Return one of very many files, a few in each directory."""
    return f"FILE:/shop/{number % 100}/{number // 100 % 100}/file-{number}"


def manifest(agent: str, session: str, *wanted: str) -> Manifest:
    """Return a manifest for triples such as ``MUTATES FILE:/a``."""
    scope = [dict(zip(("predicate", "resource"), one.split(" ", 1), strict=True)) for one in wanted]
    told = {"ver": "1.0", "agent_id": agent, "session_id": session, "scope": scope}
    return read_manifest(told, settings=SETTINGS)


def median_us(works: dict[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Return the median microseconds of each of these works, which take turns for this long altogether."""
    repeats = {}
    for name, work in works.items():
        work()
        begin = time.perf_counter()
        work()
        repeats[name] = max(1, int(seconds / len(works) / ROUNDS / max(time.perf_counter() - begin, 1e-6)))
    rounds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(ROUNDS):
        for name, work in works.items():
            begin = time.perf_counter()
            for _ in range(repeats[name]):
                work()
            rounds[name].append((time.perf_counter() - begin) / repeats[name] * 1e6)
    return {name: statistics.median(taken) for name, taken in rounds.items()}


def measure_pair(past: int, seconds: float) -> None:
    """Print what acquire and release of one lease cost beside others that are held, or were."""
    offices = {f"{held:>9,} held": Office() for held in HELD}
    for held, office in zip(HELD, offices.values(), strict=True):
        office.hold(held)
    after = offices[f"{past:>9,} past"] = Office()
    for number in range(past // 100):
        many = manifest("ann", f"s{number}", *(f"MUTATES {path(number * 100 + one)}" for one in range(100)))
        after.take_and_give_back(many)
    one = manifest("worker", "s", "MUTATES FILE:/shop/7/7/mine")
    found = median_us({name: partial(office.take_and_give_back, one) for name, office in offices.items()}, seconds)
    empty = found[f"{0:>9,} held"]
    for name, taken in found.items():
        print(f"acquire and release, {name}   {taken:>8.2f} us   ratio {taken / empty:>5.2f}", flush=True)
    print(f"   budget: flat within {FLAT}, below {BUDGET_US:.0f} us   worst ratio {max(found.values()) / empty:.2f}")


def behind(died: int, held: str, wanted: Callable[[int], tuple[str, ...]]) -> Office:
    """Return an office in which so many proposals died of one lease, and more of another one."""
    office = Office()
    office.acquire(manifest("aged", "s", held))
    for at in range(died):
        options = RequestOptions(until_sealed=True, queue=True, request_id=f"p{at}")
        asked = manifest(f"agent-{at % 97}", f"p{at}", *wanted(at))
        office.desk.request(asked, office.now, channel=CHANNEL, options=options)
    assert len(office.ledger.refused) == died
    return office


def measure_wakes() -> None:
    """Print what a release costs behind which many proposals died: one of them can go, all can go, none wants it."""
    for died in WAITING:
        state = "MUTATES STATE:/main/*"
        office, taken = behind(died, state, lambda at: (state, f"MUTATES {path(at)}")), list[float]()  # noqa: B023
        for _ in range(min(ROUNDS, died)):
            *_, lease = office.ledger.leases.values()
            begin = time.perf_counter()
            office.desk.release_session(lease.session.agent_id, lease.session.session_id, office.now)
            taken.append((time.perf_counter() - begin) * 1e6)
        print(f"release, {died:>6,} died, one can go     {statistics.median(taken):>10.1f} us", flush=True)
    other = manifest("worker", "s", "MUTATES FILE:/other")
    found = median_us({"": partial(office.take_and_give_back, other)}, 1.0)[""]
    print(f"acquire and release of another lease, {died:>6,} died   {found:>10.1f} us", flush=True)
    office = behind(died, "MUTATES FILE:/shop/*", lambda at: (f"MUTATES {path(at)}",))
    begin = time.perf_counter()
    office.desk.release_session("aged", "s", office.now)
    assert len(office.ledger.leases) == died
    each = (time.perf_counter() - begin) / died * 1e6
    print(f"release, {died:>6,} died, all can go     {each:>10.1f} us for each", flush=True)


def measure_verdicts(seconds: float) -> None:
    """Print how many verdicts a second the kernel gives beside 100,000 leases."""
    office = Office()
    office.hold(HELD[-1])
    office.desk.register("worker", office.now, by="bench")
    works = {}
    for count in (1, 10, 100, 1_000):
        free = manifest("worker", "s", *(f"MUTATES FILE:/shop/{n % 100}/{n % 7}/mine-{n}" for n in range(count)))
        works[f"granted, {count:>5,} triples"] = free
        taken = manifest("worker", "s", *(f"MUTATES {path(n * 97)}" for n in range(count)))
        works[f"died,    {count:>5,} triples"] = taken
    works["granted, free subtree  "] = manifest("worker", "s", "MUTATES FILE:/other/*")
    works["died, subtree over all "] = manifest("worker", "s", "MUTATES FILE:/shop/*")
    works["died, subtree over 1 % "] = manifest("worker", "s", "MUTATES FILE:/shop/7/*")

    def ask(asked: Manifest) -> Callable[[], Any]:
        # A session of its own each time: the kernel remembers what it told a session that asks for the same again.
        return lambda: arbitrate(office.ledger, office.ledger.session("worker", "s"), asked.triples, office.now)

    found = median_us({name: ask(asked) for name, asked in works.items()}, seconds)
    for name, us in found.items():
        print(f"verdicts, {name}   {us:>10.2f} us   {1e6 / us:>12,.0f} per second", flush=True)


def measure_memory() -> None:
    """Print how much memory an active lease takes."""
    office, count = Office(), 100_000
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    office.hold(count)
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / count
    tracemalloc.stop()
    print(f"memory of an active lease in a session of its own   {each:>8,.0f} bytes")


def history(events: int) -> Iterator[Event]:
    """Make events as a desk does: a thousand agents take and give back, ten leases held at each time."""
    yield KlisConfigured(at=0, settings=SETTINGS.to_wire(), by="bench")
    for agent in range(1_000):
        yield AgentRegistered(at=0, agent_id=f"agent-{agent}", priority=agent, by="bench")
    held: list[tuple[int, str]] = []
    for number in range((events - 1_001) // 2 + 10):
        who, lease_id = f"agent-{number % 1_000}", f"lease-{number}"
        told = GrantedLease(lease_id=lease_id, token=number + 1, predicate="MUTATES", resource=path(number))
        yield VerdictGiven(
            at=number,
            verdict_id=f"verdict-{number}",
            request_id=f"request-{number}",
            agent_id=who,
            session_id=f"s{number}",
            status="Granted",
            cause="request",
            manifest={"ver": "1.0", "agent_id": who, "session_id": f"s{number}", "scope": []},
            channel=CHANNEL,
            ttl_ms=60_000,
            leases=[told],
        )
        held.append((number, lease_id))
        if len(held) > 10:
            oldest, ended = held.pop(0)
            owner = f"agent-{oldest % 1_000}"
            yield LeasesReleased(at=number, lease_ids=[ended], agent_id=owner, session_id=f"s{oldest}")


def measure_replay(count: int) -> None:
    """Print how long it takes to fold a long history, as values and as stored bytes; memory stays bounded."""
    folding = reading = 0.0
    events = 0
    ledger, again = Ledger(), Ledger()
    source = history(count)
    while batch := list(itertools.islice(source, 20_000)):
        events += len(batch)
        begin = time.perf_counter()
        for event in batch:
            ledger.fold(event)
        folding += time.perf_counter() - begin
        stored = [(event.TOPIC, event.VERSION, encode_event(event)) for event in batch]
        begin = time.perf_counter()
        for topic, version, state in stored:
            again.fold(decode_event(topic, version, state))
        reading += time.perf_counter() - begin
    assert len(ledger.leases) == len(again.leases)
    for name, taken in (("fold alone        ", folding), ("decode and fold   ", reading)):
        print(f"replay, {events:,} events, {name}   {taken:>6.2f} s   {events / taken:>10,.0f} per second", flush=True)


def measure_bare_commits(folder: Path, commits: int) -> None:
    """Print how often the bare driver commits as much, which is what the disk gives: a grant and its end take two."""
    begin = time.perf_counter()
    raw(folder / "raw.db", [b"x" * 600], commits)
    taken = time.perf_counter() - begin
    print(
        f"bare driver, SQLite FULL           {commits / taken:>8,.0f} commits per second, two make a grant and its end"
    )


def measure_durable(name: str, address: str, grants: int) -> None:
    """Print how many leases a second are granted and given back in a log, one at a time and many at once."""
    realm = BenchRealm(address)
    leasing = realm.protocol.leasing

    def pairs(caller: int, count: int) -> None:
        who, session = f"agent-{caller}", f"s{caller}"
        for number in range(count):
            wanted = {"predicate": "MUTATES", "resource": path(caller * 1_000_000 + number)}
            told = {"ver": "1.0", "agent_id": who, "session_id": session, "scope": [wanted]}
            verdict = leasing.request(told, by=who)
            leasing.release([lease.lease_id for lease in verdict.leases], agent_id=who, session_id=session)

    pairs(0, 20)
    for callers in (1, CALLERS):
        each = max(1, grants // callers)
        threads = [threading.Thread(target=pairs, args=(caller, each)) for caller in range(callers)]
        begin = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken = time.perf_counter() - begin
        done = each * callers
        print(
            f"durable on {name}, {callers:>2} callers   {done / taken:>8,.0f} grants per second, each given back",
            flush=True,
        )
    realm.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=6.0, help="to measure the pair, and the verdicts")
    parser.add_argument("--events", type=int, default=1_000_000, help="length of the history to fold")
    parser.add_argument("--past", type=int, default=PAST, help="leases that were held before")
    parser.add_argument("--grants", type=int, default=2_000, help="durable grants")
    parser.add_argument("--folder", type=Path, help="where the SQLite file is made, on the disk to be measured")
    parser.add_argument("--postgres", help="URL of a PostgreSQL database to measure too")
    arguments = parser.parse_args()
    measure_pair(arguments.past, arguments.seconds)
    measure_wakes()
    measure_verdicts(arguments.seconds)
    measure_memory()
    measure_replay(arguments.events)
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        measure_bare_commits(Path(folder), arguments.grants)
        measure_durable("SQLite FULL", f"sqlite:///{folder}/leases.db", arguments.grants)
    if arguments.postgres:
        measure_durable("PostgreSQL", f"{arguments.postgres}#leases-{time.time_ns()}", arguments.grants)


if __name__ == "__main__":
    main()
