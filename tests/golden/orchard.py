"""An orchard whose state is a model in the dialect, of two versions: the second is adopted with a migration.

Both branches are migrated; of the proposals that wait, one is carried over and one is superseded. ``record`` plays the
same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from tests.golden.garden import START, the_same_worker
from world.clock import ManualClock, SequentialIds
from world.core import ActionContext, Domain, set_
from world.limits import Limits
from worldprotocol.api.realm import Realm

WITHOUT_PREPARATIONS = Limits(max_preparations=0)
ROW = "0b9f7c1e-3a52-4d7e-9a55-6f1f0c2f8a11"


class Kind(Enum):
    APPLE = "apple"
    PEAR = "pear"


class Ladder(BaseModel):
    tool: Literal["ladder"]
    rungs: Annotated[int, Field(ge=3, le=20)]


class Pole(BaseModel):
    tool: Literal["pole"]
    metres: Annotated[float, Field(gt=0, multiple_of=0.1)]


class Tree(BaseModel):
    kind: Kind
    planted: date
    grafts: list[Tree] = []


class Orchard(BaseModel):
    trees: Annotated[dict[Annotated[str, Field(pattern="^[a-z]+$")], Tree], Field(max_length=4)] = {}
    yields: dict[UUID, tuple[int, float]] = {}
    tool: Ladder | Pole | None = None
    note: Annotated[str, Field(max_length=12)] = ""


class Crop(BaseModel):
    kilos: Annotated[int, Field(ge=0)]
    weighed: AwareDatetime | None = None


class Grown(BaseModel):
    """The second version: trees in a list, with their names; crops by tree."""

    model_config = ConfigDict(extra="forbid")

    trees: list[dict[str, Any]]
    crops: dict[str, Crop] = {}
    remark: str | None = None


class Planting(BaseModel):
    name: str
    kind: str
    planted: str
    grafts: list[str] = []


class Remark(BaseModel):
    text: str


class Weighing(BaseModel):
    tree: str
    kilos: int
    weighed: str | None = None


orchard = Domain("urn:golden:orchard", version="1.0.0", state=Orchard)


@orchard.action("plant", version="1")
def plant(ctx: ActionContext, given: Planting) -> Any:
    grafts = [{"kind": one, "planted": given.planted} for one in given.grafts]
    return [set_(f"trees.{given.name}", {"kind": given.kind, "planted": given.planted, "grafts": grafts})]


@orchard.action("lend", version="1")
def lend(ctx: ActionContext) -> Any:
    return [set_("tool", {"tool": "pole", "metres": 2.3}), set_(f"yields.{ROW}", [3, 0.5])]


@orchard.action("remark", version="1")
def remark(ctx: ActionContext, given: Remark) -> Any:
    return [set_("note", given.text)]


grown = Domain("urn:golden:orchard", version="2.0.0", state=Grown)


@grown.migration("1.0.0")
def in_a_list(data: Any) -> Any:
    trees = [{"name": name, **tree} for name, tree in sorted(data["trees"].items())]
    return {"trees": trees, "crops": {name: {"kilos": 0} for name in data["trees"]}, "remark": data["note"] or None}


@grown.action("remark", version="2")
def remark_again(ctx: ActionContext, given: Remark) -> Any:
    return [set_("remark", given.text)]


@grown.action("weigh", version="1")
def weigh(ctx: ActionContext, given: Weighing) -> Any:
    return [set_(f"crops.{given.tree}", {"kilos": given.kilos, "weighed": given.weighed})]


@the_same_worker()
def record(address: str) -> Realm:
    """Found an orchard and play its scenes; the caller closes it."""
    parts: dict[str, Any] = {
        "clock": ManualClock(START, 10), "ids": SequentialIds("orchard"), "limits": WITHOUT_PREPARATIONS,
    }  # fmt: skip
    with Realm.create(address, domain=orchard, **parts) as world:
        world.register("ann", "human", binding={"kind": "auto_approve"})
        world.register("kid", "human", binding={"kind": "hitl", "ask": ["ann"]})
        _first_year(world)
    world = Realm.open_to_adopt(address, domain=grown, by="olga", open_proposals="carry_over", **parts)
    _second_year(world)
    return world


def _first_year(world: Realm) -> None:
    world.act("ann", "plant", {"name": "old", "kind": "apple", "planted": "1998-03-01", "grafts": ["pear"]})
    world.create_branch("plan")
    world.act("ann", "plant", {"name": "new", "kind": "pear", "planted": "2024-02-29"}, branch="plan")
    world.act("ann", "lend")
    world.act("ann", "plant", {"name": "Big", "kind": "apple", "planted": "2020-01-01"})  # a name that does not fit
    world.act("ann", "plant", {"name": "fig", "kind": "fig", "planted": "2020-01-01"})  # no such kind
    world.act("ann", "plant", {"name": "late", "kind": "pear", "planted": "2023-02-29"})  # no such day
    world.act("ann", "remark", {"text": "too long for a note"})
    world.act("kid", "remark", {"text": "ripe"})  # waits, and is carried over
    world.act("kid", "plant", {"name": "mine", "kind": "pear", "planted": "2024-05-01"})  # waits; version 2 has none


def _second_year(world: Realm) -> None:
    for proposal in list(world.realm().proposals.values()):
        world.decide(proposal.proposal_id, "approve", by="ann")
    world.act("ann", "weigh", {"tree": "old", "kilos": 12, "weighed": "2024-10-01T08:00:00+02:00"})
    world.act("ann", "weigh", {"tree": "old", "kilos": -1})  # below the minimum
    world.act("ann", "weigh", {"tree": "new", "kilos": 3, "weighed": "2024-10-01"}, branch="plan")  # no time of day
    world.act("ann", "weigh", {"tree": "new", "kilos": 3}, branch="plan")
