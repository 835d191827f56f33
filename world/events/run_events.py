"""Events of governed runs: observed executions of agents' code and commands (KLIS-6 section 4; KO-4).

They are read and written by ``world.events.codec`` like all others.
"""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event
from world.events.resource_values import (
    ChangedResource,
    ObservedEffect,
    ResourceClaim,
    ResourceExistence,
    UndeclaredEffect,
)

__all__ = ["RunAmended", "RunClosed", "RunCompared", "RunObserved", "RunOpened", "RunRolledBack", "RunViolated"]


class RunOpened(Event, frozen=True, kw_only=True):
    """A governed run of an agent's code or command started under its leases and its declaration (KO-4).

    ``kind`` is ``python`` or ``command``; ``held_by`` lists the mechanisms that enforce the declaration. ``existence``
    records that the files it depends on existed before it started (``world.pipeline.leasing.existence``).
    """

    TOPIC: ClassVar[str] = "run.opened"
    run_id: str
    agent_id: str
    session_id: str
    kind: str
    mode: str
    declared: list[ResourceClaim]
    verdict_id: str
    lease_ids: list[str]
    worker: str
    held_by: list[str] = []
    command: list[str] = []
    existence: list[ResourceExistence] | None = None


class RunObserved(Event, frozen=True, kw_only=True):
    """Allowed side effects were observed; each is listed once, with its count so far (KO-2.1).

    ``run_id`` is the proposal's id where the effects of a proposal were observed.
    """

    TOPIC: ClassVar[str] = "run.observed"
    run_id: str
    observed: list[ObservedEffect]


class RunViolated(Event, frozen=True, kw_only=True):
    """An undeclared side effect was observed; ``violation.blocked`` is True if it was prevented (KO-3)."""

    TOPIC: ClassVar[str] = "run.violated"
    run_id: str
    violation: UndeclaredEffect


class RunAmended(Event, frozen=True, kw_only=True):
    """A lease acquired during the run extended its scope, in permissive mode (KO-3.2b)."""

    TOPIC: ClassVar[str] = "run.amended"
    run_id: str
    predicate: str
    resource: str
    verdict_id: str
    lease_ids: list[str]


class RunRolledBack(Event, frozen=True, kw_only=True):
    """Resources that a run had leased for change were restored (KO-3.3); ``failed`` lists the exceptions."""

    TOPIC: ClassVar[str] = "run.rolled_back"
    run_id: str
    verdict_id: str
    restored: list[str] = []
    removed: list[str] = []
    failed: list[str] = []


class RunCompared(Event, frozen=True, kw_only=True):
    """Contents were compared: ``changes`` were made by the run, ``foreign`` ones by other processes."""

    TOPIC: ClassVar[str] = "run.compared"
    run_id: str
    changes: list[ChangedResource] = []
    foreign: list[ChangedResource] = []


class RunClosed(Event, frozen=True, kw_only=True):
    """A governed run ended as ``completed``, ``failed``, ``violated``, ``lost`` (its leases) or ``interrupted``.

    ``unused`` lists declared triples that were not used, which is allowed (KO-4); ``more_unused`` is the number of
    further ones that are not listed.
    """

    TOPIC: ClassVar[str] = "run.closed"
    run_id: str
    outcome: str
    unused: list[ResourceClaim] = []
    more_unused: int = 0
    exit_code: int | None = None
    reason: str | None = None
