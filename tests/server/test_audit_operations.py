"""Verification as a job with progress, and receipts by id."""

from __future__ import annotations

import json

import pytest

from tests.server.served import ORDER, PATH, Served
from worldprotocol.export.proofs.checkpoint import Trusted
from worldprotocol.export.proofs.receipt import check_proof

pytestmark = pytest.mark.slow


def test_a_verification_is_followed_to_its_report(served: Served) -> None:
    assert served.submit("kid", ORDER).status_code == 200
    with served.client("aud") as aud:
        started = aud.post(f"{PATH}/verify", json={})
        assert (started.status_code, started.json()["status"]) == (202, "running")
        lines = aud.get(f"{PATH}/verify/stream").text.splitlines()
        names = [line.removeprefix("event: ") for line in lines if line.startswith("event: ")]
        assert set(names[:-1]) <= {"progress"}
        assert names[-1] == "ended"
        last = json.loads([line for line in lines if line.startswith("data: ")][-1].removeprefix("data: "))
        assert last == aud.get(f"{PATH}/verify").json()
    assert last["status"] == "done"
    assert last["report"]["findings"] == []
    with served.place.realm() as realm:
        assert last["report"]["events"] == last["checked"] == last["total"] <= realm.log.head().size


def test_receipts_are_found_by_id(served: Served) -> None:
    done = served.submit("kid", ORDER, "receipt-1").json()
    subjects = {"proposal": done["proposalId"], "intent": done["intent"]["intentId"], "world": done["worldId"]}
    subjects["decision"] = done["decision"]["decisionId"]
    with served.client("aud") as aud:
        for kind, name in subjects.items():
            answer = aud.get(f"{PATH}/receipts/{kind}/{name}")
            assert answer.status_code == 200, answer.text
            proof = check_proof(answer.content, Trusted(()))
            assert proof.about is not None
            assert (proof.about["kind"], proof.about["id"]) == (kind, name)
            missing = aud.get(f"{PATH}/receipts/{kind}/none")
            assert missing.status_code == 404
        assert aud.get(f"{PATH}/receipts/lease/none").status_code == 400
        for path in ("receipts/1", "proof/consistency?from=1"):
            unsigned = aud.get(f"{PATH}/{path}", headers={"Accept": "application/cose"})
            assert (unsigned.status_code, unsigned.json()["code"]) == (400, "NO_KEY")
