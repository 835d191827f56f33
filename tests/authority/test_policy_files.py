"""Policies in files: read strictly, refused with every fault and its line, and policies like all others."""

from __future__ import annotations

import pickle
import re
import time
from contextlib import suppress
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Narrow, PolicyRegistry, StandardAuthority, is_policy_file, policy_from_file
from authority.policies.policy import Policy
from authority.policies.policy_file import FileRule, fits, policy_from_text
from authority.policies.policy_text import MAX_BYTES
from tests.authority.cases import ASKING, always, by_policy, make_case, scope
from tests.support.patience import PATIENCE_S
from tests.support.tables import for_each
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.intent import IntentScope

TOML = """\
# What the house allows.
name = "house"
version = "3"

[[rules]]
id = "small"
when = "intent.input.amount <= 20"
verdict = "approve"
reason = "{intent.input.amount} of {base.data.balance} is {{small}}, {actor.meta.team}"

[[rules]]
id = "large"
actions = ["todo.*"]
when = '''
intent.input.amount > 20  // [[rules]]
'''
verdict = "escalate"
to = ["ann"]
reason = "more than 20"

[[rules]] # the last one
id = "agents"
when = 'actor.kind == "agent"'
verdict = "narrow"
scope = ["data.todos.*", "data.balance"]

[[rules]]
id = "strangers"
actors = ["x-*", "y"]
verdict = "reject"
"""

YAML = """\
# What the house allows.
name: house
version: "3"
rules:
  - id: small
    when: intent.input.amount <= 20
    verdict: approve
    reason: "{intent.input.amount} of {base.data.balance} is {{small}}, {actor.meta.team}"
  - {id: large, actions: ["todo.*"], verdict: escalate, to: [ann], reason: more than 20,
     when: "intent.input.amount > 20"}
  - id: agents
    when: actor.kind == "agent"
    verdict: narrow
    scope: [data.todos.*, data.balance]
  - id: strangers
    actors: ["x-*", "y"]
    verdict: reject
"""


def case_of(amount=5, **more):
    return make_case(by_policy(), given={"amount": amount}, data={"balance": 100}, **more)


def sources_of(policy: Policy):
    return [one.source for one in policy.rules if isinstance(one, FileRule)]


def faults_of(text, file="rules.toml"):
    with pytest.raises(RefusedError) as refused:
        policy_from_text(text, file)
    assert refused.value.code == "INVALID_POLICY"
    faults = refused.value.details["faults"]
    assert all(f"line {one['line']}, {one['path']}: " in refused.value.message for one in faults)
    return [(one["line"], one["path"], one["message"]) for one in faults]


@pytest.mark.parametrize(("text", "file"), [(TOML, "rules.toml"), (YAML, "rules.yaml"), (YAML, "rules.yml")])
@pytest.mark.requirement("CARD-policy")
def test_a_file_is_a_policy_that_judges(text, file):
    house = policy_from_text(text, file)
    small = house.evaluate(case_of(5), ASKING)
    assert small.verdict == "approve"
    assert small.approved_scope == scope("data.todos.*", "data.balance")
    assert [(one.rule, one.answer, one.decisive) for one in small.trace] == [
        ("small", "approve", False),
        ("large", "none", False),
        ("agents", "narrow", True),
        ("strangers", "none", False),
    ]
    assert small.trace[0].reason == "5 of 100 is {small}, ?"
    large = house.evaluate(case_of(50), ASKING)
    assert (large.verdict, large.ask, large.trace[1].reason) == ("wait", ("ann",), "more than 20")
    assert house.evaluate(case_of(50, action="pay"), ASKING).trace[1].answer == "none"
    assert house.evaluate(case_of(5, actor_id="x-7"), ASKING).verdict == "reject"
    assert house.evaluate(case_of(5, actor_id="y7"), ASKING).verdict == "approve"


