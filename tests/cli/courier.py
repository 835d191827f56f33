"""A courier whose parcels are sent once and for all: an effect of which nobody may know whether it happened."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from worldprotocol import ActionContext, Domain, effect, handler, set_


class Courier(BaseModel):
    receipts: list[str] = []


class Parcel(BaseModel):
    to: str


courier = Domain("urn:test:courier", version="1.0.0", state=Courier)


@courier.action("send", version="1")
def send(ctx: ActionContext, input: Parcel) -> Any:  # noqa: A002
    sent = yield effect("parcel.send", to=input.to)
    if isinstance(sent, dict):
        return [set_("receipts", [*ctx.data["receipts"], sent["receipt"]])]
    return []


@handler("parcel.send", idempotent=False, time_limit_ms=600_000)
def parcel(params: Any, call: Any) -> Any:
    """Send a parcel; while there is a file ``gate``, a named pipe, it is handed over and no answer comes."""
    with Path("sent.txt").open("a") as sent:
        sent.write(f"{params['to']} {call.idempotency_key}\n")
    if Path("gate").exists():
        os.write(1, b"handed over\n")
        Path("gate").read_text()
    return {"receipt": f"for {params['to']}"}


handlers = [parcel]
