"""The realm that server tests serve: a kiosk whose orders are approved, or wait for a person."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldprotocol import (
    ActionContext,
    Domain,
    IntentBody,
    NoIntent,
    Select,
    effect,
    external,
    handler,
    projection,
    set_,
)

GATE = "KIOSK_GATE"
"""Environment variable with a file; the effect ``till.charge`` ends once it exists."""


class Kiosk(BaseModel):
    orders: dict[str, str] = {}


class Order(BaseModel):
    item: str
    number: str = "one"


kiosk = Domain("urn:test:kiosk", version="1.0.0", state=Kiosk)


@kiosk.action("order.place", version="1")
def place(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    return [set_(f"orders.{input.number}", input.item)]


@kiosk.action("order.pay", version="1")
def pay(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    paid = yield effect("till.charge", item=input.item)
    return [set_(f"orders.{input.number}", paid["receipt"])]


@kiosk.action("order.bake", version="1")
def bake(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    baked = yield effect("oven.bake", item=input.item, number=input.number)
    return [set_(f"orders.{input.number}", baked)]


@kiosk.action("order.ship", version="1")
def ship(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    shipped = yield effect("cart.ship", number=input.number)
    return [set_(f"orders.{input.number}", shipped)]


@kiosk.action("order.send", version="1")
def send(ctx: ActionContext, input: Order) -> Any:  # noqa: A002
    sent = yield effect("pigeon.send", number=input.number)
    return [set_(f"orders.{input.number}", sent)]


@handler("till.charge", time_limit_ms=60_000)
def charge(params: Any, call: Any) -> Any:
    gate = Path(os.environ[GATE])
    gate.with_suffix(".reached").touch()
    with gate.with_suffix(".charged").open("a") as charged:
        charged.write(f"{params['item']}\n")
    while not gate.exists():
        time.sleep(0.01)
    return {"receipt": params["item"]}


handlers = [
    charge,
    external("oven.bake", idempotent=True, time_limit_ms=1_000),
    external("cart.ship", time_limit_ms=600_000),
    external("pigeon.send", time_limit_ms=1),
]


@projection("mail")
def mail(request: Any) -> Any:
    payload = request.source.payload
    if not isinstance(payload, dict) or not isinstance(payload.get("item"), str):
        return NoIntent("no order")
    return Select(IntentBody.read({"type": "order.place", "input": {"item": payload["item"], "number": "mail"}}))
