"""Sums over the history: the same number for every case as plain addition gives, whoever asks and whenever."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from authority import Approve, Policy, Reject, rule
from world.clock import ManualClock
from world.core import ActionContext, Domain, Patch, set_
from world.errors import RefusedError
from world.limits import Limits
from world.pipeline.driver import submit
from world.pipeline.history_sums import MAX_SUMMED, add_up, check_length
from world.pipeline.submit import Submission
from world.state.ports import Case
from world.state.proposal import Proposal
from worldprotocol import Realm
from worldprotocol.analysis.backtest import Backtest, BacktestSetup
from worldprotocol.analysis.recheck.recheck import recheck
from worldprotocol.policy_tools.hypothetical import ask

START = 1_700_000_000_000
HOUR = 3_600_000
QUERIES: tuple[Mapping[str, Any], ...] = (
    {},
    {"actor_id": "bot"},
    {"actor_id": "eve", "action": "pay"},
    {"action": "refund"},
    {"decision": "approved", "actor_id": "bot"},
    {"decision": "rejected"},
    {"outcome": "completed"},
    {"outcome": "failed", "since_ms": START + 20},
    {"since_ms": START + 30},
)


class Ledger(BaseModel):
    """The state."""

    balance: int = 0


class Payment(BaseModel):
    """The input."""

    amount: float | None = None
    limit: float = 100


def ledger() -> Domain:
    """Return a domain; a payment of more than fifty is approved and fails."""
    domain = Domain("urn:test:sums", version="1.0.0", state=Ledger)

    def pay(ctx: ActionContext, wanted: Payment) -> list[Patch]:
        if (wanted.amount or 0) > 50:
            raise ValueError("too much to carry")
        return [set_("balance", ctx.data["balance"] + 1)]

    domain.action("pay", version="1")(pay)
    domain.action("refund", version="1")(pay)
    return domain


@rule
def told(case: Case) -> Approve | Reject:
    """Approve what stays within its limit, and say what all the sums are."""
    sums = json.dumps([case.history.sum("amount", **query) for query in QUERIES])
    return Reject(sums) if (case.intent.body.input.get("amount") or 0) > 90 else Approve(sums)


HOUSE = Policy("house", [told])


def opened(address: str, **more: Any) -> Realm:
    """Return a realm in which every ruling says the sums before it."""
    parts: dict[str, Any] = {"policies": [HOUSE], "clock": ManualClock(START, 1), "durability": "normal", **more}
    world = Realm.create(address, domain=ledger(), **parts)
    for actor_id in ("bot", "eve"):
        world.register(actor_id, "agent", binding={"kind": "policy_rules", "policy": "house"})
    return world


def nearest(numbers: Sequence[int | float]) -> int | float:
    """Return the sum as a child would do it, with fractions."""
    exact = sum(map(Fraction, numbers))
    return int(exact) if all(type(one) is int for one in numbers) else float(exact)


def expected(earlier: Sequence[Proposal], query: Mapping[str, Any]) -> int | float:
    """Return a sum by going through all that was proposed before."""

    def counts(one: Proposal) -> bool:
        told = {
            "actor_id": one.submitted.actor.actor_id,
            "action": one.intent.body.type,
            "decision": None if one.decision is None else one.decision.decision,
            "outcome": one.status,
        }
        return one.submitted.at >= query.get("since_ms", 0) and all(
            told[name] == value for name, value in query.items() if name != "since_ms"
        )

    amounts = [one.intent.body.input.get("amount") for one in earlier if counts(one)]
    return nearest([one for one in amounts if one is not None])


def sums_told(proposal: Proposal) -> list[Any]:
    """Return what the rule said."""
    assert proposal.decision is not None
    told: list[Any] = json.loads(proposal.decision.trace[0].reason)
    return told


AMOUNTS = st.none() | st.integers(-200, 200) | st.floats(-1e9, 1e9).filter(lambda one: one != int(one))
PROPOSED = st.tuples(st.sampled_from(["bot", "eve"]), st.sampled_from(["pay", "refund"]), AMOUNTS)


@pytest.mark.requirement("CARD-policy", "CARD-replay")
@settings(max_examples=15)
@given(st.lists(st.lists(PROPOSED, min_size=1, max_size=3), max_size=5))
@example([[("bot", "pay", 10), ("bot", "pay", 0.1), ("eve", "pay", 0.2)], [("eve", "pay", 95)], [("bot", "pay", 1)]])
def test_sums_are_those_of_all_that_was_proposed_before(units: list[list[tuple[str, str, Any]]]) -> None:
    with opened("sqlite:///:memory:") as world:
        done: list[Proposal] = []
        for unit in units:
            intents = [world.issue(who, action, {} if much is None else {"amount": much}) for who, action, much in unit]
            ids = [world.new_id() for _ in intents]

            def together(work: Any, intents: Any = intents, ids: Any = ids) -> None:
                for intent, proposal_id in zip(intents, ids, strict=True):
                    submit(work, Submission(intent), proposal_id)

            world._acting.run(together)
            done += [world.proposal(proposal_id) for proposal_id in ids]
        for at, proposal in enumerate(done):
            assert sums_told(proposal) == [expected(done[:at], query) for query in QUERIES]
        again = recheck(world)
        assert again.divergences == []


@pytest.mark.requirement("CARD-policy")
@pytest.mark.slow
def test_every_database_gives_the_same_sums(log_url: str) -> None:
    amounts: list[Any] = [5, 0.1, None, 7, 95, 60, 0.2, *range(100)]
    with opened(log_url) as world:
        done = [world.act("bot", "pay", {"amount": amount}) for amount in amounts]
        last = world.act("eve", "refund", {})
        assert sums_told(last) == [expected(done, query) for query in QUERIES]
        assert sums_told(last)[0] == math.fsum(one for one in amounts if one is not None)


@pytest.mark.requirement("CARD-policy")
@given(st.lists(st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False), max_size=12))
@example([2**53, 1.5, -(2**53)])
@example([1.7e308, 1.7e308, -1.7e308])
@example([2**70, 0.5, -(2**70)])
def test_a_sum_is_exact_and_the_same_in_every_order(numbers: list[int | float]) -> None:
    found = [(f"p-{at}", {"lines": [{"price": one}]}) for at, one in enumerate(numbers)]
    try:
        wanted = nearest(numbers)
    except OverflowError:
        with pytest.raises(RefusedError) as refused:
            add_up("lines.0.price", found)
        assert refused.value.code == "SUM_TOO_LARGE"
        return
    assert add_up("lines.0.price", found) == wanted == add_up("lines.0.price", reversed(found))


@pytest.mark.parametrize("value", ["5", True, [], {}])
def test_what_is_no_number_is_named_with_its_proposal(value: Any) -> None:
    with pytest.raises(RefusedError) as refused:
        add_up("amount", [("p-1", {"amount": 1}), ("p-2", {"amount": value}), ("p-3", None)])
    assert (refused.value.code, refused.value.details["proposal_id"]) == ("NOT_A_NUMBER", "p-2")


def test_a_sum_over_too_many_proposals_says_how_to_narrow_it() -> None:
    check_length(MAX_SUMMED)
    with pytest.raises(RefusedError, match="name an actor, an action or a later time") as refused:
        check_length(MAX_SUMMED + 1)
    assert refused.value.code == "HISTORY_TOO_LONG"


def wish(amount: float) -> Mapping[str, Any]:
    """Return what somebody might want."""
    return {"type": "pay", "input": {"amount": amount}}


FILE = """\
name = "house"

