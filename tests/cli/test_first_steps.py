"""What somebody meets who has read the README only: the first calls, and what wrong ones are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import Counter, counter, house
from tests.cli.realm import COUNTER, ROOT, CliRealm, environment
from world.clock import ManualClock
from world.pipeline.submit import Submission
from worldprotocol import ActionContext, Domain, Realm, RefusedError, set_
from worldprotocol.api.config import Config

KID = {"kind": "hitl", "ask": ["ann"], "timeoutMs": 1_000}


def refused(call: Any) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        call()
    return caught.value


def founded(place: Path, **parts: Any) -> Realm:
    world = Realm.create(place, domain=counter, policies=[house], **parts)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("kid", "human", binding=KID)
    return world


@pytest.mark.requirement("CARD-log")
@pytest.mark.slow
def test_the_example_of_the_readme_can_be_run_again_in_the_same_folder(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    example = text.partition("```python\n")[2].partition("```")[0]
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", example],
            cwd=tmp_path,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-2] == "NOT_COVERED"


def test_open_or_create_founds_once_and_goes_on_from_then(tmp_path):
    place = tmp_path / "world.db"
    with Realm.open_or_create(place, domain=counter, data={"sold": 3}, policies=iter([house])) as world:
        assert list(world.realm().policies) == ["house"]
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.act("ann", "sell", {"item": "tea"})
    with Realm.open_or_create(place, domain=counter, data={"sold": 3}, policies=iter([house])) as world:
        assert world.data()["sold"] == 4
    other = Domain("urn:test:other", version="1.0.0", state=Counter)
    other.flow("go", {"kind": "seq", "steps": []})
    assert refused(lambda: Realm.open_or_create(place, domain=other)).code == "SCHEMA_MISMATCH"


def test_a_realm_that_another_process_founds_meanwhile_is_opened(tmp_path, monkeypatch):
    founded(tmp_path / "world.db").close()
    real, calls = Realm.open, []

    def first_missing(address: Any, **parts: Any) -> Realm:
        calls.append(address)
        if len(calls) == 1:
            raise RefusedError("LOG_NOT_FOUND", "not yet")
        return real(address, **parts)

    monkeypatch.setattr(Realm, "open", first_missing)
    with Realm.open_or_create(tmp_path / "world.db", domain=counter, policies=[house]) as world:
        assert len(calls) == 2
        assert world.data()["sold"] == 0


def test_nothing_is_made_of_data_that_does_not_fit(tmp_path):
    error = refused(lambda: Realm.create(tmp_path / "world.db", domain=counter, data={"sold": "x"}))
    assert error.code == "INVALID_DATA"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_log_says_how_one_is_founded(tmp_path):
    for way_in in (
        lambda: Realm.open_read_only(tmp_path / "no.db"),
        lambda: Realm.open(tmp_path / "no.db", domain=counter),
    ):
        error = refused(way_in)
        assert error.code == "LOG_NOT_FOUND"
        assert "`worldctl init` (Realm.create)" in error.message


@pytest.mark.requirement("WP-bind")
def test_an_actor_is_registered_and_bound_in_one_commit_or_not_at_all(tmp_path):
    with founded(tmp_path / "world.db") as world:
        events, commits = world.log.head().size, len(list(world.log.heads()))
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
        assert (world.log.head().size - events, len(list(world.log.heads())) - commits) == (2, 1)
        wrong = refused(lambda: world.register("new", "agent", binding={"kind": "policy_rules", "policy": "nowhere"}))
        assert "nowhere" in wrong.message
        assert "new" not in world.realm().actors
        assert world.act("bot", "sell", {"item": "tea"}).status == "completed"


def test_a_configuration_founds_and_opens_with_data_progress_and_a_clock(tmp_path):
    config = Config(domain=f"{COUNTER}:counter", policies=[f"{COUNTER}:house"], folder=tmp_path)
    seen: list[tuple[int, int]] = []
    clock = ManualClock(1_000, 1)
    with Realm.from_config(config, create=True, data={"sold": 7}, by="ann", clock=clock) as world:
        assert (world.data()["sold"], world.sealed().at) == (7, 1_000)
        assert list(world.realm().policies) == ["house"]
    with Realm.from_config(config, progress=lambda done, total: seen.append((done, total))) as world:
        assert world.data()["sold"] == 7
    file = tmp_path / "world.toml"
    file.write_text(f'domain = "{COUNTER}:counter"\npolicies = ["{COUNTER}:house"]\n')
    for named in (file, str(file)):
        with Realm.from_config(named) as world:
            assert world.data()["sold"] == 7
    assert refused(lambda: Realm.from_config(tmp_path / "none.toml")).code == "NO_CONFIG"
    assert refused(lambda: Realm.from_config(Config(folder=tmp_path))).code == "INVALID_CONFIG"
    assert refused(lambda: Realm.from_config(Config(domain="x.json", limits={"nope": 1}))).code == "INVALID_CONFIG"


def test_what_became_of_a_proposal_is_told_to_who_answers_too_late(tmp_path):
    clock = ManualClock(0)
    with founded(tmp_path / "world.db", clock=clock) as world:
        asked = [world.act("kid", "sell", {"item": "tea"}).proposal_id for _ in range(4)]
        world.decide(asked[0], "approve", by="ann", reason="well.")
        world.decide(asked[1], "reject", by="ann", reason="no tea")
        clock.advance(2_000)
        late = refused(lambda: world.decide(asked[2], "approve", by="ann"))
        assert late.code == "NOT_WAITING"
        for words in (
            "it was not decided by 1970-01-01T00:00:01Z",
            "timed out",
            "was rejected at 1970-01-01T00:00:02Z",
        ):
            assert words in late.message
        told = {name: refused(lambda name=name: world.decide(name, "reject", by="ann")).message for name in asked}
        assert "was approved" in told[asked[0]]
        assert "it is completed now" in told[asked[0]]
        assert "was rejected at 1970-01-01T00:00:00Z (ann rejected it: no tea)" in told[asked[1]]
        left = world.act("kid", "sell", {"item": "tea"}).proposal_id
        world.create_branch("side/one.2_b")
        world.switch_branch("side/one.2_b")
        assert "superseded" in refused(lambda: world.decide(left, "approve", by="ann")).message
        done = world.act("ann", "sell", {"item": "tea"}).proposal_id
        assert "it is completed now" in refused(lambda: world.decide(done, "approve", by="ann")).message
        assert "no proposal 'x'" in refused(lambda: world.decide("x", "approve", by="ann")).message


@pytest.mark.parametrize("name", ["b a d", "", "HEAD", "-x", "a\n", "ä", ".hidden", "x" * 201, "a:b"])
def test_a_branch_has_a_name_that_can_be_typed(tmp_path, name):
    with founded(tmp_path / "world.db") as world:
        assert refused(lambda: world.create_branch(name)).code == "INVALID_NAME"
        head = world.branch().head
        fork = refused(lambda: world.act("ann", "sell", {"item": "tea"}, base_world=head, fork_name=name))
        assert fork.code == "INVALID_NAME"
        source = {"kind": "ui", "eventId": "e", "payload": {}}
        assert refused(lambda: world.project(source, "ann", fork_name=name)).code == "INVALID_NAME"
        acting = world._acting  # the engine below the façade has the same rule
        assert refused(lambda: acting.create_branch(name, head, by="ann")).code == "INVALID_NAME"
        intent = world.issue("ann", "sell", {"item": "tea"})
        asked = Submission(intent, base_world=head, fork_name=name)
        assert refused(lambda: acting.submit(asked)).code == "INVALID_NAME"
        assert len(world.branches()) == 1


@pytest.mark.requirement("IC-available")
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"available": lambda data: True}, "an expression as portable data"),
        ({"available": True}, "(not bool)"),
        ({"available": "stock > 0"}, "ctx.fail(code, message)"),
        ({"available": {"kind": "get", "path": Counter}}, "$.path"),
        ({"label": 3}, "label takes a text"),
        ({"description": 3}, "description takes a text"),
        ({"manifest": len}, "manifest takes portable data"),
        ({"version": 3}, 'version takes a text, such as "1"'),
    ],
)
def test_an_action_that_is_declared_with_something_else_is_told_what_is_accepted_and_where(wrong, words):
    domain = Domain("urn:test:shop", version="1.0.0", state=Counter)

    def declare() -> None:
        @domain.action("pay", **{"version": "1", **wrong})
        def pay(ctx: ActionContext) -> Any:
            return [set_("sold", 1)]

    error = refused(declare)
    assert error.code == "INVALID_ACTION"
    assert words in error.message
    assert f"The action 'pay' is declared with {next(iter(wrong))}=" in error.message
    if "version" not in wrong:
        flow = refused(lambda: domain.flow("go", {"kind": "seq", "steps": []}, **wrong))
        assert flow.details["argument"] == next(iter(wrong))
    assert "at least one action" in refused(lambda: domain.schema).message


SCRIPT = """
from pydantic import BaseModel
from world.pipeline.submit import Submission
from worldprotocol import ActionContext, Approve, Domain, Policy, RefusedError, Realm, rule, set_

