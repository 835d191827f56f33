"""What a claim records, and which of two sessions is the older one."""

from __future__ import annotations

import pytest

from tests.klis.lease_game import CHANNEL
from tests.klis.test_desk import Office
from world.klis.conflict import find_conflicts
from world.klis.manifest import read_manifest
from world.klis.triple import read_confidence


@pytest.mark.requirement("KP-0", "KM-2.1")
def test_a_claim_has_subject_predicate_object_confidence_and_time() -> None:
    office = Office()
    claimed = {"predicate": "MUTATES", "resource": "FILE:/a", "confidence": 0.6}
    told = {"ver": "1.0", "agent_id": "bob", "session_id": "s", "scope": [claimed], "issued_at": 4_321}
    manifest = read_manifest(told, settings=office.desk.settings)
    verdict = office.desk.request(manifest, 5_000, channel=CHANNEL)
    (lease,) = office.ledger.leases.values()
    triple = lease.triple
    assert (lease.session.agent_id, triple.predicate, triple.resource.text) == ("bob", "MUTATES", "FILE:/a")
    assert lease.granted_at == verdict.at == 5_000
    assert verdict.manifest is not None
    assert verdict.manifest["issued_at"] == manifest.issued_at == 4_321
    (recorded,) = verdict.manifest["scope"]
    assert {**recorded, "confidence": read_confidence(recorded["confidence"])} == {**claimed, "confidence": "Medium"}


@pytest.mark.requirement("KP-3a", "KP-7")
@pytest.mark.parametrize(("first", "second"), [("s", "t"), ("t", "s")])
def test_two_sessions_of_one_agent_never_wait_for_each_other(first: str, second: str) -> None:
    office = Office()
    office.lease("bob", "MUTATES FILE:/a", session=first)
    assert office.ask("bob", "MUTATES FILE:/a", session=second, queue=True).status == "Die"
    assert office.ask("ann", "MUTATES FILE:/a", session=second, queue=True).status == "Wait"


@pytest.mark.requirement("KP-3a")
def test_of_equal_timestamps_the_smaller_agent_id_is_older() -> None:
    office = Office()
    office.desk.register("eve", 1_000, priority=7, by="test")
    office.desk.register("fay", 1_000, priority=7, by="test")
    office.lease("eve", "MUTATES FILE:/a")
    office.lease("fay", "MUTATES FILE:/b")
    assert office.ask("fay", "MUTATES FILE:/a").status == "Die"
    assert office.ask("eve", "MUTATES FILE:/b").status == "Wait"


@pytest.mark.requirement("KP-5b")
def test_the_named_conflicts_are_those_of_the_moment() -> None:
    office = Office()
    wanted = office.manifest("dan", "MUTATES FILE:/a").triples
    dan = office.ledger.session("dan", "s")
    lease = office.lease("bob", "CONSUMES FILE:/a")
    assert [conflict.holder for conflict in find_conflicts(office.ledger, dan, wanted, limit=9)[0]] == ["bob"]
    office.lease("cleo", "CONSUMES FILE:/a")
    assert [conflict.holder for conflict in find_conflicts(office.ledger, dan, wanted, limit=9)[0]] == ["bob", "cleo"]
    office.release(lease, "bob")
    assert [conflict.holder for conflict in find_conflicts(office.ledger, dan, wanted, limit=9)[0]] == ["cleo"]