@pytest.mark.requirement("CARD-policy")
def test_a_rule_keeps_its_file_its_line_and_all_it_says():
    house = policy_from_text(TOML, "rules.toml")
    assert [one.label for one in sources_of(house)] == [f"rules.toml:{line}" for line in (5, 11, 21, 27)]
    assert [one.label for one in sources_of(policy_from_text(YAML, "r.yaml"))] == [
        f"r.yaml:{line}" for line in (5, 9, 11, 15)
    ]
    told = house.description["rules"][1]
    assert (told["language"], told["line"], told["source"]) == ("cel", 11, "rules.toml:11")
    assert told["parameters"] == {
        "actions": ["todo.*"],
        "when": "intent.input.amount > 20  // [[rules]]\n",
        "verdict": "escalate",
        "to": ["ann"],
        "reason": "more than 20",
    }
    assert read_json(canonical_bytes(house.description)) == house.description


def test_rules_in_one_array_have_lines_as_well():
    text = 'name = "house"\nrules = [\n  {id = "a", verdict = "approve"},\n\n  {id = "b", verdict = "reject"},\n]\n'
    assert [one.line for one in sources_of(policy_from_text(text, "rules.toml"))] == [3, 5]


def test_the_hash_covers_what_the_file_says_and_not_its_comments():
    house = policy_from_text(TOML, "rules.toml")
    assert policy_from_text(TOML.replace("# What the house allows.", "#"), "rules.toml").hash == house.hash
    for old, new in (('"3"', '"4"'), ("<= 20", "<= 21"), ("more than", "over"), ('"y"', '"z"'), ('["ann"]', '["bob"]')):
        assert policy_from_text(TOML.replace(old, new), "rules.toml").hash != house.hash
    moved = policy_from_text("\n" + TOML, "rules.toml")
    assert moved.hash == house.hash  # lines are places, and no part of a rule's identity
    assert [one.source_hash for one in sources_of(moved)] == [one.source_hash for one in sources_of(house)]


@pytest.mark.parametrize("vote", ['"all"', "true", "1.5", "[1]"])
def test_a_vote_that_is_none_is_one_fault(vote: str):
    text = f'name = "x"\n[[rules]]\nid = "a"\nverdict = "escalate"\nto = ["ann", "bob"]\nvote = {vote}\n'
    with pytest.raises(RefusedError) as refused:
        policy_from_text(text, "rules.toml")
    assert refused.value.details["faults"] == [
        {
            "path": "$.rules[0].vote",
            "message": "Input should be 'unanimous', 'majority' or a number of approvals",
            "line": 6,
        }
    ]


def test_all_faults_of_a_file_are_told_with_their_lines():
    text = """\
name = "the house"
[[rules]]
id = "a"
when = "amount > 3"
verdict = "approve"
scope = ["data.x"]
[[rules]]
id = "a"
when = "1 +"
verdict = "narrow"
reason = "{amount}"
to = ["ann"]
"""
    assert [(line, path) for line, path, _ in faults_of(text)] == [
        (1, "$.name"),
        (4, "$.rules[0].when"),
        (6, "$.rules[0].scope"),
        (7, "$.rules[1].scope"),
        (8, "$.rules[1].id"),
        (9, "$.rules[1].when"),
        (11, "$.rules[1].reason"),
        (12, "$.rules[1].to"),
    ]


RULE = '[[rules]]\nid = "a"\nverdict = "approve"\n'
OTHER = '[[rules]]\nid = "b"\nverdict = "approve"\n'


