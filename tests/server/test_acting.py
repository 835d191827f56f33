"""Acting over HTTP: two people, waiting, repeated and cut requests, a killed and a drained server."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.server.kiosk import GATE
from tests.server.served import ORDER, PATH, Served, founded, serving, stopped
from tests.support.patience import until
from world.audit.verify import verify
from world.events.proposal_events import HumanAnswered, ProposalSubmitted
from world.events.verification import Verification
from worldprotocol.api.callers.keyed import key_of

WRITERS = 64
"""Callers at once while the server is killed."""

BEFORE_KILL = 150
"""Acknowledged intents after which the server is killed."""


def order(number: str, item: str = "tea") -> dict[str, Any]:
    return ORDER | {"input": {"item": item, "number": number}}


def carried(served: Served, key: str) -> list[str]:
    """Return the proposals that were submitted with a key, from the log."""
    with served.place.realm() as realm:
        submitted = [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)]
    return [one.proposal_id for one in submitted if key_of(one) == key]


def test_one_person_asks_and_another_approves_more_narrowly(served: Served) -> None:
    with served.client("bot") as bot, served.client("ann") as ann, served.client("bob") as bob:
        asked = bot.post(f"{PATH}/intents", json=order("n1", "cake"))
        assert asked.status_code == 202
        name = asked.json()["proposalId"]
        (entry,) = [one for one in ann.get(f"{PATH}/inbox").json()["inbox"] if one["proposalId"] == name]
        assert entry["preview"]["changes"] == [{"path": "orders.n1", "after": "cake"}]
        assert [one["resource"] for one in entry["preview"]["leases"]] == ["STATE:/main/orders/*"]
        assert entry["rules"] == []
        assert entry["deadline"] is not None
        own = bot.post(f"{PATH}/proposals/{name}:answer", json={"choice": "approve"})
        assert (own.status_code, own.json()["code"]) == (403, "OWN_PROPOSAL")
        narrow = {"choice": "narrow", "scope": {"allowedPaths": ["orders.n1"]}, "reason": "only this one"}
        done = ann.post(f"{PATH}/proposals/{name}:answer", json=narrow).json()
        assert (done["status"], done["approvedScope"]) == ("completed", {"allowedPaths": ["orders.n1"]})
        late = bob.post(f"{PATH}/proposals/{name}:answer", json={"choice": "reject"})
        assert (late.status_code, late.json()["code"]) == (409, "NOT_WAITING")
        state = bot.get(f"{PATH}/worlds/HEAD/state", params={"path": "orders.n1"})
        assert state.json()["value"] == "cake"
        again = bot.get(f"{PATH}/worlds/HEAD/state", headers={"If-None-Match": state.headers["etag"]})
        assert (again.status_code, again.headers["etag"]) == (304, f'"{done["worldId"]}"')
        blamed = bot.get(f"{PATH}/worlds/{done['worldId']}/blame", params={"path": "orders.n1"}).json()
        assert json.dumps(blamed).count(name)
    with served.place.realm() as realm:
        events = [event for _, event in realm.events() if getattr(event, "proposal_id", None) == name]
    methods = [(type(one), one.verified) for one in events if isinstance(one, ProposalSubmitted | HumanAnswered)]
    assert [(kind, one.method, one.actor_id) for kind, one in methods if isinstance(one, Verification)] == [
        (ProposalSubmitted, "token", "bot"),
        (HumanAnswered, "token", "ann"),
    ]


def test_an_asker_who_may_approve_cannot_answer_the_own_question(served: Served) -> None:
    with served.client("ops") as ops, served.client("all") as caller:
        name = served.submit("bot", order("n2")).json()["proposalId"]
        refused = ops.post(f"{PATH}/proposals/{name}:answer", json={"choice": "approve"})
        assert refused.json()["code"] == "RIGHT_MISSING"
        not_asked = caller.post(f"{PATH}/proposals/{name}:answer", json={"choice": "approve"})
        assert (not_asked.status_code, not_asked.json()["code"]) == (403, "NOT_ASKED")


def test_an_intent_that_the_caller_issued_for_another_actor_is_refused(served: Served) -> None:
    issued = served.submit("bot", order("n3")).json()["intent"]
    stolen = issued | {"intentId": "stolen-1"}
    refused = served.submit("kid", stolen)
    assert (refused.status_code, refused.json()["code"]) == (403, "NOT_THE_VERIFIED_ACTOR")


def test_a_request_that_waits_is_answered_when_the_decision_is_made(served: Served) -> None:
    with ThreadPoolExecutor(2) as pool, served.client("ann") as ann:
        waiting = pool.submit(lambda: served.submit("bot", order("n4"), wait=60, key="waits-1"))

        def asked() -> list[str]:
            listed = ann.get(f"{PATH}/inbox").json()["inbox"]
            return [one["proposalId"] for one in listed if one["wants"]["input"]["number"] == "n4"]

        [name] = until(asked)
        ann.post(f"{PATH}/proposals/{name}:answer", json={"choice": "reject", "reason": "no"})
        answer = waiting.result()
    assert (answer.status_code, answer.json()["status"]) in {(200, "rejected"), (202, "evaluating")}
    assert answer.json()["proposalId"] == name
    with served.client("bot") as bot:
        assert bot.get(f"{PATH}/proposals/{name}", params={"wait": 60}).json()["status"] == "rejected"


def test_a_repeated_request_has_one_effect_also_at_once(served: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = [one.result() for one in [pool.submit(served.submit, "kid", order("k1"), "key-1") for _ in range(8)]]
    assert {one.status_code for one in answers} == {200}
    [intent_id] = {one.json()["intent"]["intentId"] for one in answers}
    assert intent_id != "key-1"
    assert [answers[0].json()["proposalId"]] == carried(served, "key-1")
    other = served.submit("kid", order("k2"), "key-1")
    assert (other.status_code, other.json()["code"]) == (409, "IDEMPOTENCY_CONFLICT")
    foreign = served.submit("all", order("k1"), "key-1")
    assert (foreign.status_code, foreign.json()["actor"]["actorId"]) == (200, "all")
    assert foreign.json()["proposalId"] != answers[0].json()["proposalId"]


def test_a_request_that_was_cut_before_its_answer_has_one_effect(served: Served) -> None:
    address = urlsplit(served.url)
    body = json.dumps(order("cut")).encode()
    head = (
        f"POST {PATH}/intents HTTP/1.1\r\nHost: kiosk\r\nAuthorization: Bearer {served.place.tokens['kid']}\r\n"
        f"Content-Type: application/json\r\nIdempotency-Key: cut-1\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port or 80)) as connection:
        connection.sendall(head.encode() + body)  # closed without reading the answer
    answers = [served.submit("kid", order("cut"), "cut-1") for _ in range(3)]
    assert {one.status_code for one in answers} == {200}
    assert {one.json()["proposalId"] for one in answers} == set(carried(served, "cut-1"))
    assert len(carried(served, "cut-1")) == 1


def test_a_source_event_is_projected_once_for_each_key(served: Served) -> None:
    event = {"kind": "api", "eventId": "mail-1", "payload": {"item": "bread"}}
    with served.client("kid") as kid:
        answers = [kid.post(f"{PATH}/events", json=event, headers={"Idempotency-Key": "mail-key-1"}) for _ in range(3)]
        assert [one.status_code for one in answers] == [200] * 3
        assert {one.json()["proposal"]["proposalId"] for one in answers} == set(carried(served, "mail-key-1"))
        other = kid.post(
            f"{PATH}/events", json=event | {"eventId": "mail-2"}, headers={"Idempotency-Key": "mail-key-1"}
        )
        assert other.json()["code"] == "IDEMPOTENCY_CONFLICT"
        nothing = kid.post(f"{PATH}/events", json={"kind": "api", "eventId": "mail-3", "payload": {}})
        assert nothing.json() == {"projectionId": "mail", "reason": "no order", "proposal": None}


def test_lists_of_proposals_are_filtered_and_go_on_from_their_cursor(served: Served) -> None:
    for number in range(5):
        served.submit("kid", order(f"page{number}"))
    with served.client("bot") as bot, served.client("kid") as kid:
        after, names = 0, []
        while after is not None:
            page = bot.get(f"{PATH}/proposals", params={"limit": 2, "after": after, "actor": "kid"}).json()
            assert len(page["proposals"]) <= 2
            names += [one["proposalId"] for one in page["proposals"]]
            after = page["next"]
        assert len(names) == len(set(names)) >= 5
        done = bot.get(f"{PATH}/proposals", params={"actor": "kid", "status": "completed"}).json()["proposals"]
        assert [one["proposalId"] for one in done] == names
        own = kid.get(f"{PATH}/proposals", params={"limit": 500}).json()["proposals"]  # kid only acts
        assert {one["actor"]["actorId"] for one in own} == {"kid"}
        bots = bot.get(f"{PATH}/proposals", params={"actor": "bot"}).json()["proposals"]
        for one in bots:
            hidden = kid.get(f"{PATH}/proposals/{one['proposalId']}")
            assert (hidden.status_code, hidden.json()["code"]) == (404, "UNKNOWN_PROPOSAL")


def test_leases_are_of_the_caller_and_fenced(served: Served) -> None:
    with served.client("kid") as kid, served.client("bot") as bot, served.client("ops") as ops:
        wanted = {"resources": ["FILE:/till"], "sessionId": "s-kid"}
        granted = kid.post(f"{PATH}/leases", json=wanted).json()
        (lease,) = granted["leases"]
        assert (granted["status"], granted["agentId"]) == ("Granted", "kid")
        other = bot.post(f"{PATH}/leases", json=wanted | {"sessionId": "s-bot"})
        assert other.json()["status"] in {"Wait", "Die"}
        assert other.json()["conflicts"][0]["holder"] == "kid"
        (shown,) = bot.get(f"{PATH}/leases").json()["leases"]
        assert (shown["leaseId"], shown["token"]) == (lease["leaseId"], lease["token"])
        beat = {"leaseIds": [lease["leaseId"]], "sessionId": "s-kid"}
        assert kid.post(f"{PATH}/leases:heartbeat", json=beat).status_code == 200
        stolen = bot.post(f"{PATH}/leases:release", json=beat)
        assert (stolen.status_code, stolen.json()["code"]) == (409, "NOT_THE_HOLDER")
        revoked = ops.post(f"{PATH}/leases:revoke", json={"leaseIds": [lease["leaseId"]], "reason": "over"})
        assert revoked.json()["states"] == {lease["leaseId"]: "Revoked"}
        manifest = {"ver": "1.0", "agent_id": "bot", "session_id": "s", "scope": []}
        named = kid.post(f"{PATH}/leases", json={"manifest": manifest})
        assert named.status_code in {400, 401, 403}


@pytest.mark.slow
def test_what_a_killed_server_acknowledged_is_in_the_log(tmp_path: Path) -> None:
    place = founded(tmp_path, server="requests_per_second = 100000\nburst = 100000")
    acknowledged: dict[str, str] = {}
    enough, mutex = threading.Event(), threading.Lock()

    def write(served: Served, writer: int) -> None:
        with served.client("kid") as client:
            for number in range(1_000):
                key = f"w{writer}-{number}"
                try:
                    answer = client.post(f"{PATH}/intents", json=order(key), headers={"Idempotency-Key": key})
                except httpx.HTTPError:
                    return
                with mutex:
                    assert answer.status_code == 200, answer.text
                    acknowledged[key] = answer.json()["proposalId"]
                    if len(acknowledged) >= BEFORE_KILL:
                        enough.set()

    with serving(place) as served, ThreadPoolExecutor(WRITERS) as pool:
        writers = [pool.submit(write, served, number) for number in range(WRITERS)]
        assert enough.wait(300)
        served.process.send_signal(signal.SIGKILL)
        for one in writers:
            one.result()
    assert len(acknowledged) >= BEFORE_KILL
    with serving(place) as served:
        key, proposal = next(iter(acknowledged.items()))
        assert served.submit("kid", order(key), key).json()["proposalId"] == proposal
        assert stopped(served) == 0
    with place.realm() as realm:
        submitted = {
            key_of(event): event.proposal_id for _, event in realm.events() if isinstance(event, ProposalSubmitted)
        }
        assert acknowledged.items() <= submitted.items()
        assert len(submitted) == len(set(submitted.values()))
        assert all(realm.proposal(name).status == "completed" for name in acknowledged.values())
        assert verify(realm.log).ok


@pytest.mark.slow
def test_sigterm_drains_effects_and_waits(tmp_path: Path) -> None:
    place, gate = founded(tmp_path, server="max_wait_s = 60"), tmp_path / "gate"
    with serving(place, **{GATE: str(gate)}) as served, ThreadPoolExecutor(3) as pool:
        waits = pool.submit(lambda: served.submit("bot", order("drained"), wait=60))
        with served.client("bot") as bot, bot.stream("GET", f"{PATH}/log/stream", params={"after": 0}) as stream:
            lines = stream.iter_lines()
            next(line for line in lines if line == "event: proposal.submitted")  # the request waits
            pays = pool.submit(lambda: served.submit("kid", {**order("paid"), "type": "order.pay"}, key="paid-1"))
            next(line for line in lines if line == "event: effect.requested")
            os.kill(served.process.pid, signal.SIGTERM)
            answer = waits.result()
            assert (answer.status_code, answer.json()["status"]) == (202, "evaluating")
            list(lines)  # the stream ends
        gate.touch()
        assert pays.result().json()["status"] == "completed"
        assert served.process.wait(60) == 0
    with place.realm() as realm:
        assert realm.data()["orders"] == {"paid": "tea"}
        assert verify(realm.log).ok
