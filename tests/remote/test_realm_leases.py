"""Leases and subscriptions of a realm: the same on this machine, over TCP and over a Unix socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.remote.yards import OVER_HTTP, Yard
from tests.support.patience import PATIENCE_S
from world.errors import RefusedError, WaitTimeoutError
from world.read_models.decoding import decoded
from worldprotocol.api.leasing.acquiring import Cancel
from worldprotocol.api.remote.realm import RemoteRealm

pytestmark = pytest.mark.slow


def refusal(call: Callable[[], Any]) -> RefusedError:
    with pytest.raises(RefusedError) as refused:
        call()
    return refused.value


def held(yard: Yard, actor: str, name: str, **options: Any) -> Any:
    return yard.realm(actor).leases.acquire(agent=actor, resource=f"FILE:/{name}", **options)


def in_thread(call: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(call())
        except RefusedError as refused:
            found.append(refused)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, found


def wait_for_queue(yard: Yard, agent: str) -> None:
    """Wait until a request of an agent is in the queue."""
    end = time.monotonic() + PATIENCE_S
    with yard.reading() as log:
        while agent not in [one.session.agent_id for one in log.realm().klis.requests.values()]:
            assert time.monotonic() < end
            time.sleep(0.02)


@pytest.fixture(autouse=True)
def _older(yard: Yard) -> None:
    """Make kid the oldest agent, before bot and all."""
    for actor in ("kid", "bot", "all"):
        held(yard, actor, f"older-{actor}").release()


def test_leases_are_granted_kept_alive_checked_and_released(yard: Yard) -> None:
    with held(yard, "kid", "a", ttl_ms=60_000) as first:
        assert (first.agent, len(first.lease_ids), first.ttl_ms) == ("kid", 1, 60_000)
        assert first.is_active
        first.check()
        with yard.reading() as log:
            before = log.realm().klis.leases[first.lease_ids[0]].expires_at
        first.heartbeat()
        with yard.reading() as log:
            after = log.realm().klis.leases[first.lease_ids[0]].expires_at
        assert before is not None
        assert after is not None
        assert after >= before
    assert not first.is_active
    assert refusal(first.check).code == "LEASE_LOST"
    first.release()
    with held(yard, "kid", "a") as second:
        assert second.token > first.token


def test_a_younger_agent_dies_and_an_older_one_waits(yard: Yard) -> None:
    mine = held(yard, "kid", "b")
    died = refusal(lambda: held(yard, "bot", "b", timeout=5))
    assert died.code == "DIED"
    assert died.details["conflicts"][0]["holder"] == "kid"
    assert "'kid' holds MUTATES on FILE:/b and is older" in str(died)
    mine.release()
    theirs = held(yard, "bot", "b")
    thread, found = in_thread(lambda: held(yard, "kid", "b", timeout=PATIENCE_S))
    wait_for_queue(yard, "kid")
    theirs.release()
    thread.join(PATIENCE_S)
    assert found[0].is_active
    assert found[0].token > theirs.token
    found[0].release()


def test_a_wait_for_leases_ends_with_its_time_or_is_cancelled(yard: Yard) -> None:
    theirs = held(yard, "bot", "c")
    late = refusal(lambda: held(yard, "kid", "c", timeout=0.1))
    assert (late.code, type(late)) == ("WAIT_TIMED_OUT", WaitTimeoutError)
    assert refusal(lambda: held(yard, "kid", "c", timeout=0)).code == "WAIT_TIMED_OUT"
    cancel = Cancel()
    thread, found = in_thread(lambda: held(yard, "kid", "c", cancel=cancel))
    wait_for_queue(yard, "kid")
    cancel.cancel()
    thread.join(PATIENCE_S)
    assert found[0].code == "WAIT_CANCELLED"
    with yard.reading() as log:
        assert not log.realm().klis.requests
    theirs.release()
    assert refusal(lambda: yard.realm("kid").leases.acquire(agent="kid")).code == "INVALID_VALUE"


def test_an_agent_that_died_may_ask_again(yard: Yard) -> None:
    mine = held(yard, "kid", "d")
    thread, found = in_thread(lambda: held(yard, "bot", "d", retry=True, timeout=PATIENCE_S))
    time.sleep(0.2)
    mine.release()
    thread.join(PATIENCE_S)
    assert found[0].agent == "bot"
    found[0].release()


@pytest.mark.requirement("LIVE-wake")
def test_a_request_that_died_is_made_again_when_what_it_died_of_is_free(yard: Yard) -> None:
    mine, retried = held(yard, "kid", "w"), 7
    for _ in range(retried):  # its timer would come after a minute
        assert refusal(lambda: held(yard, "bot", "w", session="late")).code == "DIED"
    with yard.reading() as log:
        follower = log.log.follow(log.log.head().size, poll_ms=5, topics=["verdict.given"])
        thread, found = in_thread(lambda: held(yard, "bot", "w", session="late", retry=True, timeout=PATIENCE_S))
        died: Any = decoded(next(follower))
        mine.release()
        thread.join(PATIENCE_S)
        again: Any = decoded(next(follower))
    assert (died.status, again.status, found[0].agent) == ("Die", "Granted", "bot")
    assert again.at - died.at < died.retry_after_ms == 60_000
    found[0].release()


def test_revoked_leases_are_lost(yard: Yard) -> None:
    mine = held(yard, "kid", "e")
    desk = yard.realm("ops").leases.desk
    assert desk.revoke(mine.lease_ids, by="ops", reason="over") == {mine.lease_ids[0]: "Revoked"}
    assert not mine.is_active
    assert refusal(mine.check).code == "LEASE_LOST"
    assert refusal(mine.heartbeat).code == "LEASE_LOST"
    mine.release()
    own = held(yard, "kid", "f")
    stolen = refusal(lambda: yard.realm("bot").leases.desk.release(own.lease_ids, agent_id="bot", session_id="s"))
    assert stolen.code == "NOT_THE_HOLDER"
    own.release()


def test_a_verdict_is_that_of_the_log(yard: Yard) -> None:
    scope = [{"predicate": "CONSUMES", "resource": "FILE:/g"}]
    manifest = {"ver": "1.0", "agent_id": "kid", "session_id": "s-g", "scope": scope}
    verdict = yard.realm("kid").leases.desk.request(manifest, by="kid", ttl_ms=50_000)
    assert (verdict.status, verdict.ttl_ms, verdict.manifest) == ("Granted", 50_000, manifest)
    ids = [one.lease_id for one in verdict.leases]
    [renewed] = yard.realm("kid").leases.desk.heartbeat(ids, agent_id="kid", session_id="s-g", ttl_ms=40_000)
    assert (renewed.lease_id, renewed.ttl_ms) == (ids[0], 40_000)
    assert yard.realm("kid").leases.desk.release(ids, agent_id="kid", session_id="s-g") == {ids[0]: "Released"}
    assert yard.realm("kid").leases.desk.withdraw(verdict.request_id) is False


@pytest.mark.parametrize("yard", OVER_HTTP, indirect=True)
def test_a_request_of_another_actor_is_neither_shown_nor_withdrawn(yard: Yard) -> None:
    theirs = held(yard, "bot", "h")
    scope = [{"predicate": "MUTATES", "resource": "FILE:/h"}]
    manifest = {"ver": "1.0", "agent_id": "kid", "session_id": "s-h", "scope": scope}
    verdict = yard.realm("kid").leases.desk.request(manifest, by="kid", queue=True)
    assert verdict.queued
    desk = yard.realm("bot").leases.desk
    assert refusal(lambda: desk.withdraw(verdict.request_id)).code == "UNKNOWN_REQUEST"
    with yard.connect("bot") as bot:
        assert isinstance(bot, RemoteRealm)
        path = f"/leases/requests/{verdict.request_id}"
        assert refusal(lambda: bot._connection.get(path)).code == "UNKNOWN_REQUEST"
    assert yard.realm("kid").leases.desk.withdraw(verdict.request_id) is True
    theirs.release()


def test_subscribers_get_each_event_once_in_order_and_cannot_act(yard: Yard) -> None:
    reader, got, refusals, reacted = yard.connect("all"), [], list[str](), threading.Event()
    done = threading.Event()

    def handle(position: int, event: Any, schedule: Callable[[Callable[[], None]], None]) -> None:
        got.append((position, event))
        if event.TOPIC == "proposal.completed":
            refusals.append(refusal(lambda: reader.act("all", "order.place", {"item": "no"})).code)
            schedule(reacted.set)
            if len(refusals) == 5:
                done.set()

    with yard.reading() as log:
        before = log.log.head().size
    end = reader.subscribe(handle)
    for number in range(5):
        given = {"item": "tea", "number": f"s{number}"}
        yard.realm("kid").act("kid", "order.place", given, scope=[f"orders.s{number}"], wait=True)
    assert done.wait(PATIENCE_S)
    assert reacted.wait(PATIENCE_S)
    end()
    count = len(got)
    yard.realm("kid").act("kid", "order.place", {"item": "tea"}, wait=True)
    with yard.reading() as log:
        expected = [one for one in log.events() if before < one[0] <= got[-1][0]]
    assert got == expected
    assert set(refusals) == {"CALL_FROM_HANDLER"}
    assert len(got) == count
    if yard.shared is None:
        reader.close()
