"""Commands of an operator on a realm: actors, bindings, policies, domains, branches and the clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Self, TypeVar

from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from world.events.lease_events import ClockConfirmed
from world.model.actor import ActorKind, ActorRef
from world.read_models.archive import Archive
from worldprotocol.api.read_only import RealmReader

if TYPE_CHECKING:
    from world.engine.domain_adoption import OpenProposals
    from world.engine.writer import Writer
    from world.events.verification import Verification
    from world.pipeline.preparation.preview import ApprovalPreview
    from world.pipeline.unit_of_work import UnitOfWork
    from world.state.proposal import Proposal
    from world.state.realm_view import RealmView
    from worldprotocol.api.bootstrap import Components, EventLog
    from worldprotocol.api.callers.access import RealmAccess
    from worldprotocol.api.options import SubmitOptions
    from worldprotocol.api.program_changes import ProgramChanges

__all__ = ["OPERATOR", "RealmOperator"]

T = TypeVar("T")

OPERATOR = "operator"
"""Actor id that is recorded for commands of an operator by default."""


class RealmOperator(RealmReader):
    """Operator's commands on a realm; ``Realm`` adds the commands of actors.

    Args:
        log: an open log, which the object owns and closes.
        parts: components of this process; None if the realm is open for reading only.
        protocol: the writer of the log; None if the realm is open for reading only.
    """

    def __init__(self, log: EventLog, parts: Components | None, protocol: Writer | None) -> None:
        """Own an open log."""
        super().__init__(log, parts, Archive(log) if protocol is None else protocol.archive)
        self._protocol = protocol

    def register(
        self,
        actor_id: str,
        kind: ActorKind,
        *,
        binding: Mapping[str, Any] | None = None,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        by: str = OPERATOR,
    ) -> None:
        """Register an actor and, with a binding, bind it to an authority, in one commit.

        Raises:
            RefusedError: ``INVALID_VALUE``, ``ACTOR_MISMATCH``, and the codes of ``bind``.
        """
        from world.engine.administration import bind, register

        actor = ActorRef.read({"actorId": actor_id, "kind": kind, "name": name, "meta": meta})

        def command(work: UnitOfWork) -> None:
            register(work, actor, by)
            if binding is not None:
                bind(work, actor_id, binding, by)

        self._acting.run(command)

    def bind(self, actor_id: str, binding: Mapping[str, Any], *, by: str = OPERATOR) -> None:
        """Set an actor's authority binding, such as ``{"kind": "auto_approve"}``.

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``POLICY_NOT_ADOPTED``, ``INVALID_BINDING``.
        """
        self._acting.bind_actor(actor_id, binding, by=by)

    def adopt_policy(self, name: str, *, by: str = OPERATOR) -> bool:
        """Adopt a loaded policy; return False if it is in force already."""
        return self._acting.adopt_policy(name, by=by)

    def retire_policy(self, name: str, *, by: str = OPERATOR, reason: str = "") -> str:
        """Retire a policy that no binding uses, and return its hash."""
        from world.engine.administration import retire_policy

        return self._acting.run(lambda work: retire_policy(work, name, by, reason))

    def shadow(self, name: str | None, *, actors: Iterable[str] = (), by: str = OPERATOR) -> bool:
        """Evaluate a loaded policy in shadow, for the record only; None ends it.

        See ``world.pipeline.shadowing``.
        """
        from world.pipeline.shadowing import configure_shadow

        chosen = (actors,) if isinstance(actors, str) else tuple(actors)
        return self._acting.run(lambda work: configure_shadow(work, name, chosen, by))

    def changes(self) -> ProgramChanges:
        """Return what differs between this program and what is in force: schema, code of actions, policies.

        Raises:
            RefusedError: ``LOG_READ_ONLY``.
        """
        from worldprotocol.api.program_changes import changes_of

        return changes_of(self._archive, self._composed)

    def confirm_clock(self, *, reason: str, by: str = OPERATOR) -> ClockConfirmed | None:
        """Confirm that this process's clock is right; see ``LeaseCommands.confirm_clock``."""
        return self._acting.leasing.confirm_clock(by=by, reason=reason)

    def adopt_domain(self, *, by: str = OPERATOR, open_proposals: OpenProposals = "supersede") -> bool:
        """Adopt the loaded domain; return False if it is in force already.

        Where the schema changes and the domain declares a migration from the version in force, one world is sealed on
        every branch with what the migration changes. All of it is one commit.

        Args:
            by: actor id that the log records.
            open_proposals: what becomes of undecided proposals where the schema changes: ``supersede`` ends them with
                the reason; ``carry_over`` also submits again each intent whose action exists and whose input fits.

        Raises:
            RefusedError: ``OPEN_PROPOSALS``, ``DATA_DOES_NOT_FIT``, ``MIGRATION_FAILED``; nothing is changed then.
        """
        return self._acting.adopt_domain(by=by, open_proposals=open_proposals)

    def create_branch(
        self, name: str, world_id: str | None = None, *, by: str = OPERATOR, allow_failed: bool = False
    ) -> None:
        """Create a branch at a world; None is the active branch's head.

        Args:
            name: letters, digits and ``. _ - /``; see ``world.model.new_names``.
            world_id: the world at which it begins.
            by: actor id that the log records.
            allow_failed: permit a world with a failed execution.

        Raises:
            RefusedError: ``INVALID_NAME``, ``BRANCH_EXISTS``, ``UNKNOWN_WORLD``, ``FAILED_BASE``.
        """
        self._acting.create_branch(name, world_id or self.branch().head, by=by, allow_failed=allow_failed)

    def switch_branch(self, name: str, *, by: str = OPERATOR) -> None:
        """Make a branch the active one; undecided proposals are superseded."""
        self._acting.switch_branch(name, by=by)

    def _waited(self, proposal: Proposal, options: SubmitOptions) -> Proposal:
        """Return a proposal as it is after the time of the option ``wait``."""
        from worldprotocol.api.waiting.proposals import wait_seconds

        seconds = wait_seconds(options.get("wait"))
        if proposal.is_terminal or seconds == 0:
            return proposal
        try:
            return self.wait(proposal, seconds)
        except WaitTimeoutError:
            return self.proposal(proposal.proposal_id)

    def _check_may_wait(self) -> None:
        if self._protocol is not None:
            self._protocol.refuse_waiting()

    @property
    def access(self) -> RealmAccess:
        """Rights of actors and API tokens; raises ``RefusedError`` ``LOG_READ_ONLY``."""
        from worldprotocol.api.callers.access import RealmAccess

        return RealmAccess(self._acting, self._composed.ids)

    def preview(self, proposal_id: str) -> ApprovalPreview:
        """Return what the approval of a waiting proposal would do; nothing is recorded, and no effect is performed.

        Raises:
            RefusedError: ``NOT_WAITING``, ``SCHEMA_MISMATCH``, ``LOG_READ_ONLY``; see
                ``world.pipeline.preparation.preview``.
        """
        from world.pipeline.preparation.preview import preview_approval

        return preview_approval(self._acting, proposal_id)

    def as_caller(self, verified: Verification) -> Self:
        """Return this realm for one caller, whose verification is recorded with everything that it writes.

        The caller needs the rights to what it does, unless its method is ``unauthenticated``. The returned object
        shares everything with this one; closing either closes both.

        Args:
            verified: how the caller was verified.

        Raises:
            RefusedError: ``LOG_READ_ONLY``.
        """
        from world.engine.verified_commands import VerifiedProtocol

        caller = copy(self)
        caller._protocol = VerifiedProtocol(self._acting, self._composed.ids, verified)
        return caller

    @property
    def _acting(self) -> Writer:
        return _needed(self._protocol)

    @property
    def _composed(self) -> Components:
        return _needed(self._parts)

    def _actor(self, actor_id: str) -> ActorRef:
        return self._actor_in(self._archive.realm(), actor_id)

    def _actor_in(self, realm: RealmView, actor_id: str) -> ActorRef:
        known = realm.actors.get(actor_id)
        if known is None:
            raise RefusedError(
                ErrorCode.UNKNOWN_ACTOR,
                f"The actor {actor_id!r} is not registered; register it first (`worldctl actor add`, Realm.register).",
                actor_id=actor_id,
            )
        return known


def _needed(value: T | None) -> T:
    """Return what a realm has that is open for acting."""
    if value is None:
        raise RefusedError(
            ErrorCode.LOG_READ_ONLY, "This realm is open for reading only; open it with Realm.open to act."
        )
    return value