@for_each(
    ("text", "line", "path", "words"),
    [
        ('name = "h"\nrules = [\n', 1, "$", "end of document"),
        ('name = "h"\nrules == []\n', 2, "$", "line 2"),
        ('name = "h"\n', 1, "$.rules", "Field required"),
        ('name = "h"\nrules = []\n', 2, "$.rules", "at least 1 item"),
        (f'{RULE}\n[more]\nname = "h"\n', 1, "$.name", "Field required"),
        (f'name = "h"\ntitle = "x"\n{RULE}', 2, "$.title", "Extra inputs"),
        (f'name = "h"\ncombination = "mildest"\n{RULE}', 2, "$.combination", "strictest"),
        (f'name = "h"\n{RULE}unless = "true"\n', 5, "$.rules[0].unless", "Extra inputs"),
        (f'name = "h"\n{RULE}when = true\n', 5, "$.rules[0].when", "valid string"),
        (f'name = "h"\n{RULE}actions = "todo"\n', 5, "$.rules[0].actions", "valid list"),
        (f'name = "h"\n{RULE}actions = [""]\n', 5, "$.rules[0].actions[0]", "at least 1 character"),
        ('name = "h"\n[[rules]]\nid = "a"\nverdict = "maybe"\n', 4, "$.rules[0].verdict", "'approve'"),
        ('name = "h"\n[[rules]]\nid = "a b"\nverdict = "reject"\n', 3, "$.rules[0].id", "cannot name a rule"),
        (f'name = "h"\n{RULE}reason = "a {{"\n', 5, "$.rules[0].reason", "a single {"),
        (f'name = "h"\n{RULE}reason = "{{1 + 1}}"\n', 5, "$.rules[0].reason", "is not a path"),
        (f'name = "h"\n{RULE}reason = "{{intent.type + 1}}"\n', 5, "$.rules[0].reason", "is not a path"),
        (f'name = "h"\n{RULE}reason = "{{intent.amount}}"\n', 5, "$.rules[0].reason", "intent has the fields"),
    ],
)
def test_a_file_that_is_wrong_anywhere_is_refused(text, line, path, words):
    found = faults_of(text)
    assert any(one[:2] == (line, path) and words in one[2] for one in found), found


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("name: h\nname: i\n", 2, "the key 'name' a second time"),
        ("name: &a h\nversion: *a\n", 1, "anchor"),
        ("name: h\n--- \nname: i\n", 2, "document"),
        ("name: h\nrules: !!python/object:os.system []\n", 1, ""),
        ("name: !!timestamp 2024-01-01\n", 1, "timestamp"),
        ("1: h\n", 1, "not a string"),
        ("name: h\nrules: [{id: a, verdict: approve, when: true}]\n", 2, "valid string"),
        ("[" * 5_000, 1, ""),
        ("name: 'h\n", 1, ""),
        ("", 1, ""),
        ("- a", 1, ""),
    ],
)
def test_yaml_is_read_strictly(text, line, words):
    found = faults_of(text, "rules.yaml")
    assert any(words in one[2] for one in found), found
    assert any(one[0] == line for one in found) or words == "", found


HEAD = "name: h\nrules:\n- id: a\n  verdict: approve\n"


@pytest.mark.parametrize(
    ("file", "text", "line"),
    [
        ("a.yaml", HEAD + "  when: >\n    true // why\n    && false\n", 5),
        ("a.yaml", HEAD + "  when: >-\n    true // why\n    && false\n\n    && true\n", 5),
        ("a.yaml", HEAD + "  when: true // why\n    && false\n", 5),
        ("a.yaml", HEAD + "  when:\n    true // why\n    && false\n", 5),
        ("a.yaml", HEAD + '  when: "true // why\n    && false"\n', 5),
        ("a.yaml", HEAD + "  when: 'true // why\n    && false'\n", 5),
        ("a.yaml", HEAD + "  when: >\n    // why\n    true ||\n\n    false\n", 5),
        ("a.toml", f'name = "h"\n{RULE}when = """\ntrue // why \\\n && false"""\n', 5),
        ("a.toml", 'name = "h"\nrules = [{id="a",verdict="approve",when="""true// \\\\\\\n\n&& false"""}]\n', 2),
    ],
)
def test_a_comment_in_a_condition_whose_lines_are_joined_is_refused(file, text, line):
    assert [(one[0], one[1]) for one in faults_of(text, file)] == [(line, "$.rules[0].when")]
    assert "hides what follows" in faults_of(text, file)[0][2]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.yaml", HEAD + "  when: |\n    // why\n    true // because\n    && false\n"),
        ("a.yaml", HEAD + "  when: true && false // why\n"),
        ("a.yaml", HEAD + '  when: "true // why\\n && false"\n'),
        ("a.yaml", HEAD + "  when: >\n    'a//b' != ''\n    && false\n"),
        ("a.toml", f'name = "h"\n{RULE}when = """\ntrue // why\n && false"""\n'),
        ("a.toml", f'name = "h"\n{RULE}when = """true // \\\\\n && false"""\n'),
        ("a.toml", f"name = 'h'\n{RULE}when = '''true // \\\n && false'''\n"),
        ("a.toml", f'name = "h"\n{RULE}when = """true \\\n && false"""\n'),
    ],
)
def test_a_comment_in_a_condition_that_keeps_its_lines_hides_nothing(file, text):
    (made,) = policy_from_text(text, file).rules
    assert isinstance(made, FileRule)
    assert made.normalised_source["when"].endswith("&& false")


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for name, content in (("none.toml", None), ("bytes.toml", b"\xff"), ("large.toml", b"#" * (MAX_BYTES + 1))):
        if content is not None:
            (tmp_path / name).write_bytes(content)
        with pytest.raises(RefusedError) as refused:
            policy_from_file(tmp_path / name)
        assert refused.value.code == "NOT_LOADED"