[[rules]]
id = "spent"
when = 'double(history.sum("amount", {"actorId": actor.actorId, "decision": "approved", "since": now - duration("1h")})) + double(intent.input.amount) > 100.0'
verdict = "reject"
reason = "a hundred an hour is enough"

[[rules]]
id = "rest"
verdict = "approve"
"""  # noqa: E501


@pytest.mark.requirement("CARD-policy", "CARD-replay")
def test_a_policy_file_sums_alike_when_judging_rechecking_asking_and_in_a_backtest(tmp_path: Path) -> None:
    clock = ManualClock(START, 1)
    (tmp_path / "rules.toml").write_text(FILE, encoding="utf-8")
    (tmp_path / "other.toml").write_text(FILE.replace("100.0", "90.5"), encoding="utf-8")
    (tmp_path / "ledger.py").write_text("from tests.pipeline.test_history_sums import ledger\nledger = ledger()\n")
    address = f"sqlite:///{tmp_path / 'w.db'}"
    with opened(
        address, policies=["rules.toml"], folder=tmp_path, clock=clock, limits=Limits(judge_invalid_input=True)
    ) as world:
        said = [world.act("bot", "pay", {"amount": amount}).status for amount in (40, 45.5, 20, 14.5, 0.5)]
        assert said == ["completed", "completed", "rejected", "completed", "rejected"]
        assert world.act("eve", "pay", {"amount": 40}).status == "completed"
        asked = [ask(world, "bot", wish(amount), sets=[("nowMs", START + 99)]) for amount in (0, 1)]
        assert [one.ruling.verdict for one in asked] == ["approve", "reject"]
        clock.advance(HOUR)
        assert world.act("bot", "pay", {"amount": 40}).status == "completed"
        worded = world.act("bot", "pay", {"amount": "much"})
        assert worded.status == "rejected"
        clock.advance(HOUR)
        assert world.act("eve", "pay", {"amount": 1}).status == "completed"
        assert recheck(world).divergences == []
    running = Backtest(BacktestSetup(address, f"{tmp_path / 'ledger.py'}:ledger", str(tmp_path / "other.toml")))
    flips = [(one["kind"], one["input"]["amount"], one["to"]["decidedBy"]) for one in running.lines()]
    assert flips == [("flip", 14.5, ["spent"])]


@pytest.mark.requirement("CARD-policy")
def test_a_sum_that_cannot_be_made_refuses_and_says_which_proposal_is_in_the_way(tmp_path: Path) -> None:
    words = 'history.sum("amount", {"action": "pay"}) > 100'
    (tmp_path / "rules.yaml").write_text(
        f"name: house\nrules:\n- {{id: spent, verdict: reject, when: '{words}'}}\n- {{id: rest, verdict: approve}}\n"
    )
    judged = Limits(judge_invalid_input=True)
    with opened("sqlite:///:memory:", policies=["rules.yaml"], folder=tmp_path, limits=judged) as world:
        wrong = world.act("bot", "pay", {"amount": "much"})
        refused = world.act("bot", "pay", {"amount": 1}).decision
        assert refused is not None
        assert (refused.decision, refused.trace[0].answer) == ("rejected", "error")
        assert wrong.proposal_id in refused.reason
        assert "Refused" not in refused.reason + refused.trace[0].reason
        assert recheck(world).divergences == []


@pytest.mark.parametrize(
    "condition",
    [{"decision": "reject"}, {"outcome": "done"}, {"actor_id": 5}, {"since_ms": "today"}, {"since_ms": True}],
)
def test_a_condition_that_nothing_could_match_refuses_and_approves_nothing(condition: dict[str, Any]) -> None:
    @rule
    def seldom(case: Case) -> Approve | None:
        return Approve() if case.history.count(**condition) + case.history.sum("amount", **condition) < 3 else None

    with opened("sqlite:///:memory:", policies=[Policy("house", [seldom])]) as world:
        refused = world.act("bot", "pay", {"amount": 1}).decision
    assert refused is not None
    assert (refused.decision, refused.trace[0].answer) == ("rejected", "error")
    assert "The history is asked with" in refused.reason
