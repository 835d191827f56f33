"""Whatever people say in whatever order, it comes to what a simple model of seats, votes and steps says.

The model knows nothing of traces. It keeps who sits where and who said what, and takes a question for decided when
every way in which the missing votes could still fall comes to the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from authority import Escalate, Narrow, PolicyRegistry, StandardAuthority
from authority.people.answers import MAX_DELEGATIONS
from tests.authority.cases import authority_with, make_case, policy, said, scope
from tests.plugins.forms import scaled
from world.errors import RefusedError
from world.model.canonical_json import canonical_bytes, read_json
from world.model.decision import Ruling

PROPOSER = "bot"
KINDS = dict.fromkeys(("ann", "bob", "cat"), "human") | {"robot": "agent", PROPOSER: "agent"}
NAMES = sorted(KINDS)
PLACES = ("x", "y", "z")
SOME = st.sets(st.sampled_from(PLACES), min_size=1).map(frozenset)
BENCH = st.one_of(
    st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
    st.sampled_from([["bot"], ["ann", "bob", "cat"], ["ann", "bob", "cat", "robot"], ["ann", "bot"]]),
)
WHO = st.integers(0, 8)


@st.composite
def asks(draw: Any) -> dict[str, Any]:
    """Draw whom a question asks: any one of some, or a vote."""
    if draw(st.integers(0, 3)) == 0:
        return {"to": draw(st.one_of(BENCH, st.just(["*"]), BENCH.map(lambda ids: [*ids, "*"]))), "rule": "any"}
    to = draw(BENCH)
    how = draw(st.sampled_from(["majority", "unanimous", "threshold"]))
    return {"to": to, "rule": how} | ({"threshold": draw(st.integers(1, len(to)))} if how == "threshold" else {})


def as_step(one: dict[str, Any]) -> dict[str, Any]:
    """Return a question as a binding says it."""
    if one["rule"] == "any":
        return {"ask": one["to"]}
    return {"members": one["to"], **{name: value for name, value in one.items() if name != "to"}}


@dataclass
class Bench:
    """One question of the model."""

    one: dict[str, Any]
    chains: list[list[str]] = field(init=False)
    votes: dict[int, bool] = field(default_factory=dict)
    said: bool | None = None

    def __post_init__(self) -> None:
        self.chains = [[name] for name in self.one["to"] if self.is_any or name != PROPOSER]

    @property
    def is_any(self) -> bool:
        return bool(self.one["rule"] == "any")

    def passes(self, votes: dict[int, bool]) -> bool:
        approving, size = sum(votes.values()), len(self.chains)
        if self.one["rule"] == "majority":
            return approving > size - approving
        return approving >= (size if self.one["rule"] == "unanimous" else self.one["threshold"])

    @property
    def result(self) -> bool | None:
        if self.is_any:
            return self.said
        missing = [seat for seat in range(len(self.chains)) if seat not in self.votes]
        ways = product([True, False], repeat=len(missing))
        results = {self.passes(self.votes | dict(zip(missing, way, strict=True))) for way in ways}
        return results.pop() if len(results) == 1 else None

    @property
    def can_pass(self) -> bool:
        if self.is_any:
            return any(name != PROPOSER for name in self.one["to"])
        return bool(self.chains) and self.passes(dict.fromkeys(range(len(self.chains)), True))

    def pending(self) -> list[str]:
        if self.result is not None:
            return []
        return [chain[-1] for seat, chain in enumerate(self.chains) if seat not in self.votes]

    def waits_for(self, name: str) -> bool:
        return name in self.pending() or (KINDS[name] == "human" and "*" in self.pending())


class PeopleModel:
    """The authority beside the model."""

    def __init__(self, first: Any, further: Any, end: Any, proposed: Any, narrowed: Any, by_rules: bool) -> None:
        ends = [end, *(how for _, how in further)]
        ends[-1] = "reject" if ends[-1] == "escalate" else ends[-1]
        self.ends = ends
        then = [as_step(one) | {"onTimeout": how} for (one, _), how in zip(further, ends[1:], strict=True)]
        binding: dict[str, Any] = {"onTimeout": ends[0], "then": then}
        self.authority = StandardAuthority(PolicyRegistry())
        if by_rules:
            votes = {"majority": "majority", "unanimous": "unanimous"}
            opinions: list[Any] = [
                Escalate(one["to"], vote=votes.get(one["rule"], one.get("threshold"))) for one in first
            ]
            opinions += [] if narrowed is None else [Narrow(sorted(f"data.{place}" for place in narrowed))]
            self.authority = authority_with(policy(*opinions))
            binding |= {"kind": "policy_rules", "policy": "house"}
        else:
            first, narrowed = first[:1], None
            binding |= {"kind": "hitl" if first[0]["rule"] == "any" else "tribunal", **as_step(first[0])}
        within = None if proposed is None else scope(*sorted(f"data.{place}" for place in proposed))
        self.case = make_case(self.authority.check_binding(binding), proposed=within)
        self.steps = [[Bench(one) for one in first], *([Bench(one)] for one, _ in further)]
        self.left = self._both(proposed, narrowed)
        self.now, self.step = self.left, 0
        self.verdict = "reject" if self.left == frozenset() else "wait"
        if self.verdict == "wait" and not all(bench.can_pass for bench in self.steps[0]):
            self._go_on()
        self.ruling = self.authority.judge(self.case)

    @staticmethod
    def _both(one: Any, other: Any) -> Any:
        return other if one is None else one if other is None else one & other

    def _go_on(self) -> bool:
        for step in range(self.step + 1, len(self.steps)):
            if self.steps[step][0].can_pass:
                self.step, self.left = step, self.now
                self.verdict = "wait"
                return True
        self.verdict = "reject"
        return False

    @property
    def benches(self) -> list[Bench]:
        return self.steps[self.step]

    def _refusal(self, by: str) -> str | None:
        if by == PROPOSER:
            return "OWN_PROPOSAL"
        if any(bench.waits_for(by) for bench in self.benches):
            return None
        voted = [bench.chains[seat][-1] for bench in self.benches if bench.result is None for seat in bench.votes]
        return "ALREADY_VOTED" if by in voted else "NOT_ASKED"

    def _who(self, at: int) -> str:
        """Return somebody, more often one who is asked."""
        asked = [name for name in self.ruling.ask if name in KINDS]
        return (asked + NAMES)[at % (len(asked) + len(NAMES))]

    def _ask(self, expected: str | None, by: str, choice: Any, to: str | None = None, **more: Any) -> None:
        answer = structs.replace(said(by, choice, kind=KINDS[by], **more), to=to)  # type: ignore[arg-type]
        found: str | None = None
        try:
            ruling, again = (self.authority.answer(self.case, self.ruling, answer) for _ in range(2))
        except RefusedError as refused:
            found = refused.code
        else:
            self.ruling = ruling
            assert again == ruling
        assert found == expected

    def vote(self, at: int, choice: str, within: frozenset[str]) -> None:
        by = self._who(at)
        expected = self._refusal(by)
        is_narrow = choice == "narrow"
        if expected is None and is_narrow and self.left is not None and not within <= self.left:
            expected = "SCOPE_NOT_WITHIN"
        asked = [bench for bench in self.benches if bench.waits_for(by)]
        if expected is None and choice == "abstain" and all(bench.is_any for bench in asked):
            expected = "ABSTENTION_REFUSED"
        patterns = scope(*sorted(f"data.{place}" for place in within)) if is_narrow else None
        self._ask(expected, by, choice, within=patterns)
        if expected is not None:
            return
        for bench in asked:
            if bench.is_any and choice != "abstain":
                bench.said = choice != "reject"
            elif not bench.is_any:
                (seat,) = [at for at, chain in enumerate(bench.chains) if chain[-1] == by]
                bench.votes[seat] = choice in ("approve", "narrow")
        self.now = self._both(self.now, within) if is_narrow else self.now
        results = [bench.result for bench in self.benches]
        if False in results or (is_narrow and self.now == frozenset()):
            self.verdict = "reject"
        elif all(results):
            self.verdict = "approve"

    def delegate(self, at: int, to: str) -> None:
        by = self._who(at)
        expected = self._refusal(by)
        own = []
        if expected is None:
            own = [
                (bench, seat)
                for bench in self.benches
                for seat, chain in enumerate(bench.chains)
                if by in bench.pending() and chain[-1] == by
            ]
            taken = any(
                to in bench.chains[seat] or len(bench.chains[seat]) > MAX_DELEGATIONS
                or to in [chain[-1] for chain in bench.chains]
                for bench, seat in own
            )  # fmt: skip
            if to == PROPOSER or not own or taken:
                expected = "DELEGATION_REFUSED"
        self._ask(expected, by, "delegate", to)
        if expected is not None:
            return
        for bench, seat in own:
            bench.chains[seat].append(to)

    def hand_up(self, at: int, words: str) -> None:
        by = self._who(at)
        expected = self._refusal(by) or (None if words else "REASON_MISSING")
        if expected is None:
            before = self.step, self.left
            if not self._go_on():
                expected, self.verdict, (self.step, self.left) = "NO_FURTHER_STEP", "wait", before
        self._ask(expected, by, "escalate", reason=words)

    def remark(self, at: int, choice: str) -> None:
        by, before = self._who(at), self.ruling
        expected = self._refusal(by)
        if choice == "reply":
            expected = None if by == PROPOSER else "NOT_PROPOSER"
        self._ask(expected, by, choice, reason="so")
        assert self.ruling == before

    def nobody_is_asked_any_more(self, by: str, choice: str) -> None:
        self._ask("NOT_WAITING", by, choice, reason="late")

    def time_is_over(self) -> None:
        self.ruling = self.authority.expire(self.case, self.ruling)
        end = self.ends[self.step]
        if end == "escalate":
            self._go_on()
        else:
            self.verdict = end

    def both_say_the_same(self) -> None:
        ruling = self.ruling
        assert ruling.verdict == self.verdict, ruling
        self.ruling = Ruling.from_wire(read_json(canonical_bytes(ruling.to_wire())))  # as after a restart
        assert self.ruling == ruling
        if ruling.verdict == "wait":
            assert ruling.step == self.step
            assert set(ruling.ask) == {name for bench in self.benches for name in bench.pending()}
            assert any(name != PROPOSER for name in ruling.ask)
        elif ruling.verdict == "approve":
            allowed = None if ruling.approved_scope is None else ruling.approved_scope.allowed_paths
            told = None if allowed is None else {path.removeprefix("data.") for path in allowed}
            assert told == self.now
            assert f"agent:{PROPOSER}" not in [one.source for one in ruling.trace]


BEGINNINGS = st.builds(
    PeopleModel,
    first=st.lists(asks(), min_size=1, max_size=2),
    further=st.lists(st.tuples(asks(), st.sampled_from(["approve", "reject", "escalate"])), max_size=3),
    end=st.sampled_from(["approve", "reject", "escalate"]),
    proposed=st.one_of(st.none(), SOME),
    narrowed=st.one_of(st.none(), SOME),
    by_rules=st.booleans(),
)
AGREE = st.tuples(st.just("vote"), WHO, st.sampled_from(["approve", "narrow", "narrow"]), SOME)
DISAGREE = st.tuples(st.just("vote"), WHO, st.sampled_from(["reject", "abstain", "abstain"]), SOME)
DELEGATE = st.tuples(st.just("delegate"), WHO, st.sampled_from(NAMES))
REMARK = st.tuples(st.just("remark"), WHO, st.sampled_from(["ask", "reply"]))
HAND_UP = st.tuples(st.just("hand_up"), WHO, st.sampled_from(["", "too much for me", "too much for me"]))
DOINGS = st.one_of(
    AGREE, AGREE, AGREE, DISAGREE, DELEGATE, DELEGATE, REMARK, HAND_UP, st.tuples(st.just("time_is_over"))
)


VOTES = st.builds(
    PeopleModel,
    first=st.fixed_dictionaries(
        {"to": st.just(["ann", "bob", "cat", "robot"]), "rule": st.sampled_from(["majority", "unanimous"])}
    ).map(lambda one: [one]),
    further=st.just([({"to": ["ann", "cat"], "rule": "any"}, "approve")]),
    end=st.sampled_from(["approve", "escalate"]),
    proposed=st.none(),
    narrowed=st.one_of(st.none(), SOME),
    by_rules=st.booleans(),
)


@settings(max_examples=scaled(200, ci=60))
@given(BEGINNINGS, st.lists(DOINGS, min_size=4, max_size=14))
@pytest.mark.requirement("WP-bind", "WP-decision", "INT-13.3")
@pytest.mark.slow
def test_whatever_people_say_comes_to_what_the_model_says(model, doings):
    play(model, doings)
    if model.verdict != "wait":
        for choice in ("approve", "ask", "reply", "escalate"):
            model.nobody_is_asked_any_more(PROPOSER if choice == "reply" else "ann", choice)


@settings(max_examples=scaled(200, ci=60))
@given(VOTES, st.lists(st.one_of(AGREE, AGREE, DISAGREE, DELEGATE, HAND_UP), min_size=6, max_size=14))
@pytest.mark.requirement("WP-bind", "INT-13.3")
@pytest.mark.slow
def test_votes_stand_beside_each_other_and_the_scope_is_what_all_who_approve_have_in_common(model, doings):
    play(model, doings)


def play(model, doings):
    model.both_say_the_same()
    for name, *given_ in doings:
        if model.verdict != "wait":
            break
        getattr(model, name)(*given_)
        model.both_say_the_same()
