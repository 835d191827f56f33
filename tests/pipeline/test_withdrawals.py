"""Cancelling a proposal that is not decided withdraws it: it asks nobody, waits for no lease and is never executed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from tests.golden.generate import rehashed
from tests.pipeline.offering import answered, claimed, offering, room, work_in
from tests.second_implementation import verify as second_verify
from world.audit.verify import verify
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.proposal_events import ProposalSuperseded
from world.events.verification import Verification
from worldprotocol import Realm
from worldprotocol.analysis.counterfactual import WhatIf, cut_of, what_if
from worldprotocol.export.jsonl import export_log, import_log


@pytest.fixture
def realm(tmp_path: Path) -> Iterator[Realm]:
    with Realm.create(tmp_path / "w.db", domain=room, clock=ManualClock(1_000_000)) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("eve", "agent", binding={"kind": "auto_approve"})
        realm.register("bot", "agent", binding={"kind": "hitl", "ask": ["ann"]})
        yield realm


def asked(realm: Realm) -> str:
    proposal = realm.act("bot", "do", {"what": []})
    assert proposal.status == "evaluating"
    return proposal.proposal_id


def refused(code: str, run: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        run()
    assert caught.value.code == code


def withdrawals(realm: Realm) -> list[ProposalSuperseded]:
    return [one for _, one in realm.events() if isinstance(one, ProposalSuperseded)]


def exported(realm: Realm) -> list[str]:
    export_log(realm.log, out := BytesIO())
    return out.getvalue().decode().splitlines(keepends=True)


def is_sound(realm: Realm) -> bool:
    return verify(realm.log).ok and bool(second_verify(exported(realm))["sound"])


def test_a_withdrawn_proposal_asks_nobody_and_is_not_executed(realm: Realm) -> None:
    name, head = asked(realm), realm.branch().head
    assert realm.host.cancel(name, by="bot", reason="not needed").status == "superseded"
    [event] = withdrawals(realm)
    assert (event.by, event.reason, event.successor) == ("bot", "not needed", None)
    assert realm.inbox() == []
    assert realm.branch().head == head
    with pytest.raises(RefusedError, match=r"withdrawn at 1970-01-01T00:16:40Z by bot \(not needed\)") as late:
        realm.decide(name, "approve", by="ann", reason="late")
    assert late.value.code == "NOT_WAITING"
    refused("NOT_RUNNING", lambda: realm.host.cancel(name, by="bot", reason="again"))
    assert is_sound(realm)


def test_a_withdrawal_needs_a_reason(realm: Realm) -> None:
    name = asked(realm)
    refused("REASON_MISSING", lambda: realm.host.cancel(name, by="bot", reason=" "))
    assert [one.proposal_id for one in realm.inbox()] == [name]


def test_a_withdrawn_proposal_leaves_the_queue_for_leases() -> None:
    clock = ManualClock(1_000_000)
    with offering("sqlite:///:memory:", clock=clock) as realm:
        first, second = work_in(realm, "a"), work_in(realm, "a")
        third = work_in(realm, "a")
        assert {realm.proposal(name).status for name in (second, third)} == {"evaluating"}
        realm.host.cancel(second, by="ann", reason="over")
        realm.complete_effect(claimed(realm), answered("done"))
        clock.advance(1_000)
        realm.settle()
        assert realm.proposal(first).status == "completed"
        assert realm.proposal(third).status == "executing"
        assert realm.proposal(second).status == "superseded"
        assert is_sound(realm)


def test_actors_withdraw_their_own_proposals_and_operators_all(realm: Realm) -> None:
    for actor, right in (("bot", "actor"), ("eve", "actor"), ("ann", "operator")):
        realm.access.grant(actor, right, by="operator")  # type: ignore[arg-type]
    bot, eve, ann = (realm.as_caller(Verification(method="jwt", actor_id=one)) for one in ("bot", "eve", "ann"))
    own, other = asked(realm), asked(realm)
    refused("RIGHT_MISSING", lambda: eve.host.cancel(own, by="eve", reason="mine now"))
    refused("NOT_THE_VERIFIED_ACTOR", lambda: eve.host.cancel(own, by="bot", reason="as the bot"))
    bot.host.cancel(own, by="bot", reason="not needed")
    ann.host.cancel(other, by="ann", reason="too late")
    assert [one.verified and one.verified.actor_id for one in withdrawals(realm)] == ["bot", "ann"]
    assert is_sound(realm)


def test_an_actor_cannot_cancel_its_approved_execution() -> None:
    with offering("sqlite:///:memory:") as realm:
        realm.access.grant("ann", "actor", by="operator")
        name = work_in(realm, "a")
        ann = realm.as_caller(Verification(method="jwt", actor_id="ann"))
        refused("RIGHT_MISSING", lambda: ann.host.cancel(name, by="ann", reason="over"))
        assert realm.proposal(name).status == "executing"


@pytest.mark.parametrize(
    ("members", "code"),
    [
        ({"verified": {"method": "jwt", "actorId": "eve"}, "by": "eve"}, "WITHOUT_RIGHT"),
        ({"reason": None}, "BAD_EVENT"),
        ({"successor": "another"}, "BAD_EVENT"),
    ],
)
def test_verification_finds_forged_withdrawals(
    realm: Realm, tmp_path: Path, members: dict[str, Any], code: str
) -> None:
    realm.access.grant("eve", "actor", by="operator")
    realm.host.cancel(asked(realm), by="bot", reason="not needed")
    lines = [json.loads(line) for line in exported(realm)]
    [event] = [line for line in lines if line.get("topic") == "proposal.superseded"]
    event["state"] |= members
    forged = b"".join(rehashed(lines))
    import_log(BytesIO(forged), str(tmp_path / "forged.db"))
    with Realm.open_read_only(tmp_path / "forged.db") as other:
        assert code in {one.code for one in verify(other.log).findings}
    assert not second_verify(forged.decode().splitlines(keepends=True))["sound"]


def test_what_if_withdraws_again(realm: Realm, tmp_path: Path) -> None:
    base = realm.branch().head
    name = asked(realm)
    realm.host.cancel(name, by="bot", reason="not needed")
    realm.act("eve", "do", {"what": []})
    report = what_if(WhatIf(str(tmp_path / "w.db"), room, cut_of(realm.archive, world=base)))
    assert not report.changed, list(report.lines())


def test_the_effects_of_one_proposal_can_be_claimed_alone() -> None:
    with offering("sqlite:///:memory:") as realm:
        _, second = work_in(realm, "a"), work_in(realm, "b")
        assert realm.claim_effect(worker="w1", proposal_id="none") is None
        claim = realm.claim_effect(worker="w1", proposal_id=second)
        assert claim is not None
        assert claim.proposal_id == second
        assert realm.claim_effect(worker="w1", proposal_id=second) is None
