"""Action catalogs: which actions there are for an actor in a state, for people's screens and models' tools.

    CatalogRequest --ActionCatalogProjector--> ActionCatalog

A catalog is a projection: it selects and shapes what a schema declares, invents nothing, changes nothing, and equal
requests give equal catalogs with equal hashes (INV-P6, INV-AC1). It is no security boundary: what it leaves out may be
submitted all the same, is judged by the Authority, and decided by the core (INV-AC3, INV-AC5).

Source: intent specification 3.4 and 7.4; ``projections.deciding`` says how availability is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args

from pydantic import Field, model_validator

from projections.deciding import AVAILABLE, Availability, Decider, Judged, Status
from projections.descriptors import ActionDescriptor
from projections.reasons import with_reason
from world.code.time_limit import TimeLimit
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.identity import catalog_hash
from world.model.immutable_json import MAX_SAFE_INTEGER, FrozenDict, freeze
from world.model.snapshot import SnapshotView
from world.model.value import Value

__all__ = [
    "ActionCatalog",
    "ActionCatalogProjector",
    "CatalogProjector",
    "CatalogRequest",
    "Mode",
    "ProjectedAction",
    "Pruning",
    "static_catalog",
]

Mode = Literal["llm", "ui", "debug"]
"""For whom a catalog is shown: it chooses fields, and never actions or the hash (INT-7.4.4b)."""

SHOWN: Final[Mapping[str, frozenset[str]]] = {
    "llm": frozenset({"label", "description", "input_schema"}),
    "ui": frozenset({"label", "input_schema"}),
    "debug": frozenset({"label", "description", "input_schema", "why"}),
}
"""What each mode shows beside the type and the status; ``why`` is the reason of an unavailable action."""


class Pruning(Value):
    """What a catalog leaves out, and in which order the rest stands (INT-7.4.3).

    ``policy`` drops unavailable actions or only marks them. ``include_unknown`` keeps those that cannot be told here.
    ``sort`` is by type in UTF-16 code units, or the order of the request. ``max_actions`` keeps the first so many.
    """

    policy: Literal["drop_unavailable", "mark_only"] = "drop_unavailable"
    include_unknown: bool = True
    sort: Literal["type_lex", "schema_order"] = "type_lex"
    max_actions: int | None = Field(default=None, ge=0, le=MAX_SAFE_INTEGER)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Let null stand for what is absent, as the specification's ``??`` does."""
        return {name: value for name, value in given.items() if value is not None} if type(given) is dict else given

    def keeps(self, status: Status) -> bool:
        """Tell whether an action of this status stays in the catalog, as long as there is room."""
        if status == "unavailable":
            return self.policy == "mark_only"
        return status == "available" or self.include_unknown

    def to_wire(self) -> dict[str, Any]:
        """Return all applied options, maxActions null where there is none: what enters the hash."""
        return {
            "policy": self.policy,
            "includeUnknown": self.include_unknown,
            "sort": self.sort,
            "maxActions": self.max_actions,
        }


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """All that a catalog is made from (INT-7.4.1); nothing in it can be changed.

    Args:
        schema_hash: the schema in force.
        snapshot: data and computed values; plain ones are frozen here.
        actor: who acts; None is nobody in particular, and then what depends on the actor is unknown.
        actions: the schema's actions, in its order.
        mode: for whom it is shown.
        pruning: what is left out.

    Raises:
        RefusedError: ``INVALID_VALUE`` for an unknown mode, data that is no object, and two actions of one type;
            ``NOT_CANONICAL`` for a snapshot or a hash that is no JSON.
    """

    schema_hash: str
    snapshot: SnapshotView
    actor: ActorRef | None
    actions: tuple[ActionDescriptor, ...]
    mode: Mode = "llm"
    pruning: Pruning = field(default_factory=Pruning)

    def __post_init__(self) -> None:
        view = SnapshotView(freeze(self.snapshot.data, "$.data"), freeze(self.snapshot.computed, "$.computed"))
        object.__setattr__(self, "snapshot", view)
        object.__setattr__(self, "actions", tuple(self.actions))
        if not isinstance(self.schema_hash, str):
            raise _invalid("its schemaHash is no text")
        freeze(self.schema_hash, "$.schemaHash")
        if not isinstance(view.data, dict) or not isinstance(view.computed, dict):
            raise _invalid("a snapshot has data and computed, both objects")
        if self.mode not in get_args(Mode):
            raise _invalid(f"a mode is one of {', '.join(get_args(Mode))}, not {self.mode!r:.40}")
        seen: set[str] = set()
        for action in self.actions:
            if action.type in seen:
                raise _invalid(f"there are two actions of type {action.type!r:.80}; a catalog names each by its type")
            seen.add(action.type)

    @classmethod
    def read(cls, wire: Any) -> CatalogRequest:
        """Return the request that a mapping in wire form describes; absent options take their defaults.

        Raises:
            RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``, ``LOCAL_PREDICATE``.
        """
        if not isinstance(wire, Mapping) or not wire.keys() <= _REQUEST or not isinstance(wire.get("schemaHash"), str):
            raise _invalid(f"a request is an object with schemaHash, and beside it only {', '.join(sorted(_REQUEST))}")
        snapshot, actions, mode = wire.get("snapshot"), wire.get("actions"), wire.get("mode")
        if not isinstance(snapshot, Mapping) or not isinstance(actions, (list, tuple)):
            raise _invalid("a request has a snapshot, an object, and actions, an array")
        return cls(
            wire["schemaHash"],
            SnapshotView(snapshot.get("data"), snapshot.get("computed") or FrozenDict()),  # type: ignore[arg-type] # frozen and checked above
            None if wire.get("actor") is None else ActorRef.read(wire["actor"], "$.actor"),
            tuple(ActionDescriptor.read(one, f"$.actions[{index}]") for index, one in enumerate(actions)),
            "llm" if mode is None else mode,
            Pruning() if wire.get("pruning") is None else Pruning.read(wire["pruning"], "$.pruning"),
        )


