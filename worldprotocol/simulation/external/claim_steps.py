"""Steps of workers outside: they claim effects, perform them, and report; reports get lost, come late, twice or forged.

A worker performs an effect only right after a heartbeat that was accepted. What it does not report is lost with it;
what it reports late, again, or under a claim that it does not have, must change nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from host.effect_call import EffectCallInfo
from host.effects import EffectFailure, EffectResult
from world.errors import RefusedError
from world.model.snapshot import EffectAnswer, ErrorValue
from world.state.effect_claim import EffectClaim
from world.state.ports import Performed
from worldprotocol.simulation.found import hold
from worldprotocol.simulation.scenario import Scenario
from worldprotocol.simulation.worker import SimulatedWorker as Worker

if TYPE_CHECKING:
    from worldprotocol.simulation.simulation import Simulation

__all__ = ["EXTERNAL_ACTS", "EXTERNAL_KINDS", "Couriers", "carry_on", "has_external_effects", "perform_claimed"]

NOTHING: Final = "nothing to act on"
MANY: Final = 1 << 16
OUTCOMES: Final = ("fair", "fair", "fair", "fails", "refuses", "vanishes_before", "vanishes_after")
"""How performing goes: it succeeds; it fails, to be tried again or for good; its worker vanishes before or after."""

FORGERIES: Final[Mapping[str, Any]] = {"worker": "forger", "claim_id": "forged", "token": 1}


@dataclass(slots=True)
class Couriers:
    """The workers outside: what they have claimed, and the results that they have not forgotten.

    ``reports`` counts the reports that were ``lost``, ``late``, ``doubled`` and ``forged``.
    """

    claims: list[EffectClaim] = field(default_factory=list)
    results: list[tuple[EffectClaim, Performed]] = field(default_factory=list)
    reports: Counter[str] = field(default_factory=Counter)


def has_external_effects(scenario: Scenario) -> bool:
    """Return whether a scenario has effects that workers perform."""
    return any(one.terms.external and not one.terms.by_actor for one in scenario.effects)


def _draw_claim(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"courier": chance.randrange(3)}


def _draw_perform(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    return {"which": chance.randrange(MANY), "outcome": chance.choice(OUTCOMES)}


def _draw_report(chance: Random, scenario: Scenario) -> Mapping[str, Any]:
    forged = chance.choice(tuple(FORGERIES)) if chance.random() < 0.15 else None
    return {"which": chance.randrange(MANY), "keeps": chance.random() < 0.4, "forged": forged}


EXTERNAL_KINDS: Final = {
    "claim": (24, _draw_claim),
    "perform": (24, _draw_perform),
    "report": (24, _draw_report),
}
"""How often each kind of step is drawn in a scenario with external effects, and how it is drawn."""


def _claim(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    claim = worker.world.claim_effect(worker=f"courier-{rendered['courier']}")
    if claim is None:
        return NOTHING
    sim.couriers.claims.append(claim)
    return f"courier-{rendered['courier']} claims {claim.requirement.type} with token {claim.token}"


def _perform(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    claims = sim.couriers.claims
    if not claims:
        return NOTHING
    claim = claims.pop(rendered["which"] % len(claims))
    try:
        claim = worker.world.heartbeat_effect(claim)
    except RefusedError as refused:
        if refused.code != "CLAIM_LOST":
            claims.append(claim)
            raise
        return refused.code
    outcome = rendered["outcome"]
    sim.couriers.reports["lost"] += outcome.startswith("vanishes")
    if outcome == "vanishes_before":
        return f"{claim.worker} vanishes before {claim.requirement.type}"
    performed = perform_claimed(sim, claim, outcome)
    if outcome == "vanishes_after":
        return f"{claim.worker} vanishes after {claim.requirement.type}"
    sim.couriers.results.append((claim, performed))
    return f"{claim.worker} performs {claim.requirement.type}, {outcome}"


def perform_claimed(sim: Simulation, claim: EffectClaim, outcome: str) -> Performed:
    """Do to the outside what a claimed effect does, and return the result.

    Args:
        sim: the simulation.
        claim: the claim.
        outcome: one of ``OUTCOMES``.
    """
    asked = claim.requirement
    handler = sim.outside.registry.find(asked.type)
    assert handler is not None
    call = EffectCallInfo(
        effect_type=asked.type,
        idempotency_key=claim.idempotency_key,
        intent_id=claim.intent.intent_id,
        proposal_id=claim.proposal_id,
        now=claim.now,
        time_limit_ms=claim.time_limit_ms,
        look=_no_view,
        attempt=claim.attempt,
    )
    sim.outside.weather = outcome if outcome in ("fails", "refuses") else "fair"
    try:
        answer = handler.function(asked.params, call)
    finally:
        sim.outside.weather = "fair"
    if isinstance(answer, EffectFailure):
        error = ErrorValue.at(answer.code, answer.message, asked.action_id, asked.node_path, claim.now)
        return Performed(EffectAnswer(error=error), retryable=answer.retryable)
    return Performed(EffectAnswer(answer.value if isinstance(answer, EffectResult) else answer))


def _no_view() -> Any:
    raise LookupError("a simulated worker has no state")


def _report(sim: Simulation, worker: Worker, rendered: Mapping[str, Any]) -> str:
    results = sim.couriers.results
    if not results:
        return NOTHING
    at = rendered["which"] % len(results)
    claim, performed = results[at]
    forged = rendered["forged"]
    if forged is not None:
        claim = replace(claim, **{forged: FORGERIES[forged]})
    said = _complete(sim, worker, claim, performed, is_forged=forged is not None)
    if forged is None and not rendered["keeps"]:
        results.pop(at)
    return said


def _complete(sim: Simulation, worker: Worker, claim: EffectClaim, performed: Performed, *, is_forged: bool) -> str:
    claims = sim.model.claims
    was_answered, dropped = claim.token in claims.answered, claims.dropped[claim.token]
    try:
        proposal = worker.world.complete_effect(claim, performed)
    except RefusedError as refused:
        if refused.code != "CLAIM_LOST":
            raise
        sim.check()
        is_new = claim.token in claims.answered and not is_forged
        hold("HC-journal", f"the report of {claim.worker} counts, and was refused", not is_new)
        is_recorded = claims.dropped[claim.token] == (dropped if is_forged else 1)  # once for a claim that was made
        hold("HC-journal", "a refused report was not recorded once", is_recorded)
        sim.couriers.reports["forged" if is_forged else "late"] += 1
        return refused.code
    sim.check()
    hold("HC-journal", f"a forged report of {claim.worker} was accepted", not is_forged)
    hold("HC-journal", f"a late report under token {claim.token} was accepted", claim.token in claims.answered)
    sim.couriers.reports["doubled"] += was_answered
    again = ", again" if was_answered else ""
    return f"{claim.worker} reports {claim.requirement.type}{again}: {proposal.status}"


EXTERNAL_ACTS: Final = {"claim": _claim, "perform": _perform, "report": _report}
"""What each kind of step of workers outside does."""


def carry_on(sim: Simulation) -> bool:
    """Let the workers outside do the next thing that is left to do; False where nothing is."""
    worker = sim.workers[0]
    if sim.couriers.results:
        _report(sim, worker, {"which": 0, "keeps": False, "forged": None})
        return True
    if sim.couriers.claims:
        _perform(sim, worker, {"which": 0, "outcome": "fair"})
        return True
    return _claim(sim, worker, {"courier": 0}) != NOTHING
