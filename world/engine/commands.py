"""The commands of the World Protocol: what can be done to a realm, each as one function of a unit of work.

Nothing here touches the log or a lock: ``world.engine.protocol`` runs the commands and makes the effects they ask for.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from msgspec import Struct

from world.clock import IdSource
from world.engine.administration import adopt_policy, bind, choose_enforcement, found, register
from world.engine.domain_adoption import OpenProposals, adopt_domain
from world.engine.observing import Observer
from world.engine.writer_epochs import close_writer, open_writer
from world.events.writer_events import CloseReason, OpenReason
from world.model.actor import ActorRef
from world.model.decision import HumanAnswer
from world.model.intent import IntentInstance
from world.pipeline.branches import check_base, create_branch, switch_branch
from world.pipeline.driver import advance, project, submit
from world.pipeline.effects.external_effects import withdraw_offers
from world.pipeline.judge import answer
from world.pipeline.preparation.prepared import Prepared
from world.pipeline.preparation.preparing import (
    Reading,
    prepare_adoption,
    prepare_answer,
    prepare_projection,
    prepare_submission,
    prepare_world,
)
from world.pipeline.preparation.preview import PreviewBasis, check_basis
from world.pipeline.project import Projected, Projector
from world.pipeline.recover import Choice, cancel, resolve
from world.pipeline.submit import Submission
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.archive import Archive
from world.read_models.unit_lookup import IntentNames
from world.state.proposal import Proposal

R = TypeVar("R")
Prepare = Callable[[Reading], Prepared | None]
"""Calls the foreign code that a command is going to need, before the log's lock is taken."""


class _Submit(Struct, frozen=True):
    """The command that submits an intent; it names what it will look up (``world.engine.protocol``).

    With ``any_schema`` it runs, and its proposal is held, while another schema is in force than the loaded one.
    """

    asked: Submission
    proposal_id: str
    any_schema: bool = False

    @property
    def intent_names(self) -> IntentNames:
        """Return the intent that is looked up under the lock."""
        return IntentNames(self.asked.intent.intent_id, self.asked.intent.intent_key)

    def __call__(self, work: UnitOfWork) -> Proposal:
        """Submit the intent, and advance its proposal until it ends or waits."""
        return submit(work, self.asked, self.proposal_id)


class _OnBranch(Struct, frozen=True):
    """Preparation on the head of a branch; ``kind`` names what is called there (``PreparationRecord``)."""

    call: Prepare
    kind: tuple[str | None, ...]

    def __call__(self, reading: Reading) -> Prepared | None:
        """Prepare the command."""
        return self.call(reading)


