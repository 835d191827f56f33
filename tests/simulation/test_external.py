"""Workers outside in simulations: lost, late, doubled and forged reports change nothing that they must not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pytest

import world.engine.effect_claims
import world.pipeline.effect_requests
import world.pipeline.effects.external_effects
import world.state.offers
from world.events.execution_events import EffectRequested
from worldprotocol.simulation import Simulated, draw_steps, simulate
from worldprotocol.simulation.external.bank import scenario
from worldprotocol.simulation.external.claim_steps import EXTERNAL_KINDS

SEEDS, STEPS = 8, 300
PLANTED_SEEDS = 6
Plant = Callable[[pytest.MonkeyPatch], None]


@cache
def simulated(seed: int) -> Simulated:
    return simulate(seed, STEPS, scenario)


@pytest.mark.requirement("HC-journal", "HC-handlers", "HC-compute", "WP-exec", "CARD-replay")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.slow
def test_whatever_workers_do_everything_holds(seed: int) -> None:
    came = simulated(seed)
    assert came.violation is None, f"{came.violation}; seed {seed}"
    assert came.steps == STEPS


@pytest.mark.slow
def test_reports_are_lost_late_doubled_and_forged() -> None:
    topics: Counter[str] = Counter()
    reports: Counter[str] = Counter()
    done = set()
    for seed in range(SEEDS):
        came, steps = simulated(seed), draw_steps(seed, STEPS, scenario)
        reports.update(came.reports)
        topics.update(row[4] for row in came.image)
        done |= {step.do for step, said in zip(steps, came.said, strict=True) if said != "nothing to act on"}
    assert done >= set(EXTERNAL_KINDS)
    assert set(+reports) == {"lost", "late", "doubled", "forged"}
    for topic in ("claimed", "extended", "lapsed", "fulfilled", "dropped", "retried", "in_doubt"):
        assert topics[f"effect.{topic}"] > 0, topic


def the_fencing_check_is_left_out(patch: pytest.MonkeyPatch) -> None:
    """Let any report count while some worker holds the effect."""
    checked = world.pipeline.effects.external_effects.why_lost

    def unchecked(realm: Any, claim: Any, subject: Any) -> Any:
        proposal = realm.proposals.get(claim.proposal_id)
        is_held = proposal is not None and claim.requirement.id in proposal.claims
        return None if is_held else checked(realm, claim, subject)

    patch.setattr(world.pipeline.effects.external_effects, "why_lost", unchecked)
    patch.setattr(world.engine.effect_claims, "why_lost", unchecked)


def claims_end_before_their_deadline(patch: pytest.MonkeyPatch) -> None:
    overdue = world.state.offers.overdue_claim
    patch.setattr(
        world.pipeline.effects.external_effects, "overdue_claim", lambda realm, now: overdue(realm, now + 4_000)
    )


def no_claim_ends(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.pipeline.effects.external_effects, "overdue_claim", lambda _realm, _now: None)


def a_refused_report_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.effect_claims, "drop_completion", lambda *_: None)


def what_was_reported_before_is_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(world.engine.effect_claims, "was_answered", lambda *_: False)


def what_is_silent_is_always_offered_again(patch: pytest.MonkeyPatch) -> None:
    """Offer also what must not be made twice."""
    request = EffectRequested

    def idempotent(**members: Any) -> Any:
        return request(**{**members, "idempotent": True})

    patch.setattr(world.pipeline.effect_requests, "EffectRequested", idempotent)


FOUND_BY: Mapping[Plant, set[str]] = {
    the_fencing_check_is_left_out: {"HC-journal", "CRASH"},
    claims_end_before_their_deadline: {"HC-journal", "CRASH"},
    no_claim_ends: {"WP-exec", "HC-journal"},
    a_refused_report_is_not_recorded: {"HC-journal"},
    what_was_reported_before_is_late: {"HC-journal"},
    what_is_silent_is_always_offered_again: {"HC-journal"},
}


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
@pytest.mark.requirement("HC-journal")
@pytest.mark.slow
def test_a_planted_fault_of_claims_is_found_within_a_few_seeds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    came = (simulate(seed, STEPS, scenario).violation for seed in range(PLANTED_SEEDS))
    found = next(filter(None, came), None)
    assert found is not None, "it was not found"
    assert found.requirement in FOUND_BY[plant], found
