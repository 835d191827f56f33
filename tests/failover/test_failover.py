"""The primary is killed under sixteen writers: nothing acknowledged is lost, and no effect is made twice.

``make failover`` runs ten rounds; the suite runs as many as ``WORLDPROTOCOL_FAILOVERS`` says.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.failover.cluster import Cluster, Server, eventually, running_cluster
from tests.failover.writing import WRITERS, bank, transfers
from tests.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import WorldProtocolError
from world.log import NewEvent, open_log
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

pytestmark = pytest.mark.slow

CHECKOUT = Path(__file__).resolve().parents[2]
ROUNDS = int(os.environ.get("WORLDPROTOCOL_FAILOVERS", "3"))
PROCESSES = 4
EACH = 4
"""Intents that one writer submits in a round; the primary is killed after a quarter of all."""


@dataclass
class Writers:
    """Processes of writers, which live through all rounds.

    Args:
        folder: of what they acknowledge and of the effects they make.
        processes: the processes.
    """

    folder: Path
    processes: list[subprocess.Popen[str]]

    def lines(self, name: str) -> list[str]:
        """Return the lines of a file of theirs."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def start(self) -> None:
        """Have each writer submit its intents."""
        for one in self.processes:
            assert one.stdin is not None
            one.stdin.write(f"{EACH}\n")
            one.stdin.flush()

    def wait(self) -> list[str]:
        """Wait until all are acknowledged; return what was repeated, by process."""
        answers = []
        for one in self.processes:
            assert one.stdout is not None
            answers.append(one.stdout.readline())
            assert answers[-1].startswith("done"), one.poll()
        return answers


@contextlib.contextmanager
def running_writers(address: str, folder: Path) -> Iterator[Writers]:
    command = [sys.executable, "-m", "tests.failover.writing", address, str(folder)]
    processes: list[subprocess.Popen[str]] = []
    try:
        for number in range(PROCESSES):
            processes.append(
                subprocess.Popen(
                    [*command, f"p{number}"], cwd=CHECKOUT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            )
        for one in processes:
            assert one.stdout is not None
            assert one.stdout.readline() == "open\n"
        yield Writers(folder, processes)
        for one in processes:
            one.communicate(timeout=PATIENCE_S)
            assert one.returncode == 0
    finally:
        for one in processes:
            one.kill()
            one.wait()


def check_round(address: str, writers: Writers, issued: int) -> int:
    """Compare the log with what was acknowledged and with the effects; return the writer epoch."""
    acknowledged = dict(line.split() for line in writers.lines("acknowledged"))
    made = Counter(writers.lines("effects"))
    assert len(acknowledged) == issued
    assert [key for key, count in made.items() if count > 1] == []
    with open_to_recheck(address, domain=bank) as realm:
        audit = verify(realm.log)
        assert audit.findings == ()
        assert recheck(realm).first is None
        found = {one.intent_id: one for one in proposals(realm)}
        assert set(acknowledged) <= set(found)
        return 0
