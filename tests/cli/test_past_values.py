"""Computed values of past worlds are those of their own schema; today's code is named where it is another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import CliRealm
from world.code.references import load_reference
from world.core import Domain
from worldprotocol import Realm

DOMAIN = """
from pydantic import BaseModel
from world.core import Domain, set_


def lit(value):
    return {"kind": "lit", "value": value}


MORE = {"kind": "get", "path": "computed.more"}


class State(BaseModel):
    n: int = 1


class To(BaseModel):
    n: int


d = Domain("urn:test:past", version="VERSION", state=State)
ADDED = 1
d.computed("twice", expr={"kind": "mul", "left": {"kind": "get", "path": "n"}, "right": lit(FACTOR)})


def helper(n):
    return n + ADDED


@d.computed("more", deps=["n"])
def more(data):
    return helper(data["n"])


@d.computed("steady", deps=["n"])
def steady(data):
    return -data["n"]


d.computed("most", expr={"kind": "add", "left": MORE, "right": lit(100)})


@d.action("to", version="1", available={"kind": "gt", "left": MORE, "right": lit(0)})
def to(ctx, new: To):
    return [set_("n", new.n)]
"""
OF_ONE = {"computed.more": 2, "computed.most": 102, "computed.steady": -1, "computed.twice": 2}
"""The computed values of genesis as they were when it was sealed."""


def write(realm: CliRealm, *changes: tuple[str, str], factor: int = 2, version: str = "1.0.0") -> None:
    text = DOMAIN.replace("VERSION", version).replace("FACTOR", str(factor))
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (realm.folder / "past.py").write_text(text)


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    realm = CliRealm(tmp_path)
    write(realm)
    realm("init", "--domain", "past.py:d")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    for n in (2, 3):
        realm("submit", "to", "--actor", "ann", "--input", f'{{"n": {n}}}')
    return realm


def genesis(realm: CliRealm) -> str:
    with Realm.open_read_only(realm.folder / "world.db") as world:
        return next(str(row.world_id) for row in world.worlds() if row.parent is None)


def state(realm: CliRealm, *arguments: str) -> Any:
    return realm("state", "--at", genesis(realm), "--json", *arguments).json


def opened(realm: CliRealm) -> Realm:
    domain = load_reference(f"{realm.folder / 'past.py'}:d")
    assert isinstance(domain, Domain)
    return Realm.open(realm.folder / "world.db", domain=domain)


@pytest.mark.requirement("WP-restore", "CARD-audit")
@pytest.mark.slow
def test_a_value_by_a_function_that_changed_since_is_marked(realm: CliRealm) -> None:
    told = state(realm)
    assert told["computed"] == OF_ONE
    assert "computedByOtherCode" not in told
    write(realm, ("ADDED = 1", "ADDED = 5"))
    told = state(realm)
    assert told["computedByOtherCode"] == ["computed.more", "computed.most"]
    assert told["computed"] == {**OF_ONE, "computed.more": 6, "computed.most": 106}
    assert "computed.more: by today's code, which differs" in realm("state", "--at", genesis(realm)).err
    assert state(realm, "computed.more")["computedByOtherCode"] == ["computed.more"]
    assert "computedByOtherCode" not in state(realm, "computed.steady")
    assert "differs" not in realm("state", "computed.steady", "--at", genesis(realm)).err


@pytest.mark.requirement("WP-restore", "CARD-audit")
@pytest.mark.slow
def test_the_mark_goes_with_the_adoption_that_was_in_force(realm: CliRealm) -> None:
    write(realm, ("ADDED = 1", "ADDED = 5"))
    realm("adopt")
    realm("submit", "to", "--actor", "ann", "--input", '{"n": 4}')
    assert "computedByOtherCode" not in realm("state", "--json").json
    assert state(realm)["computedByOtherCode"] == ["computed.more", "computed.most"]


@pytest.mark.requirement("WP-restore", "WP-schema")
@pytest.mark.slow
def test_a_world_of_an_earlier_schema_shows_the_values_of_that_schema(realm: CliRealm) -> None:
    write(realm, ("ADDED = 1", "ADDED = 5"), factor=10, version="2.0.0")
    realm("adopt")
    realm("submit", "to", "--actor", "ann", "--input", '{"n": 4}')
    assert realm("state", "--json").json["computed"]["computed.twice"] == 40
    told = state(realm)
    assert told["computed"] == {"computed.steady": -1, "computed.twice": 2}
    assert told["computedMissing"].startswith("computed.more, computed.most: the schema of the loaded domain differs")
    (realm.folder / "world.toml").write_text("")
    told = state(realm)
    assert told["computed"] == {"computed.twice": 2}
    assert told["computedMissing"].endswith("no domain is loaded; set domain in world.toml")


@pytest.mark.requirement("WP-restore")
@pytest.mark.slow
def test_the_facade_gives_past_worlds_the_values_of_their_own_schema(realm: CliRealm) -> None:
    first = genesis(realm)
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.snapshot(first).computed == {"computed.twice": 2}
    write(realm, ("ADDED = 1", "ADDED = 5"))
    with opened(realm) as world:
        assert world.snapshot(first).computed == {"computed.steady": -1, "computed.twice": 2}
        assert world.computed(first).by_other_code == ("computed.more", "computed.most")
        assert world.snapshot().computed["computed.more"] == 8
    write(realm, ("ADDED = 1", "ADDED = 5"), factor=10, version="2.0.0")
    realm("adopt")
    with opened(realm) as world:
        assert world.snapshot(first).computed == {"computed.steady": -1, "computed.twice": 2}
        assert world.computed(first).missing == ("computed.more", "computed.most")
        assert world.snapshot().computed["computed.twice"] == 30


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_bisect_marks_a_value_by_other_code_and_asks_each_schema_for_its_own(realm: CliRealm) -> None:
    asked = ("bisect", "--path", "computed.more", "--becomes")
    told = realm(*asked, "4", "--json").json
    assert "computedByOtherCode" not in told
    third = told["first"]["worldId"]
    write(realm, ("ADDED = 1", "ADDED = 5"))
    told = realm(*asked, "8", "--json").json
    assert told["computedByOtherCode"] == ["computed.more"]
    assert "by today's code, which differs" in realm(*asked, "8").err
    write(realm, factor=10, version="2.0.0")
    realm("adopt")
    realm("submit", "to", "--actor", "ann", "--input", '{"n": 4}')
    told = realm("bisect", "--path", "computed.twice", "--becomes", "6", "--bad", third, "--json").json
    assert told["first"]["worldId"] == third


@pytest.mark.requirement("WP-restore")
def test_a_catalog_of_a_past_world_reads_no_values_by_other_code(realm: CliRealm) -> None:
    first = genesis(realm)
    with opened(realm) as world:
        assert [one.type for one in world.actions.catalog("ann", at=first).actions] == ["to"]
        assert world.actions.request("ann", at=first).snapshot.computed == OF_ONE
    write(realm, ("ADDED = 1", "ADDED = 5"))
    with opened(realm) as world:
        seen = world.actions.request("ann", at=first).snapshot.computed
        assert seen == {"computed.steady": -1, "computed.twice": 2}
        assert world.actions.request("ann").snapshot.computed["computed.more"] == 8
