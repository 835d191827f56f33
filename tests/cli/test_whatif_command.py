"""``worldctl whatif``: what had become of the worlds, had something been otherwise."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from tests.cli.realm import CliRealm, founded

NEVER = """
name = "till"

[[rules]]
id = "never"
verdict = "reject"
reason = "never again"
"""


def of_log(realm: CliRealm) -> str:
    return hashlib.sha256((realm.folder / "world.db").read_bytes()).hexdigest()


@pytest.fixture
def realm(tmp_path: Path) -> CliRealm:
    made = founded(tmp_path)
    for actor, item, count, code in (("ann", "cake", 2, 0), ("bot", "tea", 1, 0), ("ann", "cake", 3, 1)):
        body = json.dumps({"item": item, "count": count})
        made("submit", "sell", "--actor", actor, "--input", body, code=code)
    return made


@pytest.mark.requirement("CARD-audit", "CARD-replay")
@pytest.mark.slow
def test_dropping_a_proposal_tells_what_changes_and_touches_nothing(realm: CliRealm, tmp_path: Path) -> None:
    before = of_log(realm)
    first = realm("log", "--topic", "proposal.submitted", "--json").lines[0]["state"]["proposalId"]
    said = realm("whatif", "--drop", first, "-o", "other.db", code=1)
    assert "\tdropped\t" in said.out
    assert "\tpossible\t" in said.out
    assert "failed OUT_OF_STOCK" in said.out
    assert "from event" in said.out.splitlines()[-1]
    told = realm("whatif", "--drop", first, "--json", code=1).lines
    assert [line["kind"] for line in told] == ["proposal", "proposal", "proposal", "head", "summary"]
    assert told[-1]["worlds"] == {"same": 0, "changed": 2, "gone": 1, "new": 0}
    assert of_log(realm) == before
    realm("verify", "--log", "other.db")
    assert "exists already" in realm("whatif", "--drop", first, "-o", "other.db", code=1).err
    told = told[-1]
    assert (told["drop"], told["policies"], told["insert"], told["scratch"]) == ([first], [], 0, None)


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_a_scratch_log_says_that_it_is_none_and_nobody_signs_it(realm: CliRealm, tmp_path: Path) -> None:
    first = realm("log", "--topic", "proposal.submitted", "--json").lines[0]["state"]["proposalId"]
    assert "FILE_EXISTS" in realm("whatif", "--drop", first, "-o", "world.db", "--json", code=1).err
    (tmp_path / "zoe.jsonl").write_text('{"actor": "zoe", "type": "close"}\n')
    assert "zoe" in realm("whatif", "--drop", first, "--insert", "zoe.jsonl", "-o", "other.db", code=1).err
    assert not (tmp_path / "other.db").exists()
    realm("whatif", "--drop", first, "-o", "other.db", code=1)
    (marked,) = realm("log", "--topic", "log.branched", "--log", "other.db", "--json").lines
    assert marked["state"]["size"] == marked["position"] - 1
    realm("export", "--log", "other.db", "other.jsonl")
    for checked in (("verify", "--log", "other.db"), ("verify", "other.jsonl")):
        assert "a branch that never was" in realm(*checked).out
        assert realm(*checked, "--json").json["branched"] == marked["state"]["size"]
    assert "branched" not in realm("verify", "--json").json
    realm("checkpoint", "keygen", "example.com/till", "--out", "till.key")
    signing = "--key", "till.key", "--origin", "example.com/till", "--log", "other.db"
    assert "This log is hypothetical" in realm("checkpoint", *signing, code=1).err
    head = realm("worlds", "--log", "other.db", "--json").lines[0]["worldId"]
    assert "This log is hypothetical" in realm("prove", head, *signing, code=1).err


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_it_begins_after_the_point_that_is_named(realm: CliRealm, tmp_path: Path) -> None:
    (tmp_path / "never.toml").write_text(NEVER)
    by_bot = realm("log", "--topic", "proposal.submitted", "--json").lines[1]
    decided = by_bot["position"] + 1
    for point in (str(decided), by_bot["state"]["proposalId"]):
        assert realm("whatif", "--from", point, "--policy", "never.toml", "--json").lines[-1]["flips"] == 0
    before = str(by_bot["position"] - 1)
    told = realm("whatif", "--from", before, "--policy", "never.toml", "--json", code=1).lines
    assert told[0]["proposalId"] == by_bot["state"]["proposalId"]


@pytest.mark.requirement("CARD-audit", "CARD-policy")
@pytest.mark.slow
def test_another_policy_and_an_inserted_intent(realm: CliRealm, tmp_path: Path) -> None:
    before = of_log(realm)
    (tmp_path / "never.toml").write_text(NEVER)
    genesis = realm("worlds", "--json").lines
    oldest = min(genesis, key=lambda row: row["height"])["worldId"]
    said = realm("whatif", "--from", oldest, "--policy", "never.toml", code=1).out
    assert "\timpossible, flips\t" in said
    assert "rejected: " in said
    assert realm("whatif", "--from", oldest).out.startswith("from event ")
    (tmp_path / "more.jsonl").write_text(json.dumps({"actor": "ann", "type": "charge", "input": {"amount": 9}}) + "\n")
    said = realm("whatif", "--from", oldest, "--insert", "more.jsonl", code=1).out
    assert "!\teffect needed\t" in said
    assert 'bank.charge {"amount":9}' in said
    assert of_log(realm) == before
    assert "--from WORLD" in realm("whatif", code=2).err
    (tmp_path / "bad.jsonl").write_text('{"actor": 1}\n')
    assert "line 1" in realm("whatif", "--from", oldest, "--insert", "bad.jsonl", code=2).err


@pytest.mark.requirement("CARD-audit")
@pytest.mark.slow
def test_nothing_is_inserted_before_the_branch_begins(realm: CliRealm, tmp_path: Path) -> None:
    early = {"actor": "ann", "type": "sell", "input": {"item": "tea", "count": 1}, "at": 1_000}
    (tmp_path / "early.jsonl").write_text(json.dumps(early) + "\n")
    refused = realm("whatif", "--from", "HEAD", "--insert", "early.jsonl", "-o", "other.db", code=2)
    assert "before the start of the counterfactual" in refused.err
    assert not (tmp_path / "other.db").exists()
