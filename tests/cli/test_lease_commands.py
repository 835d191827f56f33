"""``worldctl lease``, ``waits``, ``explain`` and ``keys``, as processes."""

from __future__ import annotations

import json
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.realm import CliRealm, founded
from tests.support.patience import PATIENCE_S
from world.events.lease_events import KeyRegistered, RequestWithdrawn
from world.klis.conflict import Conflict
from world.klis.predicate import Predicate
from world.read_models.leases import Wait, check_edges, waits
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

LONG = ("--ttl-ms", "600000")


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("leases")
    realm = founded(folder)
    held(realm, "old", "o1", "FILE:/old")
    held(realm, "young", "y1", "FILE:/young")
    return folder


@pytest.fixture
def realm(template: Path, tmp_path: Path) -> CliRealm:
    shutil.copytree(template, tmp_path, dirs_exist_ok=True)
    return CliRealm(tmp_path)


def held(realm: CliRealm, agent: str, session: str, *resources: str, **more: Any) -> Any:
    done = realm("lease", "acquire", *resources, "--agent", agent, "--session", session, *LONG, "--json", **more)
    return done.json


def waiting(realm: CliRealm, *words: str) -> subprocess.Popen[str]:
    """Start a command that waits, and return when it does."""
    running = realm.start(*words)
    until = time.monotonic() + PATIENCE_S
    while not realm("waits", "--json").json["waits"]:
        assert time.monotonic() < until
        assert running.poll() is None, running.communicate()
    return running


def last_verdict(realm: CliRealm) -> dict[str, Any]:
    state: dict[str, Any] = realm("log", "--topic", "verdict.given", "--json").lines[-1]["state"]
    return state


@pytest.mark.requirement("KP-4a", "KP-4b")
def test_leases_are_acquired_listed_kept_and_given_back(realm: CliRealm) -> None:
    got = held(realm, "old", "o2", "FILE:/a", "FILE:/b")
    assert [one["resource"] for one in got["leases"]] == ["FILE:/a", "FILE:/b"]
    names = [one["leaseId"] for one in got["leases"]]
    listed = realm("lease", "list", "--json", "--agent", "old").json["leases"]
    assert [one["resource"] for one in listed] == ["FILE:/old", "FILE:/a", "FILE:/b"]
    assert [one["token"] for one in listed] == sorted(one["token"] for one in listed)
    holder = ("--agent", "old", "--session", "o2")
    beat = realm("lease", "heartbeat", *names, *holder, "--ttl-ms", "700000", "--json").json["leases"]
    assert [one["leaseId"] for one in beat] == names
    assert beat[0]["expiresAt"] > listed[1]["expiresAt"]
    done = realm("lease", "release", *names, *holder, "--json").json
    assert done == {"states": dict.fromkeys(names, "Released")}
    assert "Released" in realm("lease", "release", names[0], *holder).out  # twice is once
    assert "LEASE_NOT_ACTIVE" in realm("lease", "heartbeat", names[0], *holder, code=1).err
    assert "No lease is in force" not in realm("lease", "list").err


@pytest.mark.requirement("KP-4b")
def test_only_the_holder_gives_back_and_only_a_reason_takes_away(realm: CliRealm) -> None:
    (lease,) = held(realm, "old", "o3", "FILE:/c")["leases"]
    refused = realm("lease", "release", lease["leaseId"], "--agent", "young", "--session", "o3", code=1).err
    assert "NOT_THE_HOLDER" in refused
    assert realm("lease", "revoke", lease["leaseId"], code=2).err.count("--reason") == 1
    assert "REASON_MISSING" in realm("lease", "revoke", lease["leaseId"], "--reason", " ", code=1).err
    done = realm("lease", "revoke", lease["leaseId"], "--reason", "gone home", "--json").json
    assert done == {"states": {lease["leaseId"]: "Revoked"}}
    assert "UNKNOWN_LEASE" in realm("lease", "revoke", "nothing", "--reason", "x", code=1).err


@pytest.mark.requirement("KP-5b", "KP-3a")
def test_a_younger_agent_is_told_why_it_dies(realm: CliRealm) -> None:
    done = realm("lease", "acquire", "FILE:/old", "--agent", "young", "--json", code=1)
    error = done.json["error"]
    assert (error["code"], error["details"]["retry_after_ms"]) == ("DIED", 1000)
    shown = realm("explain", error["details"]["verdict_id"][:30]).out
    for words in ("Die", "'old', session o1, holds MUTATES on FILE:/old", "exclude each other", "is older than"):
        assert words in shown
    told = realm("explain", error["details"]["verdict_id"], "--json").json
    assert (told["status"], told["agentId"], told["retryAfterMs"], told["leases"]) == ("Die", "young", 1000, [])


