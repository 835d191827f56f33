"""Interfaces of the Authority and of the Host as the world uses them (WP-boundary).

The world defines these interfaces, is given implementations by the composition root, and imports neither room.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Protocol, TypedDict, Unpack

import msgspec

from world.events.resource_values import ObservedEffect, SecretDigest, UndeclaredEffect
from world.klis.resources.names import BYTE_WISE, NameComparison
from world.klis.resources.resource import Resource
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.triple import Triple
from world.model.actor import ActorRef
from world.model.decision import HumanAnswer, Ruling
from world.model.intent import IntentInstance, IntentScope
from world.model.patch import Patch
from world.model.scope_patterns import SCOPE_RULES
from world.model.short_repr import fields_repr
from world.model.snapshot import EffectAnswer, ErrorValue, Requirement, Snapshot, SnapshotView

Enforcement = Literal["enforcing", "trusting"]

CLAIM_MS: Final = 60_000
"""How long a claim holds without a heartbeat, at most, unless the effect is declared external with another time."""


class Conditions(TypedDict, total=False):
    """What earlier proposals must match to be counted; None is as good as left out.

    Args:
        actor_id: the proposing actor.
        action: the intent's type.
        intent_key: the intent's meaning; for earlier attempts.
        decision: how it was decided before this point.
        outcome: how its execution ended before this point.
        since_ms: only proposals submitted at or after this time, ms since 1970.
    """

    actor_id: str | None
    action: str | None
    intent_key: str | None
    decision: Literal["approved", "rejected"] | None
    outcome: Literal["completed", "failed"] | None
    since_ms: int | None


class LookupConditions(Conditions, total=False):
    """Conditions of the look-ups behind a history.

    Args:
        other_than: id of a proposal that is left out.
    """

    other_than: str


class Earlier(NamedTuple):
    """An earlier proposal, and the position at which it was submitted."""

    proposal_id: str
    position: int


class History(Protocol):
    """Questions into the log before the point at which a case was judged."""

    def count(self, **conditions: Unpack[Conditions]) -> int:
        """Return how many earlier proposals match every given condition.

        Args:
            conditions: see ``Conditions``.

        Raises:
            RefusedError: ``INVALID_VALUE`` for a condition that nothing could ever match, such as an unknown decision.
        """
        ...

    def sum(self, path: str, **conditions: Unpack[Conditions]) -> int | float:
        """Return the sum of a number in the inputs of the earlier proposals that ``count`` counts.

        Args:
            path: path of the number in an input, such as ``amount`` or ``lines.0.price`` (``world.model.paths``).
                An input without a value there, or with null, is left out. Whole numbers add up exactly; with others
                among them the sum is the nearest double, in any order.
            conditions: as for ``count``.

        Raises:
            RefusedError: ``NOT_A_NUMBER`` with the proposal whose input has something else there; ``SUM_TOO_LARGE``
                beyond the doubles; ``HISTORY_TOO_LONG`` for more than ``world.pipeline.history_sums.MAX_SUMMED``
                proposals; ``INVALID_PATH`` for a path that is no text; ``INVALID_VALUE`` as for ``count``.
        """
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """All that an Authority sees of a proposal; rulings are pure functions of it.

    Args:
        proposal_id: the proposal.
        intent: what is wanted.
        actor: the proposing actor.
        binding: the actor's binding in wire form (``{"kind": ...}``).
        action: the action's portable spec, None where the domain has no such action.
        base_world: where it is wanted; ``view`` is that world's read-only snapshot view.
        schema_hash: the schema in force.
        branch: the branch it would move.
        submitted_at: ms since 1970.
        earlier_attempts: how many proposals carried the same intentKey before.
        history: further questions into the log before this point.
        manifest: the intent manifest, where the action declares one.
        scope_rules: version of the scope rules that the proposal was submitted under (``world.model.scope_patterns``).
    """

    proposal_id: str
    intent: IntentInstance
    actor: ActorRef
    binding: Mapping[str, Any]
    action: Mapping[str, Any] | None
    base_world: str
    view: SnapshotView
    schema_hash: str
    branch: str
    submitted_at: int
    earlier_attempts: int
    history: History
    manifest: Mapping[str, Any] | None = None
    scope_rules: int = SCOPE_RULES

    __repr__ = fields_repr


class Authority(Protocol):
    """Judges proposals; never executes effects, never raises for what a case contains (WP-bind).

    It is called from several threads at a time, usually before the log's lock is taken; a ruling may be discarded and
    made again (``world.pipeline.preparation``).
    """

    def judge(self, case: Case) -> Ruling:
        """Return the ruling on a new proposal."""
        ...

    def answer(self, case: Case, asked: Ruling, answer: HumanAnswer) -> Ruling:
        """Return the ruling after a person answered a waiting one; ``ask`` keeps it waiting.

        Raises:
            RefusedError: when this person may not answer, or the answer does not fit.
        """
        ...

    def expire(self, case: Case, asked: Ruling) -> Ruling:
        """Return the ruling when the time limit has passed without an answer."""
        ...

    def check_binding(self, binding: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the binding in its full form, defaults filled in.

        Raises:
            RefusedError: for an unknown kind, unknown fields, or a policy that does not exist.
        """
        ...

    def check_policy(self, name: str, actions: Collection[str]) -> None:
        """Check a loaded policy before it is adopted.

        Args:
            name: the policy.
            actions: the actions of the domain.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``; ``RULE_IMPURE`` for a rule whose code names a clock, chance, network or
                files; ``INVALID_POLICY`` for a rule that names an action that the domain does not have.
        """
        ...

    def describe_policy(self, name: str, like: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Return ``{"name", "hash", "rules": [{"rule", "source", "identity", ...}]}`` of a loaded policy.

        Args:
            name: the policy.
            like: a recorded description to compare with; where an earlier release recorded it, the hash is that of
                its form.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``.
        """
        ...


class ExecutionOrder(msgspec.Struct, frozen=True):
    """An approved proposal's execution, as far as it has come.

    Args:
        proposal_id: the approved proposal.
        intent: the same instance through the whole execution (INT-14.3).
        snapshot: the state it starts from.
        approved_scope: where it may write; None is no restriction.
        now: the time frozen for this execution, ms since 1970.
        seed: the random seed frozen for this execution, from the intentId.
        journal: results of the effects made so far, by requirement id.
        actor: the acting actor, as registered when the intent was submitted; None is the one that the intent names.
        scope_rules: version of the scope rules that the proposal was submitted under (``world.model.scope_patterns``).
    """

    proposal_id: str
    intent: IntentInstance
    snapshot: Snapshot
    approved_scope: IntentScope | None
    now: int
    seed: str
    journal: Mapping[str, EffectAnswer] = msgspec.field(default_factory=dict)
    actor: ActorRef | None = None
    scope_rules: int = SCOPE_RULES


class StepOutcome(msgspec.Struct, frozen=True):
    """Result of a step of an execution.

    Args:
        status: completed, failed, or pending on ``requirements``.
        patches: what changed the data, in order; empty unless completed.
        snapshot: the resulting state; for failed its data is the start's.
        error: for failed: why.
        requirements: for pending: the effects to make next.
    """

    status: Literal["completed", "failed", "pending"]
    patches: tuple[Patch, ...]
    snapshot: Snapshot
    error: ErrorValue | None = None
    requirements: tuple[Requirement, ...] = ()


@dataclass(frozen=True, slots=True)
class EffectTerms:
    """What an effect's handler promises.

    Args:
        time_limit_ms: after which it is given up, in milliseconds.
        idempotent: whether running it again with the same idempotency key does no harm.
        retries: how often it is made again after a failure, where it is idempotent.
        backoff_ms: how long to wait before the first retry, in milliseconds; doubled with each.
        external: whether it is offered to workers, in place of a call in this process.
        needs_workspace: whether a worker must have the workspace of the realm to perform it.
        by_actor: whether only the acting actor performs it, and no other worker.
        known: whether these terms are certain: this process has a handler, or performs the effect regardless.
        looks_up: whether this process can find out what became of an effect in doubt (``Executor.look_up``).
    """

    time_limit_ms: int
    idempotent: bool
    retries: int = 0
    backoff_ms: int = 1_000
    external: bool = False
    needs_workspace: bool = False
    by_actor: bool = False
    known: bool = True
    looks_up: bool = False

    def offered(self) -> EffectTerms:
        """Return the terms on which an effect is offered that this process has a handler for.

        A claim then holds for ``CLAIM_MS`` at most without a heartbeat, however long the handler may take.
        """
        return replace(self, external=True, time_limit_ms=min(self.time_limit_ms, CLAIM_MS))


@dataclass(frozen=True, slots=True)
class EffectAttempt:
    """Facts about one attempt of an effect, besides the order.

    Args:
        declared: what the proposal's manifest declares, empty where it declares nothing: all that the effect may
            touch (KM-2.2). None where no declaration is required: the log has no KLIS settings.
        declaration_required: whether an effect may touch only what is declared also where there is no workspace; False
            in a log whose settings record the rules of manifests of version 1.
        attempt: which making of this effect it is, from 1.
        requested_at: when the effect was first requested, ms since 1970.
        fencing_token: of the proposal's leases, larger than that of every earlier grant; 0 without leases.
        why_over: called from time to time: why the effect is not needed any more, as code and sentence; None while it
            is wanted. An effect that is about to touch something asks again (fencing).
        types: the resource types in force.
        names: which differences of paths are ignored, by the settings in force.
    """

    declared: tuple[Triple, ...] | None = None
    attempt: int = 1
    requested_at: int = 0
    fencing_token: int = 0
    why_over: Callable[[], tuple[str, str] | None] = field(default=lambda: None, compare=False)
    types: ResourceTypes = field(default=STANDARD, compare=False)
    names: NameComparison = BYTE_WISE
    declaration_required: bool = True


@dataclass(frozen=True, slots=True)
class Performed:
    """Result of an effect.

    Args:
        result: its result or error value.
        retryable: whether making it again may help.
        observed: the permitted side effects that were observed.
        violations: the undeclared ones.
        secrets: name and keyed digest of each secret whose value the handler was given.
    """

    result: EffectAnswer
    retryable: bool = False
    observed: tuple[ObservedEffect, ...] = ()
    violations: tuple[UndeclaredEffect, ...] = ()
    secrets: tuple[SecretDigest, ...] = ()


class BackupService(Protocol):
    """Keeps backups of what the holders of leases may change; the Host implements it (KO-7)."""

    @property
    def workspace_id(self) -> str | None:
        """Id of the workspace that holds the backups; None where it has none."""
        ...

    def needs(self, triples: Sequence[Triple]) -> bool:
        """Return whether there is anything to back up for these claims."""
        ...

    def prepare(self, triples: Sequence[Triple]) -> None:
        """Copy ahead, outside of the log's lock, so that ``take`` is quick; refuses as ``take`` does."""
        ...

    def take(self, backup_id: str, triples: Sequence[Triple], *, at: int, note: Mapping[str, Any]) -> bool:
        """Back up, durably, and return whether there was anything to back up.

        Raises:
            RefusedError: ``BACKUP_FAILED`` and the like; then the leases may not be granted.
        """
        ...

    def exists(self, resource: Resource, *, session_id: str, before: Literal["grant", "execution"]) -> bool | None:
        """Return whether a FILE resource exists in the workspace; None where that is not known.

        Args:
            resource: in canonical form; of a subtree its root counts.
            session_id: the session or the proposal that depends on it.
            before: what the check comes before.
        """
        ...

    def ignored(self) -> NameComparison:
        """Return which differences of names the file system of the workspace ignores; none where it cannot be asked."""
        ...

    def follow(self, names: NameComparison) -> None:
        """Compare names of files as the settings in force say, from now on."""
        ...

    def restore(self, backup_id: str, *, fresh: bool = False) -> Mapping[str, Any]:
        """Give back what was backed up; returns ``{"restored", "removed", "failed"}``, lists of resources.

        Args:
            backup_id: the verdict's id.
            fresh: put also what is unchanged on new inodes, because a process may still hold it open.

        Raises:
            RefusedError: ``NO_SUCH_BACKUP``, ``BACKUP_DAMAGED``.
        """
        ...


class Executor(Protocol):
    """Executes approved proposals; the Host implements it.

    ``step`` is called from several threads at a time, usually before the log's lock is taken; its outcome may be
    discarded and computed again (``world.pipeline.preparation``).
    """

    @property
    def enforcement(self) -> Enforcement:
        """Whether patches outside approvedScope are refused (INT-13.5)."""
        ...

    def step(self, order: ExecutionOrder) -> StepOutcome:
        """Compute as far as the journal goes; pure, never raises for what the order contains."""
        ...

    @property
    def keeper(self) -> BackupService | None:
        """Service that keeps backups of the workspace; None where there is no workspace."""
        ...

    def terms(self, effect_type: str, params: Mapping[str, Any] | None = None) -> EffectTerms:
        """Return what is promised for an effect; unknown types get the defaults and fail when performed."""
        ...

    def literal_secrets(self, effect_type: str, params: Mapping[str, Any]) -> Sequence[str]:
        """Return the paths of secret fields whose value is a literal; an effect with one is not requested."""
        ...

    def perform(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed:
        """Make one effect and return its result or error value; never raises (HC-handlers)."""
        ...

    def look_up(self, order: ExecutionOrder, requirement: Requirement, call: EffectAttempt) -> Performed | None:
        """Find out what became of an effect in doubt, without making it; never raises.

        Returns:
            Its result. None where that is not known; an error value where it is not, and something was observed.
        """
        ...


class WorkerRegistry(Protocol):
    """Who executes: this process, and whether others are still alive."""

    @property
    def me(self) -> str:
        """The id of this worker, never used again by another."""
        ...

    def is_gone(self, worker: str) -> bool:
        """Return whether a worker certainly does not run any more."""
        ...

    def close(self) -> None:
        """Say that this worker does nothing any more."""
        ...
