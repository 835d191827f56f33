"""One simulation: workers, actors, time and faults on one log, checked after every step.

Everything follows from the seed and the steps: equal ones give the same log, byte by byte, in every process.
"""

from __future__ import annotations

import gc
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from world.audit.replay import replay
from world.audit.verify import verify
from world.clock import SequentialIds
from world.code.time_limit import unlimited
from world.core import Domain
from world.engine.effect_runner import EffectRecorder
from world.errors import DamagedLogError, RefusedError, WorldProtocolError
from world.log.store import MAX_HOLD_MS
from world.state.realm_view import ReadableRealm
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.simulation.acting import ACTS, SOMEBODY
from worldprotocol.simulation.adoptions.model_adoption import AdoptionModel
from worldprotocol.simulation.calls.call_steps import Agents, has_calls, make_calls
from worldprotocol.simulation.external.claim_steps import Couriers, carry_on, has_external_effects
from worldprotocol.simulation.found import BrokenError, hold
from worldprotocol.simulation.model import Model
from worldprotocol.simulation.outside import SimulatedEnvironment
from worldprotocol.simulation.scenario import Edition, Scenario
from worldprotocol.simulation.steps import WORKERS, SimulationStep, draw_steps
from worldprotocol.simulation.storage import KilledError, SimulatedStore
from worldprotocol.simulation.worker import Census, VirtualClock, VirtualTime, parts_of
from worldprotocol.simulation.worker import SimulatedWorker as Worker

__all__ = ["DONE", "InvariantViolation", "Simulated", "Simulation", "simulate"]

LOOKS_EVERY: Final = 200
"""Steps after which the whole log is verified and every worker's state is compared."""

COLLECTS_EVERY: Final = 20_000
"""New objects after which the collector of garbage in cycles looks at them."""

ROWS_AT_ONCE: Final = 10_000
DONE: Final = 400
"""Rounds in which everything must have come to its end when nothing goes wrong any more."""

STORAGE: Final = frozenset({"STORAGE_FULL", "LOG_BUSY", "LOG_FAILED", "COMMIT_UNKNOWN", "UNIT_TOO_LARGE"})
"""Codes by which a caller learns that the storage failed."""


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """What does not hold.

    Args:
        step: the number of the step after which it did not, from 1; beyond the last one, at the end.
        requirement: its id; ``CRASH`` for an exception that should not have come out.
        what: one sentence.
    """

    step: int
    requirement: str
    what: str


@dataclass(frozen=True, slots=True)
class Simulated:
    """Result of a simulation.

    Args:
        violation: the first one; None where everything held.
        steps: how many were done.
        events: how many events the log holds.
        said: the result of each step, in a few words.
        image: the stored events, row by row.
        reports: how many reports of workers outside were ``lost``, ``late``, ``doubled`` and ``forged``.
    """

    violation: InvariantViolation | None
    steps: int
    events: int
    said: tuple[str, ...] = field(repr=False)
    image: list[tuple[Any, ...]] = field(repr=False)
    reports: Mapping[str, int] = field(default_factory=dict)


