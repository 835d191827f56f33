"""Policies, runs, receipts and the search of the log: what the API returns, and what the pages show of it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.realm import CliRealm
from tests.pages.in_process import asked
from tests.pages.pages_of import PAGES_PATH, parsed, signed_in, signing
from tests.pages.records_of import founded_records
from tests.server.served import PATH, Served
from tests.support.patience import PATIENCE_S
from world.events.proposal_events import DecisionMade
from worldprotocol.export.proofs.checkpoint import Trusted
from worldprotocol.export.proofs.note import VerifierKey
from worldprotocol.export.proofs.receipt import check_proof
from worldprotocol.operations import policies

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with signing(founded_records(tmp_path_factory.mktemp("records")), "all", "ops", "ann") as running:
        yield running


@pytest.fixture(scope="module")
def reading(served: Served) -> Iterator[httpx.Client]:
    """Return a client of the API with all rights."""
    with served.client("all") as client:
        yield client


@pytest.fixture(scope="module")
def pages(served: Served) -> Iterator[httpx.Client]:
    """Return a browser's client, signed in."""
    with signed_in(served, "all") as client:
        yield client


@pytest.fixture(scope="module")
def cli(served: Served) -> CliRealm:
    return CliRealm(served.place.folder)


def text(page: str) -> str:
    return " ".join("".join(parsed(page).itertext()).split())


def draft() -> dict[str, Any]:
    """Return a draft that rejects the smallest deployments, and approves the others."""
    tiny = {"id": "tiny", "verdict": "reject", "when": "intent.input.replicas < 3", "reason": "too small"}
    written = {"name": "draft", "rules": [tiny, {"id": "rest", "verdict": "approve", "reason": "large enough"}]}
    return {"text": json.dumps(written), "format": "yaml"}


def test_the_history_of_policies_is_that_of_the_command(reading: httpx.Client, cli: CliRealm) -> None:
    found = reading.get(f"{PATH}/policies").json()
    assert found["history"] == cli("policy", "list", "--all", "--json").json
    assert [one["name"] for one in found["policies"]] == ["limits"]
    assert [one["event"] for one in found["history"]] == ["adopted", "adopted", "retired", "adopted", "shadowed"]


def test_a_version_of_a_policy_is_compared_with_the_one_before(reading: httpx.Client, cli: CliRealm) -> None:
    newer, older = (one["hash"] for one in versions(reading))
    found = reading.get(f"{PATH}/policies/{newer}").json()
    (difference,) = cli("policy", "diff", f"limits@{older}", f"limits@{newer}", "--json", code=1).json
    assert found["differences"] == difference["differences"]
    assert [one["kind"] for one in found["differences"]] == ["added", "changed", "changed"]
    assert (found["against"], found["isInForce"]) == (older, True)
    assert found["rules"] == cli("policy", "show", "limits", "--json").json["rules"]
    assert found["history"][0]["changed"] == {"added": 1, "changed": 2}
    first = reading.get(f"{PATH}/policies/{older[:12]}").json()
    assert (first["hash"], first["isInForce"], first["against"], first["differences"]) == (older, False, None, [])
    assert reading.get(f"{PATH}/policies/{older}", params={"against": newer}).json()["against"] == newer
    assert reading.get(f"{PATH}/policies/{'0' * 12}").json()["code"] == "UNKNOWN_POLICY"
    assert reading.get(f"{PATH}/policies/{newer}", params={"against": "xyz"}).status_code == 400


def versions(reading: httpx.Client) -> list[dict[str, Any]]:
    """Return the adoptions of the policy in force, newest first."""
    history = reading.get(f"{PATH}/policies").json()["history"]
    return [one for one in reversed(history) if (one["name"], one["event"]) == ("limits", "adopted")]


