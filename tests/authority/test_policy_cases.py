"""Cases of policies: files of them, histories that are told, what comes of a case, what cases cover."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from authority import Approve, Escalate, Narrow, Policy, PythonRule, Reject
from authority.policies.policy_text import read_text
from tests.authority.cases import always
from tests.authority.till import RULES, till
from tests.cli.counter import counter
from tests.support.tables import for_each
from world.clock import ManualClock
from world.errors import RefusedError
from world.pipeline.history_sums import PastAt
from world.pipeline.unit_of_work import Lookup
from world.state.ports import Case
from worldprotocol import Realm
from worldprotocol.policy_tools.cases import (
    DEFAULT_NOW_MS,
    CaseDefaults,
    CaseEntry,
    CaseExpectation,
    PastEntry,
    read_cases,
    written,
)
from worldprotocol.testing.history import ListedHistory
from worldprotocol.testing.judging import CaseRuling, differences, judged
from worldprotocol.testing.making import Maker
from worldprotocol.testing.recorded import past_entry, recorded_case
from worldprotocol.testing.suites import cases_beside, run, suite_of
from worldprotocol.testing.writing import case_text

START = 1_700_000_000_000


def entry(**more: Any) -> CaseEntry:
    told = {"name": "a", "actor": "bot", "intent": {"type": "sell", "input": {"count": 1, "item": "tea"}}}
    return CaseEntry.read({**told, **more})


def ruled(policy: Policy, **more: Any) -> CaseRuling:
    return judged(policy, Maker(policy, None, CaseDefaults()).case(entry(**more)))


def case(**more: Any) -> Case:
    return Maker(till(), None, CaseDefaults()).case(entry(**more))


# Files


WRONG = {
    "rules.cases.toml": """
[given]
actor = "bot"

[[cases]]
name = "a"
intent = { type = "pay" }
expected = { decision = "aprove" }

[[cases]]
name = "a"
intent = { type = "pay" }
  [cases.expected]
  decision = "approve"
  [[cases.history]]
  actor = "bot"
  action = "pay"
  [[cases.history]]
  actor = "bot"
  action = "pay"
  at = "5 minutes"
""",
    "rules.cases.yaml": """
given: {actor: bot}
cases:
- name: a
  intent: {type: pay}
  expected:

    decision: aprove
- name: a
  intent: {type: pay}
  expected: {decision: approve}
  history:
  - {actor: bot, action: pay}
  - actor: bot
    action: pay



    at: 5 minutes
