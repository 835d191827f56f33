"""The durable desk: commands under the log's lock, who may sign, and what a recheck says about verdicts."""

from __future__ import annotations

import base64
import json
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from tests.golden.generate import rehashed
from tests.pipeline.shop import shop
from world.audit.verify import verify
from world.clock import ManualClock, SequentialIds
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.events.resource_values import GrantedLease
from world.klis.identity.signature import sign
from world.klis.manifest import ENGINE_ONLY, read_manifest
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.state.realm_state import RealmState, apply_event
from worldprotocol import Realm
from worldprotocol.analysis.recheck.leases import recheck_channel, recheck_verdict
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.export.jsonl import export_log, import_log

FILE = "FILE:/src/a.py"


def manifest(agent: str, session: str = "s", predicate: str = "MUTATES", resource: str = FILE, **more: Any) -> Any:
    scope = [{"predicate": predicate, "resource": resource}]
    return {"ver": "1.0", "session_id": session, "agent_id": agent, "scope": scope} | more


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000)


@pytest.fixture
def world(log_url: str, clock: ManualClock) -> Any:
    with Realm.create(log_url, domain=shop, clock=clock, ids=SequentialIds(), limits=Limits()) as world:
        yield world


def refusal(call: Any, *given: Any, **more: Any) -> str:
    with pytest.raises(RefusedError) as refused:
        call(*given, **more)
    return refused.value.code


@pytest.mark.requirement("KP-4a", "KP-5a", "CARD-replay")
def test_everything_at_the_desk_is_in_the_log_and_sound(world: Realm, clock: ManualClock) -> None:
    desk = world.leases.desk
    desk.register_agent("old", by="operator", priority=1)
    desk.register_agent("young", by="operator", priority=2)
    first = desk.request(manifest("young"), by="young")
    waits = desk.request(manifest("old"), by="old", queue=True, wait_ms=5_000)
    dies = desk.request(manifest("third"), by="third")
    assert [first.status, waits.status, dies.status] == ["Granted", "Wait", "Die"]
    lease = first.leases[0].lease_id
    clock.advance(10)
    assert desk.heartbeat([lease], agent_id="young", session_id="s")[0].expires_at == 1_060_010
    assert desk.release([lease], agent_id="young", session_id="s") == {lease: "Released"}
    [now_held] = world.realm().klis.leases.values()
    assert now_held.session.agent_id == "old"
    assert desk.revoke([now_held.lease_id], by="operator", reason="needed") == {now_held.lease_id: "Revoked"}
    report = verify(world.log)
    assert report.ok, report.findings
    checked = recheck(world)
    assert checked.ok, checked.divergences
    assert checked.steps["verdicts"] == 4


@pytest.mark.requirement("KP-4c")
def test_leases_expire_and_waiting_ends_with_whatever_happens_next(world: Realm, clock: ManualClock) -> None:
    desk = world.leases.desk
    desk.register_agent("old", by="operator", priority=1)
    desk.request(manifest("young"), by="young", ttl_ms=1_000)
    desk.request(manifest("old"), by="old", queue=True, wait_ms=500)
    clock.advance(501)
    world.settle()
    assert not world.realm().klis.requests
    clock.advance(500)
    world.settle()
    assert not world.realm().klis.leases
    assert [event.TOPIC for _, event in world.events()][-2:] == ["request.withdrawn", "lease.expired"]


@pytest.mark.requirement("KP-4b")
def test_what_is_refused_changes_nothing(world: Realm) -> None:
    desk = world.leases.desk
    lease = desk.request(manifest("ann"), by="ann").leases[0].lease_id
    before = world.log.head()
    assert refusal(desk.release, [lease], agent_id="bob", session_id="s") == "NOT_THE_HOLDER"
    assert refusal(desk.heartbeat, [lease], agent_id="ann", session_id="other") == "NOT_THE_HOLDER"
    assert refusal(desk.revoke, [lease], by="operator", reason=" ") == "REASON_MISSING"
    assert refusal(desk.request, manifest("bob"), by="bob", ttl_ms=0) == "INVALID_TTL"
    assert refusal(desk.request, manifest("bob"), by="bob", ttl_ms=1 << 64) == "INVALID_TTL"
    assert refusal(desk.request, manifest("bob", predicate="READS"), by="bob") == "INVALID_PREDICATE"
    assert refusal(desk.request, manifest("bob", resource="FILE:a"), by="bob") == "AMBIGUOUS_RESOURCE"
    assert refusal(desk.request, manifest("bob", resource="FILE:/*"), by="bob") == "GLOBAL_SCOPE"
    assert refusal(desk.request, b"{", by="bob") == "MALFORMED_SCHEMA"
    assert refusal(desk.heartbeat, [lease, "unknown"], agent_id="ann", session_id="s") == "UNKNOWN_LEASE"
    assert not desk.withdraw("unknown")
    assert world.log.head() == before


