"""Workers of a simulation: real engine components, driven step by step.

Nothing runs by itself. Effects are deferred until a step performs them, and results until a step records them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from authority import PolicyRegistry, StandardAuthority
from host import Host
from projections import Issuer, ProjectionRegistry
from world.clock import Boot, IdSource
from world.engine.effect_runner import EffectRecorder
from world.engine.protocol import Command, WorldProtocol
from world.klis.refused_requests import Place
from world.klis.resources.resource_types import STANDARD
from world.log import Pending
from world.log.log import EventLog, open_log_in
from world.log.url import LogAddress
from world.pipeline.unit_of_work import Task, UnitOfWork
from world.read_models.index import WorldIndex
from world.read_models.unit_lookup import UnitLookup
from world.state.realm_state import RealmState
from worldprotocol.api.bootstrap import Components
from worldprotocol.api.realm import Realm
from worldprotocol.simulation.outside import SimulatedEnvironment
from worldprotocol.simulation.storage import SimulatedStore

if TYPE_CHECKING:
    from worldprotocol.simulation.scenario import Scenario

__all__ = ["START_MS", "Census", "SimulatedWorker", "SteppedProtocol", "VirtualClock", "parts_of"]

START_MS: Final = 1_767_225_600_000
"""When a simulation begins: the beginning of 2026, in ms since 1970."""

ADDRESS: Final = LogAddress("sqlite", "log", path=":memory:")


class VirtualClock:
    """The clock of one machine: the simulation's time, and how far it is off."""

    def __init__(self, time: VirtualTime) -> None:
        """Begin right."""
        self._time = time
        self.off_ms = 0

    def now_ms(self) -> int:
        """Return ms since 1970."""
        return self._time.now_ms + self.off_ms

    def boot(self) -> Boot:
        """Return the time that passed in the simulation."""
        return Boot("simulation", self._time.now_ms)

    def elapsed_s(self) -> float:
        """Return the time that passed in the simulation, in seconds."""
        return self._time.now_ms / 1000


class VirtualTime:
    """The time that passes by steps only."""

    def __init__(self) -> None:
        """Begin at ``START_MS``."""
        self.now_ms = START_MS


class Census:
    """Which workers are known to be gone."""

    def __init__(self) -> None:
        """Create an empty census."""
        self.gone: set[str] = set()


class _Name:
    """The name of a worker, for the record; see ``world.state.ports.WorkerRegistry``."""

    def __init__(self, name: str, census: Census) -> None:
        self.me = name
        self._census = census

    def close(self) -> None:
        self._census.gone.add(self.me)

    def is_gone(self, worker: str) -> bool:
        return worker in self._census.gone


class LostWakes(dict[Place, None]):
    """Freed places that are forgotten at once; only how many is counted."""

    count = 0

    def __setitem__(self, place: Place, _: None) -> None:
        """Count a place and forget it."""
        self.count += 1

    def update(self, places: Any = ()) -> None:
        """Count places and forget them."""
        self.count += len(list(places))


class SteppedProtocol(WorldProtocol):
    """Protocol that defers effects until a step performs them."""

    loses_wakes = False
    """Whether the next wake-ups of this process are lost."""

    @cached_property
    def lost_wakes(self) -> LostWakes:
        """What was freed and woke nothing."""
        return LostWakes()

    def _begin(self, realm: RealmState, *given: Any, **more: Any) -> tuple[UnitOfWork, UnitLookup]:
        """Begin a unit; while wake-ups are to be lost, what it frees is not noted."""
        refusals = realm.klis.refusals
        if self.loses_wakes:
            refusals.freed = self.lost_wakes
        elif refusals.freed is self.lost_wakes:
            refusals.freed = {}
        return super()._begin(realm, *given, **more)

    def take_lost(self) -> bool:
        """Return whether wake-ups were lost; the next ones are not."""
        if not self.lost_wakes.count:
            return False
        self.loses_wakes, self.lost_wakes.count = False, 0
        return True

    @cached_property
    def flying(self) -> list[Task | EffectRecorder]:
        """Deferred effects and results."""
        return []

    def perform(self, task: Task) -> list[Task]:
        """Defer an effect; ``go_on`` performs it."""
        self.flying.append(task)
        return []

    def together(self, commands: Sequence[Command]) -> list[Any]:
        """Run commands of several callers in one commit; return their results or errors."""
        batch: list[Pending[Command, Any]] = [Pending(command) for command in commands]
        try:
            self._run_batch(batch)
        except BaseException:
            self._backlog.recover_soon()
            raise
        ended: list[Any] = []
        for one in batch:
            try:
                result, tasks = one.outcome()
                self.flying += tasks
                ended.append(result)
            except Exception as error:  # noqa: BLE001 - each caller has its own
                ended.append(error)
        self._take_scheduled()
        return ended

    def _take_scheduled(self) -> None:
        """Defer the effects of proposals that continued by themselves, which a timer would start at once."""
        while (task := self._scheduled.take()) is not None:
            self.flying.append(task)

    def go_on(self, at: int, *, record: bool = True) -> None:
        """Perform a deferred effect, or record the result of a performed one.

        Args:
            at: which of those under way.
            record: record the result at once; otherwise it is one more thing under way.
        """
        one = self.flying.pop(at)
        recording = self.make(one) if isinstance(one, Task) else one
        if isinstance(one, Task) and not record:
            self.flying.append(recording)
            return
        self.flying += self.record(recording)
        self._take_scheduled()


class SimulatedWorker:
    """One process: a realm that is open for acting, with its clock.

    Args:
        name: for the record; never used twice.
        store: the shared store.
        parts: its components, with the domain whose actions it runs; the executor is replaced by its own.
        outside: what effects are done to.
        clock: of its machine.
        census: the workers that have ended.
        create: make the log.
    """

    def __init__(
        self,
        name: str,
        store: SimulatedStore,
        parts: Components,
        *,
        outside: SimulatedEnvironment,
        clock: VirtualClock,
        census: Census,
        create: bool = False,
    ) -> None:
        """Open the log."""
        self.name = name
        domain = parts.domain
        self.schema = domain.schema.hash
        host = Host(domain, outside.registry, clock=clock, workers=outside.workers)
        own = replace(parts, executor=host)
        view = WorldIndex(checkpoint_every=parts.limits.checkpoint_every)
        self.log: EventLog = open_log_in(store, ADDRESS, create=create, view=view)
        self.protocol = SteppedProtocol(
            self.log,
            domain=domain,
            authority=parts.authority,
            executor=host,
            clock=clock,
            ids=parts.ids,
            workers=_Name(name, census),
            limits=parts.limits,
            types=STANDARD,
            stopwatch=clock.elapsed_s,
        )
        self.world = Realm(self.log, own, self.protocol)


def parts_of(scenario: Scenario, outside: SimulatedEnvironment, ids: IdSource) -> Components:
    """Return what the workers of a simulation have in common."""
    policies = PolicyRegistry()
    names = tuple(policies.add(policy).name for policy in scenario.policies)
    projections = ProjectionRegistry()
    for projection in scenario.projections:
        projections.add(projection)
    return Components(
        domain=scenario.domain,
        projections=projections,
        policies=policies,
        policy_names=names,
        authority=StandardAuthority(policies),
        executor=Host(scenario.domain, outside.registry, workers=outside.workers),
        ids=ids,
        issuer=Issuer(ids),
        limits=scenario.limits,
    )
