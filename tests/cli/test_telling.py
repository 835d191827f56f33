"""What the commands tell: words that cannot be right are refused with those that can, and nothing is shown twice."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path

import pytest

from tests.cli.realm import COUNTER, CliRealm, founded, sale
from tests.support.patience import PATIENCE_S
from world.log import open_log
from worldprotocol import Realm

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def template(tmp_path_factory) -> Path:
    realm = founded(tmp_path_factory.mktemp("realm"))
    realm("submit", "--intents", "-", given=sale("ann") + sale("bot", "cake") + sale("bot", count=5), code=1)
    return realm.folder


@pytest.fixture
def realm(template, tmp_path) -> CliRealm:
    return CliRealm(Path(shutil.copytree(template, tmp_path / "realm")))


@pytest.mark.requirement("IC-audit")
@pytest.mark.parametrize(
    ("option", "wrong", "known"),
    [
        ("--status", "complete", "submitted, evaluating, approved, executing, rejected, superseded, completed, failed"),
        ("--branch", "mian", "there is main"),
        ("--type", "sells", "charge, sell"),
        ("--actor", "nan", "ann, bot, kid, operator"),
        ("--topic", "proposal.done", "proposal.submitted"),
    ],
)
def test_a_filter_that_no_event_can_pass_is_a_usage_error_with_the_known_words(template, option, wrong, known):
    said = CliRealm(template)("log", option, wrong, code=2)
    assert wrong in said.err
    assert known in said.err
    assert said.out == ""


def test_known_words_pass_although_nothing_is_like_that(template):
    realm = CliRealm(template)
    assert "No event is like that" in realm("log", "--status", "superseded").err
    assert realm("log", "--status", "superseded", "--json").out == ""
    assert "policy.adopted" in realm("log", "--actor", "operator").out
    assert realm("log", "--type", "charge", "--branch", "main").out == ""


@pytest.mark.requirement("IC-audit")
def test_the_list_has_heads_and_its_json_has_the_leaf_hashes(template):
    realm = CliRealm(template)
    lines = realm("log", "--limit", "2").out.splitlines()
    assert lines[0] == "event\twhen\ttopic\twho\twhat"
    assert [line.split("\t")[0] for line in lines[1:]] == ["1", "2"]
    with open_log(str(template / "world.db"), read_only=True) as log:
        assert [one["leaf"] for one in realm("log", "--json").lines] == [event.leaf.hex() for event in log.read()]


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_ctrl_c_ends_following_quietly(template, more):
    running = CliRealm(template).start("log", "--follow", *more)
    assert running.stdout is not None
    with Realm.open_read_only(template / "world.db") as world:
        lines = world.log.head().size + (not more)
    for _ in range(lines):
        running.stdout.readline()
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=PATIENCE_S)
    assert (running.returncode, out, err) == (130, "", "")


@pytest.mark.requirement("IC-audit")
def test_an_overdue_proposal_is_shown_as_such_and_its_fate_is_told(realm):
    realm("actor", "bind", "kid", "--ask", "ann", "--timeout-ms", "1")
    overdue = realm("submit", "sell", "--actor", "kid", "--input", '{"item": "tea"}', "--json", code=4).json[
        "proposalId"
    ]
    told = {one["proposalId"]: one["overdue"] for one in realm("inbox", "--json").json}
    assert (told.pop(overdue), list(told.values())) == (True, [False])
    shown = realm("inbox")
    assert "none: overdue, to be rejected" in shown.out
    assert "1 proposal is overdue; `worldctl settle` decides it." in shown.err
    assert overdue not in realm("inbox", "--for", "ann").out
    assert "overdue since" in realm("show", overdue).out
    late = realm("decide", overdue, "approve", "--by", "ann", code=1).err
    assert "timed out and was rejected at 2" in late
    assert "[NOT_WAITING]" in late
    assert overdue not in realm("inbox").out


def test_a_question_asked_back_is_seen_by_everybody_who_looks(realm):
    (waiting,) = realm("inbox", "--json").json
    name = waiting["proposalId"]
    assert "--reason" in realm("decide", name, "ask", "--by", "ann", code=2).err
    assert "--scope" in realm("decide", name, "approve", "--by", "ann", "--scope", "data.sold", code=2).err
    said = realm("decide", name, "ask", "--by", "ann", "--reason", "why five?")
    assert "ann asks: why five?" in said.out
    row = dict(zip(*(line.split("\t") for line in realm("inbox").out.splitlines()), strict=True))
    assert row["asked back"] == "ann: why five?"
    assert "question  by ann: why five?" in realm("show", name).out
    assert realm("show", name, "--json").json["answers"][0]["reason"] == "why five?"


@pytest.mark.requirement("CARD-replay")
def test_replay_to_a_world_ends_with_the_commit_that_sealed_it(template):
    realm = CliRealm(template)
    with Realm.open_read_only(template / "world.db") as world:
        head, position = world.branch().head, world.archive.world(world.branch().head).position
        ends = next(one.size for one in world.log.heads(position - 1))
    assert ends > position
    for named in (head, head[:9], "main", "HEAD"):
        done = realm("replay", "--at", named, "--data", "--json").json
        assert (done["position"], done["world"], done["data"]["sold"]) == (ends, head, 1)
        assert (done["branches"]["main"]["head"], done["proposals"]) == (head, {"completed": 1})
    assert realm("replay", "--at", str(position), "--json").json["position"] == position
    assert "branch list" in realm("replay", "--at", "mian", code=1).err


def test_a_world_is_named_by_a_branch_wherever_one_is_named(realm):
    head = realm("branch", "list", "--json").json["branches"][0]["head"]
    realm("branch", "create", "side/one", "--at", "HEAD")
    for named, fork in (("HEAD", 1), ("side/one", 2)):
        told = realm("submit", "sell", "--actor", "ann", "--input", '{"item":"tea"}', "--base", named, "--json").json
        assert told["branch"] == f"fork-{head[:8]}-{fork}"
    assert realm("blame", "sold", "--at", "side/one", "--json").json["worldId"] == head
    assert "[INVALID_NAME]" in realm("branch", "create", "b a d", code=2).err


def test_what_a_stranger_types_is_answered_with_what_to_do(realm):
    assert "realm already" in realm("init", "--domain", f"{COUNTER}:counter", "--force", code=1).err
    assert "`worldctl actor bind late ...`" in realm("actor", "add", "late", "--kind", "agent").out
    assert "never written since the realm was founded" in realm("blame", "nowhere", code=1).out
    assert "founded with it" in realm("blame", "stock.cake").out
    assert "SIZE:ROOT or a file; there is no file 3" in realm("verify", "--against", "3", code=2).err
    assert "there is main" in realm("worlds", "--branch", "mian", code=1).err


def test_one_is_told_of_as_one(realm):
    realm("branch", "create", "side")
    assert realm("branch", "switch", "side").out.endswith("; 1 proposal was superseded.\n")
    assert realm("branch", "switch", "main").out.endswith("; 0 proposals were superseded.\n")
    vectors = CliRealm(realm.folder, "conformance")
    assert "1 line could not be answered" in vectors("eval", given="{\n", code=1).err


@pytest.mark.parametrize("command", [["log"], ["verify"], ["settle"], ["export"], ["replay"]])
def test_a_missing_log_leads_to_init(template, command):
    said = CliRealm(template)("--log", "no.db", *command, "--json", code=2)
    assert said.json["error"]["code"] == "LOG_NOT_FOUND"
    assert "`worldctl init`" in said.err


def test_the_actor_command_makes_one_commit(realm):
    with Realm.open_read_only(realm.folder / "world.db") as world:
        before = len(list(world.log.heads()))
    realm("actor", "add", "new", "--kind", "agent", "--policy", "house")
    with Realm.open_read_only(realm.folder / "world.db") as world:
        assert len(list(world.log.heads())) == before + 1
    assert json.loads(realm("log", "--actor", "new", "--json").out.splitlines()[-1])["topic"] == "actor.bound"