class Room(BaseModel):
    guests: list[str] = []

class Guest(BaseModel):
    name: str

room = Domain("urn:example:room", version="1.0.0", state=Room)

@room.action("enter", version="1")
def enter(ctx: ActionContext, input: Guest):
    if input.name in ctx.data["guests"]:
        ctx.fail("IS_HERE", f"{input.name} is here already")
    return [set_("guests", [*ctx.data["guests"], input.name])]

@rule
def everybody(case):
    return Approve("welcome")

with Realm.open_or_create("room.db", domain=room, policies=[Policy("door", [everybody])]) as world:
    world.register("bob", "human", binding={"kind": "policy_rules", "policy": "door"})
    print(world.act("bob", "enter", {"name": "Bob"}).status)
    print(world.act("bob", "enter", {"name": "Bob"}).error.code)
    try:
        world.act("bob", "enter", {"nam": "Bob"})
    except RefusedError as refused:
        print(refused.message)
    for wrong in (
        lambda: world.act("eve", "enter", {"name": "Eve"}),
        lambda: world.act("bob", "leave", {"name": "Bob"}),
        lambda: world.act("bob", "enter", {"name": {1, 2}}),
        lambda: world.register("zoe", "robot"),
        lambda: world.register("zoe", "human", binding={"kind": "policy_rules", "policy": "gate"}),
        lambda: world.register("zoe", "human", binding={"kind": "rules"}),
        lambda: world.decide("01", "approve", by="bob"),
        lambda: world.data("00"),
    ):
        try:
            wrong()
        except RefusedError as refused:
            print(refused.code, "|", refused)
