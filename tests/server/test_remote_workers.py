"""Remote workers: claims over HTTP belong to the verified actor, are repeated safely, and survive killed processes."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from host import find_effects
from tests.cli.realm import COMMAND, environment
from tests.server.baker import BAKED, KILLED_AT
from tests.server.served import PATH, Served, founded, serving
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectDropped, EffectFulfilled
from worldprotocol import Worker
from worldprotocol.api.executing.remote_effects import RemoteEffects

pytestmark = [pytest.mark.slow, pytest.mark.requirement("HC-journal", "HC-handlers")]

BAKER = Path(__file__).resolve().parent / "baker.py"


def ordered(served: Served, kind: str, number: str) -> str:
    """Submit an order whose effect is offered; return its proposal."""
    body = {
        "type": kind,
        "input": {"item": "bread", "number": number},
        "scopeProposal": {"allowedPaths": [f"orders.{number}"]},
    }
    answer = served.submit("kid", body)
    assert (answer.status_code, answer.json()["status"]) == (202, "executing")
    name: str = answer.json()["proposalId"]
    return name


def claimed(served: Served, actor: str = "mule", key: str | None = None, **more: Any) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    query = {"wait": more.pop("wait")} if "wait" in more else {}
    with served.client(actor) as client:
        body = {"worker": f"{actor}-1", **more}
        return client.post(f"{PATH}/effects:claim", json=body, headers=headers, params=query)


def posted(served: Served, verb: str, actor: str, **body: Any) -> Any:
    with served.client(actor) as client:
        return client.post(f"{PATH}/effects:{verb}", json=body)


def events(served: Served, kind: type) -> list[Any]:
    with served.place.realm() as realm:
        return [event for _, event in realm.events() if isinstance(event, kind)]


def done(value: Any = "shipped") -> dict[str, Any]:
    return {"result": {"value": value}}


@contextmanager
def working(served: Served, folder: Path, *arguments: str, **variables: str) -> Iterator[subprocess.Popen[str]]:
    """Run ``worldctl worker --server``; it is killed at the end where it still runs."""
    token = folder / "token"
    token.write_text(served.place.tokens["mule"] + "\n")
    command = ["worker", "--json", "--server", served.url, "--token-file", str(token), "--handlers", str(BAKER)]
    process = subprocess.Popen(
        [*COMMAND, *command, *arguments],
        cwd=folder,
        env=environment() | {BAKED: str(folder / "baked.txt")} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_a_claim_belongs_to_the_verified_actor_and_other_completions_are_refused_and_recorded(served: Served) -> None:
    name = ordered(served, "order.ship", "c1")
    claim = claimed(served, types=["cart.ship"]).json()["claim"]
    assert (claim["proposalId"], claim["subject"], claim["requirement"]["params"]) == (name, "mule", {"number": "c1"})
    with served.client("aud") as auditor:
        [shown] = auditor.get(f"{PATH}/effects").json()["effects"]
    assert (shown["state"], shown["worker"], shown["token"]) == ("claimed", "mule-1", claim["token"])
    for verb, report in (("heartbeat", {}), ("complete", {"report": done("stolen")})):
        stolen = posted(served, verb, "yak", claim=claim, **report)
        assert (stolen.status_code, stolen.json()["code"]) == (409, "CLAIM_LOST")
        assert stolen.json()["details"]["why"] == "NOT_HOLDER"
    [dropped] = [one for one in events(served, EffectDropped) if one.proposal_id == name]
    assert (dropped.verified.actor_id, dropped.claim.claim_id) == ("yak", claim["claimId"])
    extended = posted(served, "heartbeat", "mule", claim=claim).json()["claim"]
    assert extended["deadline"] >= claim["deadline"]
    answers = [posted(served, "complete", "mule", claim=claim, report=done()) for _ in range(3)]  # two repetitions
    assert {(one.status_code, one.json()["status"]) for one in answers} == {(200, "completed")}
    assert posted(served, "complete", "yak", claim=claim, report=done("again")).json()["code"] == "CLAIM_LOST"
    [fulfilled] = [one for one in events(served, EffectFulfilled) if one.proposal_id == name]
    assert (fulfilled.result.value, fulfilled.verified.actor_id, fulfilled.verified.method) == (
        "shipped",
        "mule",
        "token",
    )
    with served.place.realm() as realm:
        assert realm.data()["orders"]["c1"] == "shipped"
        assert verify(realm.log).ok


def test_a_repeated_claim_returns_the_same_claim_also_at_once(served: Served) -> None:
    name = ordered(served, "order.ship", "c2")
    with ThreadPoolExecutor(6) as pool:
        answers = [one.result() for one in [pool.submit(claimed, served, key="claim-2") for _ in range(6)]]
    claims = {one.json()["claim"]["claimId"] for one in answers}
    assert len(claims) == 1
    assert [one.key for one in events(served, EffectClaimed) if one.proposal_id == name] == ["claim-2"]
    foreign = claimed(served, "yak", key="claim-2")
    own = foreign.json()["claim"]  # the key of another actor is its own
    assert (foreign.status_code, own is None or own["claimId"] not in claims) == (200, True)
    assert posted(served, "complete", "mule", claim=answers[0].json()["claim"], report=done()).status_code == 200


def test_a_claim_that_was_cut_before_its_answer_is_returned_again(served: Served) -> None:
    name = ordered(served, "order.ship", "c3")
    address, body = urlsplit(served.url), json.dumps({"worker": "mule-1"}).encode()
    head = (
        f"POST {PATH}/effects:claim HTTP/1.1\r\nHost: kiosk\r\nAuthorization: Bearer {served.place.tokens['mule']}\r\n"
        f"Content-Type: application/json\r\nIdempotency-Key: claim-3\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port or 80)) as connection:
        connection.sendall(head.encode() + body)  # closed without reading the answer
    claim = claimed(served, key="claim-3").json()["claim"]
    assert claim["proposalId"] == name
    assert len([one for one in events(served, EffectClaimed) if one.proposal_id == name]) == 1
    assert posted(served, "complete", "mule", claim=claim, report=done()).json()["status"] == "completed"


def test_a_claim_waits_for_an_effect_and_a_caller_that_is_gone_claims_nothing(served: Served) -> None:
    address, body = urlsplit(served.url), json.dumps({"worker": "mule-gone"}).encode()
    head = (
        f"POST {PATH}/effects:claim?wait=60 HTTP/1.1\r\nHost: kiosk\r\nContent-Length: {len(body)}\r\n"
        f"Authorization: Bearer {served.place.tokens['mule']}\r\nContent-Type: application/json\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port or 80)) as gone:
        gone.sendall(head.encode() + body)
    assert claimed(served, wait=1).json()["claim"] is None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(claimed, served, wait=60, key="claim-4")
        name = ordered(served, "order.ship", "c4")
        claim = waiting.result().json()["claim"] or claimed(served, wait=60, key="claim-4").json()["claim"]
    assert claim["proposalId"] == name
    assert posted(served, "complete", "mule", claim=claim, report=done()).json()["status"] == "completed"
    assert "mule-gone" not in {one.worker for one in events(served, EffectClaimed)}


def test_claims_and_reports_that_are_none_are_refused(served: Served) -> None:
    ordered(served, "order.ship", "c5")
    claim = claimed(served).json()["claim"]
    for body in (
        {"claim": {}, "report": done()},
        {"claim": claim | {"token": "x"}, "report": done()},
        {"claim": claim, "report": {}},
        {"claim": claim, "report": {"result": {"value": 1}, "more": 1}},
    ):
        refused = posted(served, "complete", "mule", **body)
        assert (refused.status_code, refused.json()["code"]) == (400, "INVALID_VALUE")
    forged = posted(served, "complete", "mule", claim=claim | {"token": 1}, report=done())
    assert (forged.status_code, forged.json()["details"]["why"]) == (409, "NOT_HOLDER")
    assert posted(served, "complete", "mule", claim=claim, report=done()).json()["status"] == "completed"


def test_the_worker_command_performs_the_effects_of_a_server(served: Served, tmp_path: Path) -> None:
    names = [ordered(served, "order.bake", f"w{number}") for number in range(3)]
    with working(served, tmp_path, "--once", "--types", "oven.bake") as process:
        out, err = process.communicate()
    assert process.returncode == 0, err
    lines = [json.loads(line) for line in out.splitlines()]
    assert lines[-1]["completed"] == 3
    assert {one["proposalId"] for one in lines[:-1]} == set(names)
    with served.place.realm() as realm:
        assert {realm.data()["orders"][f"w{number}"] for number in range(3)} == {"baked bread"}
        assert verify(realm.log).ok


def test_a_worker_that_was_killed_loses_no_effect(served: Served, tmp_path: Path) -> None:
    names = [ordered(served, "order.bake", f"k{number}") for number in range(3)]
    with working(served, tmp_path, "--types", "oven.bake", **{KILLED_AT: "2"}) as process:
        process.communicate()
    assert process.returncode == -9
    with served.client("bot") as client, working(served, tmp_path, "--types", "oven.bake"):
        for name in names:
            status = None
            while status != "completed":  # the claim of the killed worker has to lapse
                status = client.get(f"{PATH}/proposals/{name}", params={"wait": 60}).json()["status"]
    made = Counter((tmp_path / "baked.txt").read_text().splitlines())
    assert len(made) == 3
    assert made.total() == 4  # the one under way was made again, under the same key
    with served.place.realm() as realm:
        assert verify(realm.log).ok


def test_what_a_killed_worker_left_in_doubt_is_looked_up_by_the_next(served: Served, tmp_path: Path) -> None:
    name = ordered(served, "order.send", "d1")
    with working(served, tmp_path, "--types", "pigeon.send", **{KILLED_AT: "1"}) as process:
        process.communicate()
    assert process.returncode == -9
    with served.client("bot") as client, working(served, tmp_path, "--types", "pigeon.send"):
        status = None
        while status != "completed":  # the claim of the killed worker has to lapse
            status = client.get(f"{PATH}/proposals/{name}", params={"wait": 60}).json()["status"]
    assert len((tmp_path / "baked.txt").read_text().splitlines()) == 1  # it was not sent again
    [fulfilled] = [one for one in events(served, EffectFulfilled) if one.proposal_id == name]
    assert (fulfilled.looked_up, fulfilled.verified.actor_id, fulfilled.claim) == (True, "mule", None)
    with served.place.realm() as realm:
        assert realm.data()["orders"]["d1"] == "found d1"
        assert verify(realm.log).ok


def test_a_worker_goes_on_after_its_server_was_killed(tmp_path: Path) -> None:
    place = founded(tmp_path, server="max_wait_s = 60")
    with serving(place) as served:
        port = str(urlsplit(served.url).port)
        name = ordered(served, "order.ship", "s1")
        reached, may_end = threading.Event(), threading.Event()

        def ship(_params: Any, _call: Any) -> str:
            reached.set()
            may_end.wait(PATIENCE_S)
            return "shipped"

        from worldprotocol import handler

        effects = find_effects(entry_points=False)
        effects.add(handler("cart.ship", time_limit_ms=600_000)(ship))
        source = RemoteEffects(served.url, "main", place.tokens["mule"], effects)
        worker = Worker(source, types=["cart.ship"], name="mule-1")
        ended: list[Any] = []
        thread = threading.Thread(target=lambda: ended.append(worker.run()), daemon=True)
        thread.start()
        assert reached.wait(PATIENCE_S)
        served.process.kill()
        served.process.wait()
        may_end.set()
    with serving(place, "--port", port) as served, served.client("bot") as client:
        status = None
        while status != "completed":
            status = client.get(f"{PATH}/proposals/{name}", params={"wait": 60}).json()["status"]
        worker.stop()
        thread.join(PATIENCE_S)
    source.__exit__()
    assert ended[0].completed == 1
    with place.realm() as realm:
        assert realm.data()["orders"] == {"s1": "shipped"}
        assert verify(realm.log).ok


def test_a_worker_is_refused_what_is_wrong_with_its_server_or_token(served: Served, tmp_path: Path) -> None:
    effects = find_effects([f"{BAKER}:bake"], entry_points=False)

    def refusal(server: str, token: str) -> str:
        with RemoteEffects(server, "main", token, effects) as source, pytest.raises(RefusedError) as refused:
            Worker(source, types=["oven.bake"]).run(once=True)
        return str(refused.value.code)

    assert refusal(served.url, served.place.tokens["bot"]) == "RIGHT_MISSING"
    assert refusal(served.url, "wp1_x_y") == "TOKEN_NOT_VALID"
    assert refusal("http://127.0.0.1:1", "t") == "LOG_UNAVAILABLE"
    for address in ("http://elsewhere.example", "ftp://127.0.0.1", "nothing", "https://"):
        with pytest.raises(RefusedError) as refused:
            RemoteEffects(address, "main", "t", effects)
        assert refused.value.code == "INVALID_ADDRESS"
    with working(served, tmp_path, "--workspace", str(tmp_path)) as process:
        assert "leave it out with --server" in process.communicate()[1]
