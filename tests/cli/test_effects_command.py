"""``worldctl effects``: what is offered to workers, what is claimed, and what is in doubt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.inside import Inside
from tests.cli.mailroom import handlers, mailroom
from tests.cli.realm import ROOT, CliRealm
from world.clock import SystemClock
from world.model.snapshot import EffectAnswer
from world.state.ports import Performed
from worldprotocol.api.realm import Realm

MAILROOM = ROOT / "tests/cli/mailroom.py"
pytestmark = pytest.mark.requirement("HC-journal", "HC-handlers")


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    realm = Inside(tmp_path)
    realm("init", "--domain", f"{MAILROOM}:mailroom", "--effects", f"{MAILROOM}:handlers")
    realm("actor", "add", "ann", "--kind", "human", "--auto-approve")
    for town in ("rome", "oslo"):
        realm("submit", "send", "--actor", "ann", "--input", f'{{"to": "{town}"}}', "--scope", f"sent.{town}", code=4)
    return realm


def opened(realm: CliRealm, later_ms: int = 0) -> Realm:
    """Open the realm as a worker does, maybe later."""

    class Later(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + later_ms

    return Realm.open(realm.folder / "world.db", domain=mailroom, effects=handlers, clock=Later())


def test_what_is_offered_is_listed_with_the_worker_that_has_it(realm: CliRealm) -> None:
    offered = realm("effects", "--json").json
    assert [(one["effect"], one["params"]["to"], one["state"]) for one in offered] == [
        ("mail.send", "rome", "offered"),
        ("mail.send", "oslo", "offered"),
    ]
    with opened(realm) as worker:
        claim = worker.claim_effect(worker="mailer-1")
    assert claim is not None
    (claimed, other) = realm("effects", "--json").json
    assert (claimed["state"], claimed["worker"], claimed["token"]) == ("claimed", "mailer-1", claim.token)
    assert (claimed["deadline"], claimed["requirementId"]) == (claim.deadline, claim.requirement.id)
    assert (other["state"], "worker" in other) == ("offered", False)
    sent = realm("submit", "send", "--actor", "ann", "--input", '{"to": "bern"}', "--scope", "sent.bern", code=4).out
    assert "workers perform: mail.send (offered); `worldctl effects` lists them" in sent
    assert "nothing; 0 wait for people, 3 for workers" in realm("doctor").out
    assert "No effect is in doubt." in realm("stuck").err
    assert "under way" not in realm("stuck").err
    shown = realm("effects").out
    assert "mailer-1" in shown
    assert str(claim.token) in shown
    assert realm("effects", "--type", "mail.fetch", "--json").json == []
    shown = realm("trace", claim.proposal_id).out
    assert f"claimed by mailer-1 with token {claim.token}, attempt 1" in shown
    assert realm("show", claim.proposal_id, "--json").json["effects"]["claimed"] == {claim.requirement.id: "mailer-1"}


def test_an_effect_in_doubt_is_listed_and_settled(realm: CliRealm) -> None:
    with opened(realm) as worker:
        claim = worker.claim_effect(worker="mailer-1")
        assert claim is not None
    with opened(realm, later_ms=70_000) as worker:
        worker.settle()
        found = [one.state for one in worker.offered_effects()]
    assert found == ["in doubt", "offered"]
    assert [one["state"] for one in realm("effects", "--json").json] == found
    assert [one["idempotencyKey"] for one in realm("stuck", "--json").json] == [claim.idempotency_key]
    told = ("--by", "ann", "--reason", "I asked them")
    realm("resolve", claim.proposal_id, "--happened", "--result", '"by hand"', *told)
    assert [one["state"] for one in realm("effects", "--json").json] == ["offered"]


def test_where_nothing_is_offered_the_command_says_so(realm: CliRealm) -> None:
    with opened(realm) as worker:
        while (claim := worker.claim_effect(worker="mailer-1")) is not None:
            worker.complete_effect(claim, Performed(EffectAnswer("receipt")))
    assert realm("effects").err.strip() == "No effect is offered to workers."
    assert realm("effects", "--json").json == []
    assert realm("effects", "--at", "0", "--json").json == []
    assert len(realm("state", "--json").json["data"]["sent"]) == 2