""",
}
WRONG["rules.cases.json"] = json.dumps(
    {
        "given": {"actor": "bot"},
        "cases": [
            {"name": "a", "intent": {"type": "pay"}, "expected": {"decision": "aprove"}},
            {
                "name": "a",
                "intent": {"type": "pay"},
                "expected": {"decision": "approve"},
                "history": [
                    {"actor": "bot", "action": "pay"},
                    {"actor": "bot", "action": "pay", "at": "5 minutes"},
                ],
            },
        ],
    },
    indent=1,
)
LINES = {"rules.cases.toml": [8, 11, 21], "rules.cases.yaml": [8, 9, 19], "rules.cases.json": [12, 16, 31]}


@pytest.mark.parametrize("name", WRONG)
def test_all_faults_of_a_file_are_told_with_path_and_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(WRONG[name])
    with pytest.raises(RefusedError) as refused:
        read_cases(tmp_path / name)
    faults = refused.value.details["faults"]
    assert refused.value.code == "INVALID_CASES"
    assert [fault["path"] for fault in faults] == [
        "$.cases[0].expected.decision",
        "$.cases[1].name",
        "$.cases[1].history[1].at",
    ]
    assert [fault["line"] for fault in faults] == LINES[name]
    assert f"line {LINES[name][0]}, $.cases[0].expected.decision: " in refused.value.message


@pytest.mark.parametrize(
    "told", [5, [], {"cases": 5}, {"cases": [5]}, {"given": [], "cases": [{"name": ["a"]}, {"name": 5}]}]
)
def test_a_file_of_another_shape_is_told_as_such(told: Any, tmp_path: Path) -> None:
    (tmp_path / "rules.cases.json").write_text(json.dumps(told))
    with pytest.raises(RefusedError) as refused:
        read_cases(tmp_path / "rules.cases.json")
    assert refused.value.code == "INVALID_CASES"


def write(folder: Path, *cases: dict[str, Any], name: str = "rules.cases.json", **more: Any) -> Path:
    path = folder / name
    path.write_text(json.dumps({**more, "cases": list(cases)}))
    return path


WANTED = {"name": "a", "actor": "bot", "intent": {"type": "pay"}, "expected": {"decision": "approve"}}


@pytest.mark.parametrize(
    ("cases", "words"),
    [
        ([WANTED, WANTED], "the case $.cases[0] is called 'a', too"),
        ([{**WANTED, "actor": None}], "it has no actor, and none is given for all cases"),
        ([{**WANTED, "expectd": {}}], "$.cases[0].expectd: Extra inputs are not permitted"),
        ([], "$.cases: List should have at least 1 item"),
        (
            [{**WANTED, "history": [{"actor": "a", "action": "b", "decision": "rejected", "outcome": "failed"}]}],
            "what was rejected was not executed",
        ),
    ],
)
def test_a_file_that_contradicts_itself_is_refused(cases: list[Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        read_cases(write(tmp_path, *cases))
    assert refused.value.code == "INVALID_CASES"
    assert words in refused.value.message


@pytest.mark.parametrize("text", ["cases = [", '{"cases": 1, "cases": 2}', "cases: &a [*a]", ""])
def test_what_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    for suffix in ("toml", "yaml", "json"):
        (tmp_path / f"rules.cases.{suffix}").write_text(text)
        with pytest.raises(RefusedError, match="is no valid file of cases: line 1, "):
            read_cases(tmp_path / f"rules.cases.{suffix}")


JSON = st.recursive(
    st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("form", ["toml", "yaml", "json"])
@settings(max_examples=40)
@given(data=st.dictionaries(st.text(max_size=8), JSON, max_size=4), told=JSON)
@pytest.mark.slow
def test_a_case_that_is_written_reads_as_what_it_was(form: Any, data: Any, told: Any, tmp_path_factory: Any) -> None:
    wanted = {
        **WANTED,
        "actor": {"id": "bot", "kind": "agent", "meta": data},
        "intent": {"type": "pay", "input": told},
        "base": {"data": data},
        "history": [{"actor": "bot", "action": "pay", "input": told}] * 2,
    }
    path = tmp_path_factory.mktemp("written") / f"rules.cases.{form}"
    if form == "json":
        text = json.dumps({"cases": [wanted]}, indent=1)
    else:
        text = ("cases:\n" if form == "yaml" else "") + case_text(wanted, form)
    path.write_text(text, encoding="utf-8")
    [read] = read_cases(path).cases
    assert read == read.read(wanted)
    found = written(text, path.suffix)
    for place, line in found.lines.items():
        part: Any = found.data
        for step in place:
            part = part[step]
        assert 1 <= line <= text.count("\n") + 1
    if form == "json" and not re.search(r"\\ud[89a-f]", text):  # YAML holds JSON but for escapes in pairs
        assert sorted(found.lines.values()) == sorted(read_text(text, is_toml=False).lines.values())


def test_every_part_of_a_file_in_toml_knows_its_line() -> None:
    text = """given = { a = { b = 1 } } # [[no]]
a."b c".d = [1, [{}], { x = 1 },
  { y = [2] }]
