"""The simulation of realms keeps the laws of queues; the tables of docs/scale.md follow from recorded inputs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.scale_arithmetic import PAGE, capacity, filled, need, tables
from bench.scale_inputs import assumed, fitted, measured, simulated
from bench.scale_model import Failures, Scale, Service, Simulation
from bench.scale_simulation import fenced, little, percentile, report, simulate, utilisation
from tests.plugins.forms import IS_SHORT
from tests.support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
SERVICE = Service(
    engine_commit_s=0.0,
    engine_proposal_s=0.002,
    database_commit_s=0.0,
    database_proposal_s=0.0,
    variation=0.5,
    open_s=0.0,
    round_trips=0,
    round_trip_s=0.0,
    flush_s=0.0,
    flush_p99_s=0.0,
    switch_s=1.0,
    max_batch=1,
)
ALONE = Scale(
    realms=1,
    servers=1,
    processes=1,
    databases=1,
    database_cores=1,
    rate=250,
    zipf=0.0,
    seconds=400,
    service=SERVICE,
)
FAILURES = Failures(
    crash_mean_s=30,
    detect_s=2,
    restart_s=10,
    failover_mean_s=25,
    failover_s=3,
    slow_mean_s=20,
    slow_s=4,
    slow_factor=30,
)


RECOVERED = re.compile(r"^ +([0-9.]+) s  .* recovered after +([0-9.]+) s$")
"""When a failure began, and how long it was felt."""


def small(**changed: Any) -> Scale:
    """Return a small scale with everything that the recorded one has."""
    size = {"realms": 40, "servers": 4, "processes": 2, "databases": 2, "rate": 150.0, "seconds": 40.0, **changed}
    return replace(simulated(measured(), assumed()), **size)


def ran(scale: Scale, seed: int = 1) -> Simulation:
    simulation = Simulation(scale, seed)
    simulation.run()
    return simulation


def mean_wait(simulation: Simulation) -> float:
    return sum(wait for _, wait, _ in simulation.responses) / simulation.completed


@pytest.mark.cases_in_ci(2)
@pytest.mark.parametrize("failures", [Failures(), FAILURES], ids=["without failures", "with failures"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_each_submitted_proposal_is_completed_once_or_unfinished(failures: Failures, seed: int) -> None:
    simulation = ran(small(failures=failures), seed)
    assert simulation.completed == len(simulation.responses) > 4_000
    assert simulation.submitted == simulation.completed + len(simulation.unfinished)
    assert all(0 <= wait <= response for _, wait, response in simulation.responses)
    assert all(0 <= at <= simulation.scale.seconds for at in simulation.unfinished)


def test_failures_cut_off_commits_and_delay_realms() -> None:
    simulation = ran(small(failures=FAILURES))
    kinds = {outage.kind for outage in simulation.outages}
    assert kinds == {"server crash", "database failover", "slow disk"}
    assert simulation.repeated > 0
    recovered = [one for one in simulation.outages if one.recovered_at is not None]
    shortest = {"server crash": 2, "database failover": 3, "slow disk": 4}
    assert recovered
    assert all(one.recovered_at - one.at >= shortest[one.kind] for one in recovered if one.recovered_at is not None)
    assert all(one.delayed <= one.realms for one in simulation.outages)


def test_realms_of_a_crashed_server_are_served_by_others_and_return() -> None:
    crash = Failures(crash_mean_s=15, detect_s=1, restart_s=5)
    simulation = ran(small(failures=crash, seconds=60.0))
    assert all(one.realms <= 40 for one in simulation.outages)
    assert all(one.recovered_at is not None for one in simulation.outages if one.at < 40)
    for server in simulation.servers:
        assert all(realm.server is server for realm in server.realms)
        if server.is_up:
            homes = {realm.number for realm in simulation.realms if realm.home[0] is server}
            assert homes <= {realm.number for realm in server.realms}
        else:
            assert not server.realms


def test_littles_law_holds() -> None:
    for failures in (Failures(), FAILURES):
        counted, computed = little(ran(small(failures=failures)))
        assert counted == pytest.approx(computed, rel=1e-9)


def test_the_utilisation_law_holds_without_failures() -> None:
    busy, demand = utilisation(ran(small(failures=Failures(), seconds=120.0)))
    assert busy == pytest.approx(demand, rel=0.02)


@pytest.mark.parametrize("rate", [50, 250, 350])
def test_waiting_is_that_of_a_queue_with_one_server(rate: int) -> None:
    """Pollaczek and Khinchine: the mean wait of M/G/1 is rate * E[S^2] / (2 (1 - load))."""
    mean, load = 0.002, rate * 0.002
    expected = rate * mean**2 * (1 + 0.5**2) / (2 * (1 - load))
    assert mean_wait(ran(replace(ALONE, rate=rate))) == pytest.approx(expected, rel=0.08)


def test_realms_of_one_process_wait_for_each_other() -> None:
    """Many realms with one process and one commit each are one M/G/1 queue; its wait is part of the commit's time."""
    simulation = ran(replace(ALONE, realms=2_000))
    expected = 0.002 + 250 * 0.002**2 * (1 + 0.5**2) / (2 * (1 - 0.5))
    mean = sum(response for *_, response in simulation.responses) / simulation.completed
    assert mean == pytest.approx(expected, rel=0.08)


