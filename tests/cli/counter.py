"""A shop's counter, its policy, projection and effects: what the tests of the command line govern."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from worldprotocol import (
    ActionContext,
    Approve,
    Domain,
    EffectFailure,
    Escalate,
    IntentBody,
    NoIntent,
    Policy,
    Reject,
    Select,
    effect,
    handler,
    projection,
    rule,
    set_,
)


class Counter(BaseModel):
    stock: dict[str, int] = {"tea": 1_000_000, "cake": 3}
    sold: int = 0
    receipts: list[str] = []


class Sale(BaseModel):
    item: str
    count: int = 1


class Charge(BaseModel):
    amount: int


counter = Domain("urn:test:counter", version="1.0.0", state=Counter)


@counter.action("sell", version="1")
def sell(ctx: ActionContext, input: Sale) -> Any:  # noqa: A002
    have = ctx.data["stock"].get(input.item, 0)
    if have < input.count:
        ctx.fail("OUT_OF_STOCK", f"{have} {input.item} left")
    return [set_(f"stock.{input.item}", have - input.count), set_("sold", ctx.data["sold"] + input.count)]


@counter.action("charge", version="1")
def charge(ctx: ActionContext, input: Charge) -> Any:  # noqa: A002
    receipt = yield effect("bank.charge", amount=input.amount)
    return [set_("receipts", [*ctx.data["receipts"], receipt["receipt"]])]


@handler("bank.charge", time_limit_ms=5_000)
def bank(params: Any, call: Any) -> Any:
    return EffectFailure("NO_MONEY", "not that much") if params["amount"] > 100 else {"receipt": f"r{params['amount']}"}


handlers = [bank]


def _sale(case: Any) -> Any:
    return case.intent.body.input or {}


@rule
def small_sales_pass(case: Any) -> Any:
    return Approve("a small sale") if _sale(case).get("count", 1) <= 2 else None


@rule
def large_sales_ask(case: Any) -> Any:
    return Escalate("ann", "a large sale") if _sale(case).get("count", 1) > 2 else None


@rule
def no_cake_for_bots(case: Any) -> Any:
    return Reject("bots eat no cake") if _sale(case).get("item") == "cake" else None


house = Policy("house", [small_sales_pass, large_sales_ask, no_cake_for_bots])


@projection("orders")
def orders(request: Any) -> Any:
    order = request.source.payload or {}
    if order.get("item") is None:
        return NoIntent("nothing was ordered")
    return Select(IntentBody.read({"type": "sell", "input": {"item": order["item"]}}))
