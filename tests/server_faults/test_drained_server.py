"""A server that is told to stop: running requests are answered and recorded, new ones are refused, streams end."""

from __future__ import annotations

import itertools
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.server.kiosk import GATE
from tests.server.served import ORDER, PATH, founded, serving
from tests.server_faults.wire import connected, read_answer, request
from world.audit.verify import verify
from worldprotocol.server.operation_table import OPERATIONS

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "signals",
    [
        [signal.SIGTERM],
        pytest.param([signal.SIGINT], marks=pytest.mark.slow),
        pytest.param([signal.SIGTERM] * 3, marks=pytest.mark.slow),
        pytest.param([signal.SIGINT] * 2, marks=pytest.mark.slow),
    ],
)
def test_a_stopping_server_ends_what_runs_and_refuses_what_is_new(tmp_path: Path, signals: list[int]) -> None:
    place, gate = founded(tmp_path), tmp_path / "gate"
    pay = ORDER | {"type": "order.pay", "input": {"item": "tea", "number": "paid"}}
    with serving(place, **{GATE: str(gate)}) as served, ThreadPoolExecutor(2) as pool:
        with served.client("bot") as bot, bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
            lines = stream.iter_lines()
            waits = pool.submit(served.submit, "bot", ORDER, "waits-1", wait=60)
            next(line for line in lines if line == "event: proposal.submitted")
            pays = pool.submit(served.submit, "kid", pay, "paid-1")
            next(line for line in lines if line == "event: effect.requested")
            with connected(served) as opened, opened.makefile("rb") as received:
                opened.sendall(request(served, "GET", PATH))
                assert read_answer(received) is not None  # the connection is in use before the signal
                for number in signals:
                    os.kill(served.process.pid, number)
                assert list(lines)[-1] == ""  # the stream ends with a whole event, and with the end of its answer
                answer = waits.result()
                assert (answer.status_code, answer.json()["status"]) == (202, "evaluating")
                opened.sendall(request(served, "POST", f"{PATH}/intents", body=b"{}"))
                refused = read_answer(received)
            assert refused is not None
            assert (refused.status, refused.json["code"]) == (503, "SERVER_STOPPING")
            assert (refused.headers["retry-after"], refused.headers["connection"]) == ("1", "close")
        with served.client("all") as client:  # on new connections: every operation, but the one about the process
            statuses = {one.name: client.request(one.method, one.path).status_code for one in OPERATIONS.values()}
        assert statuses == dict.fromkeys(OPERATIONS, 503) | {"server.health": 200}
        assert not pays.done()
        assert served.process.poll() is None
        gate.touch()
        assert pays.result().json()["status"] == "completed"
        assert served.process.wait(60) == 0
        with pytest.raises(httpx.ConnectError), served.client("all") as client:
            client.get(PATH)
        assert served.socket is not None
        assert not Path(served.socket).exists()
    with place.realm() as realm:
        assert realm.data()["orders"] == {"paid": "tea"}
        assert verify(realm.log).ok


def test_what_is_not_answered_in_time_is_recorded_all_the_same(tmp_path: Path) -> None:
    place, gate = founded(tmp_path, server="drain_timeout_s = 1"), tmp_path / "gate"
    pay = ORDER | {"type": "order.pay", "input": {"item": "tea", "number": "late"}}
    with serving(place, **{GATE: str(gate)}) as served, ThreadPoolExecutor(1) as pool:
        pays = pool.submit(served.submit, "kid", pay, "late-1")
        with served.client("bot") as bot, bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
            next(line for line in stream.iter_lines() if line == "event: effect.requested")
        served.process.send_signal(signal.SIGTERM)
        given_up = pays.result()
        assert (given_up.status_code, given_up.json()["code"]) == (503, "SERVER_STOPPING")
        assert "Idempotency-Key" in given_up.json()["detail"]
        assert served.process.poll() is None  # the effect runs
        gate.touch()
        assert served.process.wait(60) == 0
    with place.realm() as realm:
        assert realm.data()["orders"] == {"late": "tea"}
    with serving(place) as served:
        again = served.submit("kid", pay, "late-1")
        assert (again.status_code, again.json()["status"]) == (200, "completed")


def test_an_idle_server_stops_with_every_stream_ended(tmp_path: Path) -> None:
    with serving(founded(tmp_path)) as served, served.client("bot") as bot:
        streams = [bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) for _ in range(8)]
        lines = [stream.__enter__().iter_lines() for stream in streams]
        for one in lines:
            list(itertools.islice(one, 4))
        served.process.send_signal(signal.SIGTERM)
        assert [list(one)[-1] for one in lines] == [""] * 8
        assert served.process.wait(60) == 0
        for stream in streams:
            stream.__exit__(None, None, None)