class Simulation:
    """Realm in memory, with its simulated workers and actors.

    Args:
        seed: of the ids; the steps are drawn by ``draw_steps``.
        scenario: what is simulated.
    """

    def __init__(self, seed: int, scenario: Scenario) -> None:
        """Found the realm."""
        self.scenario = scenario
        self.time = VirtualTime()
        self.store = SimulatedStore()
        self.outside = SimulatedEnvironment(scenario.effects)
        self.ids = SequentialIds(f"simulation {seed}")
        self.editions = {one.domain.schema.hash: one for one in (Edition(scenario.domain), *scenario.editions)}
        fits = {schema: one.fits for schema, one in self.editions.items()}
        terms = {one.type: one.terms for one in scenario.effects}
        adoptions = AdoptionModel(scenario, self.editions)
        self.model = Model(scenario.expects, scenario.adds, self.outside.done, fits, terms, adoptions)
        self.issued_under: dict[str, str] = {}
        self.intents: list[Any] = []
        self.couriers = Couriers()
        self.agents = Agents()
        self.counts: Counter[str] = Counter()
        self.clocks = [VirtualClock(self.time) for _ in range(WORKERS)]
        self._census = Census()
        programs = (scenario, *(replace(scenario, policies=one.policies) for one in scenario.programs))
        self._parts = [parts_of(one, self.outside, self.ids) for one in programs]
        self._running = [0] * WORKERS
        self._started = 0
        self._seen = -1
        self._outdated = False
        self._armed: str | None = None
        self.workers = [self._start(at, create=at == 0) for at in range(WORKERS)]
        self._found()

    def close(self) -> None:
        """Close the store."""
        self.store.end_all()

    def do(self, step: SimulationStep) -> str:
        """Perform one step, check the requirements, and return a short result text.

        Raises:
            BrokenError: something does not hold.
            Exception: that should not have come out of the engine.
        """
        worker = self.workers[step.by]
        self._armed = self.store.fault
        self.store.meanwhile = lambda: self._write_beside(step.by)
        size, self._outdated = self.model.log.size, worker.schema != self.model.worlds.schema
        try:
            said = ACTS[step.do](self, worker, step.rendered)
        except KilledError as killed:
            self.crash(self.workers[step.by], known=True)  # adopting a domain starts another one in its place
            said = f"{worker.name} died {killed}"
        except DamagedLogError:
            raise
        except WorldProtocolError as error:
            if not isinstance(error, RefusedError) and not self.is_fault(error):
                raise
            said = error.code
        self._check_progress(said)
        self.counts[f"{step.do}: {said if said.isupper() else 'done'}"] += 1
        self.check()
        if self._outdated and step.do not in ("crash", "adopt", "program"):
            wrote = self.model.log.size - size - self._dropped(size)
            hold("WP-schema", f"{worker.name} wrote {wrote} events, and runs another domain", wrote == 0)
        if said == "SCHEMA_MISMATCH":
            self.restart(self.workers[step.by])
        return said

    def _write_beside(self, stopped: int) -> None:
        """Let another worker write until the unit of a stopped one is ended."""
        self.time.now_ms += MAX_HOLD_MS
        self.workers[(stopped + 1) % WORKERS].protocol.settle()

    def _check_progress(self, said: str) -> None:
        """Hold commands to what must not keep them from going on."""
        hold("KP-4c", "a clock that is right, or within the limit, was refused", said != "CLOCK_AHEAD")
        is_single = said == "UNIT_TOO_LARGE" and self._armed != "stopped_twice"
        hold("CARD-log", "a command was refused whose unit was ended once", not is_single)

    def _dropped(self, after: int) -> int:
        rows = self.workers[0].log.audit_rows(after, ROWS_AT_ONCE)
        return sum(row[3] == "effect.dropped" for row in rows)

    def is_fault(self, error: WorldProtocolError) -> bool:
        """Return whether an error is an injected fault or caused by a replaced domain."""
        if error.code == "SCHEMA_MISMATCH":
            return self._outdated
        return self._armed is not None and self.store.fault is None and error.code in STORAGE

    def crash(self, worker: Worker, *, known: bool) -> None:
        """Crash a worker, and start another one in its place, which settles first.

        Args:
            worker: the worker that dies.
            known: whether others know that it is gone.
        """
        at = self.workers.index(worker)
        self.check()  # what was committed before may have brought another domain into force
        if known:
            self._census.gone.add(worker.name)
        self.workers[at] = self._start_again(at)
        try:
            self.workers[at].protocol.settle()
        except KilledError:
            self.crash(self.workers[at], known=known)
        except WorldProtocolError as error:
            if not self.is_fault(error):
                raise

    def takes(self, drawn: Mapping[str, Any]) -> bool:
        """Return whether a drawn intent has an input that fits."""
        return self.scenario.takes(drawn["type"], drawn["input"])

    def restart(self, worker: Worker, domain: Domain | None = None, *, program: int | None = None) -> Worker:
        """End a worker, and start another one in its place.

        Args:
            worker: the worker that ends.
            domain: that the other one runs; None is the one in force.
            program: the number of the program that the other one runs, 0 for the founding one; None is the same one.
        """
        at = self.workers.index(worker)
        self._running[at] = self._running[at] if program is None else program
        self._census.gone.add(worker.name)
        self.workers[at] = self._start_again(at, domain)
        return self.workers[at]

    def _start_again(self, at: int, domain: Domain | None = None) -> Worker:
        try:
            return self._start(at, domain=domain)
        except WorldProtocolError as error:  # a starting worker takes the lock, to bring the index up to date
            if not self.is_fault(error):
                raise
            return self._start(at, domain=domain)

    def check(self) -> None:
        """Hold everything that is cheap to look at to its requirements."""
        hold("HC-journal", f"made more than once outside: {self.outside.repeated}", not self.outside.repeated)
        changes, self._seen = self._seen, self.store.changes
        if changes == self._seen:
            return  # not a byte of the database is another one
        model, log = self.model, self.workers[0].log
        before = model.log.size
        for row in log.audit_rows(model.log.size, ROWS_AT_ONCE):
            model.take(row)
        head = log.stored_head()
        hold("CARD-log", f"the head covers {head.size} of {model.log.size} events", head.size == model.log.size)
        hold("CARD-log", "the stored root is that of the events", head.root == model.log.root())
        model.check_commit()
        undecided = {name for name, one in model.open.items() if one.decision is None}
        lapses = [one.protocol.take_lost() for one in self.workers]
        if any(lapses):
            model.leases.lapses.append((before, model.log.size))
        model.leases.check_progress(undecided, may_lose=any(lapses))
        model.leases.check_waits()
        model.leases.check_apart()

    def look(self) -> None:
        """Verify the log, and compare the states of every worker, a replay and the model."""
        report = verify(self.workers[0].log)
        hold("CARD-replay", "; ".join(f"{one.code}: {one.message}" for one in report.findings[:3]), report.ok)
        realms: list[tuple[str, ReadableRealm]] = [(one.name, one.world.realm()) for one in self.workers]
        realms.append(("a replay", replay(self.workers[0].log).realm))
        for name, realm in realms:
            worlds, leases = self.model.worlds, self.model.leases
            hold(
                "WP-lineage", f"{name} has other heads", {n: b.head for n, b in realm.branches.items()} == worlds.heads
            )
            hold("WP-epoch", f"{name} has another epoch", (realm.active, realm.epoch) == (worlds.active, worlds.epoch))
            hold("CARD-replay", f"{name} has other branches", list(realm.branches) == list(worlds.heads))
            states = {key: one.status for key, one in realm.proposals.items()}
            own = {key: one.status for key, one in self.model.open.items()}
            hold("CARD-replay", f"{name} has other open proposals", states == own)
            hold("CARD-replay", f"{name} has its proposals in another order", list(states) == list(own))
            running = {
                one.rendered["executionKey"]: key for key, one in self.model.open.items() if one.started is not None
            }
            hold("WP-exkey", f"{name} runs other proposals", realm.running == running)
            shadow = None if realm.shadow is None else realm.shadow.name
            hold("CARD-policy", f"{name} has another shadow", shadow == (self.model.shadow or {}).get("name"))
            hold("WP-schema", f"{name} has another schema", realm.schema_hash == worlds.schema)
            hold("CARD-replay", f"{name} has other leases", set(realm.klis.leases) == set(leases.active))
            hold("CARD-replay", f"{name} has another queue", set(realm.klis.requests) == set(leases.waiting))
            hold("WP-bind", f"{name} has other bindings", dict(realm.bindings) == self.model.bindings)

    def end(self) -> None:
        """Complete all work without faults; then check the log and recheck every step.

        Raises:
            BrokenError: something is left over, or does not hold.
        """
        self.store.fault = self._armed = None
        for worker in self.workers:
            worker.protocol.loses_wakes = False
        program = self._program_in_force()
        for at, worker in enumerate(list(self.workers)):
            if worker.schema != self.model.worlds.schema or self._running[at] != program:
                self.restart(worker, program=program).protocol.settle()
        for clock in self.clocks:
            clock.off_ms = 0
        for _ in range(DONE):
            if not self._go_on():
                break
            self.check()
        left = [name for name, one in self.model.open.items() if one.decision is not None]
        hold("WP-exec", f"approved and never ended: {left[:3]}", not left)
        self.check()
        held = sorted(self.model.adoptions.held)
        hold("CARD-policy", f"held, and the program is the one in force: {held[:3]}", not held)
        self.look()
        is_one = len(self.model.adopted) == 1 and not self.scenario.programs
        for schema in self.model.adopted:  # each part of the log by the domain that was in force there
            domain = self.editions[schema].domain
            rechecked = recheck(self._start(0, domain=domain).world, every=True)
            found = [one for one in rechecked.divergences if is_one or not one.is_drift]
            missed = [one for one in found if one.difference.code == "WAKE_MISSING"]
            self.model.leases.check_missed({one.difference.details["request_id"]: one.position for one in missed})
            found = [one for one in found if one not in missed]
            rendered = "; ".join(f"event {one.position}: {one.difference.message}" for one in found[:3])
            hold("CARD-replay", rendered, not found)

    def _program_in_force(self) -> int:
        """Return the number of the program whose policies are in force; code is never adopted."""
        adopted = self.model.adoptions.policies
        for number, program in enumerate(self.scenario.programs, 1):
            if program.domain is None and all(adopted.get(one.name) == one.hash for one in program.policies):
                return number
        return 0

    def _go_on(self) -> bool:
        """Do the next thing that is left to do; False where nothing is."""
        for worker in self.workers:
            now = worker.protocol.now_ms()
            for at, one in enumerate(worker.protocol.flying):
                if isinstance(one, EffectRecorder) or one.not_before <= now:
                    worker.protocol.go_on(at)
                    return True
        if has_external_effects(self.scenario) and carry_on(self):
            return True
        if has_calls(self.scenario) and make_calls(self):
            return True
        if any(one.doubtful for one in self.model.open.values()):
            ACTS["resolve"](self, self.workers[0], {"which": 0})
            return True
        approved = any(one.decision is not None for one in self.model.open.values())
        if approved or any(worker.protocol.flying for worker in self.workers):
            self.time.now_ms += 10_000
            for worker in self.workers:
                worker.protocol.settle()
            return True
        return False

    def _start(self, at: int, *, create: bool = False, domain: Domain | None = None) -> Worker:
        self._started += 1
        in_force = self.editions.get(self.model.worlds.schema)
        runs = domain or (self.scenario.domain if in_force is None else in_force.domain)
        number = self._running[at]
        own = self.scenario.programs[number - 1].domain if number and domain is None else None
        if own is not None and own.schema.hash == runs.schema.hash:
            runs = own
        return Worker(
            f"worker-{at}.{self._started}",
            self.store,
            replace(self._parts[number], domain=runs),
            outside=self.outside,
            clock=self.clocks[at],
            census=self._census,
            create=create,
        )

    def _found(self) -> None:
        worker = self.workers[0]
        worker.protocol.found(by="operator", data=self.scenario.data)
        for policy in self.scenario.policies:
            if policy.name not in self.scenario.spare:
                worker.world.adopt_policy(policy.name)
        for player in self.scenario.actors:
            worker.world.register(player.actor_id, player.kind)
        for player in self.scenario.actors:  # voters must be registered
            worker.world.bind(player.actor_id, player.binding)
        worker.world.register(SOMEBODY, "agent")
        self.check()


