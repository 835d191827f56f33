"""What the benchmarks judge: payments, and one policy of four rules in Python (``house``) and in CEL (``FILE``).

The rules read the input, the actor, the state and the past, and come to the same for every case.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel

from authority import Approve, Escalate, Narrow, Policy, Reject, rule
from authority.policies.opinions import Opinion
from world.clock import ManualClock
from world.core import ActionContext, Domain, Patch, set_
from world.state.ports import Case
from worldprotocol import Realm

DAY_MS: Final = 86_400_000
STEP_MS: Final = 1_000
"""How far the clock moves with every look at it."""

EACH: Final = 400
"""Payments of one payer, fewer than those that people look at."""

PAID: Final = 32
"""How many are paid; a payment touches one of so many values in the state."""

CALLERS: Final = 32

FILE = """\
name = "file"

[[rules]]
id = "small"
when = "intent.input.amount <= 20"
verdict = "approve"
reason = "small"

[[rules]]
id = "covered"
when = "intent.input.amount > base.data.balance"
verdict = "reject"
reason = "the balance does not cover it"

[[rules]]
id = "agents"
when = 'actor.kind == "agent" && !has(actor.meta.trusted)'
verdict = "narrow"
scope = ["data.balance", "data.paid.*"]
reason = "agents touch nothing but payments"

[[rules]]
id = "often"
when = 'history.count({"actorId": actor.actorId, "since": now - duration("24h")}) > 1000'
verdict = "escalate"
to = ["ann"]
reason = "often"
"""


class Till(BaseModel):
    """The state: what is there, and what was paid to whom."""

    balance: int = 1_000_000_000
    paid: dict[str, int] = {}


class Payment(BaseModel):
    """The input: to whom, and how much."""

    to: str
    amount: int


payments = Domain("urn:bench:payments", version="1.0.0", state=Till)


@payments.action("pay", version="1")
def pay(ctx: ActionContext, wanted: Payment) -> list[Patch]:
    """Pay."""
    before = ctx.data["paid"].get(wanted.to, 0)
    return [set_("balance", ctx.data["balance"] - wanted.amount), set_(f"paid.{wanted.to}", before + wanted.amount)]


@rule
def small(case: Case) -> Opinion | None:
    """Small payments pass."""
    return Approve("small") if _amount(case) <= 20 else None


@rule
def covered(case: Case) -> Opinion | None:
    """Nothing beyond the balance."""
    return Reject("the balance does not cover it") if _amount(case) > case.view.data["balance"] else None


@rule
def agents(case: Case) -> Opinion | None:
    """Agents only pay."""
    if case.actor.kind == "agent" and "trusted" not in (case.actor.meta or {}):
        return Narrow(["data.balance", "data.paid.*"], "agents touch nothing but payments")
    return None


@rule
def often(case: Case) -> Opinion | None:
    """People look at what happens often."""
    earlier = case.history.count(actor_id=case.actor.actor_id, since_ms=case.submitted_at - DAY_MS)
    return Escalate("ann", "often") if earlier > 1000 else None


_FUNCTIONS: Final = [one.function for one in (small, covered, agents, often)]

house = Policy("code", [small, covered, agents, often])
"""The policy in Python; ``FILE`` says the same."""


def bare(case: Case) -> list[Opinion | None]:
    """Call the rule functions, and nothing else."""
    return [one(case) for one in _FUNCTIONS]


def _amount(case: Case) -> Any:
    return case.intent.body.input["amount"]


def record(folder: Path, decisions: int) -> str:
    """Make a log of so many payments, each judged by the rules of ``FILE``; return its file."""
    (folder / "rules.toml").write_text(FILE)
    file = folder / "world.db"
    parts: dict[str, Any] = {"domain": payments, "policies": ["rules.toml"], "folder": folder, "durability": "normal"}
    payers = max(50, decisions // EACH)
    with Realm.create(file, clock=ManualClock(1_700_000_000_000, STEP_MS), **parts) as world:
        for at in range(payers):
            world.register(f"bot{at}", "agent", binding={"kind": "policy_rules", "policy": "file"})

        def one(at: int) -> None:
            world.act(f"bot{at % payers}", "pay", {"to": f"m{at % PAID}", "amount": at % 21})

        with ThreadPoolExecutor(CALLERS) as callers:
            for begin in range(0, decisions, 1_000):  # no more futures than that are held at once
                deque(callers.map(one, range(begin, min(begin + 1_000, decisions))), maxlen=0)
    return str(file)
