"""A small domain, its policy and its effects, for tests of the whole pipeline."""

from __future__ import annotations

import threading
from typing import Any

from pydantic import BaseModel

from authority import Approve, Escalate, Narrow, Policy, Reject, rule
from host import EffectFailure, handler
from tests.support.patience import PATIENCE_S
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, effect, set_
from worldprotocol.api.realm import Realm


class Shop(BaseModel):
    stock: dict[str, int] = {"tea": 10, "cake": 3}
    sold: int = 0
    open: bool = True
    receipts: list[str] = []


class Sale(BaseModel):
    item: str
    count: int = 1


class Charge(BaseModel):
    amount: int
    times: int = 1


shop = Domain("urn:test:shop", version="1.0.0", state=Shop)


@shop.computed("left", deps=["stock"])
def left(data: Any) -> int:
    return sum(data["stock"].values())


@shop.action("sell", version="1", available={"kind": "get", "path": "open"})
def sell(ctx: ActionContext, input: Sale) -> Any:  # noqa: A002
    have = ctx.data["stock"].get(input.item, 0)
    if have < input.count:
        ctx.fail("OUT_OF_STOCK", f"{have} {input.item} left")
    return [set_(f"stock.{input.item}", have - input.count), set_("sold", ctx.data["sold"] + input.count)]


@shop.action("close", version="1")
def close(ctx: ActionContext) -> Any:
    return [set_("open", False)]


@shop.action("charge", version="1")
def charge(ctx: ActionContext, input: Charge) -> Any:  # noqa: A002
    receipts = list(ctx.data["receipts"])
    for number in range(input.times):
        receipt = yield effect("bank.charge", amount=input.amount, number=number)
        receipts.append(receipt["receipt"])
    return [set_("receipts", receipts)]


@rule
def small_sales_pass(case: Any) -> Any:
    sale = case.intent.body.input or {}
    return Approve("a small sale") if case.intent.body.type == "sell" and sale.get("count", 1) <= 2 else None


@rule
def large_sales_ask(case: Any) -> Any:
    sale = case.intent.body.input or {}
    return Escalate("ann", "a large sale") if case.intent.body.type == "sell" and sale.get("count", 1) > 2 else None


@rule
def nobody_closes(case: Any) -> Any:
    return Reject("the shop stays open") if case.intent.body.type == "close" else None


@rule
def only_the_counter(case: Any) -> Any:
    return Narrow(["data.stock.*", "data.sold"], "the counter only") if case.actor.actor_id == "narrow" else None


house = Policy("house", [small_sales_pass, large_sales_ask, nobody_closes, only_the_counter])


class Bank:
    """A bank outside: counts the charges it really made, and can hang or fail."""

    def __init__(self) -> None:
        self.charged: list[int] = []
        self.keys: list[str] = []
        self.broken = False
        self.started = threading.Event()
        self.release = threading.Event()
        self.release.set()

    def handler(self, *, idempotent: bool = False, time_limit_ms: int = 600_000) -> Any:
        @handler("bank.charge", idempotent=idempotent, time_limit_ms=time_limit_ms)
        def charge_once(params: Any, call: Any) -> Any:
            self.started.set()
            self.release.wait(PATIENCE_S)
            if self.broken:
                return EffectFailure("BANK_CLOSED", "come back tomorrow")
            self.keys.append(call.idempotency_key)
            self.charged.append(params["amount"])
            return {"receipt": f"r{len(self.charged)}"}

        return charge_once


ACTORS: dict[str, tuple[str, dict[str, Any]]] = {
    "ann": ("human", {"kind": "auto_approve"}),
    "bot": ("agent", {"kind": "policy_rules", "policy": "house"}),
    "narrow": ("agent", {"kind": "policy_rules", "policy": "house"}),
    "cron": ("system", {"kind": "auto_approve"}),
    "kid": ("human", {"kind": "hitl", "ask": ["ann"], "timeoutMs": 1000}),
}


def open_shop(address: str, **parts: Any) -> Realm:
    """Found a shop with its actors; time and ids are the test's own."""
    parts.setdefault("clock", ManualClock(1_000, 1))
    parts.setdefault("ids", SequentialIds())
    parts.setdefault("effects", [Bank().handler()])
    world = Realm.create(address, domain=shop, policies=[house], **parts)
    for name, (kind, binding) in ACTORS.items():
        world.register(name, kind, binding=binding)  # type: ignore[arg-type]
    return world
