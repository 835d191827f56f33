"""Presence in virtual time: sessions die without a word, several servers hear of them, and these die as well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.plugins.forms import scaled
from tests.simulation.servers import play
from world.code.time_limit import unlimited
from worldprotocol.server.governed.absent_callers import AbsentCallers
from worldprotocol.server.governed.heard_callers import CallerName
from worldprotocol.server.governed.presence import Presence
from worldprotocol.simulation import BrokenError

pytestmark = pytest.mark.requirement("LIVE-caller")

SEEDS, STEPS = scaled(12, ci=2), 300
PLANTED_SEEDS = 6
Plant = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_dead_session_holds_nothing_after_its_time_and_a_living_one_is_left_alone(seed: int) -> None:
    fleet = unlimited(lambda: play(seed, STEPS))
    assert fleet.ended > 10
    assert fleet.crashed_ms


def servers_take_nothing_over(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbsentCallers, "take_over", lambda _: None)


def servers_hear_no_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Presence, "silent", lambda _: [])


def _met(absent: AbsentCallers, name: CallerName) -> str | None:
    known = absent.presence.program(name)
    return None if known is None else known.client


def only_servers_that_had_calls_record_sessions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AbsentCallers, "_client", lambda absent, name, *_: _met(absent, name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "plant", [servers_take_nothing_over, servers_hear_no_silence, only_servers_that_had_calls_record_sessions]
)
def test_a_planted_fault_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    found = []
    for seed in range(PLANTED_SEEDS):
        try:
            unlimited(lambda: play(seed, STEPS))  # noqa: B023 - called at once
        except BrokenError as broken:
            found.append(broken.requirement)
    assert "LIVE-caller" in found
