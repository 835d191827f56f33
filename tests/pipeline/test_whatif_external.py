"""A counterfactual of a log whose effects workers performed: recorded results answer them, without any worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.couriers import couriers
from tests.golden.garden import FOLDER
from world.events.claim_events import EffectClaimed, EffectExtended
from world.events.execution_events import EffectInDoubt
from worldprotocol.analysis.counterfactual import WhatIf, what_if
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import import_log

SILENT = (EffectClaimed, EffectExtended, EffectInDoubt)
"""Events at which an effect is claimed or in doubt, each the last one of its commit."""


@pytest.mark.requirement("CARD-replay", "HC-journal")
def test_nothing_otherwise_comes_to_the_same_worlds_wherever_a_worker_has_an_effect(tmp_path: Path) -> None:
    address = str(tmp_path / "world.db")
    with (FOLDER / "couriers.jsonl").open("rb") as lines:
        import_log(lines, address)
    with Realm.open_read_only(address) as realm:
        places = [position for position, event in realm.events() if isinstance(event, SILENT)]
    for position in [8, *places[::3]]:
        report = what_if(WhatIf(address, couriers, position, scratch=tmp_path / f"scratch-{position}.db"))
        assert not report.changed, (position, list(report.lines()))
        assert report.needed == []
