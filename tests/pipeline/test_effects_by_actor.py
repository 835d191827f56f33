"""Effects that the acting actor performs itself: nobody else may claim them, and the right ``actor`` suffices."""

from __future__ import annotations

import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.golden.generate import rehashed
from tests.pipeline.offering import answered, offering, work_in
from tests.pipeline.test_withdrawals import exported, is_sound, refused
from tests.second_implementation import verify as second_verify
from world.audit.verify import verify
from world.clock import ManualClock
from world.events.execution_events import EffectDropped, EffectRequested
from world.events.verification import Right, Verification
from worldprotocol import Realm
from worldprotocol.export.jsonl import import_log

RIGHTS: dict[str, Right] = {"ann": "actor", "bob": "worker"}


def caller(realm: Realm, actor: str) -> Realm:
    return realm.as_caller(Verification(method="jwt", actor_id=actor))


def granted(realm: Realm) -> tuple[Realm, Realm]:
    for actor, right in RIGHTS.items():
        realm.access.grant(actor, right, by="operator")
    return caller(realm, "ann"), caller(realm, "bob")


def test_only_the_acting_actor_claims_its_effect() -> None:
    with offering("sqlite:///:memory:", by_actor=True) as realm:
        ann, bob = granted(realm)
        name = work_in(realm, "a")
        assert bob.claim_effect(worker="w1") is None
        refused("NOT_THE_VERIFIED_ACTOR", lambda: bob.claim_effect(worker="w1", proposal_id=name))
        claim = ann.claim_effect(worker="ann", proposal_id=name)
        assert claim is not None
        assert ann.heartbeat_effect(claim).token == claim.token
        refused("CLAIM_LOST", lambda: bob.complete_effect(claim, answered("forged")))
        assert ann.complete_effect(claim, answered("done")).status == "completed"
        assert realm.data()["boxes"] == {"a": ["done"]}
        assert [one.offer.by_actor for _, one in realm.events() if isinstance(one, EffectRequested)] == [True]  # type: ignore[union-attr]
        assert is_sound(realm)


def test_an_actor_claims_no_effect_that_workers_perform() -> None:
    with offering("sqlite:///:memory:") as realm:
        ann, _ = granted(realm)
        name = work_in(realm, "a")
        refused("RIGHT_MISSING", lambda: ann.claim_effect(worker="ann", proposal_id=name))


def test_a_late_result_of_the_actor_is_recorded_as_dropped() -> None:
    clock = ManualClock(1_000_000)
    with offering("sqlite:///:memory:", clock=clock, by_actor=True) as realm:
        ann, _ = granted(realm)
        name = work_in(realm, "a")
        claim = ann.claim_effect(worker="ann", proposal_id=name)
        assert claim is not None
        clock.advance(60_000)
        realm.settle()
        assert realm.proposal(name).in_doubt
        refused("CLAIM_LOST", lambda: ann.complete_effect(claim, answered("late")))
        realm.host.resolve(name, "fail", by="ann", reason="nobody knows")
        refused("CLAIM_LOST", lambda: ann.complete_effect(claim, answered("later")))
        assert len([one for _, one in realm.events() if isinstance(one, EffectDropped)]) == 1
        assert is_sound(realm)


@pytest.mark.parametrize("topic", ["effect.claimed", "effect.fulfilled"])
def test_verification_finds_claims_of_others(tmp_path: Path, topic: str) -> None:
    with offering(str(tmp_path / "w.db"), by_actor=True) as realm:
        ann, _ = granted(realm)
        claim = ann.claim_effect(worker="ann", proposal_id=work_in(realm, "a"))
        assert claim is not None
        ann.complete_effect(claim, answered("done"))
        lines: list[Any] = [json.loads(line) for line in exported(realm)]
    for line in lines:
        if line.get("topic") == topic:
            line["state"]["verified"]["actorId"] = "bob"
    forged = b"".join(rehashed(lines))
    import_log(BytesIO(forged), str(tmp_path / "forged.db"))
    with Realm.open_read_only(tmp_path / "forged.db") as other:
        assert "WITHOUT_RIGHT" in {one.code for one in verify(other.log).findings}
    assert not second_verify(forged.decode().splitlines(keepends=True))["sound"]