def test_the_use_of_rules_is_counted_by_the_decisions_of_that_version(reading: httpx.Client, served: Served) -> None:
    newer, older = (one["hash"] for one in versions(reading))
    with served.place.realm() as realm:
        decided = [event.decision for _, event in realm.events() if isinstance(event, DecisionMade)]
        size = realm.log.head().size
    for policy_hash in (newer, older):
        use = reading.get(f"{PATH}/policies/{policy_hash}").json()["use"]
        mine = [one for one in decided if one.policy_hash == policy_hash]
        assert (use["after"], use["upto"], use["decisions"]) == (0, size, len(mine))
        for rule in ("small_pass", "large_reviewed", "no_empty_image"):
            outcomes = [one for decision in mine for one in decision.trace if one.rule == rule]
            assert use["rules"][rule] == {
                "applied": sum(one.answer != "none" for one in outcomes),
                "decided": sum(one.decisive for one in outcomes),
                "errors": 0,
            }
    assert reading.get(f"{PATH}/policies/{newer}").json()["use"]["rules"]["no_moon"]["decided"] == 1


def test_shadow_disagreements_are_those_of_the_command(reading: httpx.Client, cli: CliRealm) -> None:
    newer, _ = (one["hash"] for one in versions(reading))
    shown = reading.get(f"{PATH}/policies/{newer}").json()["shadows"]
    told = cli("policy", "shadow", "show", "--json").json
    names = ("shadowed", "agree", "disagree", "notAsked")
    assert [shown[name] for name in names] == [told[name] for name in names]
    assert shown["disagreements"] == told["disagreements"][::-1]
    assert shown["disagree"] > 0


def test_use_and_shadows_are_counted_in_a_bounded_stretch(
    monkeypatch: pytest.MonkeyPatch, served: Served, reading: httpx.Client
) -> None:
    newer, _ = (one["hash"] for one in versions(reading))
    monkeypatch.setattr(policies, "RECENT", 40)
    found = asked(served.place, f"{PATH}/policies/{newer}")
    size = found["use"]["upto"]
    whole = reading.get(f"{PATH}/policies/{newer}").json()
    assert found["use"]["after"] == found["shadows"]["after"] == size - 40
    assert found["use"]["decisions"] < whole["use"]["decisions"]
    assert found["shadows"]["shadowed"] < whole["shadows"]["shadowed"]


def test_the_page_of_the_backtest_shows_what_the_command_finds(
    pages: httpx.Client, cli: CliRealm, tmp_path: Path
) -> None:
    file = tmp_path / "draft.yaml"
    file.write_text(draft()["text"])
    for last in (200, 6):
        *lines, found = cli("policy", "backtest", "--with", str(file), "--last", str(last), "--json", code=1).lines
        assert found["flips"] > 0
        assert (found["judged"] + found["otherBindings"] == last) is (last == 6)
        shown = judged(pages, last=str(last))
        assert f"{found['flips']} decision{'s' if found['flips'] != 1 else ''} would change" in text(shown)
        counted = f"{found['judged']} cases judged again, {found['same']} the same, {found['flips']} flips"
        assert f"on events {found['after'] + 1} to {found['upto']}: {counted}" in text(shown)
        links = [one.get("href", "") for one in parsed(shown).iter("a") if "/proposals/" in one.get("href", "")]
        assert [one.rpartition("/")[2] for one in links] == [one["proposalId"] for one in lines][::-1]


def judged(pages: httpx.Client, **fields: str) -> str:
    """Return the page with the ended backtest of the draft."""
    form = parsed(pages.get(f"{PAGES_PATH}/policies/backtest").text)
    token = next(one.get("value", "") for one in form.iter("input") if one.get("name") == "token")
    answer = pages.post(f"{PAGES_PATH}/policies/backtest", data={"token": token, **draft(), **fields})
    assert answer.status_code == 303, answer.text
    end = time.monotonic() + PATIENCE_S
    while True:
        shown = pages.get(answer.headers["location"].partition("#")[0]).text
        if "running" not in text(shown):
            return shown
        assert time.monotonic() < end


