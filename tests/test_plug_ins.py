"""What installed packages plug in by entry points: each thing is one class or function outside of the product."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.cli.realm import COMMAND as COMMAND_LINE
from tests.cli.realm import COUNTER, FOUND, ROOT, CliRealm, environment, sale
from tests.support.outside import RealmWithPackages, install

BINDING: Final = '''
"""A kind of binding: up to so many pieces are approved, and for more people are asked."""

from typing import Literal

from authority.bindings.asking import AnyOneBinding
from authority.bindings.binding import JudgingContext
from authority.people.answers import ask_people
from world.model.decision import Ruling


class LimitBinding(AnyOneBinding):
    kind: Literal["limit"]
    most: int

    def judge(self, case, context: JudgingContext) -> Ruling:
        count = case.intent.body.input.get("count", 1)
        if count > self.most:
            return ask_people(case, self.asking, self.label)
        return Ruling("approve", self.label, f"{count} of at most {self.most}", case.intent.body.scope_proposal)
'''

VIEW: Final = '''
"""A view: how many events each topic has."""

from sqlalchemy import Column, Integer, MetaData, Table, Text, bindparam, delete, insert, update

from world.log import compiled


class Topics:
    name = "topics"
    version = 1
    metadata = MetaData()
    table = Table(
        "acme_topics",
        metadata,
        Column("log_id", Integer, primary_key=True, autoincrement=False),
        Column("topic", Text, primary_key=True),
        Column("events", Integer, nullable=False),
    )

    def clear(self, cursor):
        mine = self.table.c.log_id == bindparam("log_id")
        cursor.run(compiled(delete(self.table).where(mine), cursor.backend), log_id=cursor.log_id)

    def apply(self, cursor, events):
        here = (self.table.c.log_id == bindparam("of_log"), self.table.c.topic == bindparam("of_topic"))
        more = update(self.table).values(events=self.table.c.events + 1).where(*here).returning(self.table.c.events)
        for event in events:
            cursor.run(compiled(more, cursor.backend), of_log=cursor.log_id, of_topic=event.topic)
            if cursor.fetchone() is None:
                row = {"log_id": cursor.log_id, "topic": event.topic, "events": 1}
                cursor.run(compiled(insert(self.table), cursor.backend), **row)
            if event.topic == FAILS_AT:
                raise ValueError(f"no {event.topic} here")


FAILS_AT = None
view = Topics()
'''

EFFECT: Final = '''
"""A handler of an effect."""

from worldprotocol import handler


@handler("bank.charge")
def bank(params, call):
    return {"receipt": f"package-{params['amount']}"}
'''

COMMAND: Final = '''
"""A command: how many items were sold."""

import click

from worldprotocol.cli.support.command_context import command


@command("sold")
@click.option("--double", is_flag=True, help="Count everything twice.")
def sold(desk, double):
    """Print how many items were sold."""
    with desk.look() as world:
        count = world.data()["sold"] * (2 if double else 1)
    desk.out.tell({"sold": count}, f"{count} items were sold.")


nothing = "no command"
'''

RESOURCE_TYPE: Final = '''
"""A type of resources: topics of a message broker, whose names are a hierarchy."""

from world.klis.resources.resource import ResourceType

topic = ResourceType("TOPIC", "opaque", separator=".")
'''


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of installed packages."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return folder


@pytest.fixture
def realm(tmp_path: Path, site: Path) -> RealmWithPackages:
    """A shop in which ann is auto-approved; packages of ``site`` are installed."""
    folder = tmp_path / "shop"
    folder.mkdir()
    made = CliRealm(folder)
    made(*FOUND)
    made("actor", "add", "ann", "--kind", "human", "--auto-approve")
    return RealmWithPackages(folder, site=site)


def without_packages(realm: RealmWithPackages) -> RealmWithPackages:
    return RealmWithPackages(realm.folder)


def submitted(realm: RealmWithPackages, actor: str, count: int, code: int = 0) -> dict[str, str]:
    return realm("submit", "--intents", "-", "--json", given=sale(actor, count=count), code=code).json


@pytest.mark.requirement("WP-bind", "CARD-replay")
@pytest.mark.slow
def test_a_package_adds_a_kind_of_binding(realm, site):
    install(site, "acme_limits", BINDING, {"worldprotocol.bindings": "limit = LimitBinding"})
    realm("actor", "add", "bot", "--kind", "agent", "--bind", '{"kind": "limit", "most": 3, "ask": ["ann"]}')
    assert submitted(realm, "bot", 2)["status"] == "completed"
    asked = submitted(realm, "bot", 4, code=4)
    assert asked["status"] == "evaluating"
    assert realm("decide", asked["proposalId"], "approve", "--by", "ann", "--json").json["status"] == "completed"
    bound = realm("actor", "list", "--json").json[-1]["binding"]
    assert {"kind": bound["kind"], "most": bound["most"], "ask": bound["ask"]} == {
        "kind": "limit", "most": 3, "ask": ["ann"],
    }  # fmt: skip
    realm("verify")
    assert realm("recheck", "--json").json["ok"]


@pytest.mark.requirement("WP-bind", "CARD-replay")
@pytest.mark.slow
def test_without_the_package_its_bindings_reject_and_the_log_is_replayed_all_the_same(realm, site):
    install(site, "acme_limits", BINDING, {"worldprotocol.bindings": "limit = LimitBinding"})
    realm("actor", "add", "bot", "--kind", "agent", "--bind", '{"kind": "limit", "most": 3}')
    submitted(realm, "bot", 2)
    bare = without_packages(realm)
    for command in ("replay", "verify"):
        assert bare(command, "--json").json == realm(command, "--json").json
    [found] = bare("recheck", "--json", code=1).json["divergences"]
    assert (found["code"], found["details"]["authority"]) == ("BINDING_NOT_AT_HAND", "limit")
    rejected = bare("submit", "--intents", "-", "--json", given=sale("bot"), code=1).json
    assert rejected["decision"]["reason"].startswith("A binding is an object whose kind is one of auto_approve, ")
    assert "'limit'" in rejected["decision"]["reason"]


def counted(realm: RealmWithPackages) -> dict[str, int]:
    """Return what the view of the package holds."""
    with closing(sqlite3.connect(realm.folder / "world.db")) as database:
        return dict(database.execute("SELECT topic, events FROM acme_topics").fetchall())


def topics(realm: RealmWithPackages) -> dict[str, int]:
    """Return what it should hold."""
    return dict(Counter(event["topic"] for event in realm("log", "--json").lines))


def health(realm: RealmWithPackages, code: int = 0) -> tuple[bool, str]:
    [check] = [one for one in realm("doctor", "--json", code=code).json["checks"] if one["check"] == "view topics"]
    return check["ok"], check["found"]


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_a_package_adds_a_view_that_is_kept_with_every_commit(realm, site):
    install(site, "acme_topics", VIEW, {"worldprotocol.views": "topics = view"})
    submitted(realm, "ann", 1)
    assert counted(realm) == topics(realm)
    size = sum(counted(realm).values())
    assert health(realm) == (True, f"version 1, up to event {size}")
    submitted(without_packages(realm), "ann", 1)
    assert sum(counted(realm).values()) == size
    assert health(realm, code=1) == (False, f"version 1, up to event {size}")
    submitted(realm, "ann", 1)
    assert counted(realm) == topics(realm)
    with closing(sqlite3.connect(realm.folder / "world.db")) as database, database:
        database.execute("UPDATE acme_topics SET events = 7")
    realm("doctor", "--rebuild")
    assert counted(realm) == topics(realm)
    realm("verify")


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_a_view_that_fails_keeps_no_commit_from_being_made(realm, site):
    failing = VIEW.replace("FAILS_AT = None", 'FAILS_AT = "proposal.completed"')
    install(site, "acme_topics", failing, {"worldprotocol.views": "topics = view"})
    before = topics(realm)
    submitted(realm, "ann", 1)
    assert counted(realm) == before
    assert topics(realm)["proposal.completed"] == 1
    assert health(realm, code=1) == (False, f"version 1, up to event {sum(before.values())}")
    said = realm("doctor", "--rebuild", code=1).err
    assert "The view topics could not be kept: ValueError: no proposal.completed here." in said
    (site / "acme_topics.py").write_text(VIEW)
    realm("doctor", "--rebuild")
    assert counted(realm) == topics(realm)


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_a_package_adds_a_handler_of_effects(tmp_path, site):
    install(site, "acme_bank", EFFECT, {"worldprotocol.effects": "bank = bank"})
    realm = RealmWithPackages(tmp_path, site=site)
    realm("init", "--domain", f"{COUNTER}:counter")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    realm("submit", "charge", "--actor", "ann", "--input", '{"amount": 5}')
    assert realm("state", "--json").json["data"]["receipts"] == ["package-5"]
    realm("recheck")


def test_a_package_adds_a_command(realm, site):
    install(site, "acme_sales", COMMAND, {"worldprotocol.commands": "sold = sold"})
    variables = environment() | {"PYTHONPATH": f"{ROOT}{os.pathsep}{site}"}
    said = subprocess.run(
        [*COMMAND_LINE, "sold", "--json"], cwd=realm.folder, env=variables, stdout=subprocess.PIPE, check=True
    )
    assert json.loads(said.stdout) == {"sold": 0}


@pytest.mark.slow
def test_a_package_adds_a_command_that_no_other_one_imports(realm, site):
    offers = "sold = sold\nverify = sold\nbroken = nothing\nNot-A-Name = sold"
    install(site, "acme_sales", COMMAND, {"worldprotocol.commands": offers})
    submitted(realm, "ann", 3)
    assert realm("sold", "--json").json == {"sold": 3}
    assert realm("sold", "--double").out == "6 items were sold.\n"
    listed = realm("--help").out.partition("From packages:\n")[2].split("\n")
    assert [line.split()[0] for line in listed if line] == ["broken", "sold"]
    assert "From the installed package acme_sales." in listed[1]
    assert "Count everything twice." in realm("sold", "--help").out
    assert realm("verify", "--json").json.get("sold") is None  # a package replaces no command
    assert "Did you mean 'sold'?" in realm("soldd", code=2).err
    assert realm("broken", "--json", code=2).json["error"]["code"] == "NOT_LOADED"
    (site / "acme_sales.py").write_text("raise SystemExit('imported')")
    for words in (["--help"], ["verify"], ["verify", "--help"]):
        assert "imported" not in realm(*words).err
    assert realm("sold", "--json", code=2).json["error"]["code"] == "NOT_LOADED"


@pytest.mark.requirement("KP-6", "CARD-replay")
@pytest.mark.slow
def test_a_package_adds_a_type_of_resources_and_the_log_is_replayed_without_it(realm, site):
    install(site, "acme_broker", RESOURCE_TYPE, {"worldprotocol.resource_types": "topic = topic"})
    acquire = ("lease", "acquire", "--agent", "bot", "--session", "s", "--json")
    [held] = realm(*acquire, "TOPIC:orders.*").json["leases"]
    assert held["resource"] == "TOPIC:orders.*"
    bare = without_packages(realm)
    for command in ("replay", "verify", "recheck"):
        assert bare(command, "--json").json == realm(command, "--json").json