def test_a_file_is_read_whatever_the_case_of_its_ending_with_a_byte_order_mark_and_by_its_name_as_text(tmp_path):
    for name, text in (("rules.TOML", TOML), ("rules.Yaml", YAML)):
        (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert is_policy_file(name)
        assert policy_from_file(str(tmp_path / name)).name == "house"
        assert PolicyRegistry().load(name, base=tmp_path).name == "house"


@pytest.mark.requirement("CARD-policy")
def test_a_registry_loads_policies_from_files_beside_those_from_code(tmp_path):
    (tmp_path / "rules.toml").write_text(TOML, encoding="utf-8")
    registry = PolicyRegistry()
    assert registry.load("rules.toml", base=tmp_path).name == "house"
    assert registry.load(str(tmp_path / "rules.toml")).hash == registry.get("house").hash
    authority = StandardAuthority(registry)
    assert authority.judge(case_of(5)).verdict == "approve"
    assert authority.check_binding(by_policy())["policy"] == "house"
    assert authority.describe_policy("house")["hash"] == registry.get("house").hash
    (tmp_path / "rules.toml").write_text(TOML.replace("20", "30"), encoding="utf-8")
    with pytest.raises(RefusedError, match="another policy 'house'"):
        registry.load("rules.toml", base=tmp_path)
    assert [is_policy_file(name) for name in ("a.toml", "a.yml", "rules.py:house", "house")] == [
        True,
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("base.data.debt > 3", "there is no base.data.debt"),
        ("intent.input.amount / base.data.zero > 3", "it divides by zero"),
        ("intent.input.amount > 'x'", "values of different types"),
        ("intent.input.amount", "it comes to a number"),
    ],
)
@pytest.mark.requirement("CARD-policy")
def test_a_condition_that_fails_refuses_and_the_trace_says_so(when, why):
    house = policy_from_text(f'name = "house"\n{RULE}{OTHER}when = "{when}"\n', "r.toml")
    ruling = house.evaluate(make_case(given={"amount": 5}, data={"zero": 0}), ASKING)
    assert ruling.verdict == "reject"
    assert [one.answer for one in ruling.trace] == ["approve", "error"]
    assert why in ruling.trace[1].reason
    assert why in ruling.reason


def test_a_rule_whose_question_into_the_past_takes_too_long_refuses():
    class Slow:
        def count(self, **conditions):
            end = time.monotonic() + PATIENCE_S
            while time.monotonic() < end:
                pass
            return 0

    house = policy_from_text(f'name = "house"\n{RULE}when = "history.count({{}}) < 3"\n{OTHER}', "r.toml")
    ruling = house.evaluate(replace(case_of(), history=Slow()), ASKING, TimeLimit(200))
    assert ruling.verdict == "reject"
    assert ruling.trace[0].reason.startswith("RULE_TIMED_OUT")