def test_a_draft_that_cannot_be_judged_is_shown_with_the_reason(pages: httpx.Client) -> None:
    form = parsed(pages.get(f"{PAGES_PATH}/policies/backtest").text)
    token = next(one.get("value", "") for one in form.iter("input") if one.get("name") == "token")
    fields = {"token": token, "last": "200", **draft()}
    for wrong, words in (
        ({"text": "name: ["}, "not a valid policy"),
        ({"text": "from os import system"}, "not a valid policy"),
        ({"text": "rules.py:house"}, "not a valid policy"),
        ({"text": "a: !!python/object/apply:os.system ['id']"}, "not a valid policy"),
        ({"last": "many"}, "last: "),
        ({"last": "0"}, "last: "),
        ({"format": "py"}, "policyFormat: "),
    ):
        refused = pages.post(f"{PAGES_PATH}/policies/backtest", data={**fields, **wrong})
        assert refused.status_code == 400, wrong
        assert words in text(refused.text), wrong
    assert pages.post(f"{PAGES_PATH}/policies/backtest", data={**fields, "token": "0"}).status_code == 403
    none = pages.get(f"{PAGES_PATH}/policies/backtest?job=none")
    assert "This server has no job" in text(none.text)


def test_only_auditors_test_drafts(served: Served) -> None:
    with served.client("ann") as client:
        assert client.post(f"{PATH}/backtest", json={"policy": "limits"}).json()["code"] == "RIGHT_MISSING"
    with signed_in(served, "ann") as pages:
        assert "Backtest" not in text(pages.get(f"{PAGES_PATH}/policies").text)
        assert pages.get(f"{PAGES_PATH}/policies/backtest").status_code == 403


def test_runs_are_those_of_the_command(reading: httpx.Client, cli: CliRealm) -> None:
    listed = cli("runs", "--json").json
    found = reading.get(f"{PATH}/runs").json()
    assert [{name: one[name] for name in listed[0]} for one in found["runs"]] == listed
    assert [one["outcome"] for one in found["runs"]] == ["violated", "completed"]
    assert found["more"] is False
    assert reading.get(f"{PATH}/runs", params={"limit": 1}).json()["more"] is True
    assert reading.get(f"{PATH}/runs", params={"agent": "none"}).json()["runs"] == []
    assert reading.get(f"{PATH}/runs", params={"open": "true"}).json()["runs"] == []
    for one in listed:
        assert (
            reading.get(f"{PATH}/runs/{one['runId']}").json()
            == cli("show", one["runId"], "--json").json["verification"]
        )
    assert reading.get(f"{PATH}/runs/none").json()["code"] == "UNKNOWN_RUN"


def test_a_page_of_a_run_sets_what_was_declared_against_what_was_observed(
    pages: httpx.Client, reading: httpx.Client
) -> None:
    violated, completed = (one["runId"] for one in reading.get(f"{PATH}/runs").json()["runs"])
    kept = text(pages.get(f"{PAGES_PATH}/runs/{completed}").text)
    assert "Declared 2" in kept
    assert "FILE:/plan.txt used" in kept
    assert re.search(r"FILE:/notes\S* not used", kept)
    assert "Violations" not in kept
    broken = pages.get(f"{PAGES_PATH}/runs/{violated}").text
    assert "Violations 1" in text(broken)
    assert "FILE:/plan.txt blocked" in text(broken)
    assert pages.get(f"{PAGES_PATH}/runs/none").status_code == 404


def test_the_search_of_the_log_finds_what_the_command_finds(reading: httpx.Client, cli: CliRealm) -> None:
    whole = reading.get(f"{PATH}/log", params={"limit": 500}).json()["events"]

    def found(**conditions: Any) -> list[int]:
        answer = reading.get(f"{PATH}/log", params={"limit": 500, "order": "newest", **conditions}).json()
        assert (answer["next"], answer["after"], answer["upto"]) == (None, 0, whole[-1]["position"])
        assert (
            reading.get(f"{PATH}/log", params={"limit": 500, **conditions}).json()["events"] == answer["events"][::-1]
        )
        return [one["position"] for one in answer["events"]][::-1]

    submitted = [one["position"] for one in cli("log", "--topic", "proposal.submitted", "--json").lines]
    assert found(types="proposal.submitted") == submitted
    stream = whole[submitted[0] - 1]["stream"]
    assert found(stream=stream) == [one["position"] for one in whole if one["stream"] == stream]
    assert found(text="REGISTRY/MAIL") == [
        one["position"] for one in whole if "registry/mail" in json.dumps(one["state"])
    ]
    assert found(actor="ops") == [one["position"] for one in cli("log", "--actor", "ops", "--json").lines]
    both = set(found(types="proposal.submitted")) & set(found(actor="bot"))
    assert found(types="proposal.submitted", actor="bot") == sorted(both)
    assert 0 < len(both) < len(submitted)
    assert reading.get(f"{PATH}/log", params={"types": "nonsense"}).status_code == 400


