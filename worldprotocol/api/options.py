"""Keyword arguments of the public API as typed dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypedDict

from host.secrets import Secrets
from projections import Pruning
from projections.catalog import Mode
from world.clock import Clock, IdSource
from world.events.verification import IntentSignature
from world.limits import Limits
from world.log.backends.registry import Durability
from world.state.ports import Enforcement, WorkerRegistry
from worldprotocol.api.config import SecretsConfig, WorkspaceConfig

__all__ = [
    "CatalogOptions",
    "ComponentOptions",
    "EngineOptions",
    "FoundingOptions",
    "SubmitOptions",
]


class ComponentOptions(TypedDict, total=False):
    """Components beside the domain, independent of a log.

    Args:
        folder: start of relative references; None is the current folder.
        projections: projections, or references to them.
        policies: policies, or references to them.
        effects: effect handlers, or references to them.
        execute: whether this process performs effects. False offers them to workers (``worldprotocol.Worker``), and
            leaves those whose handlers it does not have to other processes. None (the default) is True where
            ``effects``, ``secrets`` or a ``workspace`` is given.
        enforcement: whether patches outside of approvedScope are refused.
        paranoid: call every projection twice under guard, on copies.
        unsafe_unguarded_projections: call projections without any guard.
        limits: limits of the pipeline.
        ids: source of fresh ids.
        workspace: the folder that agents see as ``FILE:/``, or its configuration; None: no workspace.
        secrets: values of references to secrets in effects, or their configuration; None: no secret is defined.
        clock: source of time; None is the system's clock.
    """

    folder: Path | None
    projections: Iterable[Any]
    policies: Iterable[Any]
    effects: Iterable[Any]
    execute: bool | None
    enforcement: Enforcement
    paranoid: bool
    unsafe_unguarded_projections: bool
    limits: Limits | None
    ids: IdSource | None
    workspace: WorkspaceConfig | str | Path | None
    secrets: SecretsConfig | Secrets | None
    clock: Clock | None


class EngineOptions(ComponentOptions, total=False):
    """Options for opening a realm for acting.

    Args:
        on_change: what opening does where the program differs from what is in force: ``adopt`` adopts the domain and
            the given policies in one commit, with migrations; ``refuse`` raises ``PROGRAM_DIFFERS``; ``hold`` opens the
            realm, and proposals that need what differs wait. None (the default) refuses another schema, and otherwise
            holds and logs a warning (logger ``worldprotocol``).
        durability: ``full`` (a commit survives the loss of power) or ``normal`` (the last commits may not).
        workers: registry that names this process in the record; None names it by its host, process id and start.
        progress: called while the index is built, with the number of events done and of all events.
        patience: time for which opening is repeated while the database is starting or away, another process keeps the
            lock, or the storage is full, in seconds; 0 (the default) repeats nothing. The begin and the end of the wait
            are logged (logger ``worldprotocol``).
    """

    durability: Durability
    on_change: Literal["adopt", "refuse", "hold"] | None
    workers: WorkerRegistry | None
    progress: Callable[[int, int], None] | None
    patience: float


class FoundingOptions(EngineOptions, total=False):
    """Options for founding or opening a realm.

    Args:
        data: initial data where it differs from the defaults of the domain.
        by: founder named in the record.
        development: whether ``worldctl dev`` may adopt changes in the realm.
    """

    data: Mapping[str, Any] | None
    by: str
    development: bool


class SubmitOptions(TypedDict, total=False):
    """Options for submitting an intent; see ``world.pipeline.submit.Submission``.

    Args:
        branch: the branch to move; None is the active one, or a new one where ``base_world`` is given.
        base_world: the world to start from. With ``branch`` it must be that branch's head; without, a new branch
            is made at it (a fork).
        fork_name: name of the branch that a fork makes; None makes one up.
        trace: JSON that is recorded with the proposal.
        execution_key: proposals with equal keys execute one after the other; None is a key of its own.
        signature: signature of the intent by a registered key of its actor, as ``worldprotocol.api.callers.signing``
            makes it, or its wire form.
        allow_failed_base: permit a base world with a failed execution.
        wait: wait until the proposal has ended: True without limit, a number for so many seconds at most. When they are
            over, the proposal is returned as it is; it continues.
    """

    branch: str | None
    base_world: str | None
    fork_name: str | None
    trace: Mapping[str, Any] | None
    execution_key: str | None
    allow_failed_base: bool
    signature: IntentSignature | Mapping[str, Any] | None
    wait: float | bool | None


class CatalogOptions(TypedDict, total=False):
    """Options of a catalog of actions.

    Args:
        mode: kind of reader it is shown to.
        pruning: what is left out, as ``Pruning`` or in wire form.
        branch: branch whose head is used; None is the active one. The actions are those of the schema in force.
        at: a past world to use in place of a head, with the actions of its own schema.
        upto: with ``at``: position of an event; the actor is taken as registered, and the actions as in force, after
            it.
    """

    mode: Mode
    pruning: Pruning | Mapping[str, Any] | None
    branch: str | None
    at: str | None
    upto: int | None
