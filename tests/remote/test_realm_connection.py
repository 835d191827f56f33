"""Lost answers, busy and killed servers, and cut streams: each write has one effect, and each event comes once."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.remote.cutting import Cutter, cutting
from tests.remote.yards import Yard, prepared, yard_of
from tests.server.served import serving
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.execution_events import ExecutionCancelled
from world.events.lease_events import LeasesReleased, VerdictGiven
from world.events.proposal_events import HumanAnswered, ProposalSubmitted
from world.events.realm_events import BranchCreated
from worldprotocol.api.realm import Realm
from worldprotocol.api.remote.connection import ServerConnection
from worldprotocol.api.remote.realm import RemoteRealm

pytestmark = pytest.mark.slow

LOST = 3
"""Answers that are lost in a row."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard_of("tcp", tmp_path_factory.mktemp("cut")) as opened:
        yield opened


@pytest.fixture
def proxy(place: Yard) -> Iterator[Cutter]:
    assert place.served is not None
    with cutting(place.served.url) as running:
        yield running


def connected(place: Yard, proxy: Cutter, actor: str) -> RemoteRealm:
    return Realm.connect(proxy.url, token=place.place.tokens[actor])


def counted(place: Yard, kind: type) -> int:
    with place.reading() as log:
        return sum(isinstance(event, kind) for _, event in log.events())


