"""A realm whose foreign code is held by the test.

As a program, it acts on such realms in a process of its own: each line ``ADDRESS BRANCH COUNT`` is answered by one.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from pydantic import BaseModel

from authority import Approve, Escalate, Policy, rule
from projections import Select, projection
from world.core import ActionContext, Domain, effect, set_
from world.limits import Limits
from world.model.intent import IntentBody
from worldprotocol.api.realm import Realm

PATIENT = Limits(max_call_ms=600_000, max_unit_ms=600_000)
"""No call is ended by its limit while a test holds it."""


class Gate:
    """What holds foreign code: it enters, and goes on once the test has opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()
        self.is_open = [False]

    def hold(self) -> None:
        """Block in C until the gate is open."""
        self.entered.set()
        self.opened.wait()

    def open(self) -> None:
        self.is_open[0] = True
        self.opened.set()


GATE = Gate()
"""The gate of the running test."""


def renew() -> Gate:
    """Close the gate, for another test."""
    global GATE  # noqa: PLW0603 - the code of the domain is held by it
    GATE = Gate()
    return GATE


class State(BaseModel):
    count: int = 0
    seen: int = 0
    hang: bool = False


class Wish(BaseModel):
    hang: str = ""


def held_domain() -> Domain:
    built = Domain("urn:test:held", version="1.0.0", state=State)

    @built.computed("slow", deps=["hang"])
    def slow(data: Any) -> int:
        if data["hang"]:
            GATE.hold()
        return 1

    @built.action("count", version="1")
    def count(ctx: ActionContext, wish: Wish) -> Any:
        if wish.hang == "action":
            GATE.hold()
        if wish.hang == "computed":
            yield [set_("hang", True)]
            return [set_("count", ctx.data["count"] + ctx.computed["slow"]), set_("hang", False)]
        if wish.hang == "effect":
            yield effect("bell", note="done")
            GATE.hold()
        if wish.hang == "answer":
            GATE.hold()
        return [set_("count", ctx.data["count"] + 1)]

    return built


HELD = held_domain()


@rule
def holds(case: Any) -> Any:
    if case.intent.body.input["hang"] == "rule":
        GATE.hold()
    return Escalate("bob", "a person decides") if case.intent.body.input["hang"] == "answer" else Approve("it ended")


HOUSE = Policy("held", [holds])


@projection("clicks", sources=["ui"])
def clicks(req: Any) -> Any:
    payload = req.source.payload
    if payload["hang"] == "projection":
        gate = GATE
        gate.entered.set()
        while not gate.is_open[0]:
            pass
    return Select(IntentBody.read({"type": "count", "input": {"hang": payload["hang"]}}))


def opened(address: str, limits: Limits = PATIENT, **more: Any) -> Realm:
    """Open the realm for acting."""
    return Realm.open(address, domain=HELD, policies=[HOUSE], projections=[clicks], limits=limits, **more)


def act_often(world: Realm, branch: str, count: int) -> list[str]:
    """Act many times and return how it ended; other actors than the one whose code is held."""
    return [world.act("ann", "count", {"hang": ""}, branch=branch).status for _ in range(count)]


def main() -> None:
    for line in sys.stdin:
        address, branch, count = line.split("\t")
        with opened(address) as world:
            print(" ".join(act_often(world, branch, int(count))), flush=True)


if __name__ == "__main__":
    main()
