"""Steps of agents that make calls of tools: they propose, begin, report and repeat calls, and leave at any moment.

A session that left is never used again. What it was allowed and has not reported must hold nothing from then on; what
it reports late must change nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from world.errors import RefusedError
from world.events.caller_events import Attended
from world.pipeline.submit import Submission
from world.state.effect_claim import EffectClaim
from world.state.effect_steps import unclaimed_offers
from world.state.proposal import Proposal
from worldprotocol.api.callers.sessions import Leaving, caller_left, hold_session, resume_held_call
from worldprotocol.simulation.external.claim_steps import perform_claimed
from worldprotocol.simulation.found import hold
from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.worker import SimulatedWorker as Worker

if TYPE_CHECKING:
    from worldprotocol.simulation.simulation import Simulation

__all__ = ["CALL_ACTS", "CALL_KINDS", "Agents", "has_calls", "make_calls"]

NOTHING: Final = "nothing to act on"
MANY: Final = 1 << 16
SESSIONS: Final = 3
"""Sessions of each actor at a time."""

CLIENT: Final = "simulated"
ATTENDED: Final = ("hook", "hook", "run", "proxy")
NOTICED: Final = ("connection", "process", "process", "renewal")


@dataclass(slots=True)
class Agents:
    """The agents: what they have begun, and how often each of their sessions was replaced by another one."""

    claims: list[tuple[str, EffectClaim]] = field(default_factory=list)
    replaced: dict[str, int] = field(default_factory=dict)

    def session(self, name: str) -> str:
        """Return the id of a session that has not left."""
        return f"{name}.{self.replaced.get(name, 0)}"


def has_calls(scenario: Scenario) -> bool:
    """Return whether a scenario has effects that their actors perform themselves."""
    return any(one.terms.by_actor for one in scenario.effects)


def _draw_call(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    drawn = scenario.draw(chance)
    rendered: dict[str, Any] = {
        "actor": chance.randrange(MANY),
        "session": chance.randrange(SESSIONS),
        "type": drawn.type,
        "input": drawn.input,
        "attended": chance.choice(ATTENDED),
        "limit": chance.choice((None, 5_000)),
        "renews": chance.random() < 0.3,
    }
    return rendered if drawn.scope is None else {**rendered, "scope": list(drawn.scope)}


def _draw_which(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": chance.randrange(MANY)}


def _draw_leaves(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": chance.randrange(MANY), "noticed": chance.choice(NOTICED)}


CALL_KINDS: Final = {
    "call": (40, _draw_call),
    "begin": (24, _draw_which),
    "tell": (16, _draw_which),
    "repeat": (10, _draw_which),
    "leaves": (12, _draw_leaves),
}
"""How often each kind of step is drawn in a scenario with calls, and how it is drawn."""


def _call(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    actor = sim.scenario.actors[rendered["actor"] % len(sim.scenario.actors)].actor_id
    intent = worker.world.issue(actor, rendered["type"], rendered["input"], scope=rendered.get("scope"))
    sim.issued_under[intent.intent_id] = sim.model.worlds.schema
    sim.intents.append(intent)
    session = sim.agents.session(f"{actor}-{rendered['session']}")
    trace = {"client": CLIENT, "session": session}
    attended = Attended(by=rendered["attended"], limit_ms=rendered["limit"])
    proposal = worker.protocol.submit(Submission(intent, trace=trace, attended=attended))
    if rendered["renews"]:
        hold_session(worker.world, actor, session, CLIENT)
    return f"{proposal.proposal_id} {proposal.status}"


def _calls(worker: Worker) -> list[Proposal]:
    return [one for one in worker.world.realm().proposals.values() if one.submitted.attended is not None]


def _begin(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    offered = [one for one in worker.world.realm().proposals.values() if any(True for _ in unclaimed_offers(one))]
    if not offered:
        return NOTHING
    proposal = offered[rendered["which"] % len(offered)]
    actor = proposal.submitted.actor.actor_id
    claim = worker.world.claim_effect(worker=actor, proposal_id=proposal.proposal_id)
    if claim is None:
        return NOTHING
    sim.agents.claims.append((proposal.proposal_id, claim))
    return f"{actor} begins {claim.requirement.type} of {proposal.proposal_id}"


def _tell(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    claims = sim.agents.claims
    if not claims:
        return NOTHING
    name, claim = claims.pop(rendered["which"] % len(claims))
    is_dead = name in sim.model.callers.gone
    try:
        claim = worker.world.heartbeat_effect(claim)
        done = worker.world.complete_effect(claim, perform_claimed(sim, claim, "fair"))
    except RefusedError as refused:
        if refused.code != "CLAIM_LOST":
            claims.append((name, claim))
            raise
        return refused.code
    hold("HC-journal", f"the report of a caller that left counts for {name}", not is_dead)
    return f"{name} is reported: {done.status}"


def _repeat(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    held = [one for one in _calls(worker) if one.held is not None and one.held.cause == "caller"]
    if not held:
        return NOTHING
    name = held[rendered["which"] % len(held)].proposal_id
    sim.model.callers.repeated.add(name)
    resume_held_call(worker.world, name)
    return f"{name} is asked for again"


def _leaves(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    calls = _calls(worker)
    if not calls:
        return NOTHING
    proposal = calls[rendered["which"] % len(calls)]
    return _left(sim, worker, proposal, rendered["noticed"])


def _left(sim: Simulation, worker: Worker, proposal: Proposal, noticed: Any) -> str:
    """Let the caller of a call leave, or its whole session."""
    actor, session = proposal.submitted.actor.actor_id, str((proposal.submitted.trace or {})["session"])
    only = [proposal.proposal_id] if noticed == "connection" else None
    if only is None:
        hold_session(worker.world, actor, session, CLIENT)
        name, _, _ = session.rpartition(".")
        if sim.agents.session(name) == session:
            sim.agents.replaced[name] = sim.agents.replaced.get(name, 0) + 1
    ended = caller_left(worker.world, Leaving(actor, CLIENT, noticed, session, only), of_holder=True)
    sim.check()
    left = [name for name in ended if name not in sim.model.callers.gone]
    hold("WP-fsm", f"the callers of {left[:2]} left, and the log does not say so", not left)
    return f"{session} left with {len(ended)} calls"


CALL_ACTS: Final = {"call": _call, "begin": _begin, "tell": _tell, "repeat": _repeat, "leaves": _leaves}
"""What each kind of step of agents does."""


def make_calls(sim: Simulation) -> bool:
    """Let the agents do the next thing that is left to do; False where nothing is."""
    worker = sim.workers[0]
    if sim.agents.claims:
        _tell(sim, worker, {"which": 0})
        return True
    if _begin(sim, worker, {"which": 0}) != NOTHING:
        return True
    open_calls = [one for one in _calls(worker) if not one.in_doubt]
    if open_calls:
        _left(sim, worker, open_calls[0], "process")
    return bool(open_calls)
