"""Founding, acting and deciding from the command line, each command a process of its own."""

from __future__ import annotations

import json
import shutil
import signal
import tomllib
from pathlib import Path

import pytest

from tests.cli.realm import COUNTER, FOUND, CliRealm, founded, sale
from tests.support.patience import PATIENCE_S
from worldprotocol import Realm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    return founded(tmp_path_factory.mktemp("realm")).folder


@pytest.fixture
def realm(template, tmp_path) -> CliRealm:
    """Return a realm of the test's own, copied: founding takes five processes."""
    shutil.copytree(template, tmp_path / "realm")
    return CliRealm(tmp_path / "realm")


def test_init_writes_what_composes_the_realm_and_founds_it(template):
    config = tomllib.loads((template / "world.toml").read_text())
    assert config["domain"] == f"{COUNTER}:counter"
    assert config["policies"] == [f"{COUNTER}:house"]
    with Realm.open_read_only(template / "world.db") as world:
        assert world.data()["sold"] == 0
        assert list(world.realm().policies) == ["house"]


def test_init_overwrites_nothing(realm):
    before = (realm.folder / "world.toml").read_bytes()
    said = realm(*FOUND, code=1)
    assert "[CONFIG_EXISTS]" in said.err
    assert "[ALREADY_FOUNDED]" in realm(*FOUND, "--force", code=1).err
    assert (realm.folder / "world.toml").read_bytes() == before


def test_init_makes_a_folder_whose_references_start_there(tmp_path):
    realm = CliRealm(tmp_path)
    shutil.copy(COUNTER, tmp_path / "shop.py")
    (tmp_path / "first.json").write_text('{"sold": 7}')
    told = realm("init", "deep/er", "--domain", "shop.py:counter", "--data", "first.json", "--json").json
    assert tomllib.loads((tmp_path / "deep/er/world.toml").read_text())["domain"] == "../../shop.py:counter"
    with Realm.open_read_only(tmp_path / told["log"]) as world:
        assert world.data()["sold"] == 7
        assert world.branch().head == told["worldId"]
    assert CliRealm(tmp_path / "deep/er")("settle", "--json").json["events"] == 0
    assert realm("--config", "deep/er/world.toml", "branch", "list", "--json").json["branches"][0]["name"] == "main"


def test_init_founds_nothing_on_data_that_does_not_fit(tmp_path):
    said = CliRealm(tmp_path)("init", "--domain", f"{COUNTER}:counter", "--data", '{"sold": "x"}', code=2)
    assert "[INVALID_DATA]" in said.err
    assert not (tmp_path / "world.toml").exists()


def test_actors_are_listed_with_their_bindings(template):
    told = {one["actorId"]: one for one in CliRealm(template)("actor", "list", "--json").json}
    assert told["ann"]["name"] == "Ann"
    assert told["ann"]["binding"] == {"kind": "auto_approve"}
    assert told["bot"]["binding"]["policy"] == "house"
    assert (told["kid"]["binding"]["ask"], told["kid"]["binding"]["timeoutMs"]) == (["ann"], 86_400_000)


def test_an_actor_is_bound_again_and_bad_bindings_are_usage_errors(realm):
    told = realm("actor", "bind", "bot", "--bind", '{"kind": "hitl", "ask": ["ann"]}', "--json").json
    assert told["binding"]["kind"] == "hitl"
    for wrong in (
        ["--auto-approve", "--policy", "house"],
        ["--timeout-ms", "5"],
        [],
        ["--bind", "{"],
        ["--bind", "[]"],
        ["--bind", '{"kind": "nobody"}'],
    ):
        realm("actor", "bind", "bot", *wrong, code=2)


def test_a_policy_is_listed_with_its_hashes_and_adopted_once(template, tmp_path):
    realm = CliRealm(shutil.copytree(template, tmp_path / "realm"))
    (told,) = realm("policy", "list", "--json").json
    assert (told["name"], told["note"], told["adopted"]) == ("house", "in force", told["atHand"])
    assert realm("policy", "adopt", "house", "--json").json["adopted"] is False
    assert "[UNKNOWN_POLICY]" in realm("policy", "adopt", "nowhere", code=1).err