def test_a_clock_that_steps_back_shortens_nothing(world: Realm, clock: ManualClock) -> None:
    desk = world.leases.desk
    lease = desk.request(manifest("ann"), by="ann", ttl_ms=10_000).leases[0].lease_id
    clock.advance(-500_000)
    [renewed] = desk.heartbeat([lease], agent_id="ann", session_id="s")
    assert renewed.expires_at == 1_010_000


@pytest.mark.requirement("KM-7.1")
def test_a_signed_manifest_needs_nobody_to_vouch_for_it(world: Realm) -> None:
    desk, key = world.leases.desk, Ed25519PrivateKey.generate()
    name = desk.register_key("ann", key.public_key().public_bytes_raw(), by="operator")
    signed = sign(manifest("ann", issued_at=1_000_000, nonce="n1"), key.private_bytes_raw())
    verdict = desk.request(signed, by="gateway", require_signature=True)
    assert verdict.channel == {"kind": "signed", "keyId": name, "by": "gateway"}
    assert recheck(world).ok


def with_authentication(authentication: str | None) -> Limits:
    return Limits(klis=KlisSettings(authentication=authentication))


@pytest.mark.requirement("KM-7.1")
def test_in_an_open_realm_any_caller_vouches_and_that_is_recorded() -> None:
    with Realm.create("sqlite://", domain=shop, limits=with_authentication("open")) as world:
        desk = world.leases.desk
        assert desk.request(manifest("ann"), by="gateway").channel == {"kind": "vouched", "by": "gateway"}
        before = world.log.head()
        assert refusal(desk.request, manifest("bob"), by="bob", require_signature=True) == "UNAUTHENTICATED"
        assert world.log.head() == before


@pytest.mark.requirement("KM-7.1")
def test_by_default_a_caller_vouches_for_itself_alone(world: Realm) -> None:
    desk = world.leases.desk
    settings = world.realm().klis.settings
    assert settings is not None
    assert settings.authentication == "channel"
    assert desk.request(manifest("ann"), by="ann").channel == {"kind": "vouched", "by": "ann"}
    before = world.log.head()
    for other in ("gateway", None):
        with pytest.raises(RefusedError, match="worldctl keys register") as refused:
            desk.request(manifest("bob"), by=other)
        assert refused.value.code == "UNAUTHENTICATED"
        assert refused.value.details["agent_id"] == "bob"
    assert refusal(world.leases.acquire, manifest=manifest("bob")) == "UNAUTHENTICATED"
    assert refusal(world.leases.acquire, agent="bob", resource=FILE, by="gateway") == "UNAUTHENTICATED"
    assert world.log.head() == before
    with world.leases.acquire(agent="bob", resource="FILE:/b") as held:
        assert held.verdict.channel == {"kind": "vouched", "by": "bob"}


@pytest.mark.requirement("KM-7.1")
@pytest.mark.parametrize("authentication", ["channel", "signed"])
def test_an_agent_with_a_key_needs_a_signature_even_after_the_key_is_revoked(
    authentication: str, clock: ManualClock
) -> None:
    key = Ed25519PrivateKey.generate()
    limits = with_authentication(authentication)
    with Realm.create("sqlite://", domain=shop, clock=clock, ids=SequentialIds(), limits=limits) as world:
        desk = world.leases.desk
        name = desk.register_key("ann", key.public_key().public_bytes_raw(), by="operator")
        before = world.log.head()
        with pytest.raises(RefusedError, match=rf"registered key {name}: sign it with `worldctl klis sign`"):
            desk.request(manifest("ann"), by="ann")
        assert refusal(world.leases.acquire, agent="ann", resource=FILE) == "UNAUTHENTICATED"
        assert world.log.head() == before
        signed = sign(manifest("ann", issued_at=1_000_000, nonce="n1"), key.private_bytes_raw())
        assert desk.request(signed, by=None).channel == {"kind": "signed", "keyId": name, "by": "ann"}
        desk.revoke_key(name, by="operator", reason="lost")
        with pytest.raises(RefusedError, match="every key of the agent is revoked: register a new one"):
            desk.request(manifest("ann"), by="ann")
        assert verify(world.log).ok
        assert recheck(world).ok


@pytest.mark.requirement("KM-7.1")
def test_where_all_is_signed_an_agent_without_a_key_is_refused_and_told_what_to_do() -> None:
    with Realm.create("sqlite://", domain=shop, limits=with_authentication("signed")) as world:
        before = world.log.head()
        with pytest.raises(RefusedError, match=r"no key: register one \(`worldctl keys register`\)") as refused:
            world.leases.acquire(agent="ann", resource=FILE)
        assert refused.value.code == "UNAUTHENTICATED"
        assert world.log.head() == before
        world.register("ann", "human", binding={"kind": "auto_approve"})
        assert world.act("ann", "sell", {"item": "tea"}).status == "completed"  # a proposal is no manifest handed in
        assert recheck(world).ok


