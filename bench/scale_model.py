"""Model of many realms on many servers, for discrete-event simulation: group commits, queues, and failures.

A realm commits one batch at a time: CPU time of an engine process, round trips to its database, CPU time of the
database, and a flush of the WAL. What arrives meanwhile shares the next commit, up to ``max_batch``. An engine process
has one core (the interpreter's lock), which its realms get in turns of ``switch_s``. A flush serves all commits that
wait when it begins. Three failures: a server crashes, and other servers open its realms after ``detect_s``; a primary
fails, and its realms wait for the standby; the disk of a primary is slow for a time. A commit that is cut off is
repeated as a whole, as clients do with the same idempotency key. Times are in seconds.
"""

from __future__ import annotations

import bisect
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import simpy

P99_DEVIATIONS: Final = 2.3263
"""How many standard deviations the 99th percentile of a normal distribution is above its mean."""

Steps = Generator[simpy.Event, Any, None]


@dataclass(frozen=True, slots=True)
class Service:
    """What a commit takes.

    Args:
        engine_commit_s: CPU time of the engine for a commit, whatever it holds.
        engine_proposal_s: CPU time of the engine for each proposal in it.
        database_commit_s: CPU time of the database for a commit.
        database_proposal_s: CPU time of the database for each proposal in it.
        variation: coefficient of variation of the CPU times of one proposal.
        open_s: CPU time of an engine process that opens a realm.
        round_trips: how often a commit waits for the network.
        round_trip_s: one round trip between an engine and its database.
        flush_s: median time of a flush of the WAL, with the acknowledgement of a standby.
        flush_p99_s: its 99th percentile; the distribution is log-normal.
        switch_s: how long a thread of a process runs before another one does.
        max_batch: proposals in one commit at most.
    """

    engine_commit_s: float
    engine_proposal_s: float
    database_commit_s: float
    database_proposal_s: float
    variation: float
    open_s: float
    round_trips: int
    round_trip_s: float
    flush_s: float
    flush_p99_s: float
    switch_s: float
    max_batch: int


@dataclass(frozen=True, slots=True)
class Failures:
    """How often what fails, and for how long. A mean time of 0 is never.

    Args:
        crash_mean_s: mean time between crashes of one server.
        detect_s: time until its realms are served by others.
        restart_s: time until it serves again; then its realms return.
        failover_mean_s: mean time between failures of one primary.
        failover_s: time until its standby serves.
        slow_mean_s: mean time between slow phases of one primary's disk.
        slow_s: how long a phase lasts.
        slow_factor: how many times longer a flush takes.
    """

    crash_mean_s: float = 0.0
    detect_s: float = 0.0
    restart_s: float = 0.0
    failover_mean_s: float = 0.0
    failover_s: float = 0.0
    slow_mean_s: float = 0.0
    slow_s: float = 0.0
    slow_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Scale:
    """What is simulated.

    Args:
        realms: number of realms.
        servers: number of servers.
        processes: engine processes of each, with one core each.
        databases: number of PostgreSQL primaries.
        database_cores: cores of each.
        rate: proposals a second in all; they arrive as a Poisson process.
        zipf: exponent; the realm of rank k gets a share in proportion to ``k ** -zipf``.
        seconds: virtual time.
        service: what a commit takes.
        failures: what fails.
    """

    realms: int
    servers: int
    processes: int
    databases: int
    database_cores: int
    rate: float
    zipf: float
    seconds: float
    service: Service
    failures: Failures = field(default_factory=Failures)


@dataclass(slots=True)
class Outage:
    """A failure, and what it did.

    Args:
        kind: what failed.
        at: when.
        realms: how many realms it concerned.
    """

    kind: str
    at: float
    realms: int
    delayed: int = 0
    """Realms that had proposals waiting when service was back."""
    open: int = 0
    """Those of them where such a proposal still waits."""
    recovered_at: float | None = None


class Station:
    """Cores that serve in order of arrival, and how long they were busy."""

    def __init__(self, env: simpy.Environment, cores: int) -> None:
        self.env = env
        self.cores = simpy.Resource(env, capacity=cores)
        self.busy = 0.0

    def use(self, seconds: float, turn: float) -> Steps:
        """Hold a core for so long, in turns with others."""
        while seconds > 0:
            with self.cores.request() as mine:
                yield mine
                begin = self.env.now
                try:
                    yield self.env.timeout(min(seconds, turn))
                finally:
                    self.busy += self.env.now - begin
            seconds -= turn


