"""Requests for catalogs, as the tests of them make them."""

from __future__ import annotations

from typing import Any

from projections.catalog import ActionCatalog, CatalogProjector, CatalogRequest, Pruning
from projections.descriptors import ActionDescriptor
from world.core import LocalPredicate
from world.model.actor import ActorRef
from world.model.immutable_json import freeze
from world.model.snapshot import SnapshotView

SCHEMA = "5c" * 32
ANN = ActorRef(actor_id="ann", kind="human", meta={"role": "editor"})
VIEW = SnapshotView(freeze({"flag": True, "off": False, "n": 0, "nil": None}), freeze({"computed.ready": True}))
PROJECTOR = CatalogProjector()


def get(path: str) -> dict[str, Any]:
    return {"kind": "get", "path": path}


def lit(value: Any) -> dict[str, Any]:
    return {"kind": "lit", "value": value}


def eq(left: Any, right: Any) -> dict[str, Any]:
    return {"kind": "eq", "left": left, "right": right}


SIX = (
    ActionDescriptor("t.true", "True", "Says yes.", {"type": "object"}, lit(True)),
    ActionDescriptor("f.false", "False", "Says no.", None, get("off")),
    ActionDescriptor("u.unknown", available=get("meta.actor.meta.rank")),
    ActionDescriptor("i.indet", available=lit(0)),
    ActionDescriptor("n.none"),
    ActionDescriptor.read({"type": "z.null", "available": None}),
)


def request(*actions: ActionDescriptor, actor: ActorRef | None = ANN, view: SnapshotView = VIEW, **more: Any) -> Any:
    pruning = Pruning.read(more.pop("pruning", {}))
    schema = more.pop("schema", SCHEMA)
    return CatalogRequest(schema, view, actor, actions, pruning=pruning, **more)


def told(available: Any, actor: ActorRef | None = ANN, projector: CatalogProjector = PROJECTOR) -> tuple[str, Any]:
    """Return status and reason of one action with this predicate."""
    asked = request(ActionDescriptor("p", available=available), actor=actor, pruning={"policy": "mark_only"})
    (one,) = projector.project_action_catalog(asked).actions
    return one.availability.status, one.availability.reason


def local(function: Any) -> LocalPredicate:
    return LocalPredicate(function, "the_function")


def types(catalog: ActionCatalog) -> list[str]:
    return [action.type for action in catalog.actions]
