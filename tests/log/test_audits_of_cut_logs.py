"""Audits of cut logs: what comes after the cut is rechecked and judged again; what needs more is counted and said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.inside import Inside
from tests.log.test_cut_logs import LOGS, cut_at, places_to_cut
from tests.pipeline.test_history_sums import HOUSE, ledger, opened
from tests.world.test_golden_logs import CODE, imported
from world.audit.sealing import last_commit
from world.log import open_log
from world.read_models.live.sealed_snapshot import archived_event, open_snapshot
from worldprotocol.analysis.backtest import Backtest, BacktestSetup
from worldprotocol.analysis.recheck.recheck import Rechecked, Rechecking, open_to_recheck, recheck
from worldprotocol.export.archive.cutting import open_for_cutting

PROGRAM = """
from tests.pipeline.test_history_sums import HOUSE, ledger as made

ledger, house = made(), HOUSE
"""
WORLD = """
log = "sums.db"
domain = "program.py:ledger"
policies = ["program.py:house"]
"""


@pytest.mark.slow
@pytest.mark.requirement("CARD-replay", "CARD-audit")
@pytest.mark.parametrize("name", LOGS)
def test_the_steps_after_a_cut_are_rechecked_as_those_of_the_whole_log(name: str, tmp_path: Path) -> None:
    """What was adopted before the cut is compared with the code, too."""
    whole = imported(name, str(tmp_path / "whole.db"))
    with open_log(whole, read_only=True) as log:
        size, places, done_before = log.head().size, places_to_cut(log), archived_event(log)
    cuts, before = 0, 0 if done_before is None else done_before.upto
    for upto in places[1:-1:7]:
        copy = str(tmp_path / f"{upto}.db")
        shutil.copy(whole, copy)
        with open_for_cutting(copy) as log:
            if not cut_at(log, upto, before) or open_snapshot(log) is None:  # nothing was removed
                continue
        cuts += 1
        for code in CODE[name]:
            with open_to_recheck(whole, **code) as world:
                first = Rechecking(world, every=True).stretch((0, upto))
                expected = Rechecking(world, every=True).stretch((upto, size))
            with open_to_recheck(copy, **code) as world:
                done = recheck(world, every=True)
            assert (done.steps, done.archived_upto, done.position) == (expected.steps, upto, size + 1)
            assert differing(done) == differing(expected)
            changed = {one.position for one in first.divergences if one.difference.code in CHANGED}
            assert {one.position for one in done.divergences if one.position <= upto} <= changed
    assert cuts


CHANGED = {"CODE_CHANGED", "POLICY_CHANGED", "POLICY_NOT_AT_HAND"}


def differing(done: Rechecked) -> list[Any]:
    return [one.to_wire() for one in done.divergences if not one.is_drift]


@pytest.mark.requirement("CARD-replay", "CARD-audit")
def test_code_that_was_adopted_before_a_cut_and_is_another_one_is_said(tmp_path: Path) -> None:
    address = str(tmp_path / "sums.db")
    fill(address)
    with open_to_recheck(address, domain=ledger()) as world:
        whole = recheck(world, every=True)
    upto = cut_after(address, 3)
    with open_to_recheck(address, domain=ledger()) as world:
        done = recheck(world, every=True)
    [at_first] = [one for one in whole.divergences if one.topic == "policy.adopted"]
    assert at_first.position < upto
    assert at_first.to_wire() in [one.to_wire() for one in done.divergences]


@pytest.mark.requirement("CARD-policy", "CARD-audit")
def test_what_reads_archived_inputs_is_neither_rechecked_nor_judged_again_and_counted(tmp_path: Path) -> None:
    address = str(tmp_path / "sums.db")
    fill(address)
    (tmp_path / "program.py").write_text(PROGRAM)
    setup = BacktestSetup(address, f"{tmp_path / 'program.py'}:ledger", f"{tmp_path / 'program.py'}:house")
    whole = Backtest(setup)
    assert (list(whole.lines()), "archivedUpto" in whole.summary()) == ([], False)
    upto = cut_after(address, 3)
    with open_to_recheck(address, domain=ledger(), policies=[HOUSE]) as world:
        done = recheck(world)
    assert (done.ok, done.steps["archived"], done.steps["rulings"], done.steps["executions"]) == (True, 3, 0, 3)
    after = Backtest(setup)
    assert [(line["kind"], line["why"]) for line in after.lines()] == [("undecided", "archived")] * 3
    assert (after.summary()["archivedUpto"], after.after, after.counts["judged"]) == (upto, upto, 3)


@pytest.mark.requirement("CARD-audit")
def test_the_commands_say_what_they_leave_out(tmp_path: Path) -> None:
    address = str(tmp_path / "sums.db")
    fill(address)
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "world.toml").write_text(
        'log = "sums.db"\ndomain = "program.py:ledger"\npolicies = ["program.py:house"]\n'
    )
    cli = Inside(tmp_path)
    assert "archivedUpto" not in cli("recheck", "--json").json
    upto = cut_after(address, 3)
    remark = f"Events 1 to {upto} are archived"
    checked = cli("recheck", "--json")
    assert (checked.json["archivedUpto"], checked.json["steps"]["archived"]) == (upto, 3)
    assert remark in checked.err
    assert "3 archived" in cli("recheck").out
    assert f"world.toml: {remark}" in cli("recheck", "world.toml").err
    judged = cli("policy", "backtest", "--with", "house")
    assert (remark in judged.err, "undecided: 3" in judged.out) == (True, True)
    assert "EVENT_ARCHIVED" in cli("recheck", "--upto", str(upto), code=1).err
    assert cli("recheck", "--upto", str(upto + 1), "--json").json["position"] == upto + 1


def test_salvage_says_that_a_log_was_cut(tmp_path: Path) -> None:
    address = str(tmp_path / "sums.db")
    fill(address)
    cli = Inside(tmp_path)
    assert "cut" not in cli("salvage", "sums.db", "-o", "whole.jsonl").err
    upto = cut_after(address, 3)
    assert (
        f"archives have the contents of events 1 to {upto}" in cli("salvage", "sums.db", "-o", "cut.jsonl", code=3).err
    )


def fill(address: str) -> None:
    """Record six payments, whose rule sums those before."""
    with opened(address) as realm:
        for amount in range(6):
            assert realm.act("bot", "pay", {"amount": amount}).status == "completed"


def cut_after(address: str, proposals: int) -> int:
    """Cut a log after its first proposals; return where."""
    with open_for_cutting(address) as log:
        ends = [event.position for event in log.read(topics=["proposal.completed"])]
        upto = last_commit(log, ends[proposals - 1] + 1)
        assert cut_at(log, upto)
    return upto