class Database:
    """A primary: its cores, its WAL, and whether it serves."""

    def __init__(self, env: simpy.Environment, cores: int, flush: Callable[[], float]) -> None:
        self.env = env
        self.cpu = Station(env, cores)
        self.realms: list[Realm] = []
        self.back: simpy.Event | None = None
        self.slow = 1.0
        self.flushes = 0
        self._flush = flush
        self._waiting: list[simpy.Event] = []
        self._is_flushing = False

    def durable(self) -> simpy.Event:
        """Return the event that a commit, complete but for the WAL, is durable."""
        done = self.env.event()
        self._waiting.append(done)
        if not self._is_flushing:
            self._is_flushing = True
            self.env.process(self._flushed())
        return done

    def _flushed(self) -> Steps:
        while self._waiting:
            served, self._waiting = self._waiting, []
            self.flushes += 1
            yield self.env.timeout(self._flush() * self.slow)
            for done in served:
                done.succeed()
        self._is_flushing = False


class Server:
    """A machine with engine processes."""

    def __init__(self, env: simpy.Environment, processes: int) -> None:
        self.processes = [Station(env, 1) for _ in range(processes)]
        self.is_up = True
        self.realms: set[Realm] = set()


class Realm:
    """A realm: its queue, and where it is served."""

    def __init__(self, number: int, database: Database, home: tuple[Server, Station]) -> None:
        self.number = number
        self.database = database
        self.home = home
        self.server: Server | None = None
        self.process: Station | None = None
        self.placed: simpy.Event | None = None
        self.is_open = True
        self.queue: deque[float] = deque()
        self.committing: list[float] = []
        self.leader: simpy.Process | None = None
        self.recovering: list[tuple[Outage, float]] = []

    @property
    def oldest(self) -> float | None:
        """When the oldest unfinished proposal was submitted."""
        return self.committing[0] if self.committing else self.queue[0] if self.queue else None