def test_an_intent_is_submitted_and_its_outcome_told(realm):
    told = realm("submit", "sell", "--actor", "ann", "--input", '{"item": "tea"}', "--json").json
    assert told["status"] == "completed"
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.branch().head == told["worldId"]
    rejected = realm("submit", "sell", "--actor", "bot", "--input", '{"item": "cake"}', "--json", code=1).json
    assert (rejected["status"], rejected["decision"]["decision"]) == ("rejected", "rejected")
    failed = realm("submit", "charge", "--actor", "ann", "--input", "-", "--json", given='{"amount": 500}', code=1).json
    assert (failed["status"], failed["failure"]["code"]) == ("failed", "NO_MONEY")
    outside = realm(
        "submit", "charge", "--actor", "ann", "--input", '{"amount": 1}', "--scope", "data.sold", "--json", code=1
    ).json
    assert outside["failure"]["code"] == "SCOPE_VIOLATION"


RULES = """\
name = "shop"
[[rules]]
id = "small"
when = "intent.input.amount <= 3"
verdict = "approve"
"""


@pytest.mark.requirement("CARD-policy")
def test_a_policy_file_is_adopted_by_its_name_once_world_toml_names_it(template, tmp_path):
    shutil.copytree(template, tmp_path / "realm")
    realm = CliRealm(tmp_path / "realm")
    (realm.folder / "rules.toml").write_text(RULES)
    assert "add it there" in realm("policy", "adopt", "rules.toml", code=1).err
    config = (realm.folder / "world.toml").read_text()
    (realm.folder / "world.toml").write_text(config.replace("policies = [", 'policies = ["rules.toml", '))
    assert realm("policy", "adopt", "rules.toml", "--json").json["adopted"] is True
    assert realm("policy", "adopt", "rules.toml", "--json").json == realm("policy", "adopt", "shop", "--json").json
    notes = {one["name"]: one["note"] for one in realm("policy", "list", "--json").json}
    assert notes == {"house": "in force", "shop": "in force"}
    (realm.folder / "rules.toml").write_text(RULES.replace("amount", "amount >"))
    assert "line 4, $.rules[0].when: line 1, column 23" in realm("policy", "adopt", "rules.toml", code=2).err


@pytest.mark.requirement("CARD-policy")
def test_init_takes_a_policy_file_from_the_current_folder(tmp_path):
    (tmp_path / "rules.toml").write_text(RULES)
    realm = CliRealm(tmp_path)
    realm("init", "shop", "--domain", f"{COUNTER}:counter", "--policy", "rules.toml")
    assert tomllib.loads((tmp_path / "shop" / "world.toml").read_text())["policies"] == ["../rules.toml"]


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["submit", "sell", "--actor", "ann", "--input", '{"item":'], 2, "MALFORMED_JSON"),
        (["submit", "sell", "--actor", "ann", "--input", "@nowhere.json"], 2, "FILE_UNREADABLE"),
        (["submit", "sell"], 2, "USAGE"),
        (["submit"], 2, "USAGE"),
        (["submit", "sell", "--actor", "ann", "--intents", "-"], 2, "USAGE"),
        (["project", "{}", "--actor", "ann"], 2, "INVALID_VALUE"),
        (["project", "[]", "--actor", "ann"], 2, "INVALID_VALUE"),
        (["project", "{}"], 2, "USAGE"),
        (["project"], 2, "USAGE"),
        (["project", "{}", "--actor", "ann", "--events", "-"], 2, "USAGE"),
        (["project", "{}", "--actor", "ann", "--base", "HEAD"], 2, "USAGE"),
        (["project", "--events", "-", "--branch", "main", "--base", "HEAD"], 2, "USAGE"),
        (["submit", "sell", "--actor", "ann", "--source", "{}"], 2, "USAGE"),
        (["submit", "steal", "--actor", "ann"], 1, "UNKNOWN_ACTION"),
        (["submit", "sell", "--actor", "nobody"], 1, "UNKNOWN_ACTOR"),
        (
            ["submit", "sell", "--actor", "ann", "--input", '{"item": "tea"}', "--branch", "nowhere"],
            1,
            "UNKNOWN_BRANCH",
        ),
        (["submit", "sell", "--actor", "ann", "--input", '{"item": "tea"}', "--base", "ffff"], 1, "UNKNOWN_WORLD"),
        (["decide", "ffff", "approve", "--by", "ann"], 1, "NOT_WAITING"),
        (["decide", "ffff", "maybe", "--by", "ann"], 2, "USAGE"),
        (["decide", "ffff", "narrow", "--by", "ann"], 2, "USAGE"),
        (["--log", "nowhere.db", "inbox"], 2, "LOG_NOT_FOUND"),
        (["--config", "nowhere.toml", "settle"], 2, "NO_CONFIG"),
        (["submitt"], 2, "USAGE"),
        (["inbox", "--frobnicate"], 2, "USAGE"),
    ],
)
def test_what_is_wrong_is_one_sentence_and_one_exit_code(template, arguments, code, word):
    said = CliRealm(template)(*arguments, "--json", code=code)
    assert said.json["error"]["code"] == word
    assert said.err.startswith("error: ")
    assert said.json["error"]["message"] in said.err


