"""A right or token that is revoked between the authorisation of a request and its commit permits nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.kiosk import handlers, kiosk, mail
from tests.server.served import ADMINISTRATORS, NO_TLS, ORDER, PATH, Place, founded
from world.audit.verify import verify
from world.clock import ManualClock, SystemClock
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.app import create_app
from worldprotocol.server.service import RealmToServe, Service
from worldprotocol.server.threads import Shared, Threads

pytestmark = pytest.mark.slow

LEASE = {"resources": ["FILE:/docs/plan"], "sessionId": "s-1", "ttlMs": 600_000}


class Interrupted(Threads):
    """A pool that does something once, before the second call of a request: its first one reads the state.

    Args:
        before: what is done.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        super().__init__(4)
        self._before: Callable[[], None] | None = before
        self._calls = 0

    async def run(self, call: Callable[[], Any]) -> Any:
        """Return the result of a call in a thread."""
        self._calls += 1
        if self._calls == 2 and self._before is not None:
            before, self._before = self._before, None
            await super().run(before)
        return await super().run(call)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return founded(tmp_path)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(SystemClock().now_ms())


@pytest.fixture
def realm(place: Place, clock: ManualClock) -> Iterator[Realm]:
    limits = Limits(klis=KlisSettings.read({"administrators": ADMINISTRATORS}))
    parts: Any = {"domain": kiosk, "effects": handlers, "projections": [mail], "limits": limits}
    with Realm.open(place.log, clock=clock, **parts) as realm:
        yield realm


def sent(realm: Realm, place: Place, actor: str, path: str, body: Any, before: Callable[[], None]) -> httpx.Response:
    """Send a request in whose midst something is done; return the answer."""
    service = Service.of(ServerConfig(), [RealmToServe("main", realm)])
    service.threads = Interrupted(before)
    service.realms["main"].view = Shared(service.threads, realm.realm)
    headers = {"Authorization": f"Bearer {place.tokens[actor]}"}

    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(service))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://kiosk", headers=headers, verify=NO_TLS
        ) as client:
            answer = await client.post(f"{PATH}{path}", json=body)
        await service.threads.close()
        return answer

    return asyncio.run(send())


def waiting(realm: Realm) -> str:
    return realm.act("bot", "order.place", ORDER["input"], scope=["orders"]).proposal_id


def leased(realm: Realm) -> str:
    return realm.leases.acquire(agent="all", session="s-1", resource="FILE:/docs/own", ttl_ms=600_000).lease_ids[0]


def offered(realm: Realm) -> Any:
    realm.act("kid", "order.bake", {"item": "bread"}, scope=["orders.*"])


def claimed(realm: Realm) -> Any:
    from world.events.verification import Verification

    offered(realm)
    worker = realm.as_caller(Verification(method="peer", actor_id="all"))
    claim = worker.claim_effect(["oven.bake"], worker="oven")
    assert claim is not None
    return claim.to_wire()


def switched(realm: Realm) -> tuple[str, Any]:
    realm.create_branch("plan")
    return "/branches:switch", {"name": "plan"}


RESULT = {"result": {"value": "baked", "error": None}, "retryable": False}
WRITES: dict[str, tuple[str, Callable[[Realm], tuple[str, Any]]]] = {
    "intents.submit": ("actor", lambda realm: ("/intents", ORDER)),
    "events.project": (
        "actor",
        lambda realm: ("/events", {"kind": "ui", "eventId": "e-1", "payload": {"item": "tea"}}),
    ),
    "proposals.answer": (
        "approver",
        lambda realm: (f"/proposals/{waiting(realm)}:answer", {"choice": "approve", "reason": "yes"}),
    ),
    "branches.create": ("operator", lambda realm: ("/branches", {"name": "plan"})),
    "branches.switch": ("operator", switched),
    "leases.acquire": ("actor", lambda realm: ("/leases", LEASE)),
    "leases.heartbeat": (
        "actor",
        lambda realm: ("/leases:heartbeat", {"leaseIds": [leased(realm)], "sessionId": "s-1"}),
    ),
    "leases.release": ("actor", lambda realm: ("/leases:release", {"leaseIds": [leased(realm)], "sessionId": "s-1"})),
    "leases.revoke": ("operator", lambda realm: ("/leases:revoke", {"leaseIds": [leased(realm)], "reason": "gone"})),
    "effects.claim": (
        "worker",
        lambda realm: (offered(realm), ("/effects:claim", {"worker": "oven", "types": ["oven.bake"]}))[1],
    ),
    "effects.heartbeat": ("worker", lambda realm: ("/effects:heartbeat", {"claim": claimed(realm)})),
    "effects.complete": ("worker", lambda realm: ("/effects:complete", {"claim": claimed(realm), "report": RESULT})),
}
"""By operation: the right that is revoked, and path and body of a request that would be permitted with it."""


@pytest.mark.parametrize("what", ["right", "token", "nothing"])
@pytest.mark.parametrize("operation", WRITES)
def test_what_was_lost_meanwhile_permits_no_commit(
    realm: Realm, place: Place, clock: ManualClock, operation: str, what: str
) -> None:
    right, prepared = WRITES[operation]
    path, body = prepared(realm)
    sizes: list[int] = []

    def lose() -> None:
        if what == "token":
            realm.access.revoke_token(place.tokens["all"].split("_")[1], by="operator", reason="lost")
        elif what == "right":
            lost = ["approver", "actor"] if operation == "proposals.answer" else [right]
            for one in lost:
                realm.access.revoke("all", one, by="operator", reason="lost")  # type: ignore[arg-type]
        clock.advance(500)  # half of the time limit of the effect, so that a heartbeat is recorded
        sizes.append(realm.log.head().size)

    if operation == "proposals.answer":
        realm.bind("bot", {"kind": "hitl", "ask": ["all"]})
        path = f"/proposals/{waiting(realm)}:answer"
    answer = sent(realm, place, "all", path, body, lose)
    (size,) = sizes
    if what == "nothing":
        assert answer.status_code < 300, answer.text
        assert realm.log.head().size > size
    else:
        expected = (403, "RIGHT_MISSING") if what == "right" else (401, "TOKEN_NOT_VALID")
        assert (answer.status_code, answer.json()["code"]) == expected
        assert realm.log.head().size == size
    assert verify(realm.log).ok