class Commands(ABC):
    """Commands of a realm; a subclass runs them."""

    archive: Archive
    """Past worlds and ended proposals."""

    _ids: IdSource
    holds_submissions: bool = False
    """Whether intents are recorded, to be held, while another schema is in force than the loaded domain's."""

    observer: Observer | None = None
    """What follows the commands, for traces; None where nothing does."""

    @abstractmethod
    def run(self, command: Callable[[UnitOfWork], R], *, others_too: bool = False, prepare: Prepare | None = None) -> R:
        """Run one command; see ``world.engine.protocol.WorldProtocol.run``."""

    # Founding and adopting

    def found(self, *, by: str, data: Mapping[str, Any] | None = None) -> str:
        """Found the realm: adopt the domain and seal the genesis world on branch ``main``.

        Args:
            by: id of the actor who founds it, for the record.
            data: initial data that differs from the domain's defaults.

        Returns:
            The genesis world's id.

        Raises:
            RefusedError: ``ALREADY_FOUNDED``, ``INVALID_DATA``.
        """
        return self.run(lambda work: found(work, by, data, place=self.archive.log.place()))

    def adopt_domain(self, *, by: str, open_proposals: OpenProposals = "supersede") -> bool:
        """Adopt the loaded domain in place of the one in force; return False when it is in force already.

        Raises:
            RefusedError: see ``world.engine.domain_adoption.adopt_domain`` (WP-schema).
        """

        def command(work: UnitOfWork) -> bool:
            return adopt_domain(work, by, open_proposals=open_proposals)

        command.any_schema = True  # type: ignore[attr-defined]  # read by _outcome
        return self.run(command, prepare=prepare_adoption)

    # Writer epochs

    def close_writer(self, reason: CloseReason, *, by: str, target: str | None = None) -> int:
        """Close the log to writers and return the epoch that ended; no further event is appended.

        Args:
            reason: why.
            by: id of the actor who closes it, for the record.
            target: where the log continues, without a password.

        Raises:
            RefusedError: ``LOG_FENCED`` when it is closed already.
        """

        def command(work: UnitOfWork) -> int:
            return close_writer(work, reason, by, target)

        command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.writer_epochs
        return self.run(command)

    def open_writer(self, reason: OpenReason, *, by: str) -> int:
        """Open the log to writers at this place and return the epoch that begins.

        Args:
            reason: why; ``restore`` also opens a copy whose original was lost without being closed.
            by: id of the actor who opens it, for the record.

        Raises:
            RefusedError: ``WRITER_OPEN``.
        """

        def command(work: UnitOfWork) -> int:
            return open_writer(work, reason, self.archive.log.place(), by)

        command.opens_writer = True  # type: ignore[attr-defined]  # read by world.engine.writer_epochs
        command.any_schema = True  # type: ignore[attr-defined]
        return self.run(command)

    def register_actor(self, actor: ActorRef, *, by: str) -> None:
        """Make an actor known, or change its name and meta; its kind stays.

        Raises:
            RefusedError: ``ACTOR_MISMATCH`` when the id is registered with another kind.
        """
        self.run(lambda work: register(work, actor, by))

    def bind_actor(self, actor_id: str, binding: Mapping[str, Any], *, by: str) -> None:
        """Give an actor its one authority binding, in place of any before (WP-bind).

        Raises:
            RefusedError: ``UNKNOWN_ACTOR``, ``POLICY_NOT_ADOPTED``, and what the Authority refuses.
        """
        self.run(lambda work: bind(work, actor_id, binding, by))

    def adopt_policy(self, name: str, *, by: str) -> bool:
        """Bring a loaded policy into force; returns False when this very policy is in force already.

        Raises:
            RefusedError: ``UNKNOWN_POLICY``.
        """
        return self.run(lambda work: adopt_policy(work, name, by))

    def choose_enforcement(self, *, by: str) -> None:
        """Record the executor's enforcement mode, when it is another than before (INT-13.5)."""
        self.run(lambda work: choose_enforcement(work, by))

    # The pipeline

    def submit(self, asked: Submission) -> Proposal:
        """Submit an intent and process it until it is sealed, waiting, or refused.

        Effects are made in the calling thread.

        Raises:
            RefusedError: see ``world.pipeline.submit.record_proposal``.
        """
        proposal_id = self._ids.new_id()
        if self.observer is not None:
            asked = self.observer.submission(asked)
        proposal = self.run(
            _Submit(asked, proposal_id, any_schema=self.holds_submissions),
            prepare=_OnBranch(
                lambda reading: prepare_submission(reading, asked, proposal_id), (asked.branch, asked.intent.body.type)
            ),
        )
        return self._as_committed(proposal)

    def project(
        self, projector: Projector, submission: Callable[[IntentInstance], Submission], branch: str | None
    ) -> Projected:
        """Ask a projector about the head of a branch, record the answer, and submit the intent it selects.

        Args:
            projector: selects the intent.
            submission: the intent with the caller's options.
            branch: whose head to read; None is the active branch.

        Raises:
            RefusedError: what the projector or the submission refuses.
        """
        proposal_id, observer = self._ids.new_id(), self.observer

        wanted = submission if observer is None else lambda intent: observer.submission(submission(intent))
        projected = self.run(
            lambda work: project(work, projector, wanted, branch, proposal_id),
            prepare=_OnBranch(
                lambda reading: prepare_projection(reading, projector, wanted, branch, proposal_id), (branch,)
            ),
        )
        if projected.refused is not None:
            raise projected.refused
        if projected.proposal is None:
            return projected
        return replace(projected, proposal=self._as_committed(projected.proposal))

    def _as_committed(self, proposal: Proposal) -> Proposal:
        """Return the caller's own copy of a unit's proposal; one that was still open then is read again."""
        return proposal.copy() if proposal.is_terminal else self.archive.proposal(proposal.proposal_id)

    def answer(self, proposal_id: str, given: HumanAnswer, *, shown: PreviewBasis | None = None) -> Proposal:
        """Answer a waiting proposal; an approval is executed in the calling thread.

        Args:
            proposal_id: the proposal.
            given: the answer.
            shown: the state from which the person was shown the proposal, compared under the lock; None compares none.

        Raises:
            RefusedError: ``NOT_WAITING``, ``UNKNOWN_ACTOR``, ``SHOWN_CHANGED``, and what the Authority refuses.
        """

        def command(work: UnitOfWork) -> None:
            check_basis(work.realm, proposal_id, shown)
            advance(work, answer(work, proposal_id, given))

        self.run(command, prepare=lambda reading: prepare_answer(reading, proposal_id, given))
        return self.archive.proposal(proposal_id)

    def cancel(self, proposal_id: str, *, by: str, reason: str) -> Proposal:
        """Cancel a proposal: one that is not decided is withdrawn; an approved execution ends failed.

        Raises:
            RefusedError: see ``world.pipeline.recover.cancel``.
        """

        def command(work: UnitOfWork) -> None:
            advance(work, cancel(work, proposal_id, by=by, reason=reason))
            advance(work, withdraw_offers(work, [proposal_id]))

        self.run(command)
        return self.archive.proposal(proposal_id)

    def resolve(
        self, proposal_id: str, effect: str | None, choice: Choice, *, by: str, reason: str, value: Any = None
    ) -> Proposal:
        """Record a person's statement about an effect in doubt; the execution continues in the calling thread.

        Raises:
            RefusedError: see ``world.pipeline.recover.resolve``.
        """

        def command(work: UnitOfWork) -> None:
            advance(work, resolve(work, proposal_id, effect, choice, by=by, reason=reason, value=value))

        self.run(command)
        return self.archive.proposal(proposal_id)

    def create_branch(self, name: str, world: str, *, by: str, allow_failed: bool = False) -> None:
        """Make a branch at a world.

        Raises:
            RefusedError: ``UNKNOWN_WORLD``, ``FAILED_BASE``, ``BRANCH_EXISTS``, ``INVALID_NAME``.
        """

        def command(work: UnitOfWork) -> None:
            check_base(work, world, allow_failed=allow_failed)
            create_branch(work, name, world, by=by)

        self.run(command, prepare=lambda reading: prepare_world(reading, world))

    def switch_branch(self, name: str, *, by: str) -> None:
        """Make a branch the active one; undecided proposals are superseded (WP-epoch).

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``, ``BRANCH_IS_ACTIVE``.
        """
        self.run(lambda work: advance(work, switch_branch(work, name, by=by)))
