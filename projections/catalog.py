"""Action catalogs: the actions of an actor in a state, for forms and tools.

    CatalogRequest --ActionCatalogProjector--> ActionCatalog

A catalog is a projection: it selects and shapes what a schema declares, invents nothing, changes nothing, and equal
requests give equal catalogs with equal hashes (INV-P6, INV-AC1). It is no security boundary: what it leaves out may be
submitted nevertheless, is judged by the Authority, and is decided by the core (INV-AC3, INV-AC5).

Source: intent specification 3.4 and 7.4; ``projections.availability`` decides availability.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal, Protocol, get_args

from pydantic import Field, model_validator

from projections.availability import AVAILABLE, Availability, Decider, Judged, Status
from projections.descriptors import ActionDescriptor
from projections.reasons import with_reason
from world.code.time_limit import TimeLimit
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.identity import catalog_hash
from world.model.immutable_json import MAX_SAFE_INTEGER, FrozenDict, freeze
from world.model.record import Record
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
"""Purpose of a catalog: it selects the fields that are shown, never the actions or the hash (INT-7.4.4b)."""

SHOWN: Final[Mapping[str, frozenset[str]]] = {
    "llm": frozenset({"label", "description", "input_schema"}),
    "ui": frozenset({"label", "input_schema"}),
    "debug": frozenset({"label", "description", "input_schema", "why"}),
}
"""Fields that each mode shows besides type and status; ``why`` is the reason of an unavailable action."""


class Pruning(Value):
    """Filter and order of the actions in a catalog (INT-7.4.3).

    ``policy`` drops unavailable actions or only marks them. ``include_unknown`` keeps those whose availability cannot
    be decided. ``sort`` is by type in UTF-16 code units, or the order of the request. ``max_actions`` limits their
    number.
    """

    policy: Literal["drop_unavailable", "mark_only"] = "drop_unavailable"
    include_unknown: bool = True
    sort: Literal["type_lex", "schema_order"] = "type_lex"
    max_actions: int | None = Field(default=None, ge=0, le=MAX_SAFE_INTEGER)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Any) -> Any:
        """Drop null members, which count as absent (``??`` in the specification)."""
        return {name: value for name, value in given.items() if value is not None} if type(given) is dict else given

    def keeps(self, status: Status) -> bool:
        """Return whether an action of this status passes the filter."""
        if status == "unavailable":
            return self.policy == "mark_only"
        return status == "available" or self.include_unknown


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """Immutable input of a catalog (INT-7.4.1).

    Args:
        schema_hash: the schema in force.
        snapshot: data and computed values; plain values are frozen here.
        actor: the acting actor; with None, predicates that depend on the actor are unknown.
        actions: the schema's actions, in its order.
        mode: the fields that are shown.
        pruning: filter and order.

    Raises:
        RefusedError: ``INVALID_VALUE`` for an unknown mode, data that is not an object, and two actions of one type;
            ``NOT_CANONICAL`` for a snapshot or a hash that is not JSON.
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
            raise _invalid("its schemaHash is not a string")
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
        """Read a request from its wire form; absent options take their defaults.

        Raises:
            RefusedError: ``INVALID_VALUE``, ``NOT_CANONICAL``, ``LOCAL_PREDICATE``.
        """
        if not isinstance(wire, Mapping) or not wire.keys() <= _REQUEST or not isinstance(wire.get("schemaHash"), str):
            raise _invalid(f"a request is an object with schemaHash, and besides it only {', '.join(sorted(_REQUEST))}")
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
    return RefusedError(ErrorCode.INVALID_VALUE, f"This is not a valid CatalogRequest: {why}.")


class ProjectedAction(Record, frozen=True, omit_defaults=True):
    """One action in a catalog; fields that its mode hides are None (INT-3.4c)."""

    type: str
    availability: Availability
    label: str | None = None
    description: str | None = None
    input_schema: Any = None
    WIRE: ClassVar = "type label description input_schema availability"


class ActionCatalog(Record, frozen=True, omit_defaults=True):
    """The offered actions and the hash of the list (INT-3.4c, INV-AC2).

    Args:
        schema_hash: the schema that declares them.
        catalog_hash: over types, statuses and the applied pruning; the same in every mode.
        actions: the actions that the pruning kept, in order.
    """

    schema_hash: str
    catalog_hash: str
    actions: tuple[ProjectedAction, ...]
    kind: ClassVar[Literal["action_catalog"]] = "action_catalog"
    WIRE: ClassVar = "kind schema_hash catalog_hash actions"


class ActionCatalogProjector(Protocol):
    """Deterministic function from a request to a catalog (INT-7.4.1)."""

    def project_action_catalog(self, req: CatalogRequest, /) -> ActionCatalog:
        """Return the catalog."""
        ...


class CatalogProjector:
    """The projector of this engine.

    Args:
        time_limit: for each call of a local predicate; None is no limit.
    """

    def __init__(self, time_limit: TimeLimit | None = None) -> None:
        """Create a projector with or without a time limit."""
        self._time_limit = time_limit or TimeLimit()

    def project_action_catalog(self, req: CatalogRequest) -> ActionCatalog:
        """Return the catalog of a request; a failing predicate never fails the catalog."""
        return catalog_of(req, self.judge(req))

    def judge(self, req: CatalogRequest) -> list[Judged]:
        """Return all actions of a request, in its order, each with its availability."""
        decider = Decider(req.snapshot, req.actor, self._time_limit)
        judged: list[Judged] = [(action, *decider.decide(action)) for action in req.actions]
        return judged if req.mode != "debug" else [with_reason(one, decider) for one in judged]


def static_catalog(req: CatalogRequest) -> ActionCatalog:
    """Return all actions of a schema as available, without a projector (INT-15.5)."""
    return catalog_of(req, [(action, AVAILABLE, "") for action in req.actions])


def pruned(judged: Iterable[Judged], pruning: Pruning) -> list[Judged]:
    """Return the actions of a catalog: filter first, then sort, then apply the limit."""
    kept = [one for one in judged if pruning.keeps(one[1].status)]
    if pruning.sort == "type_lex":
        kept.sort(key=_by_type)
    return kept[: pruning.max_actions]


def _by_type(judged: Judged) -> Any:
    return judged[0].sort_key


def catalog_of(req: CatalogRequest, judged: Iterable[Judged]) -> ActionCatalog:
    """Return the catalog of actions that are already judged."""
    kept = pruned(judged, req.pruning)
    entries = [
        {"type": action.type, "status": availability.status, "reason": availability.reason}
        for action, availability, _ in kept
    ]
    named = catalog_hash(req.schema_hash, entries, req.pruning.model_dump(by_alias=True))
    show = _shower(SHOWN[req.mode])
    return ActionCatalog(req.schema_hash, named, tuple(show(*one) for one in kept))


def _shower(fields: frozenset[str]) -> Callable[[ActionDescriptor, Availability, str], ProjectedAction]:
    described, why_shown = "description" in fields, "why" in fields

    def show(action: ActionDescriptor, availability: Availability, why: str) -> ProjectedAction:
        if why_shown and why and availability.status == "unavailable":
            availability = Availability("unavailable", why)
        description = action.description if described else None
        return ProjectedAction(action.type, availability, action.label, description, action.input_schema)

    return show