"""


@pytest.mark.slow
def test_a_strangers_program_is_told_what_to_do(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[:2] == ["completed", "IS_HERE"]
    told = {line.split(" | ")[0]: line for line in lines[3:]}
    shown = "\n".join(lines)
    assert "nam" in lines[2]
    assert "register it first" in told["UNKNOWN_ACTOR"]
    assert "it has enter" in told["UNKNOWN_ACTION"]
    for words in (
        "$.input.name: set is no JSON type",
        "'human', 'agent' or 'system'",
        "there is door",
        "hitl, tribunal, not",
    ):
        assert words in shown
    assert "There is no proposal '01'" in told["NOT_WAITING"]
    assert "worldctl worlds" in told["UNKNOWN_WORLD"]
    assert len(lines) == 11


def test_every_line_of_a_domain_files_faults_is_told_and_nothing_is_left_behind(tmp_path):
    faulty: dict[str, Any] = {
        "id": "x", "version": 1, "state": {"fields": {"a": {"type": "nope"}}},
        "actions": {"b": {"flow": {"kind": "zip"}}, "c": {}},
    }  # fmt: skip
    (tmp_path / "faulty.json").write_text(json.dumps(faulty))
    (tmp_path / "broken.json").write_text('{"a":')
    (tmp_path / "broken.yaml").write_text("a: [")
    (tmp_path / "kept").mkdir()
    realm = CliRealm(tmp_path)
    told = realm("init", "kept/made/deep", "--domain", "faulty.json", "--json", code=2)
    faults = told.json["error"]["details"]["faults"]
    lines = told.err.splitlines()
    assert len(faults) > 3
    assert "faulty.json" in lines[0]
    assert f"{len(faults)} faults" in lines[0]
    assert lines[1:] == [f"  {fault['path']}: {fault['message']}" for fault in faults]
    for name in ("broken.json", "broken.yaml", "nowhere.yaml"):
        said = realm("init", "kept/made/deep", "--domain", name, code=2)
        assert name in said.err
        assert len(said.err.splitlines()) == 1
    realm("init", "kept/made", "--domain", f"{COUNTER}:counter", "--data", '{"sold": "x"}', code=2)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["broken.json", "broken.yaml", "faulty.json", "kept"]
