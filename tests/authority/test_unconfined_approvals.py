"""Rule W: an approval without confinement is a person's, or of a rule that compares exact texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from authority import (
    Approve,
    Binding,
    BindingRegistry,
    Escalate,
    Policy,
    PolicyRegistry,
    StandardAuthority,
    recheck_ruling,
)
from authority.bindings.registry import ENTRY_POINTS
from authority.lint.lint import LintContext, lint
from authority.policies.cedar import policy_from_cedar
from authority.policies.policy_file import policy_from_text
from authority.policies.rule_composition import UnsafeApproveAll
from tests.authority.cases import AUTO, authority_with, by_people, by_policy, make_case, policy, said, scope
from tests.support.tables import for_each
from world.core import ActionContext, Domain, Patch
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import Ruling
from world.model.immutable_json import freeze
from world.state.ports import Case

pytestmark = pytest.mark.requirement("WALL-words")

DECLARED = {"stated": "input.confined", "exact": ["input.command", "input.cwd"]}
RULE = "not confined"


def run(binding: Mapping[str, Any] = AUTO, *, declared: Any = DECLARED, **more: Any) -> Case:
    """Return the case of a command; its action declares what states confinement."""
    given = {"command": "ls", "cwd": "/", "confined": False, **more.pop("given", {})}
    case = make_case(binding, action="command.run", given=freeze(given), **more)
    return replace(case, action=freeze({"input": {}, **({} if declared is None else {"confinement": declared})}))


def recorded(ruling: Ruling) -> Ruling:
    return Ruling.from_wire(read_json(canonical_bytes(ruling.to_wire())))


def of_file(when: str) -> Policy:
    text = f'name = "house"\n[[rules]]\nid = "r"\nactions = ["command.run"]\nverdict = "approve"\nwhen = """{when}"""\n'
    return policy_from_text(text, "house.toml")


def of_cedar(when: str) -> Policy:
    return policy_from_cedar(f'@id("r") permit(principal, action, resource) when {{ {when} }};', "house.cedar")


def test_an_unconfined_approval_of_a_policy_asks_the_people_of_the_binding():
    ruling = authority_with(policy(Approve("harmless"))).judge(run(by_policy(ask=["ann"])))
    assert (ruling.verdict, ruling.ask) == ("wait", ("ann",))
    last = ruling.trace[-1]
    assert (last.rule, last.source, last.answer, last.to, last.decisive) == (RULE, "engine", "escalate", ("ann",), True)
    assert ruling.reason == "approved by r0, but not confined (ann decides)"
    assert not ruling.trace[0].decisive


def test_what_states_confinement_is_approved_as_before_and_only_true_states_it():
    authority = authority_with(policy(Approve("harmless")))
    assert authority.judge(run(by_policy(), given={"confined": True})).verdict == "approve"
    values: list[Any] = [1, "true", None, {}]
    for untrue in values:
        assert authority.judge(run(by_policy(), given={"confined": untrue})).verdict == "wait"


def test_actions_without_a_declaration_are_judged_as_before():
    for binding in (AUTO, by_policy()):
        ruling = authority_with(policy(Approve("harmless"))).judge(run(binding, declared=None))
        assert (ruling.verdict, [one.rule for one in ruling.trace if one.rule == RULE]) == ("approve", [])


def test_a_binding_that_asks_nobody_rejects_and_says_what_to_do():
    ruling = authority_with().judge(run(AUTO))
    assert ruling.verdict == "reject"
    assert "auto_approve asks no people: let commands run confined, or bind the actor" in ruling.reason
    assert (ruling.trace[-1].rule, ruling.trace[-1].decisive) == (RULE, True)


def test_a_proposer_who_is_the_only_one_asked_is_refused():
    ruling = authority_with(policy(Approve())).judge(run(by_policy(ask=["bot"])))
    assert (ruling.verdict, "only the proposer is asked" in ruling.reason) == ("reject", True)


def test_where_nobody_of_a_step_can_answer_the_next_one_is_asked():
    binding = by_policy(ask=["bot"], then=[{"ask": ["ann"]}])
    ruling = authority_with(policy(Approve())).judge(run(binding))
    assert (ruling.verdict, ruling.ask, ruling.step) == ("wait", ("ann",), 1)
    assert authority_with(policy(Approve())).answer(run(binding), ruling, said("ann", "approve")).verdict == "approve"


def test_a_person_approves_what_is_not_confined_or_rejects_it():
    authority = authority_with(policy(Approve("harmless")))
    for binding in (by_policy(ask=["ann"]), by_people(ask=["ann"])):
        case = run(binding)
        asked = recorded(authority.judge(case))
        assert authority.answer(case, asked, said("ann", "approve")).verdict == "approve"
        assert authority.answer(case, asked, said("ann", "reject")).verdict == "reject"


def test_an_answer_of_an_agent_is_not_that_of_a_person():
    authority = authority_with(policy(Approve("harmless"), name="house"), policy(Escalate("bob"), name="asks"))
    for binding in (
        by_policy(ask=["bob", "ann"]),
        by_policy("asks", ask=["bob", "ann"]),
        by_people(ask=["bob", "ann"]),
    ):
        case = run(binding)
        asked = authority.judge(case)
        again = recorded(authority.answer(case, recorded(asked), said("bob", "approve", kind="agent")))
        assert (again.verdict, again.ask, again.trace[-1].rule) == ("wait", ("ann",), RULE)
        assert authority.answer(case, again, said("ann", "approve")).verdict == "approve"
    alone = run(by_people(ask=["bob"]))
    ended = authority.answer(alone, authority.judge(alone), said("bob", "approve", kind="agent"))
    assert (ended.verdict, "no person approved it: no other person is asked" in ended.reason) == ("reject", True)


def test_a_tribunal_of_agents_approves_nothing_that_is_not_confined():
    case = run(freeze({"kind": "tribunal", "members": ["a", "b"], "rule": "unanimous", "then": [{"ask": ["ann"]}]}))
    authority = authority_with()
    half = authority.answer(case, authority.judge(case), said("a", "approve", kind="agent"))
    whole = authority.answer(case, half, said("b", "approve", kind="agent"))
    assert (whole.verdict, whole.ask, whole.step) == ("wait", ("ann",), 1)
    mixed = authority.answer(case, half, said("b", "approve"))
    assert mixed.verdict == "approve"


def test_a_person_who_approved_an_earlier_question_has_not_approved_the_last_one():
    people = {"members": ["ann", "bob"], "rule": "unanimous", "onTimeout": "escalate", "then": [{"ask": ["eve"]}]}
    case, authority = run(freeze({"kind": "tribunal", **people})), authority_with()
    half = authority.answer(case, authority.judge(case), said("ann", "approve"))
    asked = recorded(authority.expire(case, half))
    assert (asked.verdict, asked.ask) == ("wait", ("eve",))
    ended = authority.answer(case, asked, said("eve", "approve", kind="agent"))
    assert (ended.verdict, "no person approved it" in ended.reason) == ("reject", True)


def test_a_time_limit_that_approves_is_no_person():
    case = run(by_people(ask=["ann"], onTimeout="approve"))
    ruling = authority_with().expire(case, authority_with().judge(case))
    assert (ruling.verdict, "no person approved it" in ruling.reason) == ("reject", True)
    confined = run(by_people(ask=["ann"], onTimeout="approve"), given={"confined": True})
    assert authority_with().expire(confined, authority_with().judge(confined)).verdict == "approve"


class Lax(Binding):
    """A kind of a package that approves everything."""

    kind: Literal["lax"]

    def judge(self, case: Case, context: Any) -> Ruling:
        return Ruling("approve", "lax", "fine", scope("data.a"))


def test_a_kind_of_binding_of_a_package_approves_nothing_that_is_not_confined():
    bindings = BindingRegistry([EntryPoint("lax", f"{__name__}:Lax", ENTRY_POINTS)])
    authority = StandardAuthority(PolicyRegistry(), bindings=bindings)
    case = run(freeze({"kind": "lax"}), proposed=scope("data.a"))
    assert authority.judge(case).verdict == "reject"


EXACT = (
    "intent.input.command == 'ls' && intent.input.cwd == '/'",
    "'ls' == intent.input.command && (intent.input.cwd in ['/', '/src'])",
    "intent.input.command == 'ls' && intent.input.cwd == '/' || intent.input.cwd == 'a' && 'b' == intent.input.command",
    "intent.input.cwd == '/' && intent.input.command in ['ls', 'w'] && actor.kind == 'agent'",
)
INEXACT = (
    "intent.input.command == 'ls'",
    "intent.input.cwd == '/'",
    "intent.input.command == 'ls' || intent.input.cwd == '/'",
    "intent.input.command.startsWith('ls') && intent.input.cwd == '/'",
    "intent.input.command != 'rm' && intent.input.cwd == '/'",
    "!(intent.input.command == 'rm' && intent.input.cwd == '/')",
    "intent.input.command == intent.input.command && intent.input.cwd == '/'",
    "intent.input.command in ['ls', intent.input.command] && intent.input.cwd == '/'",
    "(intent.input.command == 'ls' && intent.input.cwd == '/') || intent.input.cwd == '/'",
    "intent.input.command == 'ls' && intent.input.cwd == '/' ? true : true",
    "(intent.input.command == 'ls') == (intent.input.cwd == '/')",
    "['ls'].exists(x, intent.input.command == 'ls') && intent.input.cwd == '/'",
    "true",
)


@pytest.mark.parametrize("when", EXACT)
def test_a_rule_that_compares_exact_texts_approves_alone(when):
    case = run(by_policy())
    assert authority_with(of_file(when)).judge(case).verdict == "approve"


@for_each("when", INEXACT)
def test_a_rule_that_compares_anything_else_leads_to_a_person(when):
    case = run(by_policy())
    assert authority_with(of_file(when)).judge(case).verdict == "wait"


@pytest.mark.parametrize(
    ("when", "verdict"),
    [
        ('context.input.command == "ls" && "/" == context.input.cwd', "approve"),
        (
            '(context.input.command == "ls" || "w" == context.input.command) && context.input.cwd == "/"',
            "approve",
        ),
        ('context.input.command == "ls"', "wait"),
        ('context.input.command like "l*" && context.input.cwd == "/"', "wait"),
        ('context.input.command == "ls" || context.input.cwd == "/"', "wait"),
        ("true", "wait"),
    ],
)
def test_a_rule_in_cedar_approves_alone_only_what_it_compares_with_exact_texts(when, verdict):
    assert authority_with(of_cedar(when)).judge(run(by_policy())).verdict == verdict


def test_a_rule_in_python_never_approves_alone():
    assert authority_with(policy(Approve())).judge(run(by_policy())).verdict == "wait"


def test_an_exact_rule_that_does_not_apply_lets_no_other_one_approve():
    both = Policy(
        "house", [*of_file("intent.input.command == 'w' && intent.input.cwd == '/'").rules, *policy(Approve()).rules]
    )
    assert authority_with(both).judge(run(by_policy())).verdict == "wait"


KINDS = st.sampled_from(["human", "agent", "system"])


@given(
    st.sampled_from(["policy", "people", "tribunal"]),
    st.lists(st.tuples(st.sampled_from(["ann", "bob", "eve"]), KINDS), max_size=4),
    st.sampled_from(["approve", "reject"]),
)
@pytest.mark.requirement("CARD-replay", "WP-bind")
def test_no_sequence_of_answers_approves_without_a_person_and_each_ruling_is_rechecked(kind, answers, late):
    authority = authority_with(policy(Approve("harmless")))
    people = {"ask": ["ann", "bob", "eve"], "onTimeout": late}
    bindings = {
        "policy": by_policy(**people),
        "people": by_people(**people),
        "tribunal": freeze({"kind": "tribunal", "members": ["ann", "bob", "eve"], "onTimeout": late}),
    }
    case = run(bindings[kind])
    ruling = recorded(authority.judge(case))
    assert recheck_ruling(authority, case, ruling) is None
    spoke: set[str] = set()
    for by, of in answers:
        if ruling.verdict != "wait" or by in spoke:
            break
        spoke.add(by)
        given = said(by, "approve", kind=of)
        asked, ruling = ruling, recorded(authority.answer(case, ruling, given))
        assert recheck_ruling(authority, case, ruling, asked=asked, answer=given) is None
        if ruling.verdict == "approve":
            assert any(one.source.startswith("human:") for one in ruling.trace)
            return
    if ruling.verdict == "wait":
        assert authority.expire(case, ruling).verdict == "reject"


class Nothing(BaseModel):
    """The state."""


class Command(BaseModel):
    """An input."""

    command: str
    cwd: str
    confined: bool


shells = Domain("urn:test:shells", version="1.0.0", state=Nothing)


@shells.action("command.run", version="1", confinement=DECLARED)
def run_command(ctx: ActionContext, input: Command) -> list[Patch]:  # noqa: A002
    """Do nothing."""
    return []


@shells.action("file.read", version="1")
def read_file(ctx: ActionContext) -> list[Patch]:
    """Do nothing."""
    return []


def found(which: Policy) -> list[str]:
    around = LintContext(shells.schema)
    return [one.check for one in lint(which, around) if one.check == "UNCONFINED_APPROVAL"]


@for_each("when", [*INEXACT, "intent.input.confined || true", "!intent.input.confined"])
def test_lint_names_rules_that_approve_without_confinement(when):
    assert found(of_file(when)) == ["UNCONFINED_APPROVAL"]


@pytest.mark.parametrize(
    "when",
    [
        *EXACT,
        "intent.input.confined",
        "intent.input.confined == true && intent.input.command != ''",
        "(intent.input.confined && true) || (true && true == intent.input.confined)",
        "intent.type == 'file.read'",
    ],
)
def test_lint_names_no_rule_that_requires_confinement_or_compares_exact_texts(when):
    assert found(of_file(when)) == []


def test_lint_reads_cedar_and_names_what_approves_everything():
    assert found(of_cedar('context.input.command like "l*"')) == ["UNCONFINED_APPROVAL"]
    assert found(of_cedar("context.input.confined")) == []
    assert found(of_cedar("context.input.confined == true")) == []
    assert found(of_cedar('context.input.command == "ls" && context.input.cwd == "/"')) == []
    assert found(Policy("house", [UnsafeApproveAll()])) == ["UNCONFINED_APPROVAL"]


def test_the_declaration_of_a_domain_in_python_is_part_of_its_schema():
    assert shells.schema.actions["command.run"].spec["confinement"] == freeze(DECLARED)
    undeclared = Domain("urn:test:shells", version="1.0.0", state=Nothing)
    with pytest.raises(RefusedError, match="confinement takes portable data"):
        undeclared.action("command.run", version="1", confinement=True)
