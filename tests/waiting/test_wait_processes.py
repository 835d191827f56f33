"""One process waits, another one answers, or is gone: on SQLite and on PostgreSQL."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.waiting.till import CAKE, check_nothing_waits, open_till
from worldprotocol import Realm

ROOT = Path(__file__).parent.parent.parent


def process(address: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.waiting.till", address, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_another_process_answers_and_this_one_waits(shared_log_url: str) -> None:
    with open_till(shared_log_url) as realm:
        asked = realm.act("kid", "sell", CAKE)
        with process(shared_log_url, "answer", asked.proposal_id) as answering:
            assert realm.wait(asked, PATIENCE_S).status == "completed"
            assert answering.wait(PATIENCE_S) == 0
        check_nothing_waits(realm)


@pytest.mark.slow
def test_this_process_answers_and_another_one_waits(shared_log_url: str) -> None:
    with open_till(shared_log_url) as realm:
        asked = realm.act("kid", "sell", CAKE)
        with process(shared_log_url, "wait", asked.proposal_id) as waiting:
            assert waiting.stdout is not None
            assert waiting.stdout.readline() == "waiting\n"
            realm.decide(asked.proposal_id, "approve", by="ann")
            assert waiting.stdout.readline() == "completed\n"
            assert waiting.wait(PATIENCE_S) == 0


@pytest.mark.slow
def test_who_waits_does_what_a_vanished_process_left_to_time(shared_log_url: str) -> None:
    with open_till(shared_log_url, timeout_ms=1_500) as realm:
        with process(shared_log_url, "ask") as asking:
            assert asking.stdout is not None
            proposal_id = asking.stdout.readline().strip()
            assert asking.wait(PATIENCE_S) == 0
        assert realm.wait(proposal_id, PATIENCE_S).status == "rejected"


@pytest.mark.slow
def test_a_process_that_only_reads_waits_for_two_others(shared_log_url: str) -> None:
    with open_till(shared_log_url) as realm:
        asked = realm.act("kid", "sell", CAKE)
    with Realm.open_read_only(shared_log_url) as reading:
        with process(shared_log_url, "answer", asked.proposal_id) as answering:
            assert reading.wait(asked.proposal_id, PATIENCE_S).status == "completed"
            assert answering.wait(PATIENCE_S) == 0
        check_nothing_waits(reading)