def _place(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    def act(realm: RemoteRealm) -> Any:
        return realm.act("kid", "order.place", {"item": "tea", "number": "p"}, wait=True).status == "completed"

    return "kid", ProposalSubmitted, act


def _project(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    source = {"kind": "api", "eventId": "mail-cut", "payload": {"item": "tea"}}
    return "kid", ProposalSubmitted, lambda realm: realm.project(source, "kid", wait=True).proposal is not None


def _decide(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    asked = place.realm("bot").act("bot", "order.place", {"item": "tea", "number": "d"}, scope=["orders.d"])

    def decide(realm: RemoteRealm) -> bool:
        return realm.decide(asked.proposal_id, "approve", by="ann").status == "completed"

    return "ann", HumanAnswered, decide


def _cancel(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    asked = place.realm("kid").act("kid", "order.ship", {"item": "tea", "number": "c"}, scope=["orders.c"])

    def cancel(realm: RemoteRealm) -> bool:
        return realm.host.cancel(asked.proposal_id, by="ops", reason="over").status == "failed"

    return "ops", ExecutionCancelled, cancel


def _acquire(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    return "kid", VerdictGiven, lambda realm: realm.leases.acquire(agent="kid", resource="FILE:/cut/acquire").is_active


def _release(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    held = place.realm("kid").leases.acquire(agent="kid", resource="FILE:/cut/release")

    def release(realm: RemoteRealm) -> bool:
        states = realm.leases.desk.release(held.lease_ids, agent_id="kid", session_id=held.session)
        return set(states.values()) == {"Released"}

    return "kid", LeasesReleased, release


def _branch(place: Yard) -> tuple[str, type, Callable[[RemoteRealm], Any]]:
    return "ops", BranchCreated, lambda realm: realm.create_branch("cut") is None


@pytest.mark.parametrize("prepare", [_place, _project, _decide, _cancel, _acquire, _release, _branch])
def test_a_write_whose_answers_are_lost_has_one_effect(
    place: Yard, proxy: Cutter, prepare: Callable[[Yard], tuple[str, type, Callable[[RemoteRealm], Any]]]
) -> None:
    actor, kind, write = prepare(place)
    with connected(place, proxy, actor) as realm:
        before = counted(place, kind)
        proxy.losses = LOST
        assert write(realm)
    assert proxy.losses < 0
    assert sum(one.startswith(b"POST ") for one in proxy.requests) == LOST + 1
    assert counted(place, kind) == before + 1


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again(place: Yard, proxy: Cutter, status: int) -> None:
    with connected(place, proxy, "kid") as realm:
        before = counted(place, ProposalSubmitted)
        proxy.busy = [status] * LOST
        assert realm.act("kid", "order.place", {"item": "tea"}, wait=True).status == "completed"
    assert proxy.busy == []
    assert counted(place, ProposalSubmitted) == before + 1


def test_the_time_for_repetitions_ends_and_the_key_is_named(place: Yard, proxy: Cutter) -> None:
    connection = ServerConnection(proxy.url, "main", place.place.tokens["kid"], patience_s=0.2)
    with RemoteRealm(connection) as realm:
        realm.caller()
        proxy.is_endless = True
        with pytest.raises(
            RefusedError, match=r"does not answer.*What was asked may be in the log; its key is"
        ) as gone:
            realm.act("kid", "order.place", {"item": "tea"})
    assert gone.value.code == "LOG_UNAVAILABLE"
    with pytest.raises(RefusedError) as closed:
        realm.act("kid", "order.place", {"item": "tea"})
    assert closed.value.code == "LOG_CLOSED"


def test_a_place_without_a_server_of_realms_is_refused_at_once() -> None:
    with pytest.raises(RefusedError) as refused:
        Realm.connect("http://127.0.0.1:1", token="t", realm="main")
    assert refused.value.code == "LOG_UNAVAILABLE"

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if "realms/main" in self.path else 404)
            self.end_headers()
            self.wfile.write(b"<p>a page</p>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("main", "other", None):
            with pytest.raises(RefusedError, match="is no server of realms") as refused:
                Realm.connect(f"http://127.0.0.1:{server.server_port}", token="t", realm=name)
            assert refused.value.code == "INVALID_ADDRESS"
        server.shutdown()


def test_sign_in_and_the_realm_are_checked_when_connecting(place: Yard) -> None:
    assert place.served is not None
    url, tokens = place.served.url, place.place.tokens
    cases: list[tuple[str, str | None, str | None]] = [
        ("TOKEN_NOT_VALID", "wp1_x_y", "main"),
        ("SIGN_IN_REQUIRED", None, "main"),
        ("UNKNOWN_REALM", tokens["kid"], "other"),
        ("UNKNOWN_REALM", tokens["nil"], None),
        ("RIGHT_MISSING", tokens["nil"], "main"),
    ]
    for code, token, name in cases:
        with pytest.raises(RefusedError) as refused:
            Realm.connect(url, token=token, realm=name)
        assert refused.value.code == code
    with pytest.raises(RefusedError) as refused:
        Realm.connect("http://realms.example.com", token=tokens["kid"])
    assert refused.value.code == "INVALID_ADDRESS"


def test_a_cut_subscription_goes_on_without_a_gap_and_without_a_double(place: Yard, proxy: Cutter) -> None:
    got: list[tuple[int, Any]] = []
    wanted, arrived = [2**53], threading.Event()

    def handle(position: int, event: Any, _: Any) -> None:
        got.append((position, event))
        if position >= wanted[0]:
            arrived.set()

    with connected(place, proxy, "all") as reader:
        reader.subscribe(handle)
        with place.reading() as log:
            before = log.log.head().size
        for number in range(12):
            place.realm("kid").act("kid", "order.place", {"item": "tea", "number": str(number)}, wait=True)
            if number % 3 == 0:
                proxy.cut()
        with place.reading() as log:
            wanted[0] = log.log.head().size
        place.realm("kid").act("kid", "order.place", {"item": "last"}, wait=True)
        assert arrived.wait(PATIENCE_S)
    with place.reading() as log:
        expected = [one for one in log.events() if before < one[0] <= got[-1][0]]
    assert [one for one in got if one[0] > before] == expected
    assert sum(b"/log/stream" in one for one in proxy.requests) > 1


def test_a_killed_server_that_starts_again_is_found_again(tmp_path: Path) -> None:
    place = prepared(tmp_path)
    with serving(place) as served:
        port = str(urlsplit(served.url).port)
        realm = Realm.connect(served.url, token=place.tokens["kid"])
        asked = realm.act("kid", "order.ship", {"item": "tea", "number": "k"})
        served.process.kill()
        served.process.wait()
        found: list[Any] = []
        given = {"item": "tea", "number": "l"}
        threads = [
            threading.Thread(target=lambda: found.append(realm.act("kid", "order.place", given, scope=["orders.l"]))),
            threading.Thread(target=lambda: found.append(realm.wait(asked, PATIENCE_S, until="decided"))),
        ]
        for one in threads:
            one.start()
    with serving(place, "--port", port):
        for one in threads:
            one.join(PATIENCE_S)
    realm.close()
    assert len(found) == 2
    with place.realm() as log:
        submitted = [event for _, event in log.events() if isinstance(event, ProposalSubmitted)]
        assert [one.intent.body.type for one in submitted] == ["order.ship", "order.place"]
        assert verify(log.log).ok
