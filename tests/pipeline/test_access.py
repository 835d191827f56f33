"""Rights, API tokens and verified callers: what is recorded, what is refused, and what verification finds."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.golden.garden import FOLDER, START
from tests.golden.generate import rehashed
from tests.golden.harbour import harbour
from tests.pipeline.offering import LIMIT_MS, answered, offering, work_in
from tests.second_implementation import lines_of
from tests.second_implementation import verify as second_verify
from world.audit.verify import verify
from world.clock import ManualClock
from world.errors import RefusedError
from world.events.claim_events import EffectClaimed, EffectExtended
from world.events.execution_events import EffectDropped, EffectFulfilled, EffectResolved
from world.events.lease_events import VerdictGiven
from world.events.proposal_events import HumanAnswered, ProposalSubmitted
from world.events.verification import RIGHTS, UNAUTHENTICATED, Right, Verification
from worldprotocol.api.callers.access import verify_token
from worldprotocol.api.callers.request_keys import keyed, once
from worldprotocol.api.realm import Realm
from worldprotocol.export.jsonl import export_log, import_log

DAY = 86_400_000
PAY = {"ship": "a", "amount": 1}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, 1)


@pytest.fixture
def realm(tmp_path: Path, clock: ManualClock) -> Any:
    with Realm.create(tmp_path / "world.db", domain=harbour, clock=clock) as realm:
        realm.register("ann", "human", binding={"kind": "auto_approve"})
        realm.register("bob", "human", binding={"kind": "hitl", "ask": ["ann"]})
        yield realm


def caller(realm: Realm, actor: str, method: Any = "jwt", **more: Any) -> Realm:
    return realm.as_caller(Verification(method=method, actor_id=actor, **more))


def refused(code: str, call: Any) -> None:
    with pytest.raises(RefusedError) as caught:
        call()
    assert caught.value.code == code


def recorded(realm: Realm, kind: type) -> list[Any]:
    return [getattr(event, "verified", None) for _, event in realm.events() if isinstance(event, kind)]


@pytest.mark.parametrize("right", [*RIGHTS, None])
def test_each_command_of_a_verified_caller_needs_its_right(realm: Realm, right: Right | None) -> None:
    realm.create_branch("b")
    waiting = realm.act("bob", "pay", PAY).proposal_id
    for actor in ("ann", "bob"):
        if right is not None:
            realm.access.grant(actor, right, by="operator")
    ann, events = caller(realm, "ann"), realm.log.head().size
    attempts: list[tuple[Right, Any]] = [
        ("actor", lambda: ann.act("ann", "pay", PAY)),
        ("actor", lambda: ann.leases.acquire(agent="ann", session="s", resource="FILE:/a")),
        ("approver", lambda: ann.decide(waiting, "approve", by="ann")),
        ("operator", lambda: ann.create_branch("c", by="ann")),
        ("operator", lambda: ann.switch_branch("b", by="ann")),
        ("operator", lambda: ann.access.create_token("bob", by="ann")),
        ("operator", lambda: ann.access.grant("bob", "reader", by="ann", redaction=["inputs"])),
    ]
    for needed, attempt in attempts:
        if needed == right:
            attempt()
        else:
            refused("RIGHT_MISSING", attempt)
    assert (realm.log.head().size > events) == (right in ("actor", "approver", "operator"))
    assert verify(realm.log).ok


def test_a_caller_cannot_act_or_answer_in_the_name_of_another_actor(realm: Realm) -> None:
    for actor in ("ann", "bob"):
        for right in RIGHTS:
            realm.access.grant(actor, right, by="operator")
    waiting = realm.act("bob", "pay", PAY).proposal_id
    bob, events = caller(realm, "bob"), realm.log.head().size
    for attempt in (
        lambda: bob.act("ann", "pay", PAY),
        lambda: bob.decide(waiting, "approve", by="ann"),
        lambda: bob.leases.acquire(agent="ann", session="s", resource="FILE:/a"),
        lambda: bob.create_branch("c", by="ann"),
        lambda: bob.access.grant("bob", "reader", by="operator", redaction=["inputs"]),
    ):
        refused("NOT_THE_VERIFIED_ACTOR", attempt)
    assert realm.log.head().size == events
    refused("OWN_PROPOSAL", lambda: bob.decide(waiting, "approve", by="bob"))


def test_how_a_caller_was_verified_is_recorded_with_submissions_answers_and_leases(realm: Realm) -> None:
    for actor, right in (("bob", "actor"), ("ann", "approver")):
        realm.access.grant(actor, right, by="operator")  # type: ignore[arg-type]
    token = realm.access.create_token("bob", by="operator")
    verified = verify_token(realm.realm(), token.token, START)
    assert verified == Verification(method="token", actor_id="bob", token_id=token.created.token_id)
    bob = realm.as_caller(verified)
    asked = bob.act("bob", "pay", PAY)
    bob.leases.acquire(agent="bob", session="s", resource="FILE:/a")
    caller(realm, "ann", "peer", uid=1000).decide(asked.proposal_id, "approve", by="ann")
    realm.as_caller(UNAUTHENTICATED).act("ann", "pay", PAY)
    realm.act("ann", "pay", PAY)
    assert recorded(realm, ProposalSubmitted) == [verified, UNAUTHENTICATED, None]
    assert recorded(realm, HumanAnswered) == [Verification(method="peer", actor_id="ann", uid=1000)]
    direct = [event for _, event in realm.events() if isinstance(event, VerdictGiven) and event.session_id == "s"]
    assert [event.verified for event in direct] == [verified]
    assert verify(realm.log).ok


def test_a_token_verifies_until_it_expires_or_is_revoked_and_its_secret_is_nowhere_in_the_log(
    realm: Realm, clock: ManualClock
) -> None:
    realm.access.grant("ann", "actor", by="operator")
    short = realm.access.create_token("ann", by="operator", ttl_ms=DAY)
    long = realm.access.create_token("ann", by="operator", ttl_ms=2 * DAY, can=["reader"])
    secret = short.token.split("_", 2)[2]
    assert not any(secret.encode() in event.state for event in realm.log.read())
    ann = realm.as_caller(verify_token(realm.realm(), short.token, START))
    ann.act("ann", "pay", PAY)
    limited = realm.as_caller(verify_token(realm.realm(), long.token, START))
    refused("RIGHT_MISSING", lambda: limited.act("ann", "pay", PAY))
    for wrong in ("", "wp1__", short.token + "x", f"wp1_{long.created.token_id}_{secret}", "wp1_none_" + secret):
        refused("TOKEN_NOT_VALID", lambda text=wrong: verify_token(realm.realm(), text, START))
    clock.advance(DAY)
    refused("TOKEN_NOT_VALID", lambda: verify_token(realm.realm(), short.token, clock.now_ms()))
    refused("TOKEN_NOT_VALID", lambda: ann.act("ann", "pay", PAY))
    realm.access.revoke_token(long.created.token_id, by="operator", reason="lost")
    refused("TOKEN_NOT_VALID", lambda: verify_token(realm.realm(), long.token, START))
    refused("UNKNOWN_TOKEN", lambda: realm.access.revoke_token(long.created.token_id, by="operator", reason="again"))
    refused("RIGHT_NOT_GRANTED", lambda: realm.access.revoke("ann", "reader", by="operator", reason="never had it"))
    assert list(realm.access.tokens()) == [short.created.token_id]
    assert verify(realm.log).ok


def test_a_session_of_a_link_writes_only_while_its_token_is_in_force(realm: Realm, clock: ManualClock) -> None:
    realm.access.grant("ann", "actor", by="operator")
    long = realm.access.create_token("ann", by="operator", ttl_ms=2 * DAY).created.token_id
    short = realm.access.create_token("ann", by="operator", ttl_ms=DAY).created.token_id
    limited = realm.access.create_token("ann", by="operator", can=["reader"]).created.token_id
    opened, brief, read = (caller(realm, "ann", "link", token_id=name) for name in (long, short, limited))
    opened.act("ann", "pay", PAY)
    brief.act("ann", "pay", PAY)
    refused("RIGHT_MISSING", lambda: read.act("ann", "pay", PAY))
    refused("TOKEN_NOT_VALID", lambda: caller(realm, "ann", "link", token_id="none").act("ann", "pay", PAY))
    clock.advance(DAY)
    refused("TOKEN_NOT_VALID", lambda: brief.act("ann", "pay", PAY))
    realm.access.revoke_token(long, by="ann", reason="signed out")
    refused("TOKEN_NOT_VALID", lambda: opened.act("ann", "pay", PAY))
    assert verify(realm.log).ok


FORGERIES: list[tuple[str, Any, str, str]] = [
    ("right.granted", lambda state: state | {"right": "auditor"}, '"right": "approver"', "human.answered"),
    ("right.granted", lambda state: state | {"right": "auditor"}, '"right": "operator"', "branch.created"),
    ("token.created", lambda state: state | {"expiresAt": 0}, "", "proposal.submitted"),
    ("token.created", lambda state: state | {"can": ["reader"]}, "", "proposal.submitted"),
    ("token.created", lambda state: state | {"actorId": "ada"}, "", "proposal.submitted"),
    ("human.answered", lambda state: state | {"verified": {"method": "jwt", "actorId": "ben"}}, "", "human.answered"),
    (
        "human.answered",
        lambda state: state | {"verified": {**state["verified"], "method": "link", "tokenId": "none"}},
        "",
        "human.answered",
    ),
    (
        "verdict.given",
        lambda state: state | {"verified": {"method": "peer", "actorId": "cleo"}},
        "quay",
        "verdict.given",
    ),
]


@pytest.mark.requirement("CARD-audit")
@pytest.mark.parametrize(("topic", "change", "mark", "found"), FORGERIES)
def test_verification_finds_what_a_caller_had_no_right_to(
    topic: str, change: Any, mark: str, found: str, tmp_path: Path
) -> None:
    told = [json.loads(line) for line in (FOLDER / "access.jsonl").read_text(encoding="utf-8").splitlines()]
    at = next(n for n, line in enumerate(told) if line.get("topic") == topic and mark in json.dumps(line["state"]))
    told[at]["state"] = change(told[at]["state"])
    lines = rehashed(told)
    path = tmp_path / "forged.jsonl"
    path.write_bytes(b"".join(lines))
    with path.open("rb") as export:
        import_log(export, str(tmp_path / "forged.db"))
    with Realm.open_read_only(tmp_path / "forged.db") as forged:
        findings = verify(forged.log).findings
        topics = {position: event.TOPIC for position, event in forged.events()}
    assert {one.code for one in findings} == {"WITHOUT_RIGHT"}
    assert topics[findings[0].position] == found
    bad = second_verify(lines_of(path))["firstBad"]
    assert bad == findings[0].position


def test_a_claim_belongs_to_the_actor_that_made_it(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with offering(str(tmp_path / "w.db"), clock=clock) as realm:
        for actor in ("ann", "bob"):
            realm.access.grant(actor, "worker", by="operator")
        work_in(realm, "a")
        ann, bob = caller(realm, "ann"), caller(realm, "bob")
        claim = ann.claim_effect(worker="w1", key="k-1")
        assert claim is not None
        assert ann.claim_effect(worker="w1", key="k-1") == claim  # the answer to the first request was lost
        assert bob.claim_effect(worker="w1", key="k-1") is None  # his own key, and nothing else is offered
        refused("IDEMPOTENCY_CONFLICT", lambda: ann.claim_effect(worker="w2", key="k-1"))
        for other in (bob, realm):
            refused("CLAIM_LOST", lambda other=other: other.heartbeat_effect(claim))
            refused("CLAIM_LOST", lambda other=other: other.complete_effect(claim, answered("forged")))
        assert recorded(realm, EffectDropped) == [Verification(method="jwt", actor_id="bob"), None]
        clock.advance(LIMIT_MS // 2)  # an extension by less than a tenth is not recorded
        assert ann.heartbeat_effect(claim).subject == "ann"
        assert ann.complete_effect(claim, answered("done")).status == "completed"
        size = realm.log.head().size
        assert ann.complete_effect(claim, answered("done")).status == "completed"
        assert realm.log.head().size == size
        ann_verified = [Verification(method="jwt", actor_id="ann")]
        for kind in (EffectClaimed, EffectExtended, EffectFulfilled):
            assert recorded(realm, kind) == ann_verified
        assert realm.data()["boxes"] == {"a": ["done"]}
        assert verify(realm.log).ok
        with (tmp_path / "claims.jsonl").open("wb") as out:
            export_log(realm.log, out)
    assert second_verify(lines_of(tmp_path / "claims.jsonl"))["sound"]
    for topic in ("effect.extended", "effect.fulfilled"):
        told = [json.loads(line) for line in (tmp_path / "claims.jsonl").read_text(encoding="utf-8").splitlines()]
        at = next(n for n, line in enumerate(told) if line.get("topic") == topic)
        told[at]["state"]["verified"]["actorId"] = "bob"  # who has the right, but not the claim
        path = tmp_path / f"{topic}.jsonl"
        path.write_bytes(b"".join(rehashed(told)))
        with path.open("rb") as export:
            import_log(export, str(tmp_path / f"{topic}.db"))
        with Realm.open_read_only(tmp_path / f"{topic}.db") as forged:
            [finding] = verify(forged.log).findings
        assert finding.code == "WITHOUT_RIGHT"
        assert second_verify(lines_of(path))["firstBad"] == finding.position


def test_claims_need_the_right_worker(tmp_path: Path) -> None:
    with offering(str(tmp_path / "w.db")) as realm:
        work_in(realm, "a")
        for right in RIGHTS:
            if right != "worker":
                realm.access.grant("ann", right, by="operator")
        refused("RIGHT_MISSING", lambda: caller(realm, "ann").claim_effect(worker="w1"))
        realm.access.grant("ann", "worker", by="operator")
        claim = caller(realm, "ann").claim_effect(worker="w1")
        assert claim is not None
        realm.access.revoke("ann", "worker", by="operator", reason="over")
        refused("RIGHT_MISSING", lambda: caller(realm, "ann").complete_effect(claim, answered("done")))
        assert verify(realm.log).ok


def test_a_repeated_settlement_is_recorded_once(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with offering(str(tmp_path / "w.db"), clock=clock) as realm:
        realm.access.grant("ann", "operator", by="operator")
        name = work_in(realm, "a")
        assert realm.claim_effect(worker="w1") is not None
        clock.advance(60_000)
        realm.settle()
        assert realm.proposal(name).in_doubt
        ann = Verification(method="jwt", actor_id="ann")

        def settle(key: str, reason: str = "seen") -> Verification:
            caller = keyed(ann, key, "settle", {"reason": reason})
            options = {"by": "ann", "reason": reason, "value": "done"}
            once(realm, caller, lambda acting: acting.host.resolve(name, "happened", **options), again=lambda _: None)
            return caller

        callers = [settle("settle-1") for _ in range(3)]
        assert recorded(realm, EffectResolved) == callers[:1]
        refused("IDEMPOTENCY_CONFLICT", lambda: settle("settle-1", "another"))
        refused("NOT_IN_DOUBT", lambda: settle("settle-2"))
        assert realm.proposal(name).status == "completed"
        assert verify(realm.log).ok