def test_the_search_goes_on_where_it_ended(reading: httpx.Client) -> None:
    wanted = {"actor": "bot", "order": "newest"}
    at_once = [one["position"] for one in reading.get(f"{PATH}/log", params=wanted).json()["events"]]
    seen: list[int] = []
    before: int | None = None
    while True:
        more = {} if before is None else {"before": before}
        part = reading.get(f"{PATH}/log", params={**wanted, "limit": 3, **more}).json()
        seen += [one["position"] for one in part["events"]]
        before = part["next"]
        if before is None:
            break
    assert seen == at_once
    assert len(seen) > 6


def test_the_page_of_the_log_holds_its_filter_in_the_address(pages: httpx.Client, reading: httpx.Client) -> None:
    wanted = {"types": "proposal.submitted", "actor": "bot"}
    found = reading.get(f"{PATH}/log", params={**wanted, "order": "newest"}).json()["events"]
    root = parsed(pages.get(f"{PAGES_PATH}/log?types=proposal.submitted&actor=bot").text)
    rows = [one.get("id") for one in root.iter("tr") if one.get("id")]
    assert rows == [f"e{one['position']}" for one in found]
    (chosen,) = (one for one in root.iter("option") if one.get("selected") is not None)
    assert chosen.text == "proposal.submitted"
    assert {one.get("name"): one.get("value") for one in root.iter("input")}["actor"] == "bot"
    tail = next(one.get("data-stream", "") for one in root.iter("tbody"))
    assert tail.endswith(f"/log/stream?after={reading.get(PATH).json()['position']}&types=proposal.submitted&actor=bot")
    links = [one.get("href", "") for one in root.iter("a")]
    assert f"{PAGES_PATH}/proposals/{found[0]['stream']}" in links
    assert f"{PAGES_PATH}/log?after={found[0]['position'] - 1}#e{found[0]['position']}" in links


def test_the_page_of_proofs_finds_receipts_by_ids_hashes_and_positions(
    pages: httpx.Client, reading: httpx.Client
) -> None:
    done = reading.get(f"{PATH}/proposals").json()["proposals"][0]
    event = reading.get(f"{PATH}/log", params={"after": 4, "limit": 1}).json()["events"][0]
    wanted = {
        done["proposalId"]: "proposal",
        done["intent"]["intentId"]: "intent",
        done["decision"]["decisionId"]: "decision",
        done["worldId"]: "world",
        "9": "event",
        event["leaf"]: "event",
    }
    vkey = VerifierKey.parse(own_key(pages))
    for name, kind in wanted.items():
        root = parsed(pages.get(f"{PAGES_PATH}/proof", params={"of": name}).text)
        area = next(one for one in root.iter("textarea") if one.get("id") == "receipt")
        file_text = pages.get(f"{PAGES_PATH}/proof/receipt.json", params={"of": name}).content
        assert (area.text or "").encode() + b"\n" == file_text
        proof = check_proof(file_text, Trusted((vkey,), "example.com/fleet"))
        assert proof.about is not None
        assert proof.about["kind"] == kind
    missing = pages.get(f"{PAGES_PATH}/proof", params={"of": "nothing"})
    assert missing.status_code == 404
    assert "has no world, proposal, intent, verdict or decision 'nothing'" in text(missing.text)
    assert pages.get(f"{PAGES_PATH}/proof", params={"of": "99999"}).status_code == 404


def own_key(pages: httpx.Client) -> str:
    """Return the verifier key that the page of proofs names."""
    root = parsed(pages.get(f"{PAGES_PATH}/proof").text)
    return next(one.get("value", "") for one in root.iter("input") if one.get("id") == "key")