class Simulation:
    """A run of the model; ``run`` once, then read what it measured."""

    def __init__(self, scale: Scale, seed: int) -> None:
        """Make servers, databases and realms; realms are dealt out in order of their rank.

        Args:
            scale: what is simulated.
            seed: of all random numbers.
        """
        self.scale = scale
        self.env = simpy.Environment()
        self._arrivals, self._services, self._failures = (
            random.Random(f"{seed} {name}") for name in ("arrivals", "services", "failures")
        )
        self.databases = [Database(self.env, scale.database_cores, self._flush_s) for _ in range(scale.databases)]
        self.servers = [Server(self.env, scale.processes) for _ in range(scale.servers)]
        places = [(server, server.processes[at]) for at in range(scale.processes) for server in self.servers]
        self.realms = [
            Realm(number, self.databases[number % scale.databases], places[number % len(places)])
            for number in range(scale.realms)
        ]
        for realm in self.realms:
            realm.database.realms.append(realm)
            self._place(realm, *realm.home, is_open=True)
        self.submitted = self.completed = self.commits = self.repeated = 0
        self.responses: list[tuple[int, float, float]] = []
        """Of each completed proposal: number of the realm, seconds until its commit began, and until it ended."""
        self.outages: list[Outage] = []
        self.population_s = 0.0
        """Time integral of the number of unfinished proposals."""
        self._population_at = 0.0

    @property
    def unfinished(self) -> list[float]:
        """When each proposal was submitted that has not been completed."""
        return [at for realm in self.realms for at in itertools.chain(realm.committing, realm.queue)]

    def run(self) -> None:
        """Simulate the time of the scale."""
        self.env.process(self._arrive())
        failures = self.scale.failures
        if failures.crash_mean_s:
            for server in self.servers:
                self.env.process(self._crash(server))
        for database in self.databases:
            if failures.failover_mean_s:
                self.env.process(self._fail_over(database))
            if failures.slow_mean_s:
                self.env.process(self._slow_down(database))
        self.env.run(until=self.scale.seconds)
        self._count(0, 0)

    def _count(self, submitted: int, completed: int) -> None:
        self.population_s += (self.submitted - self.completed) * (self.env.now - self._population_at)
        self._population_at = self.env.now
        self.submitted += submitted
        self.completed += completed

    # proposals

    def _arrive(self) -> Steps:
        weights = itertools.accumulate((rank + 1) ** -self.scale.zipf for rank in range(self.scale.realms))
        shares = list(weights)
        while True:
            yield self.env.timeout(self._arrivals.expovariate(self.scale.rate))
            realm = self.realms[bisect.bisect(shares, self._arrivals.random() * shares[-1], hi=len(shares) - 1)]
            self._count(1, 0)
            realm.queue.append(self.env.now)
            if realm.leader is None:
                realm.leader = self.env.process(self._lead(realm))

    def _lead(self, realm: Realm) -> Steps:
        while realm.queue:
            while back := realm.placed or realm.database.back:
                yield back
            count = min(len(realm.queue), self.scale.service.max_batch)
            realm.committing = [realm.queue.popleft() for _ in range(count)]
            begin = self.env.now
            try:
                yield from self._commit(realm, count)
            except simpy.Interrupt:
                realm.queue.extendleft(reversed(realm.committing))
                realm.committing = []
                self.repeated += count
                continue
            self._complete(realm, begin)
        realm.leader = None

    def _commit(self, realm: Realm, count: int) -> Steps:
        service, database = self.scale.service, realm.database
        assert realm.process is not None
        engine = self._cpu_s(service.engine_commit_s, service.engine_proposal_s, count)
        if not realm.is_open:
            engine += service.open_s
        yield from realm.process.use(engine, service.switch_s)
        realm.is_open = True
        if service.round_trips:
            yield self.env.timeout(service.round_trips * service.round_trip_s)
        used = self._cpu_s(service.database_commit_s, service.database_proposal_s, count)
        yield from database.cpu.use(used, service.switch_s)
        if service.flush_s:
            yield database.durable()

    def _complete(self, realm: Realm, begin: float) -> None:
        now = self.env.now
        self.commits += 1
        self._count(0, len(realm.committing))
        self.responses += [(realm.number, begin - at, now - at) for at in realm.committing]
        realm.committing = []
        self._recover(realm)

    def _cpu_s(self, commit_s: float, proposal_s: float, count: int) -> float:
        """Return the CPU time of a commit: a sum of independent gamma variables, one for each proposal."""
        mean, shape = commit_s + proposal_s * count, count / self.scale.service.variation**2
        return self._services.gammavariate(shape, mean / shape) if mean else 0.0

    def _flush_s(self) -> float:
        service = self.scale.service
        sigma = math.log(service.flush_p99_s / service.flush_s) / P99_DEVIATIONS
        return service.flush_s * math.exp(sigma * self._services.gauss(0, 1))

    # failures

    def _crash(self, server: Server) -> Steps:
        failures = self.scale.failures
        while True:
            yield self.env.timeout(self._failures.expovariate(1 / failures.crash_mean_s))
            server.is_up = False
            lost = sorted(server.realms, key=lambda realm: realm.number)
            for realm in lost:
                self._place(realm, None, None)
            outage = self._begin("server crash", lost)
            yield self.env.timeout(failures.detect_s)
            for realm in lost:
                self._take_over(realm)
            self._end(outage, lost)
            yield self.env.timeout(failures.restart_s - failures.detect_s)
            server.is_up = True
            for realm in self.realms:
                if realm.home[0] is server or realm.server is None:
                    self._place(realm, *(realm.home if realm.home[0] is server else (server, server.processes[0])))

    def _take_over(self, realm: Realm) -> None:
        """Have the server with the fewest realms serve a realm; without any server it waits for the next one."""
        if realm.server is None and (up := [server for server in self.servers if server.is_up]):
            server = min(up, key=lambda one: len(one.realms))
            self._place(realm, server, server.processes[realm.number % len(server.processes)])

    def _place(self, realm: Realm, server: Server | None, process: Station | None, *, is_open: bool = False) -> None:
        """Serve a realm in a process from its next commit on; None cuts off the commit that is running."""
        if realm.server is not None:
            realm.server.realms.discard(realm)
        realm.server, realm.process, realm.is_open = server, process, is_open
        if server is None:
            realm.placed = self.env.event()
            self._cut_off(realm)
        else:
            server.realms.add(realm)
            if realm.placed is not None:
                realm.placed.succeed()
                realm.placed = None

    def _cut_off(self, realm: Realm) -> None:
        if realm.committing and realm.leader is not None and realm.leader.is_alive:
            realm.leader.interrupt()

    def _fail_over(self, database: Database) -> Steps:
        failures = self.scale.failures
        while True:
            yield self.env.timeout(self._failures.expovariate(1 / failures.failover_mean_s))
            database.back = self.env.event()
            for realm in database.realms:
                self._cut_off(realm)
            outage = self._begin("database failover", database.realms)
            yield self.env.timeout(failures.failover_s)
            database.back.succeed()
            database.back = None
            self._end(outage, database.realms)

    def _slow_down(self, database: Database) -> Steps:
        failures = self.scale.failures
        while True:
            yield self.env.timeout(self._failures.expovariate(1 / failures.slow_mean_s))
            database.slow = failures.slow_factor
            outage = self._begin("slow disk", database.realms)
            yield self.env.timeout(failures.slow_s)
            database.slow = 1.0
            self._end(outage, database.realms)

    def _begin(self, kind: str, realms: Iterable[Realm]) -> Outage:
        self.outages.append(Outage(kind, self.env.now, len(list(realms))))
        return self.outages[-1]

    def _end(self, outage: Outage, realms: Iterable[Realm]) -> None:
        """Note which realms have proposals from before the end of a failure; they have recovered once those ended."""
        waiting = [realm for realm in realms if realm.oldest is not None]
        outage.delayed = outage.open = len(waiting)
        for realm in waiting:
            realm.recovering.append((outage, self.env.now))
        if not waiting:
            outage.recovered_at = self.env.now

    def _recover(self, realm: Realm) -> None:
        left = []
        for outage, ended in realm.recovering:
            if realm.queue and realm.queue[0] <= ended:
                left.append((outage, ended))
                continue
            outage.open -= 1
            if not outage.open:
                outage.recovered_at = self.env.now
        realm.recovering = left
