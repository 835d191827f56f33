"""Two described policies are compared rule by rule: nothing that the hash covers is passed over."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority.policies.opinions import Reject
from authority.policies.policy import Policy
from authority.policies.policy_diff import differences, rule_summary, words_of
from authority.policies.policy_file import policy_from_text
from authority.policies.rules import rule
from world.model.canonical_json import canonical_text

RULES: list[dict[str, Any]] = [
    {"id": "small", "when": "intent.input.amount <= 20", "verdict": "approve", "reason": "small"},
    {"id": "covered", "when": "intent.input.amount > base.data.balance", "verdict": "reject"},
    {"id": "agents", "actors": ["bot*"], "verdict": "narrow", "scope": ["data.balance"]},
    {"id": "large", "when": "intent.input.amount > 20", "verdict": "escalate", "to": ["ann"]},
]


def described(rules: list[dict[str, Any]], **more: Any) -> Any:
    text = canonical_text({"name": "house", "rules": rules, **more}).replace('{"', '{\n"')
    return policy_from_text(text, "rules.yaml").description


def found(before: Any, after: Any) -> list[tuple[str, str | None]]:
    return [(one["kind"], one.get("rule")) for one in differences(before, after)]


@pytest.mark.requirement("CARD-policy")
def test_rules_that_came_went_and_changed_are_told_with_both_texts() -> None:
    first, second, third, last = RULES
    changed = {**first, "when": "intent.input.amount <= 30", "actions": ["pay"]}
    told = differences(described(RULES), described([changed, third, last, {**second, "id": "new"}]))
    assert [(one["kind"], one["rule"]) for one in told if one["kind"] != "moved"] == [
        ("removed", "covered"),
        ("added", "new"),
        ("changed", "small"),
    ]
    assert told[2]["fields"] == [
        {"field": "when", "from": "intent.input.amount <= 20", "to": "intent.input.amount <= 30"},
        {"field": "actions", "from": None, "to": ["pay"]},
    ]
    assert told[0]["when"] == "intent.input.amount > base.data.balance"
    words = [line for one in told for line in words_of(one)]
    assert "             + intent.input.amount <= 30" in words
    assert "removed  covered reject [rules.yaml:3]" in words


@pytest.mark.requirement("CARD-policy")
def test_only_what_is_asked_in_another_order_is_said_to_be_so() -> None:
    first, second, third, last = RULES
    told = differences(described(RULES), described([second, third, first, last]))
    assert {one["kind"] for one in told} == {"moved"}
    assert [one["rule"] for one in told if one["order"]] == ["small"]
    (moved,) = [one for one in told if one["order"]]
    assert (moved["from"]["place"], moved["to"]["place"]) == (1, 3)


def test_the_policy_itself_can_change() -> None:
    told = differences(described(RULES), described(RULES, version="2"))
    assert told[0] == {"kind": "policy", "fields": [{"field": "version", "from": None, "to": "2"}]}


def test_rules_in_python_differ_by_code_and_values() -> None:
    def at_most(limit: int) -> Any:
        @rule("limit")
        def ask(case: Any) -> Any:
            """Keep within the limit."""
            return Reject() if case.submitted_at > limit else None

        return ask

    before, after = (Policy("house", [at_most(limit)]).description for limit in (5, 9))
    (told,) = differences(before, after)
    assert told["kind"] == "changed"
    assert [field["field"].partition(".")[0] for field in told["fields"]] == ["identity", "parameters"]
    shown = rule_summary(before["rules"][0])
    assert (shown["id"], shown["language"], shown["description"]) == ("limit", "python", "Keep within the limit.")
    assert "effect" not in shown


def test_a_changed_file_of_python_rules_is_told_once_for_all_its_rules() -> None:
    one = {"rule": "a", "source": "r.py:1", "language": "python", "module": "r.py", "qualname": "a", "moduleHash": "1"}
    two = {**one, "rule": "b", "qualname": "b", "source": "r.py:9"}
    head = {"name": "house", "combination": "c"}
    before = {**head, "hash": "1", "rules": [one, two]}
    after = {**head, "hash": "2", "rules": [{**part, "moduleHash": "2"} for part in (one, two)]}
    (told,) = differences(before, after)
    assert (told["kind"], told["rules"]) == ("file", ["a", "b"])
    assert list(words_of(told)) == ["file     the file of a, b changed: r.py"]


ENTRY = st.fixed_dictionaries(
    {"verdict": st.sampled_from(["approve", "reject", "escalate"]), "when": st.sampled_from(["true", "1 < 2"])},
    optional={
        "reason": st.sampled_from(["", "no", "yes"]),
        "actions": st.lists(st.sampled_from("ab"), min_size=1, max_size=1),
    },
)


@st.composite
def policies(draw: Any) -> Any:
    names = draw(st.lists(st.sampled_from("pqrs"), unique=True, min_size=1))
    more = draw(st.fixed_dictionaries({}, optional={"version": st.sampled_from(["1", "2"])}))
    return described([{"id": name, **draw(ENTRY)} for name in names], **more)


@pytest.mark.requirement("CARD-policy")
@given(policies(), policies())
def test_policies_differ_in_something_exactly_where_their_hashes_do(before: Any, after: Any) -> None:
    told = differences(before, after)
    assert bool(told) is (before["hash"] != after["hash"])
    for one in told:
        assert all(isinstance(line, str) for line in words_of(one))
    names = [{one["rule"] for one in side["rules"]} for side in (before, after)]
    assert {one["rule"] for one in told if one["kind"] == "removed"} == names[0] - names[1]
    assert {one["rule"] for one in told if one["kind"] == "added"} == names[1] - names[0]
