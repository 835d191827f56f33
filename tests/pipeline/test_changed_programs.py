"""A program that differs from what is in force learns it, and what needs the difference waits and is not rejected."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from authority import Approve, Policy, Reject, rule
from tests import second_implementation as second_one
from tests.pipeline.migrating import Add, asking, first, second
from world.audit.verify import verify
from world.core import ActionContext, Domain, Patch, set_
from world.errors import RefusedError
from world.events.proposal_events import ProposalHeld
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck
from worldprotocol.api.program_changes import DEVELOPMENT
from worldprotocol.export.jsonl import export_log


@rule("decides")
def approves(case: Any) -> Any:
    return Approve("fine")


@rule("decides")
def rejects(case: Any) -> Any:
    return Reject("no")


@rule("also")
def also(case: Any) -> Any:
    return None


OLD, NEW = Policy("house", [approves]), Policy("house", [rejects, also])
HOUSE = {"kind": "policy_rules", "policy": "house"}


def with_other_code() -> Domain:
    """Return the first domain, one of whose functions has other code."""
    domain = first()

    def add(ctx: ActionContext, given: Add) -> list[Patch]:
        return [set_("count", ctx.data["count"] + 10 * given.by)]

    domain._actions["add"] = (add, domain._actions["add"][1])
    return domain


def founded(address: str) -> Realm:
    realm = Realm.create(address, domain=first(), policies=[OLD, asking])
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    realm.register("bot", "agent", binding=HOUSE)
    realm.register("shy", "agent", binding={"kind": "policy_rules", "policy": "asking"})
    return realm


def opened(address: str, **options: Any) -> Realm:
    options = {"domain": first(), "policies": [OLD, asking], **options}
    return Realm.open(address, **options)


def is_sound(realm: Realm) -> bool:
    report = verify(realm.log)
    export_log(realm.log, out := BytesIO())
    told = second_one.verify(out.getvalue().decode().splitlines(keepends=True))
    assert report.ok, report.findings
    assert told["sound"], told
    return True


def holds(realm: Realm) -> list[ProposalHeld]:
    return [event for _, event in realm.events() if isinstance(event, ProposalHeld)]


@pytest.mark.requirement("CARD-policy", "WP-decision", "CARD-audit", "CARD-replay")
@pytest.mark.parametrize("way", ["adopting", "the right program"])
def test_a_proposal_of_a_changed_policy_waits_until_that_is_resolved(shared_log_url: str, way: str) -> None:
    founded(shared_log_url).close()
    with opened(shared_log_url, policies=[NEW, asking]) as realm:
        held = realm.act("bot", "add", {"by": 1})
        assert (held.status, held.to_wire()["held"]) == ("submitted", "policy changed: house")
        (event,) = holds(realm)
        assert (event.cause, event.names, event.in_force, event.at_hand) == ("policy", ["house"], OLD.hash, NEW.hash)
        realm.settle()
        assert len(holds(realm)) == 1  # it is recorded once
        assert is_sound(realm)
        if way == "adopting":
            realm.adopt_policy("house")
            assert realm.proposal(held.proposal_id).status == "rejected"
    with opened(shared_log_url, policies=[OLD, asking]) as realm:
        status = realm.proposal(held.proposal_id).status
        assert status == ("rejected" if way == "adopting" else "completed")
        assert realm.proposal(held.proposal_id).held is None
        assert is_sound(realm)
    with open_to_recheck(shared_log_url, domain=first(), policies=[NEW if way == "adopting" else OLD, asking]) as realm:
        done = recheck(realm, every=True)
    assert [one for one in done.divergences if not one.is_drift] == []


@pytest.mark.requirement("CARD-policy")
def test_a_proposal_of_a_policy_that_is_not_loaded_waits(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    with opened(shared_log_url, policies=[asking]) as realm:
        held = realm.act("bot", "add", {"by": 1})
        assert held.to_wire()["held"] == "policy not loaded: house"
        assert [one.loaded for one in realm.changes().policies] == [None]
    with opened(shared_log_url) as realm:
        assert realm.proposal(held.proposal_id).status == "completed"
        assert not realm.changes()


@pytest.mark.requirement("WP-schema", "WP-exec", "CARD-replay")
def test_an_action_whose_code_was_not_adopted_executes_nothing(shared_log_url: str) -> None:
    with founded(shared_log_url) as realm:
        asked = realm.act("shy", "add", {"by": 1})
    with opened(shared_log_url, domain=with_other_code()) as realm:
        assert realm.changes().code == ("action:add",)
        held = realm.act("ann", "add", {"by": 1})
        assert (held.status, held.to_wire()["held"]) == ("submitted", "code changed: action:add")
        assert realm.act("ann", "name", {"by": "x"}).status == "completed"  # its code is as adopted
        approved = realm.decide(asked.proposal_id, "approve", by="ann")
        assert (approved.status, approved.to_wire()["held"]) == ("approved", "code changed: action:add")
        assert realm.data()["count"] == 0
        assert is_sound(realm)
    with opened(shared_log_url) as realm:
        assert realm.data()["count"] == 2
        assert {realm.proposal(one.proposal_id).status for one in (held, approved)} == {"completed"}
        assert is_sound(realm)


@pytest.mark.requirement("WP-schema", "CARD-policy")
def test_opening_reports_what_differs_and_refuses_or_adopts_as_asked(
    shared_log_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    founded(shared_log_url).close()
    given: dict[str, Any] = {"domain": with_other_code(), "policies": [NEW, asking]}
    Realm.open(shared_log_url, **given).close()
    (told_once,) = [one.getMessage() for one in caplog.records]
    assert "the code of action:add; the policy house has changed (also added" in told_once
    assert "`worldctl adopt`" in told_once
    with pytest.raises(RefusedError) as refused:
        Realm.open(shared_log_url, on_change="refuse", **given)
    told = refused.value.details["changes"]
    assert refused.value.code == "PROGRAM_DIFFERS"
    assert told["code"] == ["action:add"]
    rules = [(one["kind"], one["rule"]) for one in told["policies"][0]["rules"]]
    assert rules == [("added", "also"), ("changed", "decides"), ("moved", "decides")]
    with Realm.open(shared_log_url, on_change="adopt", **given) as realm:
        assert not realm.changes()
        assert realm.act("ann", "add", {"by": 1}).status == "completed"
        assert realm.data()["count"] == 10
    Realm.open(shared_log_url, on_change="refuse", **given).close()


@pytest.mark.requirement("WP-schema")
def test_under_another_schema_intents_are_recorded_and_held(shared_log_url: str) -> None:
    founded(shared_log_url).close()
    with pytest.raises(RefusedError) as refused:
        Realm.open(shared_log_url, domain=second())
    assert refused.value.code == "SCHEMA_MISMATCH"
    assert {one["path"] for one in refused.value.details["changes"]["places"]["main"]} >= {"total", "count"}
    with Realm.open(shared_log_url, domain=second(), policies=[OLD, asking], on_change="hold") as realm:
        held = realm.act("ann", "add", {"by": 2})
        assert held.to_wire()["held"] == "schema changed"
        with pytest.raises(RefusedError) as refused:
            realm.act("ann", "unknown")
        assert refused.value.code == "UNKNOWN_ACTION"
        assert is_sound(realm)
    with opened(shared_log_url) as realm:
        assert realm.proposal(held.proposal_id).status == "completed"
        assert realm.data()["count"] == 2
    with Realm.open(shared_log_url, domain=second(), policies=[OLD, asking], on_change="adopt") as realm:
        assert realm.data()["total"] == 2
        assert is_sound(realm)


@pytest.mark.requirement("CARD-policy", "WP-schema")
def test_a_running_program_holds_when_another_process_adopts_other_code(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as old:
        with Realm.open(address, domain=with_other_code(), policies=[NEW, asking], on_change="adopt"):
            pass
        held = old.act("bot", "add", {"by": 1})
        assert held.status == "submitted"
        assert old.act("ann", "add", {"by": 1}).to_wire()["held"] == "code changed: action:add"
    with opened(address, domain=with_other_code(), policies=[NEW, asking]) as new:
        assert new.proposal(held.proposal_id).status == "rejected"
        assert new.data()["count"] == 10
        assert is_sound(new)


def test_only_realms_for_development_adopt_by_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, marked, made = (str(tmp_path / f"{name}.db") for name in ("plain", "marked", "made"))
    founded(plain).close()
    Realm.create(marked, domain=first(), policies=[OLD], development=True).close()
    monkeypatch.setenv(DEVELOPMENT, "1")
    with pytest.raises(RefusedError) as refused:
        Realm.open(plain, domain=first(), policies=[OLD, asking])
    assert refused.value.code == "NOT_A_DEVELOPMENT_REALM"
    assert "worldctl init --dev" in refused.value.message
    Realm.create(made, domain=first(), policies=[OLD]).close()
    for address in (marked, made):
        with Realm.open(address, domain=second(), policies=[NEW]) as realm:
            assert not realm.changes()
            assert realm.data() == {"total": 0, "people": {}}
            assert is_sound(realm)