@pytest.mark.requirement("KM-7.1")
def test_a_log_from_before_the_setting_goes_on_as_it_was_until_it_is_configured(shared_log_url: str) -> None:
    before = Limits(klis=KlisSettings.recorded({}))
    with Realm.create(shared_log_url, domain=shop, limits=before) as world:
        [configured] = [event for _, event in world.events() if event.TOPIC == "klis.configured"]
        assert "authentication" not in configured.settings
        assert world.leases.desk.request(manifest("ann"), by="gateway").status == "Granted"
    with Realm.open(shared_log_url, domain=shop, limits=Limits()) as world:
        desk = world.leases.desk
        assert desk.request(manifest("bob", resource="DB:*"), by="gateway").status == "Granted"
        assert desk.configure(by="operator")
        assert refusal(desk.request, manifest("cleo", resource="FILE:/c"), by="gateway") == "UNAUTHENTICATED"
        assert refusal(desk.request, manifest("cleo", resource="DB:*"), by="cleo") == "GLOBAL_SCOPE"
        assert verify(world.log).ok
        assert recheck(world).ok


@pytest.mark.requirement("KM-7.1", "CARD-replay")
def test_a_verdict_on_a_manifest_that_was_not_authenticated_is_found(world: Realm) -> None:
    desk, key = world.leases.desk, Ed25519PrivateKey.generate()
    desk.register_key("eve", key.public_key().public_bytes_raw(), by="operator")
    desk.request(manifest("ann"), by="ann")
    realm, seen = RealmState(), 0
    for position, event in world.events():
        if isinstance(event, VerdictGiven):
            assert recheck_channel(realm, event) is None
            forged: list[dict[str, Any] | None] = [
                {"kind": "vouched", "by": "gateway"},
                {"kind": "engine"},
                {"kind": "run", "runId": "r"},
                {"kind": "signed", "keyId": "0123456789abcdef"},
                {"kind": "other"},
                None,
            ]
            for channel in forged:
                found = recheck_channel(realm, replace(event, channel=channel))
                assert found is not None
                assert found.details["differences"][0]["at"] == "channel"
            eve = replace(event, agent_id="eve", channel={"kind": "vouched", "by": "eve"})
            assert recheck_channel(realm, eve) is not None
            seen += 1
        apply_event(realm, event, position)
    assert seen == 1


@pytest.mark.requirement("KM-7.1")
def test_forged_altered_replayed_old_and_revoked_are_refused(world: Realm, clock: ManualClock) -> None:
    desk, key, other = world.leases.desk, Ed25519PrivateKey.generate(), Ed25519PrivateKey.generate()
    name = desk.register_key("ann", key.public_key().public_bytes_raw(), by="operator")
    desk.register_key("eve", other.public_key().public_bytes_raw(), by="operator")

    def signed(by: Ed25519PrivateKey, nonce: str, agent: str = "ann", at: int = 1_000_000) -> dict[str, Any]:
        return sign(manifest(agent, issued_at=at, nonce=nonce), by.private_bytes_raw())

    good = signed(key, "n1")
    desk.request(good, by="x")
    before = world.log.head()
    assert refusal(desk.request, good, by="x") == "MANIFEST_REPLAYED"
    assert refusal(desk.request, signed(other, "n2"), by="x") == "UNAUTHENTICATED"
    assert refusal(desk.request, signed(key, "n3", agent="bob"), by="x") == "UNAUTHENTICATED"
    altered = signed(key, "n4") | {"session_id": "mine"}
    assert refusal(desk.request, altered, by="x") == "UNAUTHENTICATED"
    assert refusal(desk.request, signed(key, "n5", at=1_000_000 - 300_001), by="x") == "UNAUTHENTICATED"
    assert refusal(desk.request, signed(key, "n6", at=1_000_000 + 300_001), by="x") == "UNAUTHENTICATED"
    assert world.log.head() == before
    desk.revoke_key(name, by="operator", reason="lost")
    assert refusal(desk.request, signed(key, "n7"), by="x") == "UNAUTHENTICATED"
    assert refusal(desk.revoke_key, name, by="operator", reason="again") == "UNKNOWN_KEY"
    assert verify(world.log).ok


def test_the_request_of_a_proposal_is_not_withdrawn_by_hand(world: Realm) -> None:
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
    proposal = world.act("kid", "sell", {"item": "tea"})
    assert refusal(world.leases.desk.withdraw, proposal.proposal_id) == "PROPOSAL_WAITS"


