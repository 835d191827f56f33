"""Adoptions at the same time as other commands: another adoption, answers, and changes of who is bound by what."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from authority import Escalate, Policy, rule
from tests.pipeline.migrating import asking, first, second
from tests.pipeline.test_changed_programs import NEW, OLD, founded, is_sound, opened
from world.events.proposal_events import ProposalSubmitted
from world.events.realm_events import DomainAdopted
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import open_to_recheck, recheck

ROOT = Path(__file__).resolve().parents[2]
ADOPTING = """
import sys
from tests.pipeline.migrating import asking, second
from worldprotocol import Realm

print("ready", flush=True)
sys.stdin.readline()
with Realm.open_to_adopt(sys.argv[1], domain=second(), policies=[asking], by=sys.argv[2]) as realm:
    print(realm.data()["total"], flush=True)
"""


@pytest.mark.requirement("WP-schema", "WP-lineage")
@pytest.mark.slow
def test_two_processes_that_adopt_at_once_adopt_once(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    with founded(address) as realm:
        realm.act("ann", "add", {"by": 2})
        realm.create_branch("side")
    adopting = [
        subprocess.Popen(
            [sys.executable, "-c", ADOPTING, address, name],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )
        for name in ("olga", "otto")
    ]  # fmt: skip
    for one in adopting:
        assert one.stdout is not None
        assert one.stdout.readline() == "ready\n"
    for one in adopting:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    assert [one.communicate()[0] for one in adopting] == ["2\n", "2\n"]
    assert [one.returncode for one in adopting] == [0, 0]
    with Realm.open(address, domain=second(), policies=[asking]) as realm:
        events = [event for _, event in realm.events()]
        assert len([one for one in events if isinstance(one, DomainAdopted)]) == 2  # the founding and one adoption
        assert len([one for one in events if isinstance(one, ProposalSubmitted) and one.migration]) == 2  # two branches
        assert is_sound(realm)


@rule("ask_ann")
def asks_differently(case: Any) -> Any:
    return Escalate(["ann"], "another reason")


@pytest.mark.requirement("CARD-policy", "WP-decision", "CARD-replay")
def test_an_answer_decides_under_the_ruling_that_asked_for_it(tmp_path: Path) -> None:
    """The policy asked before it changed; its ruling is in the log, and so the answer needs no code of it."""
    address = str(tmp_path / "w.db")
    with founded(address) as realm:
        asked = realm.act("shy", "add", {"by": 1})
    with opened(address, policies=[OLD, Policy("asking", [asks_differently])]) as realm:
        assert realm.decide(asked.proposal_id, "approve", by="ann").status == "completed"
        assert is_sound(realm)
    with open_to_recheck(address, domain=first(), policies=[OLD, asking]) as realm:
        assert list(recheck(realm, every=True).divergences) == []


@pytest.mark.requirement("CARD-policy", "WP-bind")
def test_another_binding_resolves_a_hold(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    founded(address).close()
    with opened(address, policies=[NEW, asking]) as realm:
        held = realm.act("bot", "add", {"by": 1})
        assert held.to_wire()["held"] == "policy changed: house"
        realm.bind("bot", {"kind": "auto_approve"})
        assert realm.proposal(held.proposal_id).status == "completed"
        assert is_sound(realm)


@pytest.mark.requirement("CARD-policy", "WP-epoch", "WP-schema")
def test_a_held_proposal_is_carried_over_and_held_again(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    founded(address).close()
    with opened(address, policies=[NEW, asking]) as realm:
        held = realm.act("bot", "add", {"by": 1})
    options: dict[str, Any] = {"domain": second(), "policies": [NEW, asking]}
    with Realm.open_to_adopt(address, open_proposals="carry_over", **options) as realm:
        (carried,) = realm.realm().proposals.values()
        assert realm.proposal(held.proposal_id).status == "superseded"
        assert (carried.status, carried.held is not None and carried.held.cause) == ("submitted", "policy")
        realm.adopt_policy("house")
        assert realm.proposal(carried.proposal_id).status == "rejected"
        assert is_sound(realm)


@pytest.mark.requirement("WP-schema", "KM-2.2")
def test_an_adoption_asks_for_no_leases_and_leaves_those_of_others_in_force(tmp_path: Path) -> None:
    address = str(tmp_path / "w.db")
    scope = [{"predicate": "DELETES", "resource": "STATE:/main/names"}]
    manifest = {"ver": "1.0", "session_id": "s", "agent_id": "bot", "scope": scope}
    with founded(address) as realm:
        (granted,) = realm.leases.desk.request(manifest, by="bot").leases
    with Realm.open_to_adopt(address, domain=second(), policies=[OLD, asking]) as realm:
        assert "names" not in realm.data()
        assert list(realm.realm().klis.leases) == [granted.lease_id]
        (renewed,) = realm.leases.desk.heartbeat([granted.lease_id], agent_id="bot", session_id="s")
        assert renewed.lease_id == granted.lease_id
        assert is_sound(realm)