@pytest.mark.requirement("KP-3a", "KP-3b", "KP-3d")
def test_an_older_agent_waits_and_is_shown_as_waiting_until_the_way_is_free(realm: CliRealm) -> None:
    running = waiting(realm, "lease", "acquire", "FILE:/young", "--agent", "old", "--wait", "60", "--json")
    (wait,) = realm("waits", "--json").json["waits"]
    (edge,) = wait["waitsFor"]
    assert (wait["agentId"], edge["holder"], edge["requestId"]) == ("old", "young", None)
    assert wait["priority"] < edge["holderPriority"]
    assert "No circle is possible" in realm("waits").out
    assert realm("explain", wait["requestId"], "--json").json["status"] == "Wait"
    lease = edge["leaseId"]
    realm("lease", "release", lease, "--agent", "young", "--session", "y1")
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, err
    got = json.loads(out)
    assert got["leases"][0]["resource"] == "FILE:/young"
    granted = realm("explain", wait["requestId"], "--json").json
    assert (granted["status"], granted["cause"], granted["verdictId"]) == ("Granted", "queue", got["verdictId"])
    assert granted["asked"] == [{"predicate": "MUTATES", "resource": "FILE:/young"}]
    assert realm("waits").err.strip() == "No request waits for a lease."


def test_a_wait_that_is_too_long_ends_and_leaves_nothing_behind(realm: CliRealm) -> None:
    done = realm("lease", "acquire", "FILE:/young", "--agent", "old", "--wait", "0.3", code=1)
    assert "WAIT_TIMED_OUT" in done.err
    assert realm("waits", "--json").json["waits"] == []


def test_ctrl_c_takes_the_request_back(realm: CliRealm) -> None:
    running = waiting(realm, "lease", "acquire", "FILE:/young", "--agent", "old", "--wait", "60")
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out) == (130, ""), err
    assert "Traceback" not in err
    assert realm("waits", "--json").json["waits"] == []
    (last,) = realm("log", "--topic", RequestWithdrawn.TOPIC, "--json").lines
    assert last["state"]["reason"] == "cancelled"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["FILE:a", "--agent", "old"], 2, "AMBIGUOUS_RESOURCE"),
        (["FILE:/*", "--agent", "old"], 2, "GLOBAL_SCOPE"),
        (["FILE:/a", "--agent", "old", "--predicate", "WRITES"], 2, "INVALID_PREDICATE"),
        (["NOTHING:/a", "--agent", "old"], 2, "UNKNOWN_RESOURCE_TYPE"),
        (["FILE:/a", "--agent", "old", "--ttl-ms", "0"], 2, "INVALID_TTL"),
        (["FILE:/a", "--agent", "old", "--ttl-ms", str(2**64)], 2, "INVALID_TTL"),
        (["FILE:/a", "--agent", "old", "--require-signature"], 1, "UNAUTHENTICATED"),
        (["FILE:/a"], 2, "--agent"),
        (["--agent", "old", "--manifest", "{}"], 2, "leave out"),
        (["--manifest", "{}"], 2, "MALFORMED_SCHEMA"),
    ],
)
@pytest.mark.requirement("KM-6.1", "KM-6.2", "KM-6.3", "KM-7.2")
def test_what_cannot_be_granted_is_refused_and_changes_nothing(
    realm: CliRealm, words: list[str], code: int, said: str
) -> None:
    before = realm("log", "--json").out
    assert said in realm("lease", "acquire", *words, code=code).err
    assert realm("log", "--json").out == before


@pytest.mark.requirement("KM-7.3")
def test_paths_are_hidden_where_that_is_wished(realm: CliRealm) -> None:
    realm("lease", "acquire", "FILE:/old", "--agent", "young", code=1)
    verdict = last_verdict(realm)["verdictId"]
    running = waiting(realm, "lease", "acquire", "FILE:/young", "--agent", "old", "--wait", "60")
    for words in (["lease", "list"], ["waits"], ["explain", verdict]):
        for more in ([], ["--json"]):
            shown = realm(*words, "--redact", *more).out
            assert "FILE:#" in shown
            assert "/old" not in shown
            assert "/young" not in shown
    running.kill()
    running.communicate()


@pytest.mark.requirement("KM-7.1")
def test_a_signed_manifest_is_taken_once_while_its_key_is_in_force(realm: CliRealm) -> None:
    made = realm("keys", "new", "old.pem", "--json").json
    assert stat.S_IMODE((realm.folder / "old.pem").stat().st_mode) == 0o600
    assert "FILE_EXISTS" in realm("keys", "new", "old.pem", code=1).err
    realm("keys", "register", "old", made["publicKey"])
    assert "KEY_EXISTS" in realm("keys", "register", "young", made["publicKey"], code=1).err
    manifest = {
        "ver": "1.0",
        "session_id": "s",
        "agent_id": "old",
        "scope": [{"predicate": "MUTATES", "resource": "FILE:/x"}],
    }
    (realm.folder / "m.json").write_text(json.dumps(manifest))
    signed = realm("klis", "sign", "m.json", "--key", "old.pem").out
    asking = ("lease", "acquire", "--manifest", "-", "--require-signature")
    foreign = json.dumps({**json.loads(signed), "agent_id": "young"})
    assert "UNAUTHENTICATED" in realm(*asking, given=foreign, code=1).err
    altered = signed.replace("FILE:/x", "FILE:/y")
    assert "UNAUTHENTICATED" in realm(*asking, given=altered, code=1).err
    realm(*asking, given=signed)
    assert last_verdict(realm)["channel"]["kind"] == "signed"
    assert "MANIFEST_REPLAYED" in realm(*asking, given=signed, code=1).err
    another = realm("klis", "sign", "m.json", "--key", "old.pem").out
    realm("keys", "revoke", made["keyId"], "--reason", "lost")
    assert "UNAUTHENTICATED" in realm(*asking, given=another, code=1).err
    (listed,) = realm("keys", "list", "--json").json
    assert listed == {"keyId": made["keyId"], "agentId": "old", "publicKey": made["publicKey"], "revoked": True}
    assert "UNKNOWN_KEY" in realm("keys", "revoke", made["keyId"], "--reason", "again", code=1).err
    (registered,) = realm("log", "--topic", KeyRegistered.TOPIC, "--json").lines
    assert "PRIVATE" not in json.dumps(registered)
    assert realm("recheck", "--json").json["ok"]


