"""Domains of three versions, with migrations there and back, for the tests of adoptions."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from authority import Escalate, Policy, rule
from world.core import ActionContext, Domain, Patch, set_


class First(BaseModel):
    count: int = 0
    names: list[str] = []


class Second(BaseModel):
    total: int = 0
    people: dict[str, Any] = {}


class Add(BaseModel):
    by: int = 1


class AddMore(BaseModel):
    by: int = 1
    why: str | None = None


class AddText(BaseModel):
    by: str


def first() -> Domain:
    domain = Domain("urn:test:people", version="1.0.0", state=First)

    @domain.action("add", version="1")
    def add(ctx: ActionContext, given: Add) -> list[Patch]:
        return [set_("count", ctx.data["count"] + given.by)]

    @domain.action("name", version="1")
    def name(ctx: ActionContext, given: AddText) -> list[Patch]:
        return [set_("names", [*ctx.data["names"], given.by])]

    @domain.migration("2.0.0")
    def back(data: dict[str, Any]) -> dict[str, Any]:
        return {"count": data["total"], "names": sorted(data["people"])}

    return domain


def second(*, migrates: bool = True, wrong: bool = False, more: type[BaseModel] = AddMore) -> Domain:
    domain = Domain("urn:test:people", version="2.0.0", state=Second)

    def add(ctx: ActionContext, given: Any) -> list[Patch]:
        return [set_("total", ctx.data["total"] + given.by)]

    add.__annotations__["given"] = more
    domain.action("add", version="2")(add)
    if wrong:
        domain.migration("1.0.0")(half_way_up)
    elif migrates:
        domain.migration("1.0.0")(up)
    return domain


def up(data: dict[str, Any]) -> dict[str, Any]:
    return {"total": data["count"], "people": {name: {"n": at} for at, name in enumerate(data["names"])}}


def half_way_up(data: dict[str, Any]) -> dict[str, Any]:
    return {"total": str(data["count"]), "people": {}}


@rule
def ask_ann(case: Any) -> Any:
    return Escalate(["ann"], "people decide")


asking = Policy("asking", [ask_ann])

SECOND = second()
"""The second version, for references to it."""
