"""A domain whose letters are sent by workers outside, for tests of ``worldctl effects``."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from host import external
from world.core import ActionContext, Domain, effect, set_


class Mailroom(BaseModel):
    sent: dict[str, str] = {}


class Letter(BaseModel):
    to: str


mailroom = Domain("urn:test:mailroom", version="1.0.0", state=Mailroom)


@mailroom.action("send", version="1")
def send(ctx: ActionContext, input: Letter) -> Any:  # noqa: A002
    receipt = yield effect("mail.send", to=input.to)
    return [set_(f"sent.{input.to}", receipt)]


handlers = [external("mail.send", time_limit_ms=60_000)]