[[cases]]
s = \'\'\'
[[cases]]
\'\'\'
[cases.base."x.y"]
n = 1
[[cases.base.l]]
[["cases"]]
history = [
  { by = 1 }, # },
  { by = 2 },
]
"""
    assert read_text(text, is_toml=True).lines == {
        ("given",): 1,
        ("a",): 2,
        ("a", "b c"): 2,
        ("a", "b c", "d"): 2,
        ("a", "b c", "d", 2): 2,
        ("a", "b c", "d", 3): 3,
        ("cases", 0): 4,
        ("cases", 0, "s"): 5,
        ("cases", 0, "base", "x.y"): 8,
        ("cases", 0, "base", "x.y", "n"): 9,
        ("cases", 0, "base", "l", 0): 10,
        ("cases", 1): 11,
        ("cases", 1, "history"): 12,
        ("cases", 1, "history", 0): 13,
        ("cases", 1, "history", 1): 14,
    }


def test_null_is_not_written_as_toml() -> None:
    with pytest.raises(RefusedError, match="take --format yaml"):
        case_text({**WANTED, "intent": {"type": "pay", "input": {"to": None}}}, "toml")
    assert "to: null" in case_text({**WANTED, "intent": {"type": "pay", "input": {"to": None}}}, "yaml")


# What a case becomes


def test_a_case_says_who_what_where_and_when() -> None:
    made = case(
        actor={"id": "ann", "kind": "human", "meta": {"level": 3}},
        intent={"type": "sell", "input": {"count": 1}, "scope": ["data.sold"]},
        base={"data": {"sold": 1}, "computed": {"total": 5}},
        manifest=[{"predicate": "file:write", "resource": "/x"}],
        now="2026-01-31T12:00:00Z",
        branch="draft",
        binding={"ask": ["ann"]},
    )
    assert (made.actor.actor_id, made.actor.kind, made.actor.meta) == ("ann", "human", {"level": 3})
    assert made.intent.body.scope_proposal is not None
    assert made.intent.body.scope_proposal.allowed_paths == ("data.sold",)
    assert (made.view.data, made.view.computed) == ({"sold": 1}, {"computed.total": 5})
    assert made.manifest == {"scope": [{"predicate": "file:write", "resource": "/x"}]}
    assert made.submitted_at == int(datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()) * 1000
    assert (made.branch, made.binding["ask"], made.binding["policy"]) == ("draft", ["ann"], "till")


def test_what_a_case_leaves_out_is_what_all_cases_have_in_common() -> None:
    common = CaseDefaults.read({"actor": "bot", "branch": "draft", "now": 5, "base": {"data": {"a": 1}}})
    made = Maker(till(), None, common).case(entry(actor=None, base={"data": {}}))
    assert (made.actor.actor_id, made.branch, made.submitted_at, made.view.data) == ("bot", "draft", 5, {})
    assert case().submitted_at == DEFAULT_NOW_MS


def test_the_domain_makes_computed_values_and_action_specs() -> None:
    made = Maker(till(), counter, CaseDefaults()).case(entry(base={"data": {"stock": {}, "sold": 0, "receipts": []}}))
    assert made.action is not None
    assert made.schema_hash == counter.schema.hash
    assert case().action is None


def test_earlier_attempts_are_those_of_the_same_meaning() -> None:
    same = {"actor": "kid", "action": "sell", "input": {"item": "tea", "count": 1}, "times": 2}
    made = case(history=[same, {**same, "input": {"item": "cake"}}])
    assert made.earlier_attempts == 2
    assert made.history.count(intent_key=made.intent.intent_key) == 2
    assert made.history.count(actor_id="kid") == 4


def test_how_long_ago_is_meant_from_the_time_of_the_case() -> None:
    made = case(now=10_000_000, history=[{"actor": "bot", "action": "sell", "at": "5m"}])
    assert made.history.count(since_ms=9_700_000) == 1
    assert made.history.count(since_ms=9_700_001) == 0


@pytest.mark.parametrize("more", [{"binding": {"ask": []}}, {"binding": {"kindness": 1}}, {"actor": None}])
def test_a_case_that_makes_no_sense_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(RefusedError, match=r"valid|actor"):
        case(**more)


@pytest.mark.parametrize("kind", ["hitl", "auto_approve", "tribunal", "policy", 5])
def test_a_case_is_judged_by_the_policy_and_by_no_other_authority(kind: Any) -> None:
    with pytest.raises(RefusedError, match="by which no policy judges") as refused:
        case(binding={"kind": kind, "ask": ["ann"]})
    assert refused.value.code == "INVALID_VALUE"
    assert case(binding={"kind": "policy_rules", "ask": ["ann"]}).binding["ask"] == ["ann"]


# Histories


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Realm]:
    """A log in which proposals of two actors were approved, rejected, failed, and wait."""
    folder = tmp_path_factory.mktemp("till")
    (folder / "rules.toml").write_text(RULES)
    clock = ManualClock(START, 1)
    with Realm.create(
        folder / "world.db", domain=counter, policies=["rules.toml"], folder=folder, clock=clock
    ) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        for name in ("bot", "kid"):
            world.register(name, "agent", binding={"kind": "policy_rules", "policy": "till"})
        for at in range(24):
            who = ("bot", "kid", "bot", "ann")[at % 4]
            item = ("tea", "rum", "cake")[at % 3]
            world.act(who, "sell", {"item": item, "count": (1, 2, 9, 4)[at % 4]})
            if at % 8 == 5:
                world.act(who, "charge", {"amount": at})
        yield world


def proposals(world: Realm) -> list[tuple[int, str]]:
    return [(one.position, one.proposal_id) for one in world.archive.earlier(world.log.head().size + 1, 1_000)]


CONDITIONS = st.fixed_dictionaries(
    {},
    optional={
        "actor_id": st.sampled_from(["bot", "kid", "ann", "nobody"]),
        "action": st.sampled_from(["sell", "charge"]),
        "decision": st.sampled_from(["approved", "rejected"]),
        "outcome": st.sampled_from(["completed", "failed"]),
        "since_ms": st.integers(START, START + 250),
    },
)


@pytest.mark.requirement("CARD-policy")
@settings(max_examples=80)
@given(conditions=CONDITIONS, data=st.data())
@pytest.mark.slow
def test_a_told_history_answers_as_that_of_the_log_does(realm: Realm, conditions: dict[str, Any], data: Any) -> None:
    known = proposals(realm)
    keys = [realm.proposal(proposal_id).intent.intent_key for _, proposal_id in known]
    key = data.draw(st.none() | st.sampled_from(keys))
    before = data.draw(st.integers(1, realm.log.head().size + 1))
    past = [
        PastEntry.read(past_entry(realm.archive, proposal_id, before, counter.schema.hash))
        for position, proposal_id in known
        if position < before
    ]
    told = Maker(till(), counter, CaseDefaults()).case(entry(history=[one.to_wire() for one in past])).history
    real = PastAt(cast(Lookup, realm.archive), before)
    asked = conditions if key is None else {**conditions, "intent_key": key}
    assert told.count(**asked) == real.count(**asked)
    assert told.sum("count", **asked) == real.sum("count", **asked)


def test_a_told_history_refuses_the_sums_that_a_log_refuses() -> None:
    wrong = case(history=[{"actor": "bot", "action": "sell", "input": {"count": "many"}}]).history
    long = case(history=[{"actor": "bot", "action": "sell", "times": 10_001}]).history
    for history, code in ((wrong, "NOT_A_NUMBER"), (long, "HISTORY_TOO_LONG")):
        with pytest.raises(RefusedError) as refused:
            history.sum("count")
        assert refused.value.code == code
    with pytest.raises(RefusedError, match="needs the path"):
        ListedHistory(()).sum("")


NEVER: list[dict[str, Any]] = [{"actr_id": "bot"}, {"decision": "reject"}, {"outcome": "done"}, {"actor_id": 5}]


@pytest.mark.parametrize("conditions", NEVER)
def test_what_could_never_match_is_refused_by_every_history(realm: Realm, conditions: Any) -> None:
    for history in (ListedHistory(()), PastAt(cast(Lookup, realm.archive), 10)):
        for ask in (history.count, partial(history.sum, "count")):
            with pytest.raises(RefusedError, match="The history"):
                ask(**conditions)


@pytest.mark.requirement("CARD-policy")
def test_every_recorded_case_comes_to_the_same_as_a_case_in_a_file(realm: Realm, tmp_path: Path) -> None:
    texts, decisions = [], set()
    for _, proposal_id in proposals(realm):
        proposal = realm.proposal(proposal_id)
        if proposal.submitted.actor.actor_id != "ann":
            told = recorded_case(realm.archive, proposal, till(), counter)
            decisions.add((told["expected"]["decision"], *told["expected"]["decidedBy"]))
            texts.append(case_text(told, "toml"))
    (tmp_path / "rules.cases.toml").write_text("\n".join(texts))
    (tmp_path / "rules.toml").write_text(RULES)
    checked, _ = run([suite_of(tmp_path / "rules.cases.toml", domain=counter)], covering=False, lines=False)
    assert [one.differs for one in checked] == [[]] * len(texts)
    assert {words for words, *_ in decisions} == {"approve", "reject", "wait"}


def test_what_no_rules_judged_makes_no_case(realm: Realm) -> None:
    own = next(one for _, one in proposals(realm) if realm.proposal(one).submitted.actor.actor_id == "ann")
    with pytest.raises(RefusedError) as refused:
        recorded_case(realm.archive, realm.proposal(own), till(), counter)
    assert refused.value.code == "NOT_JUDGED_BY_RULES"


# What is expected


def of(*opinions: Any) -> Policy:
    return Policy("house", [always(one, f"r{at}") for at, one in enumerate(opinions)])


def failing(_: Case) -> None:
    raise ValueError("broken")


@for_each(
    ("policy", "expected", "differs"),
    [
        (of(Approve("fine")), {"decision": "approve", "decidedBy": "r0", "scope": "unrestricted"}, []),
        (of(Approve("fine")), {"decision": "approve", "reason": "fine", "rules": {"r0": "approve"}}, []),
        (
            of(Approve("fine")),
            {"decision": "approve", "reason": "bad", "rules": {"r0": "none"}},
            ["reason", "rules.r0"],
        ),
        (of(Approve()), {"decision": "approve", "rules": {"r9": "approve"}}, ["rules.r9"]),
        (of(Narrow(["b", "a"])), {"decision": "approve", "scope": ["a", "b"]}, []),
        (of(Narrow("a")), {"decision": "approve", "scope": "unrestricted"}, ["scope"]),
        (of(Approve()), {"decision": "approve", "scope": ["a"]}, ["scope"]),
        (of(Reject()), {"decision": "reject", "scope": []}, ["scope"]),
        (of(Escalate(["x", "y"])), {"decision": "wait", "asks": ["y", "x"]}, []),
        (of(Escalate("x")), {"decision": "approve", "asks": "y"}, ["decision", "asks"]),
        (of(), {"decision": "reject", "decidedBy": []}, []),
        (of(Reject()), {"decision": "reject", "decidedBy": []}, ["decidedBy"]),
        (Policy("p", [PythonRule("failing", failing)]), {"decision": "error", "decidedBy": "failing"}, []),
        (Policy("p", [PythonRule("failing", failing)]), {"decision": "reject"}, ["decision"]),
        (of(Reject()), {"decision": "error"}, ["decision"]),
    ],
)
def test_what_differs_is_told(policy: Policy, expected: dict[str, Any], differs: list[str]) -> None:
    assert [one.what for one in differences(CaseExpectation.read(expected), ruled(policy))] == differs


# Where they are


def test_cases_stand_beside_their_policy(tmp_path: Path) -> None:
    for name in ("rules.cases.toml", "rules.cases.json", "house.cases.yaml", "rules.toml", "other.cases.toml"):
        (tmp_path / name).write_text("")

    def beside(reference: str) -> list[str]:
        return [path.name for path in cases_beside(reference, tmp_path)]

    assert beside("rules.toml") == ["rules.cases.toml", "rules.cases.json"]
    assert beside("rules.py:house") == ["house.cases.yaml"]
    assert beside("rules.py:club") == ["rules.cases.toml", "rules.cases.json"]
    assert beside("none.toml") == []
    assert beside("no.such.module:house") == []


def test_a_file_of_cases_names_its_policy_or_stands_beside_it(tmp_path: Path) -> None:
    path = write(tmp_path, WANTED, name="till.cases.json")
    with pytest.raises(RefusedError) as refused:
        suite_of(path)
    assert refused.value.code == "NO_POLICY_NAMED"
    (tmp_path / "till.toml").write_text(RULES)
    assert suite_of(path).policy.name == "till"
    (tmp_path / "till.yaml").write_text("")
    with pytest.raises(RefusedError, match=r"till\.toml and till\.yaml"):
        suite_of(path)
    assert suite_of(write(tmp_path, WANTED, name="till.cases.json", policy="till.toml")).policy.name == "till"