@pytest.mark.requirement("KM-7.1", "KM-5")
def test_a_manifest_that_somebody_hands_in_needs_a_signature_in_json_and_in_yaml(realm: CliRealm) -> None:
    text = "ver: '1.0'\nsession_id: s\nagent_id: old\nscope:\n  - predicate: MUTATES\n    resource: FILE:/x\n"
    for name in ("m.yaml", "m.yml", "m.json"):
        (realm.folder / name).write_text(text if name != "m.json" else json.dumps(yaml.safe_load(text)))
        refused = realm("lease", "acquire", "--manifest", f"@{name}", code=1).err
        assert "UNAUTHENTICATED" in refused
        assert "worldctl keys register" in refused
        assert "UNAUTHENTICATED" in realm("lease", "acquire", "--manifest", f"@{name}", "--by", "young", code=1).err
        told = realm("lease", "acquire", "--manifest", f"@{name}", "--by", "old", "--json").json
        assert (told["agentId"], told["leases"][0]["resource"]) == ("old", "FILE:/x")
    (realm.folder / "bad.yaml").write_text(text + "scope: []\n")
    wrong = realm("lease", "acquire", "--manifest", "@bad.yaml", code=2).err
    assert "the key 'scope' a second time at line 7, column 1" in wrong


def test_explain_says_what_it_does_not_find(realm: CliRealm) -> None:
    assert "NOT_FOUND" in realm("explain", "zzz", code=1).err
    assert "AMBIGUOUS" in realm("explain", last_verdict(realm)["verdictId"][:2], code=1).err


def test_the_verdict_on_a_proposal_is_explained_by_the_proposal(realm: CliRealm) -> None:
    done = realm("submit", "sell", "--actor", "ann", "--input", '{"item": "tea"}', "--json").json
    told = realm("explain", done["proposalId"], "--json").json["leases"]
    assert told["status"] == "Granted"
    assert told["asked"] == [{"predicate": "MUTATES", "resource": "STATE:/main/*"}]
    assert [one["topic"] for one in told["after"]] == ["lease.released"]


@pytest.mark.requirement("KP-3b")
def test_an_edge_against_the_order_of_age_would_be_told(realm: CliRealm) -> None:
    running = waiting(realm, "lease", "acquire", "FILE:/young", "--agent", "old", "--wait", "60")
    with Realm.open_read_only(realm.folder / "world.db") as world:
        ledger = world.realm().klis.ledger()
    running.kill()
    running.communicate()
    (wait,) = waits(ledger)
    check_edges(ledger, [wait])
    ledger.agents["young"] = (0, "young")  # as if priorities could change
    with pytest.raises(Exception, match="against the order of age"):
        check_edges(ledger, [wait])
    turn = Conflict(0, "young", "y9", Predicate.MUTATES, "FILE:/young", request_id="r")
    check_edges(ledger, [Wait(wait.request, (turn,), more=False)])  # it holds nothing


def test_changed_settings_come_into_force_on_demand_and_verdicts_follow_them(realm: CliRealm) -> None:
    assert "INVALID_TTL" not in realm("lease", "acquire", "FILE:/q", "--agent", "old", *LONG).err
    with (realm.folder / "world.toml").open("a") as config:
        config.write("[klis]\nmax_ttl_ms = 1000\ndefault_ttl_ms = 1000\n")
    realm("lease", "acquire", "FILE:/r", "--agent", "old", *LONG)  # not yet in force
    assert realm("klis", "configure", "--json").json["changed"] is True
    assert realm("klis", "configure").out == "They are in force already.\n"
    assert "INVALID_TTL" in realm("lease", "acquire", "FILE:/s", "--agent", "old", *LONG, code=2).err
    assert realm("recheck", "--json").json["ok"]


def test_the_log_says_who_asked_and_what_came_of_it(realm: CliRealm) -> None:
    realm("lease", "acquire", "FILE:/old", "--agent", "young", code=1)
    shown = realm("log", "--topic", "verdict.given", "--actor", "young").out.splitlines()[-1]
    for words in ("young", "Die", "1 conflict ", last_verdict(realm)["verdictId"]):
        assert words in shown