def test_a_rule_may_ask_what_happened_before():
    asked = []

    class Past:
        def count(self, **conditions):
            asked.append(conditions)
            return 2

    when = (
        "history.count({'actorId': actor.actorId, 'action': intent.type, 'intentKey': intent.key, "
        "'decision': 'approved', 'outcome': 'completed', 'since': now - duration('1h')}) == 2 "
        "&& history.count({'since': nowMs - 1}) == 2"
    )
    house = policy_from_text(f'name = "house"\n{RULE}when = "{when}"\n', "r.toml")
    case = replace(case_of(), history=Past())
    assert house.evaluate(case, ASKING).verdict == "approve"
    assert asked == [
        {
            "actor_id": "bot",
            "action": "todo.add",
            "intent_key": case.intent.intent_key,
            "decision": "approved",
            "outcome": "completed",
            "since_ms": case.submitted_at - 3_600_000,
        },
        {"since_ms": case.submitted_at - 1},
    ]


def test_words_quote_values_as_people_read_them():
    quoted = "{actor.actorId} {actor.name} {base.data.t} {base.data.d} {base.data.l[1]} {now} {nowMs} {base.data.long}"
    house = policy_from_text(f'name = "house"\n{RULE}reason = "{quoted}"\n', "r.toml")
    case = make_case(data={"t": True, "d": {"b": 1, "a": "x"}, "l": [1, 2.5], "long": "y" * 300})
    words = house.evaluate(case, ASKING).trace[0].reason
    assert words == 'bot null true {"a":"x","b":1} 2.5 2023-11-14T22:13:20.000Z 1700000000000 ' + "y" * 199 + "…"


def test_a_policy_from_a_file_travels_between_processes():
    house = policy_from_text(TOML, "rules.toml")
    other = pickle.loads(pickle.dumps(house))
    assert other.hash == house.hash
    assert other.evaluate(case_of(50), ASKING) == house.evaluate(case_of(50), ASKING)


PIECES = st.text(alphabet="ab.", max_size=4)


@given(st.lists(PIECES, min_size=1, max_size=4), st.lists(PIECES, max_size=4))
def test_a_pattern_fits_what_has_its_pieces_in_order(pieces, fillings):
    pattern = "*".join(pieces)
    text = "".join(piece + filling for piece, filling in zip(pieces, [*fillings, "", "", "", ""], strict=False))
    regular = re.compile(".*".join(map(re.escape, pieces)), re.DOTALL)
    assert fits(pattern, text) is (regular.fullmatch(text) is not None)


def test_a_rule_beside_others_in_code_says_the_same():
    house = policy_from_text(TOML, "rules.toml")
    narrowing = house.rules[2](case_of())
    assert narrowing == Narrow(IntentScope(allowed_paths=("data.todos.*", "data.balance")))
    registry = PolicyRegistry()
    mixed = registry.add([house.rules[0], always(None, "silent")], name="mixed")
    assert mixed.evaluate(case_of(5), ASKING).verdict == "approve"


@pytest.mark.parametrize(
    ("member", "words"),
    [
        ("actions: []", "it is empty"),
        ("actors: []", "it is empty"),
        ("to: []", "it is empty"),
        ("when:", "it has no value"),
        ("when: ''", "it is empty"),
        ("actions:", "it has no value"),
    ],
)
@pytest.mark.requirement("CARD-policy", "WALL-policy")
def test_a_member_that_says_nothing_is_refused_with_its_line(member: str, words: str) -> None:
    text = f"name: house\nrules:\n  - id: a\n    verdict: escalate\n    {member}\n"
    with pytest.raises(RefusedError) as refused:
        policy_from_text(text, "house.yaml")
    (fault,) = refused.value.details["faults"]
    assert (fault["line"], words in fault["message"]) == (5, True)


@pytest.mark.parametrize(
    "condition",
    [
        "-intent.input.flag",
        "intent.input.n == 9007199254740993",
        "{1: true}[1]",
        "{'a': 1, 'a': 2} == {'a': 2}",
    ],
)
@pytest.mark.requirement("CARD-policy")
def test_what_cel_defines_otherwise_than_the_library_never_approves(condition: str) -> None:
    text = f'name = "p"\n[[rules]]\nid = "a"\nverdict = "approve"\nwhen = "{condition}"\n'
    verdict: str = "refused"
    with suppress(RefusedError):
        verdict = policy_from_text(text, "p.toml").evaluate(make_case(given={"flag": False, "n": 1}), ASKING).verdict
    assert verdict in ("refused", "reject")
