"""The representation of every value that a program of a user holds is one line that identifies it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import worldprotocol
from tests.pipeline.shop import house, open_shop, shop
from tests.support.tables import for_each
from world.model.decision import DecisionRecord
from world.model.immutable_json import FrozenDict
from world.model.short_repr import MAX_REPR, short_repr
from world.model.snapshot import SnapshotView
from worldprotocol import (
    ActionContext,
    Approve,
    AsyncRealm,
    Case,
    Domain,
    EffectFailure,
    EffectResult,
    EffectType,
    Escalate,
    IntentBody,
    IntentScope,
    Narrow,
    NoIntent,
    Policy,
    ProjectionOutcome,
    ProjectionRequest,
    Realm,
    RealmDirectory,
    Reject,
    RunOptions,
    Select,
    SourceEvent,
    Worker,
    rule,
    set_,
)


@pytest.fixture(scope="module")
def values(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[Any, tuple[str, ...]]]]:
    """Values by the names of their types, each with what its representation has to say."""
    address = str(tmp_path_factory.mktemp("representations") / "shop.db")
    with open_shop(address) as realm, Realm.open_read_only(address) as reading:
        sold = realm.act("ann", "sell", {"item": "tea", "count": 2})
        asking = realm.act("kid", "sell", {"item": "cake"})
        held = realm.leases.acquire(agent="bot", resources=["FILE:/src/a.ts", "FILE:/src/b.ts"])
        decision = DecisionRecord.from_wire(sold.decision or {})
        head = realm.branch().head
        yield {
            "Realm": (realm, ("shop.db#main", "open for acting")),
            "Realm, read-only": (reading, ("shop.db#main", "read-only")),
            "RealmState": (realm.realm(), (f"at event {realm.log.head().size}", "branch main", "1 open proposals")),
            "EventLog": (realm.log, ("shop.db#main",)),
            "LoggedEvent": (realm.log.event_at(1), ("1 log.founded", "stream realm")),
            "Branch": (realm.branch(), ("main", head[:12])),
            "Proposal": (sold, (sold.proposal_id, "sell by ann", "completed", "branch main")),
            "Proposal, waiting": (asking, (asking.proposal_id, "sell by kid", asking.status)),
            "DecisionRecord": (decision, ("approved by", sold.proposal_id)),
            "LeaseHandle": (held, ("agent bot", f"token {held.token}", "MUTATES FILE:/src/a.ts")),
            "Snapshot": (realm.snapshot(), ("sold=2", "idle")),
            "Domain": (shop, ("urn:test:shop 1.0.0", "sell", "charge")),
            "Policy": (house, ("house", house.hash[:12], "small_sales_pass")),
        }
        held.release()


NAMES = (
    *("Realm", "Realm, read-only", "RealmState", "EventLog", "LoggedEvent", "Branch", "Proposal", "Proposal, waiting"),
    *("DecisionRecord", "LeaseHandle", "Snapshot", "Domain", "Policy"),
)


@for_each("name", NAMES)
def test_a_representation_is_one_line_that_identifies_the_value(name: str, values: dict[str, Any]):
    value, facts = values[name]
    line = repr(value)
    assert line.startswith(f"<{type(value).__name__} ")
    assert len(line) <= MAX_REPR
    assert line.isprintable()
    assert [fact for fact in facts if fact not in line] == []


def test_a_long_representation_is_cut_and_holds_no_control_characters():
    line = short_repr(house, "one\ntwo\x1b", "x" * 1_000)
    assert line.startswith("<Policy one two?, xxx")
    assert line.endswith("x...>")
    assert len(line) == MAX_REPR


def test_a_closed_realm_still_has_a_representation(tmp_path: Path):
    with open_shop(str(tmp_path / "shop.db")) as realm:
        pass
    assert "shop.db" in repr(realm)


class Letter(BaseModel):
    text: str


LONG = "a text of several words and\nof two lines\x1b " * 40


def public_values(realm: Realm) -> dict[str, Any]:
    """Return a value of every public class that is no error, each with as much content as it takes."""
    intent = realm.issue("ann", "sell", {"item": LONG}, note=LONG)
    source = SourceEvent(kind="ui", event_id="e1", payload={"text": LONG})
    snapshot = SnapshotView(FrozenDict({"text": LONG}), FrozenDict())
    request = ProjectionRequest("some schema", snapshot, intent.meta.origin.actor, source)
    body = IntentBody(type="sell", input={"item": LONG})
    contexts: list[Any] = []
    cases: list[Any] = []

    @rule
    def keep(case: Case) -> Approve:
        cases.append(case)
        return Approve(LONG)

    domain = Domain("urn:test:long", version="1.0.0", state={"fields": {}})

    @domain.action("go", version="1")
    def go(ctx: ActionContext) -> None:
        contexts.append(ctx)

    with Realm.create("sqlite:///:memory:", domain=domain, policies=[Policy("house", [keep])]) as other:
        other.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
        proposal = other.act("bot", "go", note=LONG)
    assert proposal.status == "completed"
    return {
        "ActionContext": contexts[0],
        "Approve": Approve(LONG),
        "AsyncRealm": AsyncRealm(realm),
        "Case": cases[0],
        "Domain": domain,
        "EffectFailure": EffectFailure("CODE", LONG),
        "EffectResult": EffectResult({"text": LONG}),
        "EffectType": EffectType("mail." + "x" * 400, input=Letter, output=str),
        "Escalate": Escalate("ann", LONG),
        "IntentBody": body,
        "IntentInstance": intent,
        "IntentScope": IntentScope(allowed_paths=("a.b",) * 100),
        "Narrow": Narrow(["a"], LONG),
        "NoIntent": NoIntent(LONG),
        "Patch": set_("a", LONG),
        "Policy": house,
        "ProjectionOutcome": ProjectionOutcome("till", LONG, proposal),
        "ProjectionRequest": request,
        "Realm": realm,
        "Reject": Reject(LONG),
        "RunOptions": RunOptions(by="ann"),
        "Select": Select(body),
        "SourceEvent": source,
        "Worker": Worker(realm, types=["bank.charge"], name="w" * 60),
    }


def test_the_representation_of_every_public_value_is_one_line(tmp_path: Path):
    classes = {
        name
        for name in worldprotocol.__all__
        if inspect.isclass(kind := getattr(worldprotocol, name)) and not issubclass(kind, Exception)
    }
    with open_shop(str(tmp_path / "shop.db")) as realm, RealmDirectory.found(tmp_path / "directory.db") as directory:
        values = public_values(realm) | {"RealmDirectory": directory}
        assert set(values) == classes
        assert {name: type(value).__name__ for name, value in values.items()} == {name: name for name in values}
        wrong = {name: line for name in values if len(line := repr(values[name])) > MAX_REPR or not line.isprintable()}
        assert wrong == {}
        assert "sell" in repr(values["IntentBody"])
        assert "directory.db#main" in repr(values["RealmDirectory"])
        assert repr(values["AsyncRealm"]).startswith("<AsyncRealm Realm ")


def test_the_representation_of_an_error_is_one_line():
    errors = [getattr(worldprotocol, name) for name in worldprotocol.__all__ if name.endswith("Error")]
    assert len(errors) >= 8
    assert [repr(kind("CODE", LONG)) for kind in errors if not repr(kind("CODE", LONG)).isprintable()] == []
