"""Snapshots: everything that is known at one moment, frozen.

data, computed, system, input and meta as HC-snapshot names them. All progress is in the snapshot; a host
keeps nothing of its own in it (design section 4). What readers outside get is a ``SnapshotView``: data and
computed (INT-3.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from world.errors import RefusedError
from world.model.immutable_json import FrozenDict, freeze
from world.model.patch import EMPTY

__all__ = ["ErrorValue", "Meta", "Requirement", "Snapshot", "SnapshotView", "Status", "System"]

Status = Literal["idle", "computing", "pending", "error"]


@dataclass(frozen=True, slots=True)
class ErrorValue:
    """A failure as a value in the state (errors are never exceptions there).

    Args:
        code: stable identifier; a ``fail`` node's code is this.
        message: for people; no part of any hash.
        action_id: the action that was computed; ``""`` outside of one.
        node_path: where in the action's flow, or the patch's path.
        timestamp: ms since 1970-01-01 UTC, from the computation's context.
        context: facts that are the same in every run, or None.
    """

    code: str
    message: str
    action_id: str
    node_path: str
    timestamp: int
    context: Mapping[str, Any] | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the error as JSON."""
        wire = {
            "code": self.code,
            "message": self.message,
            "source": {"actionId": self.action_id, "nodePath": self.node_path},
            "timestamp": self.timestamp,
        }
        return wire if self.context is None else {**wire, "context": self.context}

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> ErrorValue:
        """Read an error; raises ``RefusedError`` ``INVALID_SNAPSHOT`` where a part is missing."""
        try:
            source = wire["source"]
            at = (wire["code"], wire["message"], source["actionId"], source["nodePath"], wire["timestamp"])
        except (KeyError, TypeError) as missing:
            raise RefusedError("INVALID_SNAPSHOT", f"An error value lacks {missing}.") from None
        return cls(*at, freeze(wire.get("context")))


@dataclass(frozen=True, slots=True)
class Requirement:
    """An effect that a computation waits for.

    Args:
        id: derived from schema, intent, action, node path and effect (IC-reqid); the effect's idempotency
            key.
        type: the effect's name.
        params: its arguments, frozen JSON.
        action_id: the action that asks.
        node_path: where in the action.
    """

    id: str
    type: str
    params: Mapping[str, Any]
    action_id: str
    node_path: str

    def to_wire(self) -> dict[str, Any]:
        """Return the requirement as JSON."""
        return {
            "id": self.id,
            "type": self.type,
            "params": self.params,
            "actionId": self.action_id,
            "nodePath": self.node_path,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Requirement:
        """Read a requirement, also one that names its place as ``flowPosition``; ``INVALID_SNAPSHOT``
        otherwise.
        """
        try:
            at = wire["nodePath"] if "nodePath" in wire else wire["flowPosition"]["nodePath"]
            return cls(wire["id"], wire["type"], freeze(wire["params"]), wire["actionId"], at)
        except (KeyError, TypeError) as missing:
            raise RefusedError("INVALID_SNAPSHOT", f"A requirement lacks {missing}.") from None


@dataclass(frozen=True, slots=True)
class System:
    """Where the execution stands; errors are those of the execution that made the snapshot."""

    status: Status = "idle"
    last_error: ErrorValue | None = None
    errors: tuple[ErrorValue, ...] = ()
    pending_requirements: tuple[Requirement, ...] = ()
    current_action: str | None = None

    def to_wire(self) -> dict[str, Any]:
        """Return the system part as JSON."""
        return {
            "status": self.status,
            "lastError": None if self.last_error is None else self.last_error.to_wire(),
            "errors": [error.to_wire() for error in self.errors],
            "pendingRequirements": [requirement.to_wire() for requirement in self.pending_requirements],
            "currentAction": self.current_action,
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> System:
        """Read the system part; raises ``RefusedError`` ``INVALID_SNAPSHOT``."""
        status, last_error = wire.get("status", "idle"), wire.get("lastError")
        if status not in ("idle", "computing", "pending", "error"):
            raise RefusedError(
                "INVALID_SNAPSHOT",
                f"A snapshot's status is none of idle, computing, pending, error: {status!r}.",
            )
        return cls(
            cast(Status, status),
            None if last_error is None else ErrorValue.from_wire(last_error),
            tuple(ErrorValue.from_wire(error) for error in wire.get("errors") or ()),
            tuple(Requirement.from_wire(item) for item in wire.get("pendingRequirements") or ()),
            wire.get("currentAction"),
        )


IDLE = System()


@dataclass(frozen=True, slots=True)
class Meta:
    """What is known about the snapshot itself.

    Args:
        version: grows by one with every computation or application of patches.
        timestamp: ms since 1970-01-01 UTC, of the context that made the snapshot.
        random_seed: of that context.
        schema_hash: the schema the data obeys.
    """

    version: int
    timestamp: int
    random_seed: str
    schema_hash: str

    def to_wire(self) -> dict[str, Any]:
        """Return the meta part as JSON."""
        return {
            "version": self.version,
            "timestamp": self.timestamp,
            "randomSeed": self.random_seed,
            "schemaHash": self.schema_hash,
        }


@dataclass(frozen=True, slots=True)
class SnapshotView:
    """What projections and rules may see: data and computed values, read-only (INT-3.3)."""

    data: FrozenDict
    computed: FrozenDict

    def to_wire(self) -> dict[str, Any]:
        """Return the view as JSON."""
        return {"data": self.data, "computed": self.computed}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One state of one world (HC-snapshot).

    Args:
        data: the domain's data, a frozen tree.
        computed: computed values by their full names (``computed.openCount``).
        system: status, errors, pending requirements.
        input: the input of the intent that made it, or None.
        meta: version, time, seed, schema.
    """

    data: FrozenDict
    computed: FrozenDict
    system: System
    input: Any
    meta: Meta

    @property
    def view(self) -> SnapshotView:
        """What readers outside may see."""
        return SnapshotView(self.data, self.computed)

    def to_wire(self) -> dict[str, Any]:
        """Return the snapshot as JSON; data and computed are the frozen trees themselves."""
        return {
            "data": self.data,
            "computed": self.computed,
            "system": self.system.to_wire(),
            "input": self.input,
            "meta": self.meta.to_wire(),
        }

    @classmethod
    def from_wire(cls, wire: Mapping[str, Any]) -> Snapshot:
        """Read a snapshot.

        Raises:
            RefusedError: ``INVALID_SNAPSHOT`` where a part is missing or has the wrong shape; ``NOT_CANONICAL``
                for values that are no JSON.
        """
        meta = wire.get("meta")
        if not isinstance(wire.get("data"), Mapping) or not isinstance(meta, Mapping):
            raise RefusedError("INVALID_SNAPSHOT", "A snapshot needs data and meta, both objects.")
        try:
            told = Meta(int(meta["version"]), int(meta["timestamp"]), str(meta["randomSeed"]), str(meta["schemaHash"]))
        except (KeyError, TypeError, ValueError) as missing:
            raise RefusedError("INVALID_SNAPSHOT", f"A snapshot's meta lacks {missing}.") from None
        return cls(
            freeze(wire["data"]),
            freeze(wire.get("computed") or EMPTY),
            System.from_wire(wire.get("system") or {}),
            freeze(wire.get("input")),
            told,
        )
