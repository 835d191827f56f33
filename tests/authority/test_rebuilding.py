"""Policies of files are made again from the log alone, and past rulings rechecked by them; code is not in the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Approve, Policy, Rule, policy_from_file, rebuilt_policy, rule
from authority.policies.cedar import policy_from_cedar
from authority.policies.policy_file import policy_from_text, policy_from_written
from authority.policies.policy_text import ParsedText, Place
from tests.cli.counter import counter
from tests.cli.realm import COUNTER, CliRealm
from world.events.proposal_events import ProposalJudged
from world.log import NewEvent, open_log
from world.model.canonical_json import canonical_bytes, read_json
from world.model.immutable_json import FrozenDict, freeze
from world.pipeline import judge
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import Rechecked, open_to_recheck, recheck

WORDS = st.text(st.characters(codec="utf-8"), max_size=20).map(lambda words: words.replace("{", "").replace("}", ""))
NAMES = st.sampled_from(["a", "b.c", "d-e"])
VERDICTS: dict[str, dict[str, Any]] = {
    "approve": {},
    "reject": {},
    "narrow": {"scope": ["data.stock.*"]},
    "escalate": {"to": ["ann"]},
}


@st.composite
def files(draw: st.DrawFn) -> dict[str, Any]:
    rules: list[dict[str, Any]] = []
    for name in draw(st.lists(NAMES, min_size=1, max_size=3, unique=True)):
        verdict = draw(st.sampled_from(sorted(VERDICTS)))
        more = draw(
            st.fixed_dictionaries(
                {},
                optional={
                    "when": st.sampled_from(["intent.input.count <= 2", "history.count({}) > 3 || 'é' == 'e'"]),
                    "actions": st.just(["sell", "s*"]),
                    "actors": st.just(["bot*"]),
                    "reason": WORDS,
                },
            )
        )
        rules.append({"id": name, "verdict": verdict, **VERDICTS[verdict], **more})
    return {"name": draw(NAMES), "rules": rules, **draw(st.sampled_from([{}, {"version": "2"}]))}


def recorded(policy: Policy) -> FrozenDict:
    """Return a description as it comes out of a log."""
    description: FrozenDict = freeze(read_json(canonical_bytes(policy.description)))
    return description


@pytest.mark.requirement("CARD-policy", "CARD-replay")
@given(files(), st.integers(0, 3))
def test_a_policy_file_comes_out_of_its_adoption_with_the_same_hash(file: dict[str, Any], lines: int) -> None:
    places: dict[Place, int] = {("rules", at): 3 + at * lines for at in range(3)}
    policy = policy_from_written(ParsedText(file, places), "rules.yaml")
    again = rebuilt_policy(recorded(policy), policy.hash)
    assert again is not None
    assert (again.hash, again.name, again.version) == (policy.hash, policy.name, policy.version)
    assert [one.name for one in again.rules] == [one.name for one in policy.rules]
    assert rebuilt_policy(recorded(policy), "0" * 64) is None


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_cedar_file_comes_out_of_its_adoption_with_the_same_hash() -> None:
    text = """// first

        @id("a") permit(principal, action, resource); @id("b") forbid(principal, action, resource)
        when { context.nowMs
               < 5 };
        // between
        @id("c") @reason("é; \\"x\\"") permit(principal, action, resource);"""
    policy = policy_from_cedar(text, "house.cedar")
    again = rebuilt_policy(recorded(policy), policy.hash)
    assert again is not None
    assert again.hash == policy.hash


@rule
def everything(case: Any) -> Any:
    return Approve("anything")


def test_python_rules_are_not_in_the_log_and_what_is_no_policy_makes_none() -> None:
    cel: Rule = policy_from_text('name = "x"\n[[rules]]\nid = "a"\nverdict = "approve"\n', "x.toml").rules[0]
    for policy in (Policy("code", [everything]), Policy("mixed", [everything, cel]), Policy("none", [])):
        assert rebuilt_policy(recorded(policy), policy.hash) is None
    kept = recorded(Policy("file", [cel]))
    (described,) = kept["rules"]
    for damaged in (
        {**kept, "rules": [{**described, "parameters": {"verdict": "whatever"}}]},
        {**kept, "rules": [{**described, "language": "other"}]},
        {"rules": kept["rules"]},
        {},
    ):
        assert rebuilt_policy(damaged, kept["hash"]) is None


def till(most: int) -> str:
    return f'name = "till"\n[[rules]]\nid = "small"\nverdict = "approve"\nwhen = "intent.input.count <= {most}"\n'


def rechecked(folder: Path, *policies: Policy) -> Rechecked:
    with open_to_recheck(str(folder / "world.db"), domain=counter, policies=list(policies)) as world:
        return recheck(world, every=True)


@pytest.mark.requirement("CARD-policy", "CARD-replay", "WP-decision")
@pytest.mark.slow
def test_rulings_of_a_policy_file_that_was_replaced_are_rechecked_by_the_rules_of_then(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    (tmp_path / "world.toml").write_text(f'domain = "{COUNTER}:counter"\npolicies = ["rules.toml"]\n')
    realm = CliRealm(tmp_path)
    for most in (2, 3):
        rules.write_text(till(most))
        given_: dict[str, Any] = {"domain": counter, "policies": ["rules.toml"], "folder": tmp_path}
        if most == 2:
            with Realm.create(tmp_path / "world.db", **given_) as world:
                world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
        else:
            realm("policy", "adopt", "till")
        with Realm.open(tmp_path / "world.db", **given_) as world:
            done = [world.act("bot", "sell", {"item": "tea", "count": count}).status for count in (2, 3, 4)]
        assert done == ["completed", "completed" if most == 3 else "rejected", "rejected"]
    rules.write_text(till(9))  # at hand is neither of both
    for policies in ([policy_from_file(rules)], []):
        again = rechecked(tmp_path, *policies)
        assert again.ok, again.to_wire()
        assert (again.steps["rulings"], again.steps["notRechecked"]) == (6, 0)
    assert "6 rulings" in realm("recheck").out
    python = Policy("till", [everything])
    assert rechecked(tmp_path, python).steps["rulings"] == 6


def sold_while_changed(folder: Path) -> Path:
    """Found a realm, and have a changed policy file judge in it that nobody adopted; return its address."""
    rules, address = folder / "rules.toml", folder / "world.db"
    given_: dict[str, Any] = {"domain": counter, "policies": ["rules.toml"], "folder": folder}
    for most, status in ((2, "completed"), (9, "rejected"), (2, "completed")):
        rules.write_text(till(most))
        with Realm.create(address, **given_) if not address.exists() else Realm.open(address, **given_) as world:
            if "bot" not in world.realm().actors:
                world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "till"})
            with pytest.MonkeyPatch.context() as patch:  # earlier releases rejected what is held today
                patch.setattr(judge, "hold", lambda *_: False)
                assert world.act("bot", "sell", {"item": "tea", "count": 1}).status == status
    return address


@pytest.mark.requirement("CARD-policy", "CARD-replay", "WP-decision")
def test_what_a_file_said_that_nobody_adopted_was_refused_whatever_it_said(tmp_path: Path) -> None:
    sold_while_changed(tmp_path)
    for policies in ([policy_from_file(tmp_path / "rules.toml")], []):
        again = rechecked(tmp_path, *policies)
        assert again.ok, again.to_wire()
        assert (again.steps["rulings"], again.steps["notRepeatable"]) == (2, 1)
        assert again.steps["notRechecked"] == 0
    (tmp_path / "rules.toml").write_text(till(9))  # the file that judged is at hand again: it is asked
    again = rechecked(tmp_path, policy_from_file(tmp_path / "rules.toml"))
    assert (again.ok, again.steps["rulings"], again.steps["notRepeatable"]) == (True, 3, 0)


@pytest.mark.requirement("CARD-replay", "WP-decision")
@pytest.mark.parametrize("reason", ["small: everything is small", None])
def test_a_policy_that_nobody_adopted_refuses_for_no_other_reason(tmp_path: Path, reason: str | None) -> None:
    address, forged = sold_while_changed(tmp_path), tmp_path / "forged" / "world.db"
    forged.parent.mkdir()
    with Realm.open_read_only(address) as world, open_log(str(forged), create=True) as log, log.write() as transaction:
        for logged in world.log.read():
            state = json.loads(logged.state)
            if logged.topic == ProposalJudged.TOPIC and state["ruling"]["verdict"] == "reject":
                state["ruling"] |= {"reason": reason} if reason else {"policyHash": "0" * 64}
            event = NewEvent(logged.stream, logged.topic, logged.schema_version, canonical_bytes(state))
            transaction.append([event])
    Realm.open(forged, domain=counter, policies=["rules.toml"], folder=tmp_path).close()  # makes its index
    again = rechecked(forged.parent)
    if reason is None:
        assert (again.ok, again.steps["notRepeatable"]) == (True, 1)  # another hash tells as much
    else:
        assert [one.difference.code for one in again.divergences] == ["RULING_DIVERGED"]
        assert "is not the one that was adopted" in str(again.divergences[0].difference)
