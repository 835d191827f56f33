"""Snapshots: the complete, frozen state at one moment.

The parts data, computed, system, input and meta are those of HC-snapshot. A snapshot contains all progress of an
execution and no private state of a host (design section 4). Readers get a ``SnapshotView``: data and computed
(INT-3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Literal, cast

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.identity import state_hash
from world.model.immutable_json import FrozenDict, freeze
from world.model.member_types import JsonObject
from world.model.patch import EMPTY, Patch
from world.model.record import Record, Shown, WireForm, freeze_member
from world.model.short_repr import short_repr

__all__ = [
    "EffectAnswer",
    "ErrorSource",
    "ErrorValue",
    "Meta",
    "Requirement",
    "Snapshot",
    "SnapshotView",
    "Status",
    "System",
    "error_state_hash",
]

Status = Literal["idle", "computing", "pending", "error"]


class ErrorSource(Record, frozen=True, forbid_unknown_fields=False):
    """Position of a failure in a computation.

    Args:
        action_id: the action that was computed; ``""`` outside of an action.
        node_path: position in the action's flow, or the patch's path.
    """

    action_id: str
    node_path: str


class ErrorValue(Record, frozen=True, forbid_unknown_fields=False):
    """Failure as a value in the state, where errors are never exceptions.

    Args:
        code: stable identifier, such as the code of a ``fail`` node.
        message: for people; not part of any hash.
        source: position in the computation.
        timestamp: ms since 1970-01-01 UTC, from the computation's context.
        context: facts that are the same in every run, or None.
    """

    code: str
    message: str
    source: ErrorSource
    timestamp: int
    context: JsonObject | None = None

    def __post_init__(self) -> None:
        if self.context is not None:
            freeze_member(self, "context")

    @classmethod
    def at(
        cls,
        code: str,
        message: str,
        action_id: str,
        node_path: str,
        timestamp: int,
        context: Mapping[str, Any] | None = None,
    ) -> ErrorValue:
        """Return the error of a position; the arguments are the members of ``ErrorValue`` and ``ErrorSource``."""
        return cls(code, message, ErrorSource(action_id, node_path), timestamp, cast("dict[str, Any] | None", context))

    @property
    def action_id(self) -> str:
        """The action that was computed."""
        return self.source.action_id

    @property
    def node_path(self) -> str:
        """Position in the action's flow, or the patch's path."""
        return self.source.node_path

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ErrorValue:
        """Read an error; raises ``RefusedError`` ``INVALID_SNAPSHOT`` where a member is missing."""
        try:
            source = wire["source"]
            at = (wire["code"], wire["message"], source["actionId"], source["nodePath"], wire["timestamp"])
        except (KeyError, TypeError) as missing:
            raise RefusedError(ErrorCode.INVALID_SNAPSHOT, f"An error value lacks {missing}.") from None
        return cls.at(*at, wire.get("context"))


class Requirement(Record, frozen=True, forbid_unknown_fields=False):
    """Effect that a suspended computation requires.

    Args:
        id: derived from schema, intent, action, node path and effect (IC-reqid); the effect's idempotency
            key.
        type: the effect's name.
        params: its arguments, frozen JSON.
        action_id: the action that requires it.
        node_path: position in the action's flow.
    """

    id: str
    type: str
    params: JsonObject
    action_id: str
    node_path: str

    def __post_init__(self) -> None:
        freeze_member(self, "params")

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Requirement:
        """Read a requirement, with ``nodePath`` or ``flowPosition``.

        Raises:
            RefusedError: ``INVALID_SNAPSHOT`` where a member is missing.
        """
        try:
            at = wire["nodePath"] if "nodePath" in wire else wire["flowPosition"]["nodePath"]
            return cls(wire["id"], wire["type"], freeze(wire["params"]), wire["actionId"], at)
        except (KeyError, TypeError) as missing:
            raise RefusedError(ErrorCode.INVALID_SNAPSHOT, f"A requirement lacks {missing}.") from None


class EffectAnswer(Record, frozen=True):
    """Result of an effect in the journal (HC-handlers, HC-journal).

    Args:
        value: sent into a Python action; JSON.
        patches: applied where a declarative flow made the effect.
        error: the error value of a failed effect; then the other members do not count.
    """

    value: Any = None
    patches: tuple[Patch, ...] = ()
    error: ErrorValue | None = None
    SHOWN: ClassVar = {"value": Shown(), "error": Shown()}

    def __post_init__(self) -> None:
        freeze_member(self, "value")


def error_state_hash(data: Mapping[str, Any], error: ErrorValue | None) -> str:
    """Return the snapshotHash of data, and of the error of a failed execution (``world.model.identity``)."""
    wire = None if error is None else error.to_wire()
    return state_hash(data, errors=() if wire is None else (wire,), last_error=wire)


class System(Record, frozen=True):
    """State of the execution; ``errors`` are those of the execution that produced the snapshot."""

    status: Status = "idle"
    last_error: ErrorValue | None = None
    errors: tuple[ErrorValue, ...] = ()
    pending_requirements: tuple[Requirement, ...] = ()
    current_action: str | None = None
    SHOWN: ClassVar = {"last_error": Shown(), "current_action": Shown()}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> System:
        """Read the system part; raises ``RefusedError`` ``INVALID_SNAPSHOT``."""
        status, last_error = wire.get("status", "idle"), wire.get("lastError")
        if status not in ("idle", "computing", "pending", "error"):
            raise RefusedError(
                ErrorCode.INVALID_SNAPSHOT,
                f"The snapshot has the status {status!r}; use idle, computing, pending or error.",
            )
        return cls(
            cast(Status, status),
            None if last_error is None else ErrorValue.from_wire(last_error),
            tuple(ErrorValue.from_wire(error) for error in wire.get("errors") or ()),
            tuple(Requirement.from_wire(item) for item in wire.get("pendingRequirements") or ()),
            wire.get("currentAction"),
        )


IDLE = System()


class Meta(Record, frozen=True):
    """Metadata of a snapshot.

    Args:
        version: increases by one with every computation or application of patches.
        timestamp: ms since 1970-01-01 UTC, from the context that produced the snapshot.
        random_seed: random seed of that context.
        schema_hash: hash of the schema that the data conforms to.
    """

    version: int
    timestamp: int
    random_seed: str
    schema_hash: str


@dataclass(frozen=True, slots=True)
class SnapshotView(WireForm):
    """Read-only view for projections and rules: data and computed values (INT-3.3)."""

    data: FrozenDict
    computed: FrozenDict
    WIRE: ClassVar = "data computed"


class Snapshot(Record, frozen=True):
    """State of one world (HC-snapshot).

    Args:
        data: the domain's data, a frozen tree.
        computed: computed values by their full names (``computed.openCount``).
        system: status, errors, pending requirements.
        input: input of the intent that produced it, or None.
        meta: version, time, seed, schema.
    """

    data: FrozenDict
    computed: FrozenDict
    system: System
    input: Any
    meta: Meta
    SHOWN: ClassVar = {"input": Shown()}

    def __repr__(self) -> str:
        state = ", ".join(f"{name}={value!r:.40}" for name, value in islice(self.data.items(), 8))
        return short_repr(self, f"version {self.meta.version}", self.system.status, state)

    @property
    def view(self) -> SnapshotView:
        """The view for projections and rules."""
        return SnapshotView(self.data, self.computed)

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot.

        Raises:
            RefusedError: ``INVALID_SNAPSHOT`` where a member is missing or has the wrong type; ``NOT_CANONICAL``
                for values that are not canonical JSON.
        """
        meta = wire.get("meta")
        if not isinstance(wire.get("data"), Mapping) or not isinstance(meta, Mapping):
            raise RefusedError(ErrorCode.INVALID_SNAPSHOT, "A snapshot needs data and meta, both objects.")
        try:
            frozen_meta = Meta(
                int(meta["version"]), int(meta["timestamp"]), str(meta["randomSeed"]), str(meta["schemaHash"])
            )
        except (KeyError, TypeError, ValueError) as missing:
            raise RefusedError(ErrorCode.INVALID_SNAPSHOT, f"A snapshot's meta lacks {missing}.") from None
        return cls(
            freeze(wire["data"]),
            freeze(wire.get("computed") or EMPTY),
            System.from_wire(wire.get("system") or {}),
            freeze(wire.get("input")),
            frozen_meta,
        )