def test_at_low_load_a_proposal_takes_its_service_time() -> None:
    service = replace(
        SERVICE, database_proposal_s=0.001, round_trips=2, round_trip_s=0.0005, flush_s=0.004, flush_p99_s=0.004
    )
    simulation = ran(replace(ALONE, rate=2, seconds=2_000, service=service))
    mean = sum(response for *_, response in simulation.responses) / simulation.completed
    assert mean == pytest.approx(0.002 + 0.001 + 2 * 0.0005 + 0.004, rel=0.02)


def test_a_saturated_realm_shares_commits_up_to_the_limit() -> None:
    service = replace(SERVICE, flush_s=0.05, flush_p99_s=0.05, max_batch=8)
    simulation = ran(replace(ALONE, service=service, seconds=60))
    assert simulation.completed / simulation.commits == pytest.approx(8, rel=0.02)
    assert simulation.completed / 60 == pytest.approx(8 / (0.05 + 8 * 0.002), rel=0.02)


def test_commits_of_realms_share_flushes() -> None:
    service = replace(SERVICE, flush_s=0.05, flush_p99_s=0.05)
    simulation = ran(replace(ALONE, realms=50, processes=4, service=service, seconds=60))
    assert sum(one.flushes for one in simulation.databases) < simulation.commits / 3


def test_the_same_seed_prints_the_same() -> None:
    def printed(seed: int) -> str:
        size = ["--realms", "30", "--servers", "3", "--rate", "60", "--seconds", "10"]
        done = subprocess.run(
            [sys.executable, "-m", "bench.scale_simulation", "--seed", str(seed), *size],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=True,
        )
        return done.stdout

    first = printed(1)
    assert first == printed(1)
    assert first != printed(2)
    assert "wait, rank 1 " in first


def test_a_run_without_proposals_is_reported() -> None:
    simulation = ran(replace(ALONE, rate=1e-9))
    assert "submitted 0, completed 0, unfinished 0" in report(simulation, 1)


def test_a_percentile_is_the_nearest_rank() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, percent) for percent in (50, 99, 99.9, 100)] == [50, 99, 100, 100]
    assert percentile([7.0], 50) == 7


def test_the_cost_of_a_commit_is_separated_from_that_of_its_proposals() -> None:
    def cpu(commit: float, proposal: float) -> dict[str, Any]:
        return {
            f"pure, {batch}": {"batch": {"median": batch}, "engine_us": {"median": proposal + commit / batch}}
            for batch in (1, 10, 40)
        }

    cost = fitted(cpu(400, 900), "engine_us")
    assert cost.commit_s == pytest.approx(400e-6)
    assert cost.proposal_s == pytest.approx(900e-6)
    dearer = fitted(cpu(-400, 1_500), "engine_us")
    assert dearer.commit_s == 0
    assert dearer.proposal_s == pytest.approx((1_100 + 1_460 + 1_490) / 3 * 1e-6)


def test_the_tables_of_the_page_follow_from_the_recorded_inputs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page, tables(measured(), assumed())) == page, "run python -m bench.scale_arithmetic --write"


def test_the_simulation_of_the_page_is_that_of_its_seed() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "`python -m bench.scale_simulation --seed 2`" in page
    whole = simulated(measured(), assumed())
    if not IS_SHORT:
        printed = fenced(simulate(whole, 2))
        assert filled(page, {"simulation": printed}) == page, "run python -m bench.scale_simulation --seed 2 --write"
        return
    seconds = 150.0  # of virtual time: all that ended by then is in the page as well
    lines = simulate(replace(whole, seconds=seconds), 2).splitlines()
    ended = [line for line in lines if (found := RECOVERED.search(line)) and sum(map(float, found.groups())) < seconds]
    assert len(ended) == 3
    assert [line for line in (*lines[1:3], *ended) if line not in page.splitlines()] == []


def test_other_inputs_give_other_tables() -> None:
    found, wanted = measured(), assumed()
    before = tables(found, wanted)
    dear = json.loads(json.dumps(wanted))
    dear["prices"]["core_month"] *= 2
    assert {name for name, text in tables(found, dear).items() if text != before[name]} == {"money", "inputs"}
    larger = json.loads(json.dumps(found))
    larger["postgresql"]["bytes"]["pure"]["written"] *= 2
    assert {name for name, text in tables(larger, wanted).items() if text != before[name]} == {
        "bytes",
        "needs",
        "money",
    }


def test_ten_times_the_rate_needs_ten_times_the_bytes() -> None:
    found, wanted = measured(), assumed()
    one, ten = need(1_000, found, wanted), need(10_000, found, wanted)
    assert ten.wal == pytest.approx(10 * one.wal)
    assert ten.kept_year == pytest.approx(10 * one.kept_year)
    assert one.wal == 1_000 * found["postgresql"]["bytes"]["pure"]["written"]
    assert 10 * (one.processes - 1) < ten.processes <= 10 * one.processes
    alone, shared = capacity(found, wanted)
    assert one.realms * shared * wanted["arithmetic"]["utilisation"] >= 1_000
    assert alone < shared


def test_a_page_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="0 places for the table 'needs'"):
        filled("# Scale\n", {"needs": "| a |"})
