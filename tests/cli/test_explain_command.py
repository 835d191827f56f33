"""``worldctl explain PROPOSAL`` and ``worldctl policy ask``: why it was decided so, and how it would be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.counter import counter
from tests.cli.realm import COUNTER, CliRealm
from worldprotocol import Realm

RULES = """
name = "till"

[[rules]]
id = "small_sales_pass"
verdict = "approve"
actions = ["sell"]
when = "intent.input.count <= 5"
reason = "{intent.input.count} is few"

[[rules]]
id = "bots_touch_the_shelf"
verdict = "narrow"
scope = ["data.stock.*", "data.sold"]
actors = ["bot"]

[[rules]]
id = "charges_go_to_people"
verdict = "escalate"
actions = ["charge"]
to = ["ann"]

[[rules]]
id = "nothing_beyond_the_stock"
verdict = "reject"
actions = ["sell"]
when = "intent.input.count > base.data.stock[intent.input.item]"
reason = "there are {base.data.stock} only"
"""

BOUND = {"kind": "policy_rules", "policy": "till"}


def opened(folder: Path) -> Realm:
    """Return the counter under the rules of a file, with ann (auto-approved) and bot."""
    (folder / "rules.toml").write_text(RULES)
    (folder / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    world = Realm.create(folder / "world.db", domain=counter, policies=["rules.toml"], folder=folder)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding=BOUND)
    return world


def roles(told: Any) -> dict[str, tuple[str, str]]:
    return {one["rule"]: (one["answer"], one["role"]) for one in told["rules"]}


@pytest.mark.requirement("CARD-policy", "WP-decision")
@pytest.mark.slow
def test_a_rejection_is_explained_rule_by_rule_with_what_the_conditions_read(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        done = world.act("bot", "sell", {"item": "cake", "count": 4})
    realm = CliRealm(tmp_path)
    told = realm("explain", done.proposal_id, "--json").json
    assert (told["kind"], told["status"], told["verdict"]) == ("proposal", "rejected", "rejected")
    assert roles(told) == {
        "small_sales_pass": ("approve", "overruled"),
        "bots_touch_the_shelf": ("narrow", "overruled"),
        "charges_go_to_people": ("none", "silent"),
        "nothing_beyond_the_stock": ("reject", "decided"),
    }
    assert told["decidedBy"] == ["nothing_beyond_the_stock"]
    first, _, third, last = told["rules"]
    assert (first["source"], first["reads"]) == ("rules.toml:4", {"intent.input.count": 4})
    assert third["because"] == "it is for other actions or actors"
    assert last["reads"]["intent.input.count"] == 4
    assert last["reads"]["base.data.stock[intent.input.item]"] == 3
    assert told["policy"]["name"] == "till"
    assert told["leases"] is None
    words = realm("explain", done.proposal_id[:30]).out
    assert "* nothing_beyond_the_stock reject, decided" in words
    assert "reads  intent.input.count = 4" in words
    assert "overruled: 4 is few [rules.toml:4]" in words
    hidden = realm("explain", done.proposal_id, "--redact", "--json")
    assert not any("reads" in one for one in hidden.json["rules"])
    assert "cake" in realm("explain", done.proposal_id, "--json").out
    assert "4 is few" in realm("explain", done.proposal_id, "--json").out
    for text in (hidden.out, realm("explain", done.proposal_id, "--redact").out):
        assert "cake" not in text  # of the input
        assert "4 is few" not in text  # what a rule made of it
        assert "(hidden)" in text


@pytest.mark.requirement("CARD-policy")
@pytest.mark.slow
def test_a_condition_that_does_not_hold_and_the_default_are_told(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        world.register("eve", "agent", binding=BOUND)
        done = world.act("eve", "sell", {"item": "tea", "count": 6})
        granted = world.act("bot", "sell", {"item": "tea", "count": 1})
        past = world.act("bot", "sell", {"item": "cake", "count": 3})
        world.act("ann", "sell", {"item": "tea", "count": 7})
    realm = CliRealm(tmp_path)
    (tmp_path / "rules.toml").unlink()  # what was adopted stands in the log
    (tmp_path / "world.toml").unlink()
    told = realm("explain", done.proposal_id, "--json").json
    assert told["byDefault"] is True
    assert told["decidedBy"] == []
    assert told["rules"][0]["because"] == "its condition does not hold: intent.input.count <= 5"
    assert told["rules"][0]["reads"] == {"intent.input.count": 6}
    assert "default   no rule had an opinion" in realm("explain", done.proposal_id).out
    told = realm("explain", granted.proposal_id, "--json").json
    assert roles(told)["bots_touch_the_shelf"] == ("narrow", "decided")
    assert roles(told)["small_sales_pass"] == ("approve", "agreed")
    assert told["leases"]["status"] == "Granted"
    told = realm("explain", past.proposal_id, "--json").json
    assert told["rules"][3]["reads"]["base.data.stock[intent.input.item]"] == 3  # as it was then


@pytest.mark.requirement("CARD-policy", "WP-bind")
def test_the_answers_of_people_are_part_of_the_explanation(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        done = world.act("bot", "charge", {"amount": 5})
        realm = CliRealm(tmp_path)
        waiting = realm("explain", done.proposal_id, "--json").json
        world.decide(done.proposal_id, "reject", by="ann", reason="too dear")
    assert (waiting["verdict"], roles(waiting)["charges_go_to_people"]) == ("wait", ("escalate", "decided"))
    told = realm("explain", done.proposal_id, "--json").json
    assert roles(told)["charges_go_to_people"] == ("escalate", "asked")
    assert [(one["answer"], one["source"]) for one in told["people"]] == [("reject", "human:ann")]
    assert told["decidedBy"] == ["human answer"]
    assert [one["choice"] for one in told["answers"]] == ["reject"]
    words = realm("explain", done.proposal_id).out
    assert "people    * human answer reject: too dear [human:ann]" in words
    assert "answer    reject by ann: too dear" in words


def test_a_ruling_without_rules_is_explained_too(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        done = world.act("ann", "sell", {"item": "tea"})
    told = json.loads(CliRealm(tmp_path)("explain", done.proposal_id, "--json").out)
    assert (told["authority"], told["rules"], told["policy"], told["byDefault"]) == ("auto_approve", [], None, False)


def asked(realm: CliRealm, action: str, given: Any, *words: str, actor: str = "bot") -> Any:
    wish = json.dumps({"type": action, "input": given})
    return realm("policy", "ask", "--actor", actor, "--intent", "-", *words, "--json", given=wish).json


@pytest.mark.requirement("CARD-policy", "CARD-audit")
@pytest.mark.slow
def test_a_hypothetical_case_is_judged_and_nothing_is_recorded(tmp_path: Path) -> None:
    with opened(tmp_path) as world:
        size = world.log.head().size
    realm = CliRealm(tmp_path)
    told = asked(realm, "sell", {"item": "cake", "count": 3})
    assert (told["kind"], told["verdict"], told["inForce"]) == ("hypothetical", "approve", True)
    assert told["approvedScope"] == {"allowedPaths": ["data.stock.*", "data.sold"]}
    assert roles(told)["small_sales_pass"] == ("approve", "agreed")
    told = asked(realm, "sell", {"item": "cake", "count": 3}, "--set", "base.data.stock.cake=2")
    assert (told["verdict"], told["decidedBy"]) == ("reject", ["nothing_beyond_the_stock"])
    assert told["rules"][3]["reads"]["base.data.stock[intent.input.item]"] == 2
    told = asked(realm, "charge", {"amount": 1}, "--set", "intent.input.amount=7")
    assert (told["verdict"], told["ask"], told["input"]) == ("wait", ["ann"], {"amount": 7})
    assert asked(realm, "sell", {"item": "tea"}, actor="ann")["authority"] == "auto_approve"
    with Realm.open_read_only(tmp_path / "world.db") as world:
        assert world.log.head().size == size
    wish = tmp_path / "wish.json"
    wish.write_text('{"type": "sell", "input": {"item": "tea", "count": 9}}')
    words = realm("policy", "ask", "--actor", "bot", "--intent", str(wish)).out
    assert words.startswith("nothing was submitted")
    assert "bots_touch_the_shelf narrow, decided" in words


@pytest.mark.requirement("CARD-policy")
@pytest.mark.slow
def test_another_policy_is_asked_by_its_file(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "strict.toml").write_text(RULES.replace("<= 5", "<= 2").replace('name = "till"', 'name = "strict"'))
    realm = CliRealm(tmp_path)
    told = asked(realm, "sell", {"item": "tea", "count": 3}, "--policy", "strict.toml", actor="ann")
    assert (told["verdict"], told["byDefault"], told["inForce"]) == ("reject", True, False)
    assert (told["policy"]["name"], told["authority"]) == ("strict", "policy_rules:strict")
    wish = '{"type": "sell"}'
    for words, code, ends in (
        (["--actor", "nobody"], "UNKNOWN_ACTOR", 1),
        (["--actor", "bot", "--set", "base.world=1"], "INVALID_PATH", 2),
        (["--actor", "bot", "--set", "nowMs=never"], "INVALID_VALUE", 2),
        (["--actor", "bot", "--set", "intent.type=fly"], "UNKNOWN_ACTION", 1),
    ):
        said = realm("policy", "ask", "--intent", "-", *words, "--json", given=wish, code=ends)
        assert said.json["error"]["code"] == code