def test_lines_are_submitted_in_order_and_bad_ones_are_reported_by_number(realm):
    given = "".join(
        [
            sale("ann"),
            "{broken\n",
            "\n",
            sale("bot", count=5),
            sale("bot", "cake"),
            '{"actor": "ann", "type": "sell", "inputs": {}}\n',
            '{"actor": "ann"}\n',
            "[]\n",
            '"' + "x" * 100 + "\n",
            sale("nobody"),
            sale("ann", count=2),
        ]
    )
    said = realm("submit", "--intents", "-", given=given, code=1)
    told = {one["line"]: one for one in said.lines}
    assert sorted(told) == [1, 2, 4, 5, 6, 7, 8, 9, 10, 11]
    assert [told[number]["status"] for number in (1, 4, 5, 11)] == ["completed", "evaluating", "rejected", "completed"]
    assert [told[number]["error"]["code"] for number in (2, 6, 7, 8, 9, 10)] == [
        "MALFORMED_JSON", "INVALID_VALUE", "INVALID_VALUE", "INVALID_VALUE", "MALFORMED_JSON", "UNKNOWN_ACTOR",
    ]  # fmt: skip
    assert "10 lines done" in said.err
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.data()["sold"] == 3


def test_a_batch_stops_at_the_first_error_when_told_to(realm):
    given = sale("ann") + sale("bot", "cake") + sale("ann")
    said = realm("submit", "--intents", "-", "--stop-on-error", given=given, code=1)
    assert [one["status"] for one in said.lines] == ["completed", "rejected"]


def test_full_instances_can_be_imported_again_and_nothing_happens_twice(realm):
    with Realm.open(realm.folder / "world.db", domain=f"{COUNTER}:counter", policies=[f"{COUNTER}:house"]) as world:
        issued = [world.issue("ann", "sell", {"item": "tea"}).to_wire() for _ in range(3)]
    (realm.folder / "intents.jsonl").write_text("".join(json.dumps(one) + "\n" for one in issued))
    first = realm("submit", "--intents", "intents.jsonl").lines
    again = realm("submit", "--intents", "intents.jsonl", code=1).lines
    assert [one["proposalId"] for one in again] == [one["proposalId"] for one in first]
    assert all(one["alreadySubmitted"] and one["error"]["code"] == "INTENT_ALREADY_SUBMITTED" for one in again)
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.data()["sold"] == 3


def test_source_events_go_through_the_projections(realm):
    def event(number: int, payload: object) -> str:
        return json.dumps(
            {"actor": "ann", "source": {"kind": "ui", "eventId": f"e{number}", "payload": payload}}
        ) + "\n"  # fmt: skip

    given = event(1, {"item": "tea"}) + event(2, {}) + event(3, {"item": "gin"}) + '{"actor": "ann"}\n'
    told = realm("project", "--events", "-", "--paranoid", given=given, code=1).lines
    assert [one["status"] for one in told] == ["completed", "none", "failed", "refused"]
    assert told[0]["projection"] == "orders"
    assert told[1]["why"] == "nothing was ordered"
    source = json.loads(event(4, {"item": "tea"}))["source"]
    assert realm("project", json.dumps(source), "--actor", "ann", "--json").json["status"] == "completed"


def test_the_inbox_says_who_waits_for_whom_and_people_answer(realm):
    given = sale("bot", count=3) + sale("kid") + sale("bot", count=4) + sale("kid", count=2)
    lines = realm("submit", "--intents", "-", given=given, code=4).lines
    waiting = realm("inbox", "--json").json
    assert [one["proposalId"] for one in waiting] == [one["proposalId"] for one in lines]
    assert (waiting[0]["actor"]["actorId"], waiting[0]["waitsFor"]) == ("bot", ["ann"])
    assert waiting[0]["rule"] == "large_sales_ask"
    assert waiting[1]["deadline"] - waiting[1]["since"] == 86_400_000
    assert "large sale" in realm("inbox").out
    assert realm("inbox", "--for", "kid", "--json").json == []

    first, second, third, fourth = (one["proposalId"] for one in waiting)
    assert realm("decide", first[:-1], "approve", "--by", "ann", "--json").json["status"] == "completed"
    assert realm("decide", second, "reject", "--by", "ann", "--reason", "no", "--json").json["status"] == "rejected"
    narrowed = realm("decide", third, "narrow", "--by", "ann", "--scope", "data.sold", "--json", code=1).json
    assert narrowed["failure"]["code"] == "SCOPE_VIOLATION"
    asked = realm("decide", fourth, "ask", "--by", "ann", "--reason", "why two?", "--json").json
    assert asked["status"] == "evaluating"
    assert realm("inbox", "--json").json[0]["answers"][0]["reason"] == "why two?"


