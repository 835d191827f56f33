"""Signed intents: what is recorded, what is refused, and what verification and the second implementation find."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.cli.realm import COMMAND, environment
from tests.golden.garden import FOLDER, START
from tests.golden.harbour import harbour
from tests.log.test_both_find_the_same import events_of, found_by_engine, found_by_second
from tests.server.kiosk import kiosk
from tests.server.served import ORDER, PATH, Served, founded, serving
from world.audit.verify import verify
from world.clock import ManualClock, SystemClock
from world.errors import RefusedError
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import IntentSignature, Verification
from world.klis.identity.intent_signature import sign_intent
from world.klis.identity.signature import public_key
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.model.intent import IntentInstance
from worldprotocol.api.callers.signing import signature_of
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

KEY, OTHER = b"\x01" * 32, b"\x02" * 32
PAY = {"ship": "bob", "amount": 1}
AGE = 300_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START, 1)


@pytest.fixture
def realm(tmp_path: Path, clock: ManualClock) -> Any:
    with Realm.create(tmp_path / "world.db", domain=harbour, clock=clock) as realm:
        for name in ("bob", "eve"):
            realm.register(name, "agent", binding={"kind": "auto_approve"})
            realm.access.grant(name, "actor", by="operator")
        realm.leases.desk.register_key("bob", public_key(KEY), by="operator")
        yield realm


def issued(realm: Realm, amount: int = 1) -> IntentInstance:
    return realm.issue("bob", "pay", PAY | {"amount": amount}, scope=["tolls.bob"])


def refusal(realm: Realm, intent: IntentInstance, signature: IntentSignature | None) -> str:
    """Submit an intent that is refused, with nothing recorded; return the message."""
    size = realm.log.head().size
    with pytest.raises(RefusedError) as caught:
        realm.submit(intent, signature=signature)
    assert caught.value.code == "UNAUTHENTICATED"
    assert realm.log.head().size == size
    return caught.value.message


def test_a_signed_intent_is_recorded_with_its_signature_and_verifies(realm: Realm, clock: ManualClock) -> None:
    intent = issued(realm)
    signature = signature_of(realm, intent, KEY, now_ms=clock.now_ms())
    assert realm.submit(intent, signature=signature.to_wire()).status == "completed"
    (event,) = (event for _, event in realm.events() if isinstance(event, ProposalSubmitted))
    assert event.signed == signature
    assert verify(realm.log).ok


def _with_other_key(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, signature_of(realm, intent, OTHER, now_ms=now)


def _with_the_name_of_the_key(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    known = signature_of(realm, intent, KEY, now_ms=now)
    return intent, structs.replace(signature_of(realm, intent, OTHER, now_ms=now), key_id=known.key_id)


def _of_another_actor(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    realm.leases.desk.register_key("eve", public_key(OTHER), by="operator")
    return intent, signature_of(realm, intent, OTHER, now_ms=now)


def _over_another_input(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return issued(realm, 2), signature_of(realm, intent, KEY, now_ms=now)


def _under_another_id(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return structs.replace(intent, intent_id=realm.new_id()), signature_of(realm, intent, KEY, now_ms=now)


def _for_another_realm(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, sign_intent(intent, KEY, log_id="another", issued_at=now)


def _at_another_time(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, structs.replace(signature_of(realm, intent, KEY, now_ms=now), issued_at=now + 1)


def _too_old(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, signature_of(realm, intent, KEY, now_ms=now - AGE - 1)


def _too_new(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, signature_of(realm, intent, KEY, now_ms=now + AGE + 1_000)


def _revoked(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    signature = signature_of(realm, intent, KEY, now_ms=now)
    realm.leases.desk.revoke_key(signature.key_id, by="operator", reason="lost")
    return intent, signature


def _no_base64(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    return intent, structs.replace(signature_of(realm, intent, KEY, now_ms=now), signature="~")


def _of_a_manifest(realm: Realm, intent: IntentInstance, now: int) -> tuple[IntentInstance, IntentSignature]:
    """Sign the intent as a manifest is signed: its own members, without what the signature is for."""
    from world.klis.identity.signature import sign_bytes, signed_bytes

    signature = sign_bytes(signed_bytes(intent.to_wire()), KEY)
    return intent, structs.replace(signature_of(realm, intent, KEY, now_ms=now), signature=signature)


ATTACKS: list[tuple[Callable[..., tuple[IntentInstance, IntentSignature]], str]] = [
    (_with_other_key, "is not registered"),
    (_with_the_name_of_the_key, "did not sign this intent"),
    (_of_another_actor, "is one of 'eve', not of 'bob'"),
    (_over_another_input, "did not sign this intent"),
    (_under_another_id, "did not sign this intent"),
    (_for_another_realm, "did not sign this intent"),
    (_at_another_time, "did not sign this intent"),
    (_too_old, "max_signature_age_ms"),
    (_too_new, "max_signature_age_ms"),
    (_revoked, "was revoked"),
    (_no_base64, "not base64"),
    (_of_a_manifest, "did not sign this intent"),
]


@pytest.mark.parametrize(("attack", "words"), ATTACKS, ids=[attack.__name__ for attack, _ in ATTACKS])
def test_a_signature_that_does_not_hold_is_refused(
    realm: Realm, clock: ManualClock, attack: Callable[..., Any], words: str
) -> None:
    intent, signature = attack(realm, issued(realm), clock.now_ms())
    assert words in refusal(realm, intent, signature)


def test_a_key_that_is_registered_later_signs_once_it_is_registered(realm: Realm, clock: ManualClock) -> None:
    intent = issued(realm)
    signature = signature_of(realm, intent, OTHER, now_ms=clock.now_ms())
    assert "not registered" in refusal(realm, intent, signature)
    realm.leases.desk.register_key("bob", public_key(OTHER), by="operator")
    assert realm.submit(intent, signature=signature).status == "completed"


def test_a_signature_submits_once(realm: Realm, clock: ManualClock) -> None:
    intent = issued(realm)
    signature = signature_of(realm, intent, KEY, now_ms=clock.now_ms())
    realm.submit(intent, signature=signature)
    with pytest.raises(RefusedError) as caught:
        realm.submit(intent, signature=signature)
    assert caught.value.code == "INTENT_ALREADY_SUBMITTED"


def test_a_caller_that_a_signature_verified_may_submit_that_intent_and_nothing_else(
    realm: Realm, clock: ManualClock
) -> None:
    intent = issued(realm)
    signature = signature_of(realm, intent, KEY, now_ms=clock.now_ms())
    bob = realm.as_caller(Verification(method="signature", actor_id="bob", key_id=signature.key_id))
    assert "is not signed" in refusal(bob, intent, None)
    wrong = realm.as_caller(Verification(method="signature", actor_id="bob", key_id="0" * 16))
    assert "was verified by the key" in refusal(wrong, intent, signature)
    realm.access.grant("bob", "operator", by="operator")
    with pytest.raises(RefusedError) as caught:
        bob.create_branch("own", by="bob")
    assert caught.value.code == "UNAUTHENTICATED"
    assert bob.submit(intent, signature=signature).status == "completed"
    assert verify(realm.log).ok


def test_the_age_of_signatures_is_the_setting_of_manifests(tmp_path: Path, clock: ManualClock) -> None:
    limits = Limits(klis=KlisSettings.read({"max_signature_age_ms": 1_000}))
    with Realm.create(tmp_path / "short.db", domain=harbour, clock=clock, limits=limits) as realm:
        realm.register("bob", "agent", binding={"kind": "auto_approve"})
        realm.leases.desk.register_key("bob", public_key(KEY), by="operator")
        intent = issued(realm)
        signature = signature_of(realm, intent, KEY, now_ms=clock.now_ms() - 2_000)
        assert "more than 1000 ms" in refusal(realm, intent, signature)


def _input(state: dict[str, Any]) -> None:
    state["intent"]["meta"]["origin"]["note"] = "another note"


FORGED: list[tuple[str, str, int, Callable[[dict[str, Any]], None]]] = [
    ("another time of signing", "proposal.submitted", 0, lambda state: state["signed"].update(issuedAt=START + 60)),
    ("an old time of signing", "proposal.submitted", 0, lambda state: state["signed"].update(issuedAt=START - AGE)),
    ("another key", "proposal.submitted", 0, lambda state: state["signed"].update(keyId="0" * 16)),
    ("a revoked key", "proposal.submitted", 1, lambda state: state["signed"].update(keyId="82153ddeac6f9425")),
    ("another signature", "proposal.submitted", 0, lambda state: state["signed"].update(signature="AA" * 43 + "==")),
    ("another note of the intent", "proposal.submitted", 0, _input),
    ("no signature where it verified", "proposal.submitted", 1, lambda state: state.pop("signed")),
    ("a session of another method", "human.answered", 0, lambda state: state["verified"].update(method="link")),
    ("a session of another issuer", "human.answered", 0, lambda state: state["verified"].update(issuer="https://x")),
    ("a session of another subject", "human.answered", 0, lambda state: state["verified"].update(subject="u-2")),
    ("a session as a token", "human.answered", 1, lambda state: state["verified"].update(method="token")),
    ("a link as an issuer", "human.answered", 1, lambda state: state["verified"].update(method="oidc")),
    ("a token that is no session", "token.created", 0, lambda state: state.pop("session")),
]


@pytest.mark.parametrize(("what", "topic", "number", "change"), FORGED, ids=[one[0] for one in FORGED])
def test_forged_signatures_and_sessions_are_found_by_both_implementations(
    what: str, topic: str, number: int, change: Callable[[dict[str, Any]], None]
) -> None:
    events = events_of(FOLDER / "signed.jsonl")
    assert found_by_engine(events) is None
    assert found_by_second(events) is None
    change([one for one in events if one["topic"] == topic][number]["state"])
    found = found_by_engine(events)
    assert found is not None
    assert found == found_by_second(events)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    place = founded(tmp_path_factory.mktemp("signed"), server="burst = 1000")
    with Realm.open(place.log, domain=kiosk, on_change="hold") as realm:
        for name, key in (("kid", KEY), ("nil", OTHER)):
            realm.leases.desk.register_key(name, public_key(key), by="operator")
    with serving(place) as running:
        yield running


def signed_order(served: Served, actor: str = "kid", key: bytes = KEY) -> dict[str, Any]:
    """Return a signed intent as the body of a request."""
    with Realm.open(served.place.log, domain=kiosk, on_change="hold") as realm:
        intent = realm.issue(actor, "order.place", ORDER["input"], scope=["orders"])
        signature = signature_of(realm, intent, key, now_ms=SystemClock().now_ms())
    return {**intent.to_wire(), "signature": signature.to_wire()}


def sent(served: Served, body: Any, actor: str | None = None) -> tuple[int, str | None]:
    """Submit an intent, with the token of an actor or with its signature alone, whose key the header names."""
    signature = body.get("signature")
    headers = {"Wp-Key-Id": signature["keyId"]} if actor is None and signature else {}
    with served.client(actor) as client:
        answer = client.post(f"{PATH}/intents", json=body, headers=headers)
    return answer.status_code, answer.json().get("code")


def last(served: Served) -> ProposalSubmitted:
    with served.place.realm() as realm:
        assert verify(realm.log).ok
        return [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)][-1]


def test_a_signed_intent_of_a_signed_in_caller_records_both(served: Served) -> None:
    body = signed_order(served)
    assert sent(served, body, "kid") == (200, None)
    event = last(served)
    assert event.verified is not None
    assert event.verified.method == "token"
    assert event.signed == IntentSignature.read(body["signature"])


def test_the_signature_alone_signs_its_actor_in_for_this_intent(served: Served) -> None:
    body = signed_order(served)
    assert sent(served, body) == (200, None)
    key = body["signature"]["keyId"]
    verified = last(served).verified
    assert verified is not None
    signer = Verification(method="signature", actor_id="kid", key_id=key, key=body["intentId"])
    assert structs.replace(verified, request=None) == signer  # the intentId is the key of the request
    assert sent(served, body) == (200, None)  # a repetition is the same proposal
    assert sent(served, body | {"signature": None}) == (401, "SIGN_IN_REQUIRED")
    assert sent(served, {**body, "intentId": "another"}) == (401, "UNAUTHENTICATED")
    assert sent(served, {**body, "body": {**body["body"], "type": "order.pay"}}) == (401, "UNAUTHENTICATED")
    assert sent(served, signed_order(served, "nil", OTHER)) == (403, "RIGHT_MISSING")
    assert sent(served, signed_order(served, "nil", KEY)) == (401, "UNAUTHENTICATED")
    assert sent(served, signed_order(served), "mule") == (403, "RIGHT_MISSING")
    assert sent(served, signed_order(served), "bot") == (403, "NOT_THE_VERIFIED_ACTOR")


def test_the_header_names_the_key_that_signed_the_body(served: Served) -> None:
    body = signed_order(served)
    with served.client() as client:

        def refused(content: Any, headers: dict[str, str]) -> tuple[str, str]:
            answer = client.post(f"{PATH}/intents", json=content, headers=headers).json()
            return answer["code"], answer["detail"]

        other = signed_order(served, "nil", OTHER)["signature"]["keyId"]
        assert refused(body, {})[0] == "SIGN_IN_REQUIRED"
        assert "Wp-Key-Id" in refused(body, {})[1]
        assert "is not registered" in refused(body, {"Wp-Key-Id": "0" * 16})[1]
        assert "is signed with the key" in refused(body, {"Wp-Key-Id": other})[1]
        assert "no signature" in refused(body | {"signature": None}, {"Wp-Key-Id": other})[1]
        assert "no issued intent" in refused({"type": "x"}, {"Wp-Key-Id": other})[1]
        code, _ = refused(body, {"Wp-Key-Id": body["signature"]["keyId"], "Authorization": "Bearer x"})
        assert code == "SIGN_IN_REQUIRED"


def test_a_signature_signs_in_for_no_other_operation(served: Served) -> None:
    body = signed_order(served)
    with served.client() as client:
        for path in ("/events", "/leases", "/branches"):
            assert client.post(f"{PATH}{path}", json=body).json()["code"] in ("SIGN_IN_REQUIRED", "INVALID_VALUE")
        assert client.request("GET", f"{PATH}/log", json=body).json()["code"] == "SIGN_IN_REQUIRED"


def test_a_signature_over_another_intent_is_refused_with_a_token_too(served: Served) -> None:
    one, two = signed_order(served), signed_order(served)
    assert sent(served, one | {"signature": two["signature"]}, "kid") == (401, "UNAUTHENTICATED")


def test_the_command_line_signs_an_intent(tmp_path: Path) -> None:
    place = founded(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [*COMMAND, *arguments, "--json"]
        return subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)

    made = json.loads(run("keys", "new", "kid.pem").stdout)
    wanted = ["submit", "order.place", "--actor", "kid", "--input", '{"item": "tea"}', "--scope", "orders"]
    refused = run(*wanted, "--sign", "kid.pem")
    assert "UNAUTHENTICATED" in refused.stdout + refused.stderr
    assert "keys register" in refused.stdout + refused.stderr
    run("keys", "register", "kid", made["publicKey"])
    done = run(*wanted, "--sign", "kid.pem")
    assert json.loads(done.stdout)["status"] == "completed", done.stderr
    with place.realm() as realm:
        event = [event for _, event in realm.events() if isinstance(event, ProposalSubmitted)][-1]
    assert event.signed is not None
    assert event.signed.key_id == made["keyId"]
    assert run("submit", "--intents", "-", "--sign", "kid.pem").returncode == 2


def test_a_line_of_intents_may_have_its_signature(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk, on_change="hold") as realm:
        realm.leases.desk.register_key("kid", public_key(KEY), by="operator")
        lines = []
        for key in (KEY, OTHER):
            intent = realm.issue("kid", "order.place", ORDER["input"], scope=["orders"])
            signature = signature_of(realm, intent, key, now_ms=SystemClock().now_ms())
            lines.append(json.dumps({**intent.to_wire(), "signature": signature.to_wire()}))
    done = subprocess.run(
        [*COMMAND, "submit", "--intents", "-"],
        cwd=tmp_path,
        env=environment(),
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert '"completed"' in done.stdout.splitlines()[0]
    assert "UNAUTHENTICATED" in done.stdout.splitlines()[1]


def test_a_token_can_act_and_nothing_else(tmp_path: Path) -> None:
    """`worldctl token create --actor all --can act`: the right ``actor`` of an actor that has every right."""
    place = founded(tmp_path)
    create = ["token", "create", "--actor", "all", "--can", "act", "--can", "reader", "--json"]
    done = subprocess.run([*COMMAND, *create], cwd=tmp_path, env=environment(), capture_output=True, check=True)
    place.tokens["limited"] = json.loads(done.stdout)["token"]
    with serving(place) as served, served.client("limited") as client:
        assert client.get(PATH).json()["rights"] == ["actor", "reader"]
        assert client.post(f"{PATH}/intents", json=ORDER).status_code == 200
        answer = client.post(f"{PATH}/branches", json={"name": "plan"})
        assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")
        assert f"the token {place.tokens['limited'].split('_')[1]}" in answer.json()["detail"]
