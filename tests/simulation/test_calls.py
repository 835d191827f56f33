"""Agents in simulations whose callers leave: no lease, no claim and no open entry of a dead caller remains."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

import world.pipeline.callers
import world.state.proposal_queues
import world.state.realm_state
from tests.plugins.forms import scaled
from world.events.proposal_events import ProposalHeld
from world.state.proposal_queues import note_retry
from worldprotocol.simulation import Simulated, draw_steps, simulate
from worldprotocol.simulation.calls.agents import scenario
from worldprotocol.simulation.calls.call_steps import CALL_KINDS

SEEDS, STEPS = scaled(12, ci=3), 300
PLANTED_SEEDS = 6
Plant = Callable[[pytest.MonkeyPatch], None]


@cache
def simulated(seed: int) -> Simulated:
    return simulate(seed, STEPS, scenario)


@pytest.mark.requirement("KP-4a", "WP-decision", "HC-journal")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.slow
def test_whenever_callers_leave_everything_holds(seed: int) -> None:
    came = simulated(seed)
    assert came.violation is None, f"{came.violation}; seed {seed}"
    assert came.steps == STEPS


@pytest.mark.slow
def test_callers_leave_at_every_stage() -> None:
    topics: Counter[str] = Counter()
    done = set()
    for seed in range(SEEDS):
        came, steps = simulated(seed), draw_steps(seed, STEPS, scenario)
        topics.update(row[4] for row in came.image)
        done |= {step.do for step, said in zip(steps, came.said, strict=True) if said != "nothing to act on"}
    assert done >= set(CALL_KINDS)
    for topic in ("caller.left", "session.begun", "session.moved", "proposal.held", "effect.claimed", "effect.lapsed"):
        assert topics[topic] > 0, topic


def approvals_take_leases_at_once(patch: pytest.MonkeyPatch) -> None:
    """Request the leases of an approved call at once, though its caller is awaited."""
    patch.setattr(world.state.realm_state, "awaits_caller", lambda *_: False)
    notes: Any = world.state.proposal_queues._NOTES
    patch.setitem(notes, ProposalHeld, lambda realm, one, event: note_retry(realm, one.proposal_id, event.at))


def begun_calls_keep_their_claims(patch: pytest.MonkeyPatch) -> None:
    of_tools = world.pipeline.callers._tool_calls
    patch.setattr(
        world.pipeline.callers,
        "_tool_calls",
        lambda proposal: [one for one in of_tools(proposal) if one.requirement.id not in proposal.claims],
    )


def undecided_calls_stay(patch: pytest.MonkeyPatch) -> None:
    end = world.pipeline.callers._end

    def kept(work: Any, proposal: Any, *, is_made: bool) -> Any:
        return iter(()) if proposal.status == "evaluating" else end(work, proposal, is_made=is_made)

    patch.setattr(world.pipeline.callers, "_end", kept)


@pytest.mark.slow
@pytest.mark.parametrize("plant", [approvals_take_leases_at_once, begun_calls_keep_their_claims, undecided_calls_stay])
def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch, plant: Plant) -> None:
    plant(monkeypatch)
    found = (simulate(seed, STEPS, scenario).violation for seed in range(PLANTED_SEEDS))
    assert any(one is not None for one in found)
