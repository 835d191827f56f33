"""Connections that are cut: before an answer, at each byte of a request, at each byte of an answer."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest

from tests.plugins.forms import scaled
from tests.server.served import NO_TLS, ORDER, PATH, Served
from tests.server.test_repeated_requests import REPEATED, key_of, order, posted
from tests.server_faults.cutting import abort, cutting
from tests.server_faults.wire import connected, exchanged, request
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.events.proposal_events import ProposalSubmitted

pytestmark = pytest.mark.slow


STOPPED = {"commands.run"}
"""Operations that are stopped before they write when their caller is gone, so that a repetition may be the first."""


def size(served: Served) -> int:
    with served.place.realm() as realm:
        return realm.log.head().size


def submitted(served: Served) -> list[str]:
    """Return the keys of all submitted intents."""
    with served.place.realm() as realm:
        return [key_of(event) or "" for _, event in realm.events() if isinstance(event, ProposalSubmitted)]


@pytest.mark.cases_in_ci(4)
@pytest.mark.parametrize("name", REPEATED)
def test_a_request_whose_answer_was_lost_has_one_effect_when_it_is_repeated(served: Served, name: str) -> None:
    case, key = REPEATED[name](served), f"cut-{name}"
    headers = {"Authorization": f"Bearer {served.place.tokens[case.actor]}", "Idempotency-Key": key}
    with cutting(served.url) as cutter:
        for cutter.after in (0, 40):  # the second request is a repetition already
            with (
                httpx.Client(
                    base_url=cutter.url, headers=headers, timeout=60, trust_env=False, verify=NO_TLS
                ) as client,
                pytest.raises((httpx.RemoteProtocolError, httpx.ReadError)),
            ):
                client.post(f"{PATH}{case.path}", json=case.body)
        assert cutter.cuts == 2
    done = size(served)
    again = posted(served, case.actor, case.path, key, case.body)
    assert again.status_code in (200, 201, 202), again.text
    with served.place.realm() as realm:
        events: list[tuple[int, Any]] = list(realm.events())
    if name not in STOPPED:  # what the passing of time records has no caller
        assert all(getattr(event, "verified", None) is None for position, event in events if position > done)
    if case.kind is not None:
        found = [event for _, event in events if isinstance(event, case.kind)]
        assert sum(key_of(one) == key for one in found) == case.events


def test_a_request_that_is_cut_at_any_byte_is_not_performed(served: Served) -> None:
    body = json.dumps(order("cut-request")).encode()
    data = request(served, "POST", f"{PATH}/intents", "Idempotency-Key: cut-request", body=body, actor="kid")
    for place in range(0, len(data), scaled(1, ci=9)):  # an odd step, so that every other connection is aborted
        with connected(served) as connection:
            connection.sendall(data[:place])
            if place % 2:
                abort(connection)
    [answer] = exchanged(served, request(served, "GET", "/healthz", "Connection: close"))
    assert answer.status == 200
    assert submitted(served).count("cut-request") == 0
    answer = exchanged(served, data.replace(b"Host:", b"Connection: close\r\nHost:"))[0]
    assert (answer.status, answer.json["status"]) == (200, "completed")


def test_an_answer_that_is_cut_at_any_byte_leaves_one_proposal(served: Served) -> None:
    body = json.dumps(order("cut-answer")).encode()
    data = request(served, "POST", f"{PATH}/intents", "Idempotency-Key: cut-answer", body=body, actor="kid")
    with connected(served) as connection:
        connection.sendall(data)
        length = len(connection.recv(65_536))
    for place in range(0, length, scaled(7, ci=70)):
        with connected(served) as connection:
            connection.sendall(data)
            taken = 0
            while taken < place:
                taken += len(connection.recv(place - taken))
            abort(connection)
    assert submitted(served).count("cut-answer") == 1
    with served.place.realm() as realm:
        assert verify(realm.log).ok


def test_streams_that_are_cut_are_forgotten(served: Served) -> None:
    follow = request(served, "GET", f"{PATH}/log/stream?after=0", actor="bot")
    with served.client("bot") as bot:
        waiting = request(served, "GET", bot.post(f"{PATH}/intents", json=ORDER).headers["location"] + "?wait=60")
    for data in (follow, waiting):
        for _ in range(20):
            with connected(served) as connection:
                connection.sendall(data)
                if data is follow:
                    connection.recv(1_000)
                abort(connection)
    with served.client("all") as client:

        def waits() -> float:
            lines = client.get("/metrics").text.splitlines()
            return float(next(line for line in lines if line.startswith("worldprotocol_waiting_requests ")).split()[1])

        end = time.monotonic() + PATIENCE_S
        while waits():  # a reader is forgotten when its connection ends, not at its next event
            assert time.monotonic() < end
