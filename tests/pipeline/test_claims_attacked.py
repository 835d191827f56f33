"""Claims under attack: races of processes, adoptions, branches, secrets, names that two workers share."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from host import EffectFailure, handler
from host.secrets import EnvironmentSecrets, Secrets
from tests.pipeline.offering import (
    GRACE_MS,
    LIMIT_MS,
    START,
    Room,
    answered,
    claimed,
    offering,
    open_again,
    room,
    work_in,
)
from tests.pipeline.test_worker import here
from tests.pipeline.works import check_log, events, topics
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds, SystemClock
from world.core import Domain, set_
from world.errors import RefusedError
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectFulfilled
from world.events.verification import Verification
from world.state.effect_claim import EffectClaim
from worldprotocol import Realm, Worker

pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers")

TOKEN = "correct horse battery staple"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "w.db")


def at_once(calls: list[Callable[[], Any]]) -> None:
    """Call functions from threads that begin together."""
    begin = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        begin.wait(PATIENCE_S)
        call()

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE_S)
        assert not one.is_alive()


def test_of_fifty_workers_one_claims_an_effect_and_its_result_is_recorded_once(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm, open_again(address, clock, "other") as other:
        name, got, ended = work_in(realm, "a"), [], []
        for one in (realm, other):  # both know the offer
            assert len(one.offered_effects()) == 1

        def claim(at: int) -> None:
            got.append((other if at % 2 else realm).claim_effect(worker=f"w{at}"))

        at_once([partial(claim, at) for at in range(50)])
        (held,) = [one for one in got if one is not None]

        def complete(at: int) -> None:
            ended.append((other if at % 2 else realm).complete_effect(held, answered(f"by {at}")))

        at_once([partial(complete, at) for at in range(20)])
        assert {one.status for one in ended} == {"completed"}
        assert len({tuple(one.journal.values()) for one in ended}) == 1
        found = topics(realm, name)
        assert (found.count("effect.claimed"), found.count("effect.fulfilled"), "effect.dropped" in found) == (
            1,
            1,
            False,
        )
    check_log(address, domain=room)


def test_two_workers_with_one_name_hold_claims_of_their_own(address: str) -> None:
    calls: list[str] = []

    @handler("work")
    def counted(params: Any, call: Any) -> Any:
        calls.append(call.idempotency_key)
        return params["what"]

    with offering(address, clock=SystemClock()) as realm:  # type: ignore[arg-type]
        names = [work_in(realm, f"b{one}") for one in range(8)]
        with here(address, counted) as one, here(address, counted) as other:
            workers = [Worker(realm, name="twin", concurrency=2) for realm in (one, other)]
            at_once([partial(worker.run, once=True) for worker in workers])
            assert sum(worker.summary.completed for worker in workers) == 8
        assert len(calls) == len(set(calls)) == 8
        assert {realm.proposal(name).status for name in names} == {"completed"}
    check_log(address, domain=room)


class Larger(Room):
    more: int = 0


def test_another_schema_is_not_adopted_while_a_worker_holds_an_effect(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
    larger = Domain("urn:test:offering", version="1.0.1", state=Larger)
    larger.action("grow", version="1")(lambda _ctx: [set_("more", 1)])
    with pytest.raises(RefusedError) as refused:
        Realm.open_to_adopt(address, domain=larger, clock=clock, ids=SequentialIds("larger"))
    assert refused.value.code == "OPEN_PROPOSALS"
    with open_again(address, clock, "again") as realm:
        assert realm.complete_effect(claim, answered("A")).status == "completed"
        assert realm.proposal(name).status == "completed"
    check_log(address, domain=room)


def test_a_result_is_sealed_on_its_branch_when_another_one_is_active(address: str) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        realm.create_branch("beside", realm.branch().head, by="ann")
        realm.switch_branch("beside", by="ann")
        assert realm.heartbeat_effect(claim).token == claim.token
        done = realm.complete_effect(claim, answered("A"))
        assert (done.status, done.branch) == ("completed", "main")
        assert realm.data()["done"] == []
        realm.switch_branch("main", by="ann")
        assert realm.data()["done"] == ["A"]
    check_log(address, domain=room)


def test_a_heartbeat_of_a_process_whose_clock_is_behind_shortens_no_claim(address: str) -> None:
    slow, fast = ManualClock(START), ManualClock(START + 3 * LIMIT_MS)
    with offering(address, clock=slow, idempotent=True) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        with open_again(address, fast, "fast", idempotent=True) as other:
            claim = claimed(other)
        extended = realm.heartbeat_effect(claim)
        assert extended.deadline >= claim.deadline
        assert realm.claim_effect(worker="w2") is None
        assert realm.complete_effect(extended, answered("A")).status == "completed"
        assert "effect.lapsed" not in topics(realm, name)
    check_log(address, domain=room)


@pytest.mark.parametrize("fails", [False, True])
def test_the_value_of_a_secret_that_a_worker_used_is_nowhere_in_the_log(address: str, fails: bool) -> None:
    seen: list[str] = []

    @handler("work", idempotent=True, retries=1, backoff_ms=1)
    def careless(params: Any, _call: Any) -> Any:
        seen.append(params["what"])
        if fails:
            return EffectFailure("BUSY", f"refused with {params['what']}", retryable=True)
        return f"echo {params['what']}"

    secrets = Secrets([EnvironmentSecrets(("KEY",), environ={"KEY": TOKEN})], key=Path(f"{address}.secrets-key"))
    terms: dict[str, Any] = {"idempotent": True, "retries": 1, "backoff_ms": 1}
    said: list[Any] = []
    with offering(address, clock=SystemClock(), **terms) as realm:  # type: ignore[arg-type]
        name = work_in(realm, "a", "${secret:KEY}")
        with here(address, careless, secrets=secrets) as other:
            Worker(other, on_report=lambda one: said.append(one.to_wire())).run(once=True)
        assert set(seen) == {TOKEN}
        assert realm.proposal(name).status == ("failed" if fails else "completed")
        (made,) = [one for one in events(realm, name) if isinstance(one, EffectFulfilled)]
        assert [one.name for one in made.secrets or []] == ["KEY"]
        assert [one for one in events(realm, name) if isinstance(one, EffectClaimed)]
        assert TOKEN.encode() not in b"".join(one.state for one in realm.log.read())
        assert TOKEN not in repr(said)
    check_log(address, domain=room)


def refused(realm: Realm, claim: EffectClaim) -> int:
    """Report a result under a claim that does not hold, and return how many events that records."""
    before = realm.log.head().size
    with pytest.raises(RefusedError) as lost:
        realm.complete_effect(claim, answered("late"))
    assert lost.value.code == "CLAIM_LOST"
    return realm.log.head().size - before


@pytest.mark.parametrize("is_ended", [False, True])
def test_a_result_under_an_invented_claim_is_refused_and_records_nothing(address: str, is_ended: bool) -> None:
    with offering(address) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        if is_ended:
            realm.complete_effect(claim, answered("A"))
        invented = [
            structs.replace(claim, token=claim.token + 1),
            structs.replace(claim, claim_id="invented"),
            structs.replace(claim, worker="invented"),
            structs.replace(claim, requirement=structs.replace(claim.requirement, id="invented")),
        ]
        assert [refused(realm, one) for one in invented * 2] == [0] * 8
    check_log(address, domain=room)


@pytest.mark.parametrize("is_ended", [False, True])
def test_late_results_under_a_claim_are_recorded_once_for_each_actor(address: str, is_ended: bool) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock, idempotent=True) as realm:
        realm.act("ann", "do", {})
        claim = claimed(realm)
        clock.advance(LIMIT_MS + GRACE_MS + 1)
        realm.settle()
        second = claimed(realm)
        if is_ended:
            realm.complete_effect(second, answered("A"))
        realm.access.grant("bob", "worker", by="operator")
        other = realm.as_caller(Verification(method="jwt", actor_id="bob"))
        of_other = structs.replace(claim, subject="bob")
        found = [(refused(realm, claim), refused(other, of_other)) for _ in range(3)]
        assert found == [(1, 1), (0, 0), (0, 0)]
    check_log(address, domain=room)


def test_heartbeats_in_quick_succession_are_recorded_ten_times_in_a_time_limit_at_most(address: str) -> None:
    clock = ManualClock(START)
    with offering(address, clock=clock) as realm:
        name = realm.act("ann", "do", {}).proposal_id
        claim = claimed(realm)
        for _ in range(100):
            clock.advance(LIMIT_MS // 100)
            claim = realm.heartbeat_effect(claim)
            assert claim.deadline > clock.now_ms() + LIMIT_MS - LIMIT_MS // 10
        assert topics(realm, name).count("effect.extended") == 10
        assert realm.complete_effect(claim, answered("A")).status == "completed"
    check_log(address, domain=room)
