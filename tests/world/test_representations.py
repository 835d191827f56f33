"""The representation of every value that a program of a user holds is one line that identifies it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.shop import house, open_shop, shop
from world.model.decision import DecisionRecord
from world.model.short_repr import MAX_REPR, short_repr
from worldprotocol import Realm


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


@pytest.mark.parametrize("name", NAMES)
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
