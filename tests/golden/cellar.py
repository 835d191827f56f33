"""A cellar recorded under version 2 of the rules: its state and actions use names that begin with ``$``.

Its state declares ``$tasted``, where an action writes by a merge of the whole data; it writes below ``$labels`` too,
and a once guard keeps its marks below ``$mel``. No hash covers these members; replay and recheck go on with them.
``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from tests.golden.garden import START, the_same_worker
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, merge, set_
from world.limits import Limits
from worldprotocol.api.realm import Realm

WITHOUT_PREPARATIONS = Limits(max_preparations=0)
GUARDS = "$mel.guards.intent"
INTENT = {"kind": "get", "path": "meta.intentId"}

NUMBER = {"type": "number", "default": 0}
FIELDS = {"fields": {"bottles": NUMBER, "$tasted": NUMBER}}


class Tasting(BaseModel):
    label: str
    bottles: int = 0


cellar: Domain[Any] = Domain("urn:golden:cellar", version="1.0.0", state=FIELDS)


@cellar.action("taste", version="1")
def taste(ctx: ActionContext, given: Tasting) -> Any:
    if given.bottles > ctx.data["bottles"]:
        ctx.fail("NOT_THERE", "there are fewer bottles")
    seen = ctx.data["$tasted"] + 1
    return [
        set_("bottles", ctx.data["bottles"] - given.bottles),
        merge("", {"$tasted": seen}),
        set_(f"$labels.{given.label}", {"nth": seen, "at": ctx.now}),
    ]


def _once(name: str, step: Any) -> Any:
    """Return a once guard as the reference compiler writes it."""
    mark = {"kind": "object", "fields": {name: INTENT}}
    unmarked = {"kind": "neq", "left": {"kind": "get", "path": f"{GUARDS}.{name}"}, "right": INTENT}
    write = {"kind": "patch", "op": "merge", "path": GUARDS, "value": mark}
    return {"kind": "if", "cond": unmarked, "then": {"kind": "seq", "steps": [write, step]}}


def _add(path: str, amount: Any) -> Any:
    more = {"kind": "add", "left": {"kind": "get", "path": path}, "right": amount}
    return {"kind": "patch", "op": "set", "path": path, "value": more}


cellar.flow("stock", _once("stocked", _add("bottles", {"kind": "lit", "value": 12})))
cellar.flow("twice", {"kind": "seq", "steps": [{"kind": "call", "flow": "stock"}, {"kind": "call", "flow": "stock"}]})


@the_same_worker()
def record(address: str) -> Realm:
    """Play the scenes and return the realm, still open.

    Args:
        address: where its log is recorded.
    """
    clock, ids = ManualClock(START, 1), SequentialIds("cellar")
    world = Realm.create(address, domain=cellar, clock=clock, ids=ids, limits=WITHOUT_PREPARATIONS)
    world.register("ann", "human", binding={"kind": "auto_approve"})
    world.register("bob", "human", binding={"kind": "auto_approve"})
    world.act("ann", "twice", {})
    world.act("ann", "taste", {"label": "red", "bottles": 1})
    world.create_branch("trial")
    world.act("bob", "taste", {"label": "white", "bottles": 2}, branch="trial")
    world.act("bob", "stock", {}, branch="trial")
    world.act("ann", "taste", {"label": "rose", "bottles": 3})
    world.act("ann", "taste", {"label": "gone", "bottles": 99})  # fails: not so many there
    return world
