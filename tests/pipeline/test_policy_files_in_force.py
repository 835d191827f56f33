"""A policy file governs a realm: adopted with its source and hash, judging, told, and rechecked from the log."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel

from world.clock import ManualClock
from world.core import ActionContext, Domain, Patch, set_
from world.errors import RefusedError
from world.limits import Limits
from world.model.decision import DecisionRecord
from world.model.intent import IntentScope
from world.state.proposal import Proposal
from worldprotocol import Realm
from worldprotocol.analysis.recheck.recheck import recheck

RULES = """\
name = "house"

[[rules]]
id = "small"
when = "intent.input.amount <= 20 && intent.input.amount <= base.data.balance"
verdict = "approve"
reason = "{intent.input.amount} is small"

[[rules]]
id = "not_too_often"
when = 'history.count({"actorId": actor.actorId, "decision": "approved", "since": now - duration("1h")}) >= 2'
verdict = "reject"
reason = "twice an hour is enough"

[[rules]]
id = "agents"
actors = ["bot*"]
verdict = "narrow"
scope = ["data.balance"]

[[rules]]
id = "large"
when = "intent.input.amount > 20"
verdict = "escalate"
to = ["ann"]
"""


class Ledger(BaseModel):
    """The state."""

    balance: int = 100


class Payment(BaseModel):
    """The input."""

    amount: int


def ledger() -> Domain:
    """Return the domain."""
    domain = Domain("urn:test:ledger", version="1.0.0", state=Ledger)

    @domain.action("pay", version="1")
    def pay(ctx: ActionContext, wanted: Payment) -> list[Patch]:
        return [set_("balance", ctx.data["balance"] - wanted.amount)]

    return domain


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules.toml").write_text(RULES, encoding="utf-8")
    return tmp_path


def founded(folder: Path, clock: ManualClock) -> Realm:
    world = Realm.create(
        f"sqlite:///{folder / 'world.db'}", domain=ledger(), policies=["rules.toml"], folder=folder, clock=clock,
        limits=Limits(judge_invalid_input=True),
    )  # fmt: skip
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
    return world


def decided(proposal: Proposal) -> DecisionRecord:
    """Return how a proposal was decided."""
    assert proposal.decision is not None
    return proposal.decision


@pytest.mark.requirement("CARD-policy", "WP-decision", "CARD-replay")
def test_a_policy_file_governs_and_every_ruling_can_be_given_again(folder):
    clock = ManualClock(1_700_000_000_000, 1_000)
    with founded(folder, clock) as world:
        small = world.act("bot", "pay", {"amount": 5})
        assert small.status == "completed"
        assert decided(small).reason == "agents"
        assert decided(small).approved_scope == IntentScope(allowed_paths=("data.balance",))
        assert decided(small).trace[0].reason == "5 is small"
        assert decided(small).trace[0].source == "rules.toml:3"
        large = world.act("bot", "pay", {"amount": 30})
        assert large.asked is not None
        assert (large.status, large.asked.ask) == ("evaluating", ("ann",))
        assert world.decide(large.proposal_id, "approve", by="ann").status == "completed"
        often = world.act("bot", "pay", {"amount": 1})
        assert (often.status, decided(often).reason) == ("rejected", "not_too_often: twice an hour is enough")
        clock.advance(3_600_000)
        assert world.act("bot", "pay", {"amount": 1}).status == "completed"
        wrong = world.act("bot", "pay", {"amount": "much"})
        assert wrong.status == "rejected"
        assert decided(wrong).trace[0].answer == "error"
        assert "values of different types" in decided(wrong).reason
        assert recheck(world).divergences == []


@pytest.mark.requirement("CARD-policy")
def test_adopting_a_policy_file_records_what_it_says(folder):
    with founded(folder, ManualClock(1_700_000_000_000, 1_000)) as world:
        adopted = world.realm().policies["house"]
        rules = adopted.policy["rules"]
        assert [(one["rule"], one["language"], one["source"]) for one in rules] == [
            ("small", "cel", "rules.toml:3"),
            ("not_too_often", "cel", "rules.toml:9"),
            ("agents", "cel", "rules.toml:15"),
            ("large", "cel", "rules.toml:21"),
        ]
        assert rules[3]["parameters"] == {"when": "intent.input.amount > 20", "verdict": "escalate", "to": ["ann"]}
        assert decided(world.act("bot", "pay", {"amount": 5})).policy_hash == adopted.policy_hash


@pytest.mark.requirement("CARD-policy")
def test_a_changed_policy_file_decides_nothing_until_it_is_adopted(folder):
    address = f"sqlite:///{folder / 'world.db'}"
    founded(folder, ManualClock(1_700_000_000_000, 1_000)).close()
    (folder / "rules.toml").write_text(RULES.replace("<= 20 &&", "<= 200 &&"), encoding="utf-8")
    with Realm.open(address, domain=ledger(), policies=["rules.toml"], folder=folder) as world:
        held = world.act("bot", "pay", {"amount": 5})
        assert (held.status, held.to_wire()["held"]) == ("submitted", "policy changed: house")
        assert world.adopt_policy("house")
        assert world.proposal(held.proposal_id).status == "completed"
        assert world.act("bot", "pay", {"amount": 5}).status == "completed"


def test_a_realm_is_not_opened_with_a_policy_file_that_is_wrong(folder):
    (folder / "rules.toml").write_text(RULES.replace("base.data.balance", "balance"), encoding="utf-8")
    with pytest.raises(
        RefusedError, match=r"rules\.toml is not a valid policy: line 5, \$\.rules\[0\]\.when: there is no 'balance'"
    ):
        founded(folder, ManualClock(1_700_000_000_000, 1_000))