_REQUEST: Final = frozenset({"schemaHash", "snapshot", "actor", "actions", "mode", "pruning"})


def _invalid(why: str) -> RefusedError:
    return RefusedError("INVALID_VALUE", f"This is no valid CatalogRequest: {why}.")


@dataclass(frozen=True, slots=True)
class ProjectedAction:
    """One action in a catalog; what its mode does not show is None (INT-3.4c)."""

    type: str
    availability: Availability
    label: str | None = None
    description: str | None = None
    input_schema: Any = None

    def to_wire(self) -> dict[str, Any]:
        """Return the wire form; what is not shown is left out."""
        wire = {
            "type": self.type,
            "label": self.label,
            "description": self.description,
            "inputSchema": self.input_schema,
            "availability": self.availability.to_wire(),
        }
        return {name: value for name, value in wire.items() if value is not None}


@dataclass(frozen=True, slots=True)
class ActionCatalog:
    """The actions that are offered, and the hash that names the list (INT-3.4c, INV-AC2).

    Args:
        schema_hash: the schema that declares them.
        catalog_hash: over types, statuses and the applied pruning; the same in every mode.
        actions: those that were kept, in order.
    """

    schema_hash: str
    catalog_hash: str
    actions: tuple[ProjectedAction, ...]

    @property
    def kind(self) -> Literal["action_catalog"]:
        """The kind on the wire."""
        return "action_catalog"

    def to_wire(self) -> dict[str, Any]:
        """Return the catalog as JSON."""
        return {
            "kind": self.kind,
            "schemaHash": self.schema_hash,
            "catalogHash": self.catalog_hash,
            "actions": [action.to_wire() for action in self.actions],
        }


class ActionCatalogProjector(Protocol):
    """Makes a catalog from a request, deterministically (INT-7.4.1)."""

    def project_action_catalog(self, req: CatalogRequest, /) -> ActionCatalog:
        """Return the catalog."""
        ...


class CatalogProjector:
    """The projector of this engine.

    Args:
        time_limit: for each call of a local predicate; None is no limit.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Judge predicates, with or without a limit on their time."""
        self._time_limit = time_limit or TimeLimit()

    def project_action_catalog(self, req: CatalogRequest) -> ActionCatalog:
        """Return the catalog of a request; whatever its predicates do, it does not fail."""
        return catalog_of(req, self.judge(req))

    def judge(self, req: CatalogRequest) -> list[Judged]:
        """Return all actions of a request, in its order, with what is known of each."""
        decider = Decider(req.snapshot, req.actor, self._time_limit)
        judged: list[Judged] = [(action, *decider.decide(action)) for action in req.actions]
        return judged if req.mode != "debug" else [with_reason(one, decider) for one in judged]


def static_catalog(req: CatalogRequest) -> ActionCatalog:
    """Return the schema's own list with every action available, for runtimes without a projector (INT-15.5)."""
    return catalog_of(req, [(action, AVAILABLE, "") for action in req.actions])


def pruned(judged: Iterable[Judged], pruning: Pruning) -> list[Judged]:
    """Return what stays in a catalog, in its order: what is dropped goes first, then it is sorted, then cut."""
    kept = [one for one in judged if pruning.keeps(one[1].status)]
    if pruning.sort == "type_lex":
        kept.sort(key=_by_type)
    return kept[: pruning.max_actions]


def _by_type(judged: Judged) -> Any:
    return judged[0].sort_key


def catalog_of(req: CatalogRequest, judged: Iterable[Judged]) -> ActionCatalog:
    """Return the catalog of actions that were judged already."""
    kept = pruned(judged, req.pruning)
    entries = [{"type": action.type, "status": told.status, "reason": told.reason} for action, told, _ in kept]
    named = catalog_hash(req.schema_hash, entries, req.pruning.to_wire())
    show = _shower(SHOWN[req.mode])
    return ActionCatalog(req.schema_hash, named, tuple(show(*one) for one in kept))


def _shower(fields: frozenset[str]) -> Callable[[ActionDescriptor, Availability, str], ProjectedAction]:
    described, why_shown = "description" in fields, "why" in fields

    def show(action: ActionDescriptor, told: Availability, why: str) -> ProjectedAction:
        if why_shown and why and told.status == "unavailable":
            told = Availability("unavailable", why)
        description = action.description if described else None
        return ProjectedAction(action.type, told, action.label, description, action.input_schema)

    return show
