"""The same rules in CEL and in Python say the same of every case, and a policy of them behaves as policies do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from authority import Approve, Escalate, Narrow, Policy, PythonRule, Reject, recheck_ruling
from authority.policies.opinions import Opinion
from authority.policies.policy_file import policy_from_text
from tests.authority.cases import ASKING, authority_with, by_policy, make_case, scope
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.decision import Ruling
from world.state.ports import Case


@dataclass(frozen=True)
class Past:
    """A history that answers by who is asked about, and forgets what lies further back than a day."""

    counts: tuple[tuple[str, int], ...]

    def count(self, *, actor_id: str | None = None, since_ms: int | None = None, **_: Any) -> int:
        """Return how often somebody proposed."""
        return dict(self.counts).get(actor_id or "", 0) if (since_ms or 0) % 2 == 0 else 0

    def sum(self, path: str, **conditions: Any) -> int:
        """Return three of everything for each proposal."""
        if path != "amount":
            raise RefusedError("NOT_A_NUMBER", f"there is no number at {path}")
        return 3 * self.count(**conditions)


@dataclass(frozen=True)
class Twin:
    """One rule in both forms.

    Args:
        toml: in a file, without its id.
        python: the same as a function.
    """

    toml: str
    python: Callable[[Case], Opinion | None]


def _small(case: Case) -> Opinion | None:
    amount = case.intent.body.input["amount"]
    if isinstance(amount, bool) or not isinstance(amount, (int, float)):
        raise TypeError(amount)
    return Approve(f"{amount} is small") if amount <= 20 else None


def _covered(case: Case) -> Opinion | None:
    amount, balance = case.intent.body.input["amount"], case.view.data["balance"]
    if isinstance(amount, bool) or isinstance(amount, str) is not isinstance(balance, str):
        raise TypeError(amount)
    return Reject("the balance does not cover it") if amount > balance else None


def _share(case: Case) -> Opinion | None:
    total, parts = case.view.data["total"], case.view.data["parts"]
    if type(total) is not int or type(parts) is not int:
        raise TypeError(total)
    quotient = abs(total) // abs(parts) * (1 if total * parts >= 0 else -1)  # towards zero, as CEL divides
    return Escalate("ann", f"{total} among {parts}") if quotient > 2 else None


def _agents(case: Case) -> Opinion | None:
    if case.actor.kind == "agent" and (case.actor.meta or {}).get("team", "none") != "blue":
        return Narrow(["data.todos.*", "data.balance"], "agents write here")
    return None


def _urgent(case: Case) -> Opinion | None:
    todos = case.view.data["todos"]
    if not isinstance(todos, list):
        raise TypeError(todos)
    found = ["urgent" in todo["tags"] for todo in todos]  # every one is looked at, as by filter
    return Escalate((), "something is urgent") if any(found) else None


def _newcomer(case: Case) -> Opinion | None:
    day = 24 * 3_600_000
    earlier = case.history.count(actor_id=case.actor.actor_id, since_ms=case.submitted_at - day)
    return Escalate("*", f"{case.actor.actor_id} is new") if earlier < 3 else None


def _spent(case: Case) -> Opinion | None:
    since = case.submitted_at - 24 * 3_600_000
    spent = case.history.sum("amount", actor_id=case.actor.actor_id, since_ms=since)
    return Reject("enough for a day") if spent >= 12 else None


def _at_night(case: Case) -> Opinion | None:
    hour = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=case.submitted_at)).hour
    return Reject("nobody works at night") if hour >= 22 or hour < 6 else None


def _pays(case: Case) -> Opinion | None:
    if case.intent.body.type.startswith("todo.") and case.actor.actor_id in ("bot", "ann"):
        return Approve("known people may")
    return None


TWINS = {
    "small": Twin(
        'when = "intent.input.amount <= 20"\nverdict = "approve"\nreason = "{intent.input.amount} is small"', _small
    ),
    "covered": Twin(
        'when = "intent.input.amount > base.data.balance"\nverdict = "reject"\n'
        'reason = "the balance does not cover it"',
        _covered,
    ),
    "share": Twin(
        'when = "base.data.total / base.data.parts > 2"\nverdict = "escalate"\nto = ["ann"]\n'
        'reason = "{base.data.total} among {base.data.parts}"',
        _share,
    ),
    "agents": Twin(
        """when = 'actor.kind == "agent" && (has(actor.meta.team) ? actor.meta.team : "none") != "blue"'\n"""
        'verdict = "narrow"\nscope = ["data.todos.*", "data.balance"]\nreason = "agents write here"',
        _agents,
    ),
    "urgent": Twin(
        """when = 'base.data.todos.filter(todo, "urgent" in todo.tags).size() > 0'\n"""
        'verdict = "escalate"\nreason = "something is urgent"',
        _urgent,
    ),
    "newcomer": Twin(
        """when = 'history.count({"actorId": actor.actorId, "since": now - duration("24h")}) < 3'\n"""
        'verdict = "escalate"\nto = ["*"]\nreason = "{actor.actorId} is new"',
        _newcomer,
    ),
    "spent": Twin(
        """when = 'history.sum("amount", {"actorId": actor.actorId, "since": now - duration("24h")}) >= 12'\n"""
        'verdict = "reject"\nreason = "enough for a day"',
        _spent,
    ),
    "night": Twin(
        'when = "now.getHours() >= 22 || now.getHours() < 6"\nverdict = "reject"\nreason = "nobody works at night"',
        _at_night,
    ),
    "pays": Twin(
        'actions = ["todo.*"]\nactors = ["bot", "ann"]\nverdict = "approve"\nreason = "known people may"', _pays
    ),
}
AMOUNTS = st.integers(-3, 200) | st.sampled_from([19.5, 20.5, "12", None, True])
TODOS = st.lists(
    st.fixed_dictionaries({}, optional={"tags": st.lists(st.sampled_from(["urgent", "later"]), max_size=2)}), max_size=2
)
CASES = st.builds(
    lambda given_, data, action, actor, at, counts, proposed: replace(
        make_case(by_policy(), given=given_, data=data, action=action, proposed=proposed),
        actor=actor,
        submitted_at=at,
        history=Past(tuple(counts.items())),
    ),
    st.fixed_dictionaries({}, optional={"amount": AMOUNTS}),
    st.fixed_dictionaries(
        {},
        optional={
            "balance": st.integers(0, 100) | st.just("x"),
            "total": st.integers(-9, 9),
            "parts": st.integers(-2, 2) | st.just(0.5),
            "todos": TODOS | st.just(3),
        },
    ),
    st.sampled_from(["todo.add", "pay"]),
    st.builds(
        lambda actor_id, kind, meta: ActorRef(actor_id=actor_id, kind=kind, meta=meta),
        actor_id=st.sampled_from(["bot", "ann", "eve"]),
        kind=st.sampled_from(["human", "agent", "system"]),
        meta=st.none() | st.fixed_dictionaries({}, optional={"team": st.sampled_from(["blue", "red"])}),
    ),
    st.integers(1_700_000_000_000, 1_700_200_000_000),
    st.dictionaries(st.sampled_from(["bot", "ann"]), st.integers(0, 5)),
    st.none() | st.just(scope("data.todos.*")) | st.just(scope("data")),
)
CHOICES = st.lists(st.sampled_from(sorted(TWINS)), min_size=1, max_size=5, unique=True)


def in_cel(names: list[str], more: str = "") -> Policy:
    """Return the rules of these names from a file."""
    rules = "\n".join(f'[[rules]]\nid = "{name}"\n{TWINS[name].toml}\n' for name in names)
    return policy_from_text(f'name = "house"\n{rules}\n{more}', "rules.toml")


def in_python(names: list[str]) -> Policy:
    """Return the rules of these names from code."""
    return Policy("house", [PythonRule(name, TWINS[name].python) for name in names])


def told(ruling: Ruling) -> tuple[Any, ...]:
    """Return what two rulings have in common that were made by rules in different languages."""
    trace = [
        (one.rule, one.answer, "" if one.answer == "error" else one.reason, one.scope, one.to, one.decisive)
        for one in ruling.trace
    ]
    has_failed = any(one.answer == "error" for one in ruling.trace)
    reason = "" if has_failed else ruling.reason
    return (ruling.verdict, reason, ruling.approved_scope, ruling.ask, ruling.authority, trace)


@given(CHOICES, CASES)
@pytest.mark.requirement("CARD-policy")
def test_the_same_rules_in_cel_and_in_python_say_the_same(names, case):
    assert told(in_cel(names).evaluate(case, ASKING)) == told(in_python(names).evaluate(case, ASKING))


APPROVING = '[[rules]]\nid = "more"\nverdict = "approve"\n'


@given(CHOICES, CASES)
@pytest.mark.slow
def test_a_further_approval_in_a_file_never_turns_what_a_rule_rejected(names, case):
    before = in_cel(names).evaluate(case, ASKING)
    after = in_cel(names, APPROVING).evaluate(case, ASKING)
    if any(one.answer in ("reject", "error") for one in before.trace):
        assert before.verdict == "reject"
        assert after.verdict == "reject"


FAILING = st.sampled_from(
    ["base.data.nope > 1", "1 / int(0.0) > 0", "intent.type > 3", "intent.type", "1.0 / 0.0 > 1.0"]
)


@given(CHOICES, CASES, FAILING)
def test_a_condition_that_fails_never_approves(names, case, when):
    ruling = in_cel(names, f'{APPROVING}when = "{when}"\n').evaluate(case, ASKING)
    assert ruling.verdict == "reject"
    assert ruling.trace[-1].answer == "error"


@given(CHOICES, CASES)
@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_judging_by_a_file_is_a_function_of_the_case_and_is_rechecked(names, case):
    ruling = authority_with(in_cel(names)).judge(case)
    assert authority_with(in_cel(names)).judge(case) == ruling
    assert recheck_ruling(authority_with(in_cel(names)), case, Ruling.from_wire(ruling.to_wire())) is None
