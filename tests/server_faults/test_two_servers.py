"""Two servers on one PostgreSQL, one of which is killed: no effect is lost or made twice, and no position is missed."""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.server.kiosk import GATE
from tests.server.served import ORDER, PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.events.proposal_events import ProposalSubmitted
from worldprotocol.api.callers.keyed import key_of

pytestmark = pytest.mark.slow

CLIENTS = 8
"""Callers of each server."""

EACH = 6
"""Orders of each caller; every third one is paid, by an effect."""

WAIT_S = 5
"""Seconds that a submission waits at most; what the killed server was performing is in doubt only a minute later."""

TOTAL = 2 * CLIENTS * EACH
BEFORE_KILL = TOTAL // 3


class Pair:
    """Two servers, of which the second is killed once enough intents are acknowledged."""

    def __init__(self, kept: Served, killed: Served) -> None:
        self.kept = kept
        self.killed = killed
        self.acknowledged: dict[str, str] = {}
        self.is_over = False
        self._mutex = threading.Lock()
        self._is_killed = threading.Event()

    def end(self) -> None:
        """End what still runs, so that nothing waits for what a failed writer did not submit."""
        self.is_over = True
        self._is_killed.set()
        for served in (self.kept, self.killed):
            served.process.kill()

    def write(self, server: int, client: int) -> None:
        """Submit the orders of one client, repeated at the other server where one is gone."""
        served = (self.kept, self.killed)[server]
        for number in range(EACH):
            key = f"c{server}-{client}-{number}"
            order = ORDER | {
                "type": "order.place" if number % 3 else "order.pay",
                "input": {"item": key, "number": key},
                "scopeProposal": {"allowedPaths": [f"orders.{key}"]},
            }
            try:
                answer = served.submit("kid", order, key, wait=WAIT_S)
            except httpx.TransportError:
                assert self._is_killed.wait(PATIENCE_S)
                served = self.kept
                answer = served.submit("kid", order, key, wait=WAIT_S)
            assert answer.status_code in (200, 202), answer.text
            with self._mutex:
                self.acknowledged[key] = answer.json()["proposalId"]
                if len(self.acknowledged) == BEFORE_KILL:
                    self.killed.process.send_signal(signal.SIGKILL)
                    self._is_killed.set()

    def read(self, server: int, submitted: int) -> list[int]:
        """Return the positions that a reader saw until so many intents; it resumes at the other server."""
        served, seen, found = (self.kept, self.killed)[server], [0], 0
        while found < submitted and not self.is_over:
            position, headers = 0, {"Last-Event-ID": str(seen[-1])}
            try:
                with (
                    served.client("bot") as bot,
                    bot.stream("GET", f"{PATH}/log/stream", headers=headers) as stream,
                ):
                    for line in stream.iter_lines():
                        if line.startswith("id: "):
                            position = int(line[4:])
                        elif line.startswith("data: "):
                            seen.append(position)
                            found += json.loads(line[6:])["topic"] == "proposal.submitted"
                            if found == submitted:
                                break
            except httpx.TransportError:
                assert self._is_killed.wait(PATIENCE_S)
                served = self.kept
        return seen


def test_two_servers_of_which_one_is_killed_lose_and_repeat_nothing(postgres_url: str, tmp_path: Path) -> None:
    limits = "requests_per_second = 100000\nburst = 100000"
    place = founded(tmp_path, f"{postgres_url}#killed-{tmp_path.name}", server=limits)
    gate = tmp_path / "gate"
    gate.touch()  # effects end at once
    with (
        serving(place, **{GATE: str(gate)}) as kept,
        serving(place, **{GATE: str(gate)}) as killed,
        ThreadPoolExecutor(2 * CLIENTS + 2) as pool,
    ):
        pair = Pair(kept, killed)
        try:
            readers = [pool.submit(pair.read, server, TOTAL) for server in (0, 1)]
            writers = [pool.submit(pair.write, server, client) for server in (0, 1) for client in range(CLIENTS)]
            for writer in writers:
                writer.result(PATIENCE_S)
            seen = [reader.result(PATIENCE_S) for reader in readers]
            assert killed.process.wait() == -signal.SIGKILL
            assert kept.process.poll() is None
        finally:
            pair.end()
    assert len(pair.acknowledged) == TOTAL
    for positions in seen:
        assert positions == list(range(len(positions)))
    with place.realm() as realm:
        submitted = [
            (key_of(event), event.proposal_id) for _, event in realm.events() if isinstance(event, ProposalSubmitted)
        ]
        assert sorted(submitted) == sorted(pair.acknowledged.items())
        statuses = {key: realm.proposal(name).status for key, name in submitted}
        orders = realm.data()["orders"]
        assert verify(realm.log).ok
    charged = Counter((tmp_path / "gate.charged").read_text().split())
    assert set(charged.values()) == {1}
    in_doubt = {key for key, status in statuses.items() if status != "completed"}
    assert orders == {key: key for key in pair.acknowledged if key not in in_doubt}
    paid = {key for key in pair.acknowledged if int(key.rpartition("-")[2]) % 3 == 0}
    assert in_doubt <= paid  # an effect that the killed server performed waits for a person
    assert charged.keys() >= paid - in_doubt
