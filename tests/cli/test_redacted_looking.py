"""``--redact`` of what looks: resources are digests under a key, and no filter tells of an event that is hidden."""

from __future__ import annotations

import hmac
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli import test_explain_command
from tests.cli.inside import Inside
from tests.cli.realm import CliRealm, founded
from tests.cli.test_redaction import LONG, RENAME

PLAN = "FILE:/secret/plan"
DIGEST = re.compile(r"FILE:#[0-9a-f]{16}(?![0-9a-f])")
KEY = "5e" * 32


@pytest.fixture(scope="module")
def leased(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """A realm with a lease that two share, one that was revoked with a reason, a renaming, and a conflict."""
    realm = founded(tmp_path_factory.mktemp("leased"), Inside)
    ask = ("lease", "acquire", "--session", "s", *LONG, "--predicate", "CONSUMES")
    realm(*ask, PLAN, "--agent", "old")
    shared = {"predicate": "CONSUMES", "resource": "file:/secret/plan"}
    manifest = json.dumps({"ver": "1.0", "session_id": "s", "agent_id": "young", "scope": [shared]})
    realm("lease", "acquire", "--manifest", manifest, "--by", "young", *LONG)
    realm(*ask, "FILE:/secret/tree/*", "--agent", "old")
    renamed = [{"predicate": "RENAMES", "resource": "FILE:/secret/leaf", "to": "FILE:/secret/new"}]
    realm("lease", "acquire", "--manifest", json.dumps(RENAME | {"scope": renamed}), "--by", "old", *LONG)
    realm("lease", "acquire", PLAN, "--agent", "young", *LONG, code=1)
    gone = realm(*ask, "FILE:/secret/gone", "--agent", "old", "--json").json["leases"][0]["leaseId"]
    realm("lease", "revoke", gone, "--reason", f"{PLAN} must be free")
    return realm


def verdicts(realm: CliRealm) -> list[dict[str, Any]]:
    return [line["state"] for line in realm("log", "--topic", "verdict.given", "--json").lines]


@pytest.mark.requirement("KM-7.3")
def test_no_path_and_no_word_is_told_of_any_verdict(leased: CliRealm) -> None:
    told = verdicts(leased)
    assert {one["status"] for one in told} == {"Granted", "Die"}
    for verdict in told:
        for words in (["explain", verdict["verdictId"]], ["lease", "list"], ["waits"]):
            for more in ([], ["--json"]):
                shown = leased(*words, "--redact", *more).out
                assert "/" not in re.sub(r"20\d\d-\S+", "", shown), shown
                assert "must be free" not in shown
    gone = next(one["verdictId"] for one in told if "gone" in json.dumps(one))
    assert "must be free" in leased("explain", gone).out
    assert leased("explain", gone, "--redact", "--json").json["after"][-1]["reason"] == "(hidden)"


@pytest.mark.requirement("KM-7.3", "CARD-policy")
def test_no_scope_no_condition_and_no_word_is_told_of_a_proposal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = test_explain_command.RULES.replace('to = ["ann"]', 'to = ["ann"]\nreason = "below data.sold"')
    monkeypatch.setattr(test_explain_command, "RULES", described)
    with test_explain_command.opened(tmp_path) as world:
        done = [world.act("bot", "sell", {"item": "cake", "count": count}) for count in (1, 4)]
        asked = world.act("bot", "charge", {"amount": 7})
        world.decide(asked.proposal_id, "narrow", by="ann", scope=["data.sold"], reason="only data.sold")
    realm = Inside(tmp_path)
    for one in (*done, asked):
        assert "data." in realm("explain", one.proposal_id, "--json").out
        for more in ([], ["--json"]):
            shown = realm("explain", one.proposal_id, "--redact", *more).out
            assert not [word for word in ("data.", "/main", "cake", "intent.", "amount", "only") if word in shown]
    wire = realm("explain", asked.proposal_id, "--redact", "--json").json
    assert (wire["approvedScope"], wire["answers"][0]["scope"], wire["people"][0]["scope"]) == ("(hidden)",) * 3


@pytest.mark.requirement("KM-7.3")
def test_equal_resources_are_equal_within_an_output_and_in_no_other(leased: CliRealm) -> None:
    texts = [leased("lease", "list", "--redact").out for _ in range(2)]
    first, second = ([*DIGEST.findall(text)] for text in texts)
    assert first[0] == first[1] != first[2]  # as two agents wrote the same file
    assert len(first) == len(second) == 5
    assert not set(first) & set(second)
    whole = leased("explain", verdicts(leased)[-2]["verdictId"], "--redact").out
    assert len(DIGEST.findall(whole)) > len(set(DIGEST.findall(whole)))


@pytest.mark.requirement("KM-7.3")
def test_under_a_key_of_the_configuration_names_stay_equal(leased: CliRealm) -> None:
    config = leased.folder / "world.toml"
    before = config.read_text()
    config.write_text(before + '\n[digests]\nkey = "digests.key"\n')
    listing = ("lease", "list", "--redact", "--json")
    key = leased.folder / "digests.key"
    try:
        assert "FILE_UNREADABLE" in leased(*listing, code=2).err
        key.write_text(KEY + "\n")
        key.chmod(0o640)
        refused = leased(*listing, code=2).err
        assert "INVALID_KEY" in refused
        assert "chmod 600" in refused
        key.chmod(0o600)
        listed = leased(*listing).json["leases"]
        assert listed == leased(*listing).json["leases"]
        digest = hmac.digest(bytes.fromhex(KEY), PLAN.encode(), "sha256").hex()[:16]
        assert listed[0]["resource"] == f"FILE:#{digest}"
        assert listed[0]["resource"] in leased("explain", verdicts(leased)[0]["verdictId"], "--redact").out
        key.write_text(KEY[:-2])
        assert "64 hex digits" in leased(*listing, code=2).err
        assert PLAN in leased("lease", "list").out
    finally:
        config.write_text(before)


@pytest.fixture(scope="module")
def sold(tmp_path_factory: pytest.TempPathFactory) -> CliRealm:
    """A realm in which ann and kid wanted something, and which has two branches."""
    realm = founded(tmp_path_factory.mktemp("sold"), Inside)
    sale = ("submit", "sell", "--input", '{"item": "tea"}')
    realm(*sale, "--actor", "ann")
    waiting = realm(*sale, "--actor", "kid", "--json", code=4).json["proposalId"]
    realm("decide", waiting, "reject", "--by", "ann")
    realm("branch", "create", "side", "--at", "HEAD")
    return realm


FILTERS = (
    ("--actor", "ann"), ("--actor", "kid"), ("--actor", "nobody"), ("--branch", "main"), ("--branch", "side"),
    ("--branch", "nowhere"), ("--topic", "human.answered"), ("--topic", "branch.created"), ("--topic", "world.sealed"),
    ("--since", "1h"), ("--until", "1h"), ("--since", "1h", "--topic", "decision.made", "--reverse"),
)  # fmt: skip


@pytest.mark.requirement("KM-7.3")
@pytest.mark.parametrize("rule", ["actors", "inputs", "topic=branch.*", "topic=human.*", "actor=kid"])
def test_a_filter_leaves_all_hidden_events_out(sold: CliRealm, rule: str) -> None:
    redacted = ("log", "--json", "--redact", rule)
    shown = {line["position"]: line for line in sold(*redacted).lines if "redacted" not in line}
    assert 0 < len(shown) < len(sold("log", "--json").lines)
    for words in FILTERS:
        said = sold(*redacted, *words)
        assert all(line == shown[line["position"]] for line in said.lines)
        assert [line for line in said.lines if "redacted" in line] == []
        assert "Hidden events are left out" in said.err
        assert not [name for name in ("ann", "kid", "bot", "operator", "side", "main") if name in said.err]
        assert all(row.split("\t")[2] != "redacted" for row in sold("log", "--redact", rule, *words).out.splitlines())
    [founding] = sold(*redacted, "--topic", "log.founded").lines
    assert founding["position"] == 1
    everything = sold(*redacted, "--since", "1h").lines
    assert [line["position"] for line in everything] == sorted(shown)


@pytest.mark.requirement("KM-7.3")
def test_an_event_is_found_by_what_stands_in_itself_alone(sold: CliRealm) -> None:
    rules = ("--redact", "topic=proposal.submitted")
    by_ann = {line["topic"] for line in sold("log", "--json", *rules, "--actor", "ann").lines}
    linked = {line["topic"] for line in sold("log", "--actor", "ann", "--json").lines} - by_ann
    assert "human.answered" in by_ann
    assert {"proposal.submitted", "proposal.completed", "decision.made", "world.sealed"} <= linked
    for words in (("--type", "sell"), ("--status", "rejected"), ("--status", "nonsense")):
        assert "with --redact leave them out" in sold("log", *rules, *words, code=2).err
    proposal = sold("log", "--json", "--topic", "proposal.submitted").lines[0]["state"]["proposalId"]
    for at in ("HEAD", "side", "nowhere", proposal, "2h"):
        refused = sold("log", *rules, "--at", at, code=2).err
        assert "give --at a position" in refused
        assert "main" not in refused
    assert len(sold("log", "--json", *rules, "--at", "7").lines) == 7


@pytest.mark.requirement("KM-7.3")
def test_a_world_does_not_tell_whose_head_it_is_nor_of_hidden_children(sold: CliRealm) -> None:
    assert set(sold("show", "side", "--json").json["heads"]) == {"main", "side"}
    for rule in ("topic=branch.created", "stream=lineage"):
        assert "heads" not in sold("show", "side", "--redact", rule, "--json").json
        assert "head of" not in sold("show", "side", "--redact", rule).out
    genesis = sold("show", "side", "--json").json["parent"]
    [child] = sold("show", genesis, "--json").json["children"]
    maker = sold("show", child, "--json").json["createdBy"]
    assert sold("show", genesis, "--redact", "topic=nothing", "--json").json["children"] == [child]
    assert sold("show", genesis, "--redact", f"actor={maker}", "--json").json["children"] == []


@pytest.mark.requirement("KM-7.3")
def test_what_an_id_could_be_is_not_listed_where_events_are_hidden(leased: CliRealm) -> None:
    for at in range(3):
        leased("submit", "sell", "--actor", "ann", "--input", f'{{"item": "tea", "count": {at + 1}}}')
    first = leased("log", "--topic", "proposal.submitted", "--json").lines[0]["state"]["proposalId"]
    assert first[:9] in leased("show", first[:3], code=1).err
    for form in ([], ["--json"]):
        said = leased("show", first[:3], "--redact", "inputs", *form, code=1)
        assert "AMBIGUOUS" in said.err
        assert first[:9] not in said.err + said.out
    for point in ("main", first, "2030-01-01T00:00:00Z"):
        assert "give --at a position" in leased("show", "5", "--redact", "inputs", "--at", point, code=2).err
    assert leased("show", "5", "--redact", "inputs", "--at", "9").out
