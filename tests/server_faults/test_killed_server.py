"""A server that is killed under load: what was acknowledged is in the log once, and repeated requests find it."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.plugins.forms import scaled
from tests.server.served import ORDER, PATH, Served, founded, serving, stopped
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.events.proposal_events import ProposalSubmitted
from worldprotocol.api.callers.keyed import key_of

pytestmark = pytest.mark.slow

WRITERS = 64
ROUNDS = scaled(4, ci=2)
BEFORE_KILL = 100
"""Acknowledged intents of a round, after which the server is killed."""


class Load:
    """Writers that repeat each request until it is acknowledged, by whichever server runs."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, str] = {}
        self.repeated: Counter[str] = Counter()
        self.is_over = False
        self._server: Served | None = None
        self._changed = threading.Condition()

    def serve(self, served: Served | None) -> None:
        """Name the server that runs."""
        with self._changed:
            self._server = served
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        """Wait until so many intents are acknowledged in all."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.acknowledged) >= count, PATIENCE_S)

    def write(self, writer: int) -> None:
        """Submit intents one after the other, until the load is over."""
        number = 0
        while not self.is_over:
            key = f"w{writer}-{number}"
            self._submit(key)
            number += 1

    def _wait_for_another(self, served: Served) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._server is not served or self.is_over, PATIENCE_S)

    def _submit(self, key: str) -> None:
        order = ORDER | {"input": {"item": key, "number": key}, "scopeProposal": {"allowedPaths": [f"orders.{key}"]}}
        while True:
            with self._changed:
                assert self._changed.wait_for(lambda: self._server is not None or self.is_over, PATIENCE_S)
                served = self._server
            if served is None:
                return
            try:
                answer = served.submit("kid", order, key)
            except httpx.TransportError:
                self.repeated[key] += 1
                if served.process.poll() is not None:  # otherwise it was too slow once
                    self._wait_for_another(served)
                continue
            assert (answer.status_code, answer.json()["status"]) == (200, "completed"), answer.text
            with self._changed:
                self.acknowledged[key] = answer.json()["proposalId"]
                self._changed.notify_all()
            return


def test_what_a_killed_server_acknowledged_is_in_the_log_once(tmp_path: Path) -> None:
    place = founded(tmp_path, server="requests_per_second = 100000\nburst = 100000")
    load = Load()
    with ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(load.write, number) for number in range(WRITERS)]
        try:
            for number in range(1, ROUNDS + 1):
                with serving(place) as served:  # also over the socket that the killed one left
                    load.serve(served)
                    load.wait_for(number * BEFORE_KILL)
                    served.process.send_signal(signal.SIGKILL)
                    served.process.wait()
                load.serve(None)
            with serving(place) as served:
                load.serve(served)
                load.wait_for((ROUNDS + 1) * BEFORE_KILL)
                load.is_over = True
                for one in writers:
                    one.result(PATIENCE_S)
                proposal = next(iter(load.acknowledged.values()))
                with served.client("kid") as client:
                    assert client.get(f"{PATH}/proposals/{proposal}").json()["proposalId"] == proposal
                assert stopped(served) == 0
        finally:
            load.is_over = True
            load.serve(None)
    assert len(load.repeated) >= ROUNDS  # requests were running at each kill
    with place.realm() as realm:
        submitted = [
            (key_of(event), event.proposal_id) for _, event in realm.events() if isinstance(event, ProposalSubmitted)
        ]
        assert sorted(submitted) == sorted(load.acknowledged.items())
        assert realm.data()["orders"] == {key: key for key in load.acknowledged}
        assert all(realm.proposal(name).status == "completed" for name in load.acknowledged.values())
        assert verify(realm.log).ok
