"""A gate whose policy changes in the program: proposals are held until the change is adopted, or undone.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from authority import Approve, Policy, Reject, rule
from tests.golden.garden import START, the_same_worker
from tests.golden.orchard import WITHOUT_PREPARATIONS
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, set_
from worldprotocol.api.realm import Realm


class Gate(BaseModel):
    passed: list[str] = []


class Visitor(BaseModel):
    name: str


gate = Domain("urn:golden:gate", version="1.0.0", state=Gate)


@gate.action("pass", version="1")
def pass_(ctx: ActionContext, given: Visitor) -> Any:
    return [set_("passed", [*ctx.data["passed"], given.name])]


@rule("short_names")
def short_names(case: Any) -> Any:
    return Approve("a short name") if len(case.intent.body.input["name"]) < 5 else Reject("a long name")


@rule("short_names")
def shorter_names(case: Any) -> Any:
    return Approve("a short name") if len(case.intent.body.input["name"]) < 4 else Reject("a long name")


before, after = Policy("guard", [short_names]), Policy("guard", [shorter_names])


@the_same_worker()
def record(address: str) -> Realm:
    """Found a gate and play its scenes; the caller closes it."""
    parts: dict[str, Any] = {
        "domain": gate, "clock": ManualClock(START, 10), "ids": SequentialIds("gate"), "limits": WITHOUT_PREPARATIONS,
    }  # fmt: skip
    with Realm.create(address, policies=[before], **parts) as world:
        world.register("bot", "agent", binding={"kind": "policy_rules", "policy": "guard"})
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.act("bot", "pass", {"name": "Olga"})
    with Realm.open(address, policies=[after], **parts) as world:
        world.act("bot", "pass", {"name": "Otto"})  # held: approved by the one, rejected by the other
        world.act("ann", "pass", {"name": "Ann"})  # needs no policy
    with Realm.open(address, policies=[before], **parts) as world:  # the program in force decides: approved
        world.act("bot", "pass", {"name": "Eve"})
    world = Realm.open(address, policies=[after], **parts)
    world.act("bot", "pass", {"name": "Ella"})  # held again
    world.act("bot", "pass", {"name": "Bo"})
    world.adopt_policy("guard")  # decides on both
    return world