def simulate(
    seed: int,
    steps: Sequence[SimulationStep] | int,
    scenario: Scenario,
    *,
    looks_every: int = LOOKS_EVERY,
) -> Simulated:
    """Run a simulation to its end, or to the first thing that does not hold.

    Args:
        seed: any whole number.
        steps: the steps, or how many to draw.
        scenario: what is simulated.
        looks_every: steps after which the whole log is looked at.
    """
    drawn = draw_steps(seed, steps, scenario) if isinstance(steps, int) else steps
    with _few_collections(), _unheard():
        return unlimited(lambda: _simulate(seed, drawn, scenario, looks_every))


@contextmanager
def _few_collections() -> Iterator[None]:
    """Look for garbage in cycles seldom, and not among what was there before: it took an eighth of the time."""
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(COLLECTS_EVERY, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.collect()  # what the run left: what is unfrozen is looked at so seldom that it would stay
        gc.unfreeze()


@contextmanager
def _unheard() -> Iterator[None]:
    """Print no warning of the engine's, where nothing handles them: those of simulated clocks say nothing."""
    logger, handler = logging.getLogger("worldprotocol"), logging.NullHandler()
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _simulate(seed: int, steps: Sequence[SimulationStep], scenario: Scenario, looks_every: int) -> Simulated:
    simulation = Simulation(seed, scenario)
    said: list[str] = []
    violation = None
    try:
        for number, step in enumerate(steps, 1):
            said.append(simulation.do(step))
            if number % looks_every == 0:
                simulation.look()
        simulation.end()
    except BrokenError as broken:
        violation = InvariantViolation(min(len(said) + 1, len(steps) + 1), broken.requirement, broken.what)
    except Exception as error:  # noqa: BLE001 - whatever comes out of the engine is what is looked for
        rendered = f"{type(error).__name__}: {error}"
        violation = InvariantViolation(min(len(said) + 1, len(steps) + 1), "CRASH", rendered)
    image = simulation.store.image()
    simulation.close()
    return Simulated(violation, len(said), len(image), tuple(said), image, dict(simulation.couriers.reports))
