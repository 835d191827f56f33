"""Default scenario: a depot with counters, payments and human decisions.

The expected results of its policies and actions are computed by separate plain functions that share no code with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from pydantic import BaseModel

from authority import Approve, Escalate, Narrow, Policy, Reject, rule
from host import handler
from projections import NoIntent, projection
from world.core import ActionContext, Domain, EffectFailedError, effect, set_
from worldprotocol.simulation.scenario import DrawnIntent, Edition, Expectation, Player, Scenario

__all__ = ["depot", "scenario"]

COUNTERS: Final = ("a", "b", "c")


class Depot(BaseModel):
    """The state."""

    counters: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    paid: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    receipts: list[str] = []
    notes: dict[str, str] = {}


class Notes(BaseModel):
    """What must be noted in the later edition; in the first one it may be missing."""

    name: str


class NamedDepot(BaseModel):
    """The state of a later edition."""

    counters: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    paid: dict[str, int] = {"a": 0, "b": 0, "c": 0}
    receipts: list[str] = []
    notes: Notes


class Adding(BaseModel):
    """How much is added to what."""

    to: str
    by: int


class Moving(BaseModel):
    """How much goes from where to where."""

    source: str
    to: str
    by: int


class Paying(BaseModel):
    """What is paid for a counter, and in how many payments."""

    to: str
    amount: int
    times: int = 1
    patient: bool = False


class Naming(BaseModel):
    """What the depot is to be called."""

    name: str


def add(ctx: ActionContext, input: Adding) -> Any:  # noqa: A002
    """Add to a counter."""
    return [set_(f"counters.{input.to}", ctx.data["counters"][input.to] + input.by)]


def move(ctx: ActionContext, input: Moving) -> Any:  # noqa: A002
    """Move from one counter to another, if there is enough."""
    have = ctx.data["counters"][input.source]
    if have < input.by:
        ctx.fail("SHORT", f"{input.source} holds {have}", source=input.source)
    yield set_(f"counters.{input.source}", have - input.by)
    counters = ctx.data["counters"] if input.source != input.to else {input.to: have - input.by}
    return [set_(f"counters.{input.to}", counters[input.to] + input.by)]


def pay(ctx: ActionContext, input: Paying) -> Any:  # noqa: A002
    """Pay in several payments that the bank distinguishes by their keys."""
    failed = 0
    for number in range(input.times):
        try:
            yield effect("bank.pay", to=input.to, amount=input.amount, number=number)
        except EffectFailedError:
            if not input.patient:
                raise
            failed += 1
    return [set_(f"paid.{input.to}", ctx.data["paid"][input.to] + input.amount * (input.times - failed))]


def wire(ctx: ActionContext, input: Paying) -> Any:  # noqa: A002
    """Pay by a bank that does not know a payment again."""
    receipt = yield effect("bank.wire", to=input.to, amount=input.amount)
    receipts = [*ctx.data["receipts"], receipt["key"]][-3:]
    return [set_(f"paid.{input.to}", ctx.data["paid"][input.to] + input.amount), set_("receipts", receipts)]


def name(ctx: ActionContext, input: Naming) -> Any:  # noqa: A002
    """Give the depot a name, without which the later edition cannot be adopted."""
    return [set_("notes.name", input.name)]


def _edition(version: str, state: type[BaseModel]) -> Domain:
    domain = Domain("urn:worldprotocol:depot", version=version, state=state)
    touched = [{"predicate": "MUTATES", "resource": "FILE:/a/{input.to}"}]
    for action in (add, move, wire, name):
        domain.action(action.__name__, version="1")(action)
    domain.action("pay", version="1", manifest=touched)(pay)
    return domain


depot = _edition("1.0.0", Depot)
named = _edition("2.0.0", NamedDepot)


@handler("bank.pay", idempotent=True, time_limit_ms=2_000, retries=2, backoff_ms=500)
def bank_pay(params: Any, call: Any) -> Any:
    """Take a payment."""
    return {"key": call.idempotency_key, "amount": params["amount"]}


@handler("bank.wire", time_limit_ms=2_000)
def bank_wire(params: Any, call: Any) -> Any:
    """Take a payment; a second one is one more."""
    return {"key": call.idempotency_key, "amount": params["amount"]}


def _size(case: Any) -> int:
    wanted = case.intent.body.input or {}
    return int(wanted.get("by", wanted.get("amount")) or 0)


@rule
def small_ones_pass(case: Any) -> Any:
    """Approve what is small."""
    return Approve("it is small") if 0 < _size(case) <= 5 else None


@rule
def middling_ones_are_asked(case: Any) -> Any:
    """Ask people about what is not so small."""
    return Escalate(("ann", "bea"), "it is not small") if 5 < _size(case) <= 20 else None


@rule
def large_ones_do_not_pass(case: Any) -> Any:
    """Reject what is large, or less than nothing."""
    return Reject("it is large") if _size(case) > 20 or _size(case) < 0 else None


@rule
def moves_stay_within(case: Any) -> Any:
    """Restrict moves to counters."""
    return Narrow(["data.counters.*"], "counters only") if case.intent.body.type == "move" else None


@rule
def is_faulty(case: Any) -> Any:
    """Approve, but for what it cannot read."""
    return Approve(str(case.intent.body.input["by"]))


clerk = Policy("clerk", [small_ones_pass, middling_ones_are_asked, large_ones_do_not_pass, moves_stay_within])
faulty = Policy("faulty", [is_faulty])
stern = Policy("stern", [large_ones_do_not_pass])


@projection("drawn_intents")
def drawn_intents(request: Any) -> Any:
    """Return the intent in a source event."""
    rendered = request.source.payload
    return {"kind": "intent", "body": rendered} if "type" in rendered else NoIntent("the payload has no intent")


def expects(binding: Mapping[str, Any], body: Mapping[str, Any]) -> Expectation:
    """Say what the policies must come to."""
    kind, action, given = binding["kind"], body["type"], body.get("input")
    if kind == "auto_approve":
        return "approve"
    if kind != "policy_rules":
        return "wait"
    wanted = given if isinstance(given, dict) else {}
    size = int(wanted.get("by", wanted.get("amount")) or 0)
    if binding["policy"] == "faulty":
        return "approve" if "by" in wanted else "reject"
    if size > 20 or size < 0 or binding["policy"] == "stern":
        return "reject"
    if action == "move" and (body.get("scopeProposal") or {}).get("allowedPaths") == ["data.paid.*"]:
        return "reject"  # nothing is left of it within the counters
    if size > 5:
        return "wait"
    return "approve" if size > 0 or action == "move" else "reject"


def adds(action: str, given: Any) -> Mapping[str, int]:
    """Say what a completed action adds; a patient payment may have failed in part."""
    if action == "add":
        return {f"counters.{given['to']}": given["by"]}
    if action == "move":
        away = {f"counters.{given['source']}": -given["by"]}
        return {**away, f"counters.{given['to']}": given["by"]} if given["to"] != given["source"] else {}
    if action in ("wire", "pay") and not given.get("patient"):
        return {f"paid.{given['to']}": given["amount"] * (given.get("times", 1) if action == "pay" else 1)}
    return {}


def draw(chance: Random) -> DrawnIntent:
    """Draw an intent: small, middling, large or impossible."""
    to, by = chance.choice(COUNTERS), chance.choice((1, 2, 3, 4, 5, 7, 12, 25, -2))
    scope = chance.choice((None, None, None, (f"data.counters.{to}",), ("data.counters.*",), ("data.paid.*",)))
    kind = chance.random()
    if kind < 0.06:
        return DrawnIntent("name", {"name": chance.choice(("north", "south"))})
    if kind < 0.4:
        return DrawnIntent("add", {"to": to, "by": by}, scope)
    if kind < 0.5:
        return DrawnIntent("move", {"source": chance.choice(COUNTERS), "to": to, "by": abs(by)}, scope)
    scope = chance.choice((None, (f"data.paid.{to}",), ("data.paid.*",)))
    if kind < 0.7:
        return DrawnIntent("pay", {"to": to, "amount": abs(by), "times": chance.randint(1, 3)}, scope)
    return DrawnIntent("wire", {"to": to, "amount": abs(by)}, chance.choice((None, scope)))


_POLICY: Final = {"kind": "policy_rules", "policy": "clerk", "ask": ["ann"], "timeoutMs": 60_000}
_FAULTY: Final = {"kind": "policy_rules", "policy": "faulty"}
_ASKED: Final = {"kind": "hitl", "ask": ["ann", "bea"], "timeoutMs": 30_000}
_VOTE: Final = {
    "kind": "tribunal",
    "members": ["ann", "bea", "cyd"],
    "rule": "majority",
    "timeoutMs": 60_000,
    "onTimeout": "reject",
}

_CHAIN: Final = {
    "kind": "hitl",
    "ask": ["cyd"],
    "timeoutMs": 10_000,
    "onTimeout": "escalate",
    "then": [{"members": ["ann", "bea"], "rule": "unanimous", "timeoutMs": 20_000}],
}

scenario = Scenario(
    domain=depot,
    actors=(
        Player("ann", "human", {"kind": "auto_approve"}),
        Player("bea", "human", {"kind": "auto_approve"}),
        Player("cyd", "human", _ASKED),
        Player("bot-1", "agent", _POLICY),
        Player("bot-2", "agent", _POLICY),
        Player("bot-3", "agent", _VOTE),
        Player("bot-4", "agent", _CHAIN),
        Player("odd", "agent", _FAULTY),
        Player("cron", "system", {"kind": "auto_approve"}),
    ),
    draw=draw,
    editions=(Edition(named, lambda data: "name" in data["notes"]),),
    policies=(clerk, faulty, stern),
    spare=("stern",),
    effects=(bank_pay, bank_wire),
    projections=(drawn_intents,),
    bindings=(
        {"kind": "auto_approve"},
        _POLICY,
        _ASKED,
        _VOTE,
        _CHAIN,
        _FAULTY,
        {"kind": "policy_rules", "policy": "stern"},
    ),
    scopes=("data.*", "data.counters.*", "data.counters.a", "data.paid.*", "data.paid.b"),
    expects=expects,
    adds=adds,
)
