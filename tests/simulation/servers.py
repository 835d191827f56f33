"""Servers of a simulation: each hears the renewals of sessions in its own memory, and looks for those that are gone.

Sessions of agents renew themselves at any server, mostly the same one. They die without a word, and so do servers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeVar

from worldprotocol.agents.hooks.session_guard import ATTEMPTS, MOVES_S
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.caller_watch import CallerWatch
from worldprotocol.server.governed.heard_callers import CallerName
from worldprotocol.server.governed.presence import Presence
from worldprotocol.server.governed.running_calls import RunningCalls
from worldprotocol.server.threads import Threads
from worldprotocol.simulation import Simulation, SimulationStep
from worldprotocol.simulation.calls.agents import scenario
from worldprotocol.simulation.calls.call_steps import CALL_KINDS, CLIENT, SESSIONS
from worldprotocol.simulation.found import hold
from worldprotocol.simulation.steps import KINDS, WORKERS

__all__ = ["Fleet", "play"]

R = TypeVar("R")

RENEWS_MS: Final = 5_000
"""Time between two renewals of a session, in ms."""

ENDS_MS: Final = 20_000
"""Time after the death of a session in which its calls end, in ms."""

TAKEN_OVER_MS: Final = 30_000
"""The same after the death of a server, in ms."""

PLAYS: Final = {"call": 30, "begin": 15, "tell": 10, "repeat": 6, "decide": 10, "tick": 40, "die": 5, "crash": 2}
"""How often each kind of step is drawn."""


class AtOnce(Threads):
    """Calls in the thread of the caller."""

    def __init__(self) -> None:
        """Start no thread."""

    async def run(self, call: Callable[[], R]) -> R:
        """Return the result of a call."""
        return call()


@dataclass(slots=True)
class Session:
    """A session of an agent.

    Args:
        name: actor and id.
        server: the server that it knows.
        renewed_ms: when it was renewed, ms since 1970.
        reached_ms: when the server that holds it was reached, ms since 1970.
        died_ms: when it died; None while it lives.
        calls: its calls.
    """

    name: CallerName
    server: int
    renewed_ms: int
    reached_ms: int
    died_ms: int | None = None
    calls: set[str] = field(default_factory=set)


@dataclass
class Fleet:
    """Servers and sessions of one simulation.

    Args:
        simulation: of a scenario with calls.
        chance: draws the steps.
    """

    simulation: Simulation
    chance: Random
    sessions: dict[str, Session] = field(default_factory=dict)
    watches: list[CallerWatch] = field(default_factory=list)
    absent: list[AbsentCallers] = field(default_factory=list)
    crashed_ms: int = 0
    ended: int = 0

    def __post_init__(self) -> None:
        for at in range(WORKERS):
            self._start(at)

    @property
    def now_ms(self) -> int:
        """The time, ms since 1970."""
        return self.simulation.time.now_ms

    def _start(self, at: int) -> None:
        clock = self.simulation.clocks[at].elapsed_s
        absent = AbsentCallers(self.simulation.workers[at].world, Presence(clock), RunningCalls(clock))
        self.absent[at : at + 1], self.watches[at : at + 1] = [absent], [CallerWatch(absent, AtOnce())]

    def do(self, kind: str) -> None:
        """Take one step."""
        step: Callable[[], None] | None = getattr(self, f"_{kind}", None)
        if step is not None:
            step()
            return
        drawn = {**KINDS, **CALL_KINDS}[kind][1](self.chance, scenario)
        self.simulation.do(SimulationStep(kind, self.chance.randrange(WORKERS), drawn))

    def _call(self) -> None:
        drawn: dict[str, Any] = {**CALL_KINDS["call"][1](self.chance, scenario), "renews": False}
        drawn["actor"] %= len(scenario.actors)
        actor, at = scenario.actors[drawn["actor"]].actor_id, self.chance.randrange(WORKERS)
        session = self.simulation.agents.session(f"{actor}-{drawn['session'] % SESSIONS}")
        said = self.simulation.do(SimulationStep("call", at, drawn))
        self.absent[at].presence.meet((actor, session), CLIENT)
        if session not in self.sessions:
            self.sessions[session] = Session((actor, session), at, self.now_ms, self.now_ms)
            self._renew(self.sessions[session])
        self.sessions[session].calls.add(said.partition(" ")[0])

    def _renew(self, session: Session) -> None:
        """Renew a session as its guard does, sometimes at another server; it moves once its server is not reached."""
        session.renewed_ms = self.now_ms
        for _ in range(ATTEMPTS):
            if self._reaches(session, moves=False):
                return
        if self.now_ms - session.reached_ms >= MOVES_S * 1_000:
            self._reaches(session, moves=True)

    def _reaches(self, session: Session, *, moves: bool) -> bool:
        """Renew a session at one server, and return whether that one holds it."""
        if self.chance.random() < 0.3:
            session.server = self.chance.randrange(WORKERS)
        absent = self.absent[session.server]
        actor, name = session.name
        is_held = absent.renew(actor, [name], moves=moves) == []
        if is_held:
            session.reached_ms = self.now_ms
        return is_held

    def _tick(self) -> None:
        """Let a second pass, in which sessions renew themselves and every server looks."""
        self.simulation.time.now_ms += 1_000
        for session in self.sessions.values():
            if session.died_ms is None and self.now_ms - session.renewed_ms >= RENEWS_MS:
                self._renew(session)
        for watch in self.watches:
            _finish(watch)
        self.simulation.check()
        self._check()

    def _die(self) -> None:
        """Let a session die; its agent begins another one."""
        living = [one for one in self.sessions.values() if one.died_ms is None]
        if living:
            session = self.chance.choice(living)
            session.died_ms = self.now_ms
            name, _, number = session.name[1].rpartition(".")
            self.simulation.agents.replaced[name] = int(number) + 1

    def _crash(self) -> None:
        """Let a server die, and start another one, which has heard of nothing."""
        at = self.chance.randrange(WORKERS)
        self.simulation.crash(self.simulation.workers[at], known=True)
        self.crashed_ms = self.now_ms
        self._start(at)

    def _check(self) -> None:
        gone = self.simulation.model.callers.gone
        for name, session in list(self.sessions.items()):
            if session.died_ms is None:
                hold("LIVE-caller", f"the session {name} is alive, and its calls were ended", not session.calls & gone)
                continue
            due = max(session.died_ms + ENDS_MS, self.crashed_ms + TAKEN_OVER_MS)
            if self.now_ms > due:
                kept = [one for one in self._calls(name) if not self.simulation.model.open[one].doubtful]
                hold("LIVE-caller", f"the session {name} is dead, and has {kept[:2]}", not kept)
                self.ended += 1
                del self.sessions[name]

    def _calls(self, session: str) -> list[str]:
        proposals = self.simulation.workers[0].world.realm().proposals.values()
        return [one.proposal_id for one in proposals if (one.submitted.trace or {}).get("session") == session]


def _finish(watch: CallerWatch) -> None:
    """Look once; nothing waits, so that no loop is needed."""
    looking = watch.look()
    try:
        looking.send(None)
    except StopIteration:
        assert not watch._has_failed
    else:
        raise AssertionError("a look waited for something")


def play(seed: int, steps: int) -> Fleet:
    """Play a game of servers and sessions, to an end at which every session is dead, and return it."""
    chance = Random(seed)
    fleet = Fleet(Simulation(seed, scenario), chance)
    for kind in chance.choices(list(PLAYS), list(PLAYS.values()), k=steps):
        fleet.do(kind)
    for session in fleet.sessions.values():
        session.died_ms = fleet.now_ms if session.died_ms is None else session.died_ms
    while fleet.sessions:
        fleet.do("tick")
    fleet.simulation.look()
    fleet.simulation.close()
    return fleet