def test_settings_that_changed_come_into_force_when_told_to(log_url: str) -> None:
    limits = Limits(klis=KlisSettings(default_ttl_ms=5_000))
    with Realm.create(log_url, domain=shop, limits=limits) as world:
        desk = world.leases.desk
        assert not desk.configure(by="operator")
        assert desk.request(manifest("ann"), by="ann").ttl_ms == 5_000


@pytest.mark.requirement("CARD-replay")
def test_a_verdict_that_was_written_otherwise_is_found_by_the_recheck(world: Realm) -> None:
    desk = world.leases.desk
    desk.register_agent("old", by="operator", priority=1)
    desk.request(manifest("young"), by="young")
    desk.request(manifest("old"), by="old", queue=True)
    desk.request(manifest("third"), by="third")
    realm, altered = RealmState(), 0
    for position, event in world.events():
        if isinstance(event, VerdictGiven):
            assert recheck_verdict(realm.klis, event) is None
            others = [
                replace(event, status="Die" if event.status != "Die" else "Wait"),
                replace(event, retry_after_ms=77),
                replace(event, more_conflicts=True),
                replace(event, session_id="other"),
                replace(event, cause="queue", request_id="nothing"),
                replace(
                    event,
                    leases=[
                        *event.leases,
                        GrantedLease(lease_id="l", token=9, predicate="MUTATES", resource="FILE:/b"),
                    ],
                ),
            ]
            for other in others:
                found = recheck_verdict(realm.klis, other)
                assert found is not None
                assert found.code == "VERDICT_DIFFERS"
                altered += 1
        apply_event(realm, event, position)
    assert altered == 18


@pytest.mark.requirement("CARD-replay")
def test_a_manifest_that_was_made_again_hides_no_altered_verdict_on_a_proposal(world: Realm) -> None:
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.act("ann", "close")
    realm, altered = RealmState(), 0
    for position, event in world.events():
        if isinstance(event, VerdictGiven):
            made = read_manifest(event.manifest or {}, settings=realm.klis.in_force, wide=ENGINE_ONLY)
            assert [triple.resource.type for triple in made.triples] == ["STATE"]
            assert recheck_verdict(realm.klis, event, made) is None
            more = GrantedLease(lease_id="l", token=9, predicate="MUTATES", resource="STATE:/b/*")
            for other in (
                replace(event, status="Die"),
                replace(event, retry_after_ms=77),
                replace(event, session_id="other"),
                replace(event, leases=[*event.leases, more]),
            ):
                found = recheck_verdict(realm.klis, other, made)
                assert found is not None
                assert found.code == "VERDICT_DIFFERS"
                altered += 1
        apply_event(realm, event, position)
    assert altered == 4


def test_keys_are_public_and_of_the_right_size(world: Realm) -> None:
    desk, key = world.leases.desk, Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    name = desk.register_key("ann", public, by="operator")
    assert refusal(desk.register_key, "bob", public, by="operator") == "KEY_EXISTS"
    assert refusal(desk.register_key, "bob", public[:31], by="operator") == "INVALID_KEY"
    told = base64.b64encode(key.private_bytes_raw()).decode()
    assert all(told not in str(event) for _, event in world.events())
    assert world.realm().klis.keys[name].agent_id == "ann"


def test_two_programs_on_one_log_never_hold_the_same(shared_log_url: str, tmp_path: Path) -> None:
    with Realm.create(shared_log_url, domain=shop) as one, Realm.open(shared_log_url, domain=shop) as two:
        first = one.leases.desk.request(manifest("ann"), by="ann")
        second = two.leases.desk.request(manifest("bob"), by="bob")
        assert [first.status, second.status] == ["Granted", "Die"]
        one.leases.desk.release([first.leases[0].lease_id], agent_id="ann", session_id="s")
        assert two.leases.desk.request(manifest("bob"), by="bob").status == "Granted"


@pytest.mark.requirement("KM-7.1", "CARD-replay")
def test_a_recheck_of_a_log_authenticates_each_request_again(tmp_path: Path) -> None:
    address, forged = str(tmp_path / "w.db"), str(tmp_path / "forged.db")
    with Realm.create(address, domain=shop) as world:
        world.leases.desk.request(manifest("ann"), by="ann")
        export_log(world.log, out := BytesIO())
    told = [json.loads(line) for line in out.getvalue().splitlines()]
    (line,) = [one for one in told if one.get("topic") == VerdictGiven.TOPIC]
    line["state"]["channel"] = {"kind": "vouched", "by": "gateway"}
    import_log(BytesIO(b"".join(rehashed(told))), forged)
    with open_to_recheck(forged, domain=shop) as looked:
        (found,) = recheck(looked, every=True).divergences
    assert (found.topic, found.difference.code) == (VerdictGiven.TOPIC, "VERDICT_DIFFERS")
    assert [one["at"] for one in found.difference.details["differences"]] == ["channel"]