def test_an_ambiguous_prefix_lists_the_candidates(realm):
    realm("submit", "--intents", "-", given=sale("kid") + sale("kid"), code=4)
    said = realm("decide", "0", "approve", "--by", "ann", "--json", code=1)
    assert said.json["error"]["code"] == "AMBIGUOUS"
    assert len(said.json["error"]["details"]["candidates"]) == 2


def test_branches_are_made_listed_and_switched(realm):
    told = realm("submit", "--intents", "-", given=sale("ann") + sale("ann") + sale("kid"), code=4).lines
    first = told[0]["worldId"]
    assert realm("branch", "create", "side", "--at", first[:20], "--json").json["head"] == first
    assert realm("branch", "switch", "side", "--json").json == {"active": "side", "superseded": 1}
    by_name = {one["name"]: one for one in realm("branch", "list", "--json").json["branches"]}
    assert by_name["side"]["active"]
    assert by_name["main"]["head"] == told[1]["worldId"]
    assert realm("inbox", "--json").json == []
    fork = realm("submit", "sell", "--actor", "ann", "--input", '{"item":"tea"}', "--base", first, "--json").json
    assert fork["branch"].startswith("fork-")
    assert "[BRANCH_EXISTS]" in realm("branch", "create", "side", code=1).err


def test_a_changed_domain_is_refused_until_it_is_adopted(tmp_path):
    realm = CliRealm(tmp_path)
    (tmp_path / "domain.json").write_text(json.dumps(VENDING))
    realm("init", "--domain", "domain.json")
    assert realm("adopt", "--json").json["adopted"] is False
    (tmp_path / "domain.json").write_text(json.dumps({**VENDING, "version": "1.1.0"}))
    assert "[SCHEMA_MISMATCH]" in realm("settle", code=1).err
    drift = {one["check"]: one for one in realm("doctor", "--json", code=1).json["checks"]}
    assert not drift["domain"]["ok"]
    assert "worldctl adopt" in drift["domain"]["advice"]
    told = realm("adopt", "--json").json
    assert told["adopted"]
    assert told["previous"] != told["schemaHash"]
    assert realm("doctor", "--json").json["ok"]


VENDING = {
    "id": "urn:test:vending",
    "version": "1.0.0",
    "types": {},
    "state": {"fields": {"count": {"type": "number", "required": True, "default": 0}}},
    "computed": {"fields": {}},
    "actions": {
        "add": {
            "flow": {
                "kind": "patch",
                "op": "set",
                "path": "count",
                "value": {
                    "kind": "add",
                    "left": {"kind": "get", "path": "count"},
                    "right": {"kind": "lit", "value": 1},
                },
            }
        }
    },
}


def test_ctrl_c_during_a_long_import_loses_nothing_and_says_how_far_it_came(realm):
    (realm.folder / "many.jsonl").write_text(sale("ann") * 20_000)
    running = realm.start("submit", "--intents", "many.jsonl")
    assert running.stdout is not None
    for _ in range(3):
        assert json.loads(running.stdout.readline())["status"] == "completed"
    running.send_signal(signal.SIGINT)
    rest, err = running.communicate(timeout=PATIENCE_S)
    done = 3 + len(rest.splitlines())
    assert running.returncode == 130
    assert f"{done} lines done" in err
    assert "Traceback" not in err
    assert done < 20_000
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.data()["sold"] == done


def test_ctrl_c_while_waiting_for_input_ends_at_once(realm):
    running = realm.start("submit", "--intents", "-", "--json")
    assert running.stdin is not None
    assert running.stdout is not None
    running.stdin.write(sale("ann"))
    running.stdin.flush()
    assert json.loads(running.stdout.readline())["status"] == "completed"
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 130
    assert "1 line done" in err
    assert json.loads(out)["error"]["code"] == "INTERRUPTED"


def test_nobody_reading_the_output_is_no_error_and_loses_nothing(realm):
    (realm.folder / "many.jsonl").write_text(sale("ann") * 3_000)
    running = realm.start("submit", "--intents", "many.jsonl")
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.readline()
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    running.stdin.close()
    assert running.wait(PATIENCE_S) == 141
    assert err == ""
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert world.data()["sold"] >= 1
