"""A proposal that lacks its leases is seen wherever somebody looks, and ``submit --wait`` stays until it has ended."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.cli.realm import CliRealm, founded, sale
from tests.support.patience import PATIENCE_S, until

HOLD = ("--ttl-ms", "600000", "--json")
CARRIED_ON = "`worldctl settle`"


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a realm in which ``bot`` is older than ``nightly``, who holds the state, and ``ann`` is younger."""
    folder = tmp_path_factory.mktemp("waiting")
    realm = founded(folder)
    assert (
        realm("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}', "--json").json["status"] == "completed"
    )
    held(realm, "nightly")
    return folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return CliRealm(tmp_path)


def held(realm: CliRealm, agent: str, *more: str) -> str:
    done = realm("lease", "acquire", "STATE:/main/*", "--agent", agent, "--session", agent, *(more or HOLD), "--json")
    return str(done.json["leases"][0]["leaseId"])


def put(realm: CliRealm, actor: str, *more: str, code: int = 0) -> Any:
    return realm("submit", "sell", "--actor", actor, "--input", '{"item": "tea"}', *more, code=code)


def let_go(realm: CliRealm) -> None:
    (lease,) = realm("lease", "list", "--json").json["leases"]
    realm("lease", "revoke", lease["leaseId"], "--reason", "it hangs")


@pytest.mark.requirement("KP-5a", "KP-3a")
@pytest.mark.slow
def test_a_proposal_in_the_queue_says_behind_whom_it_waits(realm: CliRealm) -> None:
    said = put(realm, "bot", code=4).out
    assert "evaluating: sell by bot" in said
    assert "waits for leases, in the queue behind nightly, who holds MUTATES STATE:/main/*" in said
    assert CARRIED_ON in said
    (wait,) = realm("waits", "--json").json["waits"]
    name = wait["requestId"]
    shown = realm("show", name).out
    assert "waits     for leases, in the queue behind nightly, who holds MUTATES STATE:/main/*" in shown
    assert CARRIED_ON in shown
    assert "ruling    approve by policy_rules:house: small_sales_pass" in shown
    leases = realm("show", name, "--json").json["leases"]
    assert leases["state"] == "queued"
    assert [one["leaseId"] for one in leases["waitsFor"]] == [one["leaseId"] for one in wait["waitsFor"]]
    assert realm("inbox", "--json").json == []
    (unsettled,) = [one for one in realm("doctor", "--json").json["checks"] if one["check"] == "unsettled"]
    assert unsettled == {
        "check": "unsettled",
        "ok": True,
        "found": "nothing; 0 wait for people, 1 for leases (1 in the queue)",
    }
    let_go(realm)
    realm("settle")
    assert realm("show", name, "--json").json["status"] == "completed"
    assert "waits" not in realm("show", name).out


@pytest.mark.requirement("KP-5a", "KP-3c")
@pytest.mark.slow
def test_a_proposal_that_died_says_when_it_is_tried_again(realm: CliRealm) -> None:
    told = put(realm, "ann", "--json", code=4).json
    name, leases = told["proposalId"], told["leases"]
    assert (told["status"], leases["state"], leases["attempts"]) == ("evaluating", "retrying", 1)
    (row,) = realm("waits", "--json").json["retrying"]
    assert (row["proposalId"], row["agentId"], row["retryAt"]) == (name, "ann", leases["retryAt"])
    assert name in realm("waits").out
    shown = realm("show", name).out
    assert "waits     for leases that were not free in 1 attempt; it is tried again" in shown
    assert CARRIED_ON in shown
    said = put(realm, "ann", code=4).out
    assert "waits for leases that were not free in 1 attempt; it is tried again" in said
    assert CARRIED_ON in said
    end = time.monotonic() + PATIENCE_S
    while realm("waits").out.count("by the next command that acts") < 2:
        assert time.monotonic() < end
    (found,) = [one for one in realm("doctor", "--json", code=1).json["checks"] if one["check"] == "unsettled"]
    assert found["found"] == "nothing under way; 0 wait for people, 2 for leases (2 to be tried again; 2 overdue)"
    assert "worldctl settle" in found["advice"]


@pytest.mark.parametrize("actor", ["bot", "ann"])
@pytest.mark.slow
def test_submit_waits_until_its_proposal_was_granted_and_sealed(realm: CliRealm, actor: str) -> None:
    given = ("--actor", actor, "--input", '{"item": "tea"}')
    running = realm.start("submit", "sell", *given, "--wait", "600", "--json")
    kind = "waits" if actor == "bot" else "retrying"
    until(lambda: realm("waits", "--json").json[kind], running=running)
    let_go(realm)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    told = json.loads(out)
    assert told["status"] == "completed"
    assert "leases" not in told
    assert realm("waits", "--json").json == {"waits": [], "retrying": []}


@pytest.mark.slow
def test_submit_lets_leases_expire_while_it_waits(realm: CliRealm) -> None:
    let_go(realm)
    held(realm, "nightly", "--ttl-ms", "1500")
    assert put(realm, "bot", "--wait", "600", "--json").json["status"] == "completed"


@pytest.mark.slow
def test_a_wait_that_is_too_long_ends_as_if_nobody_had_waited(realm: CliRealm) -> None:
    assert put(realm, "bot", "--wait", "0.3", "--json", code=4).json["leases"]["state"] == "queued"
    for wrong in ("-1", "nan", "soon"):
        assert "--wait" in put(realm, "bot", "--wait", wrong, code=2).err


@pytest.mark.slow
def test_submit_waits_for_people_too_and_its_exit_code_is_that_of_the_end(realm: CliRealm) -> None:
    let_go(realm)
    running = realm.start("submit", "sell", "--actor", "kid", "--input", '{"item": "tea"}', "--wait", "600", "--json")
    until(lambda: realm("inbox", "--json").json, running=running)
    (asked,) = realm("inbox", "--json").json
    realm("decide", asked["proposalId"], "reject", "--by", "ann", "--reason", "not today")
    out, _ = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, json.loads(out)["status"]) == (1, "rejected")


@pytest.mark.slow
def test_ctrl_c_while_waiting_names_the_proposal_that_goes_on(realm: CliRealm) -> None:
    running = realm.start("submit", "sell", "--actor", "bot", "--input", '{"item": "tea"}', "--wait", "600")
    until(lambda: realm("waits", "--json").json["waits"], running=running)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out) == (130, ""), err
    (waiting,) = realm("waits", "--json").json["waits"]
    assert waiting["requestId"] in err
    assert "Traceback" not in err


@pytest.mark.slow
def test_lines_that_wait_come_last_and_each_comes_once(realm: CliRealm) -> None:
    lines = sale("bot") + sale("nobody") + sale("ann")
    (realm.folder / "lines.jsonl").write_text(lines)
    running = realm.start("submit", "--intents", "lines.jsonl", "--wait", "600")
    until(lambda: realm("waits", "--json").json["retrying"], running=running)
    let_go(realm)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 1, err
    told = [json.loads(line) for line in out.splitlines()]
    assert [(one["line"], one["status"]) for one in told] == [(2, "refused"), (1, "completed"), (3, "completed")]
    assert "3 lines done (2 completed, 1 refused)." in err
