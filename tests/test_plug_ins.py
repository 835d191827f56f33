"""What installed packages plug in by entry points: each kind of thing is one class in a package outside of the product."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.cli.realm import FOUND, sale
from tests.outside import RealmWithPackages, install

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
    made = RealmWithPackages(folder, site=site)
    made(*FOUND)
    made("actor", "add", "ann", "--kind", "human", "--auto-approve")
    return made


def without_packages(realm: RealmWithPackages) -> RealmWithPackages:
    return RealmWithPackages(realm.folder)


def submitted(realm: RealmWithPackages, actor: str, count: int) -> dict[str, str]:
    return realm("submit", "--intents", "-", "--json", given=sale(actor, count=count)).json


@pytest.mark.requirement("WP-bind", "CARD-replay")
def test_a_package_adds_a_kind_of_binding(realm, site):
    install(site, "acme_limits", BINDING, {"worldprotocol.bindings": "limit = LimitBinding"})
    realm("actor", "add", "bot", "--kind", "agent", "--bind", '{"kind": "limit", "most": 3, "ask": ["ann"]}')
    assert submitted(realm, "bot", 2)["status"] == "completed"
    asked = submitted(realm, "bot", 4)
    assert asked["status"] == "evaluating"
    assert realm("decide", asked["proposalId"], "approve", "--by", "ann", "--json").json["status"] == "completed"
    bound = realm("actor", "list", "--json").json[-1]["binding"]
    assert {"kind": bound["kind"], "most": bound["most"], "ask": bound["ask"]} == {
        "kind": "limit", "most": 3, "ask": ["ann"],
    }  # fmt: skip
    realm("verify")
    assert realm("recheck", "--json").json["ok"]


@pytest.mark.requirement("WP-bind", "CARD-replay")
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
