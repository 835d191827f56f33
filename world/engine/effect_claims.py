"""Commands of workers on external effects: claim, heartbeat, complete (``world.pipeline.effects.external_effects``).

A completion whose acknowledgement was lost is repeated safely: the second one finds the recorded result and changes
nothing. A completion under a claim that does not hold is refused, and recorded once where the claim was made. Source:
design section 8; HC-journal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol

from world.engine.commands import Prepare
from world.engine.preparation import Command
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.claim_events import EffectClaimed
from world.events.execution_events import EffectDropped, EffectInDoubt
from world.klis.resources.names import NameComparison
from world.klis.resources.resource_types import ResourceTypes
from world.klis.triple import read_triple
from world.model.new_names import check_new_id
from world.model.snapshot import EffectAnswer
from world.pipeline.driver import advance
from world.pipeline.effects.doubts import doubts_of_workers, record_reported
from world.pipeline.effects.external_effects import (
    Lost,
    Wanted,
    claim_effect,
    claim_lost,
    claimable,
    complete_effect,
    drop_completion,
    extend_claim,
    made_with,
    subject_of,
    was_answered,
    why_lost,
    why_unwanted,
)
from world.pipeline.execution_state import order_of
from world.pipeline.preparation.preparing import prepare_completion
from world.pipeline.unit_of_work import UnitOfWork
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.state.effect_claim import CalledEffect, EffectClaim, EffectDoubt, UnreadableDoubt
from world.state.ports import EffectAttempt, ExecutionOrder, Performed
from world.state.proposal import Proposal
from world.state.realm_view import RealmView

__all__ = ["EffectClaims", "attempt_of_claim"]

_ENDED: Final = "ended"
"""Returned by a completion that finds its proposal ended, which the archive has not been asked about."""


class CommandRunner(Protocol):
    """What the commands need of ``world.engine.protocol.WorldProtocol``."""

    @property
    def archive(self) -> Archive:
        """Past worlds and ended proposals."""
        ...

    def run(self, command: Command, *, prepare: Prepare | None = None) -> object:
        """Run a command in a shared commit."""
        ...

    def unit(self) -> UnitOfWork:
        """Return a unit of work that reads the published state."""
        ...

    def now_ms(self) -> int:
        """Return the time that would be recorded now, ms since 1970."""
        ...


@dataclass(frozen=True, slots=True)
class _Complete:
    """The command that records a result; it runs also where another domain is in force than the loaded one.

    ``past`` returns the claims and the dropped results of its proposal. ``is_ended`` says that the proposal has ended
    without a result under this claim.
    """

    claim: EffectClaim
    performed: Performed
    past: Callable[[UnitOfWork], Iterable[Event]]
    is_ended: bool
    any_schema: bool = True

    def __call__(self, work: UnitOfWork) -> Lost | str | None:
        claim = self.claim
        proposal = work.realm.proposals.get(claim.proposal_id)
        if proposal is None and not self.is_ended:
            return _ENDED
        subject = subject_of(work)
        if proposal is not None and was_answered(proposal, claim, subject):
            return None
        lost = why_lost(work.realm, claim, subject)
        if lost is not None:
            drop_completion(work, claim, self.performed, lost, self.past(work))
            return lost
        advance(work, complete_effect(work, claim, self.performed))
        return None


class EffectClaims:
    """The commands of workers, each in a commit that it may share with others.

    Args:
        runner: runs the commands.
    """

    __slots__ = ("_runner",)

    def __init__(self, runner: CommandRunner) -> None:
        """Give commands to what runs them."""
        self._runner = runner

    def claim(
        self,
        types: Collection[str] | None,
        *,
        worker: str,
        workspaces: Collection[str] = (),
        proposal_id: str | None = None,
        key: str | None = None,
    ) -> EffectClaim | None:
        """Claim the effect that was offered first of those that a worker performs; None where none is offered.

        Args:
            types: types of effects that the worker performs; None is all.
            worker: name of the worker, recorded with the claim.
            workspaces: ids of the workspaces that the worker has.
            proposal_id: the only proposal whose effects are claimed; None is all.
            key: key of the request, recorded with the claim: a repeated request returns the claim that it made, while
                that is in force.

        Raises:
            RefusedError: ``INVALID_ID`` for the worker's name, ``IDEMPOTENCY_CONFLICT`` for a key of another worker
                of the same actor.
        """
        check_new_id("worker", worker)
        wanted = Wanted(types, workspaces, proposal_id)

        def may_find(realm: RealmView, now: int) -> bool:
            is_due = (due := realm.next_due()) is not None and due <= now
            is_made = any(True for _ in made_with(realm, key))
            return is_due or is_made or any(True for _ in claimable(realm, wanted, now))

        now = self._runner.now_ms()
        if not self._runner.archive.peek(lambda realm: may_find(realm, now)):
            return None  # without a write transaction

        def command(work: UnitOfWork) -> EffectClaim | None:
            return claim_effect(work, wanted, worker=worker, key=key)

        claimed = self._runner.run(command)
        assert claimed is None or isinstance(claimed, EffectClaim)
        return claimed

    def heartbeat(self, claim: EffectClaim, *, begins: bool = False) -> EffectClaim:
        """Extend a claim by the time limit of its effect from now, and return it with its new deadline.

        Args:
            claim: the claim, as ``claim`` or ``heartbeat`` returned it.
            begins: record it in any case, as the sign that the effect begins.

        Raises:
            RefusedError: ``CLAIM_LOST`` with ``why``; see ``world.pipeline.effects.external_effects.extend_claim``.
        """

        def command(work: UnitOfWork) -> EffectClaim:
            return extend_claim(work, claim, begins=begins)

        command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.protocol
        extended = self._runner.run(command)
        assert isinstance(extended, EffectClaim)
        return extended

    def complete(self, claim: EffectClaim, performed: Performed) -> Proposal:
        """Record the result of a claimed effect, and continue its execution.

        Args:
            claim: the claim, as ``claim`` or ``heartbeat`` returned it.
            performed: the result.

        Returns:
            The proposal; where a result under this claim is recorded already, as it is, and nothing is changed.

        Raises:
            RefusedError: ``CLAIM_LOST``, which is recorded once for each actor and claim that was made, with ``why``
                as of ``world.pipeline.effects.external_effects.why_lost``; ``UNKNOWN_PROPOSAL``, ``INVALID_ID``,
                ``INVALID_VALUE`` for what is no ``Performed``.
        """
        _check_result(performed)
        for what, given in (("worker", claim.worker), ("claim", claim.claim_id), ("effect", claim.requirement.id)):
            check_new_id(what, given)
        archive, name = self._runner.archive, claim.proposal_id
        lost: object = _ENDED
        if archive.peek(lambda realm: name in realm.proposals):
            lost = self._complete(claim, performed, is_ended=False)
        if lost is _ENDED:
            stored = archive.proposal(name)
            if was_answered(stored, claim, claim.subject):
                return stored
            lost = self._complete(claim, performed, is_ended=True)
        if isinstance(lost, Lost):
            raise claim_lost(claim, lost)
        return archive.proposal(name)

    def _complete(self, claim: EffectClaim, performed: Performed, *, is_ended: bool) -> object:
        past = partial(self._past, claim.proposal_id, (EffectClaimed.TOPIC, EffectDropped.TOPIC))
        command = _Complete(claim, performed, past, is_ended)
        return self._runner.run(command, prepare=lambda reading: prepare_completion(reading, claim, performed))

    def doubts(self, types: Collection[str]) -> list[EffectDoubt | UnreadableDoubt]:
        """Return the effects in doubt that a worker without a workspace can look up; see ``doubts_of_workers``.

        Args:
            types: types of effects whose handlers the worker has.
        """
        if not self._runner.archive.peek(lambda realm: any(one.in_doubt for one in realm.proposals.values())):
            return []
        return list(doubts_of_workers(self._runner.unit(), types))

    def found(self, doubt: EffectDoubt, performed: Performed) -> Proposal:
        """Record what a worker found out about an effect in doubt, and continue its execution.

        Args:
            doubt: the effect, as ``doubts`` returned it.
            performed: its result.

        Returns:
            The proposal; where the effect has this result already, as it is, and nothing is changed. Where it is not
            in doubt any more, the report is recorded as dropped, as often as it was in doubt at most.

        Raises:
            RefusedError: ``UNKNOWN_PROPOSAL``, ``INVALID_ID``; ``INVALID_VALUE`` for what is no ``Performed``, and for
                an error, after which an effect stays in doubt; ``NOT_IN_DOUBT`` for an effect that was never in doubt,
                or that no worker looks up.
        """
        _check_result(performed)
        if performed.result.error is not None:
            raise RefusedError(
                ErrorCode.INVALID_VALUE, "A report on an effect in doubt has a value; after an error it stays in doubt."
            )
        archive, name, effect = self._runner.archive, doubt.proposal_id, doubt.requirement.id
        check_new_id("effect", effect)
        stored = archive.proposal(name)
        if stored.journal.get(effect) == performed.result:
            return stored  # the acknowledgement of its report was lost

        past = partial(self._past, name, (EffectInDoubt.TOPIC, EffectDropped.TOPIC))

        def command(work: UnitOfWork) -> None:
            advance(work, record_reported(work, doubt, performed, past(work)))

        command.any_schema = True  # type: ignore[attr-defined]  # read by world.engine.protocol
        self._runner.run(command)
        return archive.proposal(name)

    def _past(self, name: str, topics: Sequence[str], work: UnitOfWork) -> Iterator[Event]:
        """Yield the events of a proposal with some topics, by the log and by a unit."""
        log = self._runner.archive.log
        yield from map(decoded, log.read(stream=name, topics=topics, skip_archived=True))
        yield from (one.event for one in work.emitted if one.stream == name)

    def order(self, claim: EffectClaim) -> tuple[ExecutionOrder, EffectAttempt]:
        """Return the order and the attempt with which an executor of this process performs a claimed effect.

        Args:
            claim: a claim on an effect of this realm.

        Raises:
            RefusedError: ``CLAIM_LOST`` where its proposal has ended.
        """
        work = self._runner.unit()
        proposal = work.realm.proposals.get(claim.proposal_id)
        if proposal is None or proposal.started is None:
            raise claim_lost(claim, Lost("ENDED", "its proposal has ended"))
        order = order_of(proposal, work.snapshot(claim.on_world))
        return order, replace(attempt_of_claim(claim), why_over=lambda: self.why_over(claim))

    def why_over(self, claim: EffectClaim) -> tuple[str, str] | None:
        """Return why a claimed effect is not wanted any more, as code and sentence; None while it is.

        It reads the log and writes nothing.
        """

        def ask(realm: RealmView) -> tuple[str, str] | None:
            lost = why_unwanted(realm, claim, claim.subject)
            return None if lost is None else (lost.why, f"The claim on the effect does not hold: {lost.message}.")

        return self._runner.archive.peek(ask)


def attempt_of_claim(claim: CalledEffect) -> EffectAttempt:
    """Return the facts about the attempt at an effect that is claimed, or in doubt.

    Raises:
        DamagedLogError: ``BAD_TRIPLE``, ``BAD_RESOURCE`` for a declared triple that cannot be read.
    """
    types = ResourceTypes.recorded(claim.types)
    declared = None
    if claim.declared is not None:
        declared = tuple(
            read_triple(one.predicate, one.resource, types, confidence=one.confidence) for one in claim.declared
        )
    return EffectAttempt(
        declared=declared,
        attempt=claim.attempt,
        requested_at=claim.requested_at,
        fencing_token=claim.fencing_token,
        types=types,
        names=NameComparison(claim.ignores_case, claim.ignores_normal_form),
        declaration_required=claim.declaration_required,
    )


def _check_result(performed: Performed) -> None:
    """Check what a worker reports.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if not isinstance(performed, Performed) or not isinstance(performed.result, EffectAnswer):
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"The result is {performed!r:.100}; it must be Performed(EffectAnswer(value)), or "
            "Performed(EffectAnswer(error=ErrorValue(...))).",
        )
