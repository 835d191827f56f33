"""Commands of workers on a realm: claim an offered effect, extend the claim, report the result.

``worldctl worker`` and programs of users perform effects by these three calls; any process that has the realm open with
its domain may make them. ::

    claim = realm.claim_effect({"mail.send"}, worker="mailer-1", wait_s=30)
    if claim is not None:
        realm.complete_effect(claim, Performed(EffectAnswer(send(claim.requirement.params))))
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from functools import partial
from types import NoneType
from typing import TYPE_CHECKING, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.read_models.live.expectations import ANY
from world.read_models.live.offered_effects import OfferedEffect, offered_effects
from world.state.effect_claim import EffectClaim
from worldprotocol.api.administration import RealmOperator

if TYPE_CHECKING:
    from world.engine.effect_claims import EffectClaims
    from world.state.ports import EffectAttempt, ExecutionOrder, Performed
    from world.state.proposal import Proposal

__all__ = ["ExternalEffects", "check_names", "check_wait"]

MAX_WAIT_S: Final = 3_600.0
"""The longest wait of one call, in seconds."""


class ExternalEffects(RealmOperator):
    """Commands of workers; ``Realm`` adds the commands of actors."""

    def claim_effect(
        self,
        types: Collection[str] | None = None,
        *,
        worker: str,
        workspaces: Collection[str] = (),
        proposal_id: str | None = None,
        wait_s: float = 0,
        key: str | None = None,
    ) -> EffectClaim | None:
        """Claim the effect that was offered first of those that a worker performs.

        Args:
            types: types of effects that the worker performs; None is all.
            worker: name of the worker, recorded with the claim: letters, digits and ``._-@:/``.
            workspaces: ids of the workspaces that the worker has; an effect that needs another one is left alone.
            proposal_id: the only proposal whose effects are claimed; None is all.
            wait_s: how long to wait for an effect, in seconds, up to ``MAX_WAIT_S``; 0 does not wait.
            key: key of the request, recorded with the claim: a repeated request returns the claim that it made, while
                that is in force.

        Returns:
            The claim; None where no effect is offered.

        Raises:
            RefusedError: ``INVALID_ID`` for the worker's name, ``INVALID_VALUE`` for the wait, the types and the
                workspaces, ``IDEMPOTENCY_CONFLICT`` for a key of another worker, ``LOG_READ_ONLY``,
                ``CALL_FROM_HANDLER`` and ``CALL_FROM_WITHIN`` where waiting is refused.
        """
        check_wait(wait_s)
        check_names("types", types)
        check_names("workspaces", workspaces)
        if wait_s:
            self._check_may_wait()
        claims, end = self._claims, time.monotonic() + wait_s
        while True:
            position = self._archive.peek(lambda realm: realm.position)
            claim = claims.claim(types, worker=worker, workspaces=workspaces, proposal_id=proposal_id, key=key)
            left = end - time.monotonic()
            if claim is not None or left <= 0:
                return claim
            look = partial(self._is_past, position)
            self._archive.expectations.wait(ANY, look, min(left, self._next_offer_s(left)))

    def heartbeat_effect(self, claim: EffectClaim) -> EffectClaim:
        """Extend a claim by the time limit of its effect from now; by less than a tenth of that, it stays as it is.

        Args:
            claim: the claim, as ``claim_effect`` or ``heartbeat_effect`` returned it.

        Returns:
            The claim with its new deadline.

        Raises:
            RefusedError: ``CLAIM_LOST`` where the effect is not wanted any more or the claim does not hold; its
                ``why`` is ``CANCELLED``, ``LEASES_REVOKED``, ``LAPSED``, ``OTHER_CLAIM``, ``ENDED`` or ``NOT_HOLDER``.
        """
        return self._claims.heartbeat(claim)

    def complete_effect(self, claim: EffectClaim, performed: Performed) -> Proposal:
        """Record the result of a claimed effect, and continue its execution.

        A second completion under the same claim changes nothing and returns the proposal: the acknowledgement of the
        first one may have been lost.

        Args:
            claim: the claim, as ``claim_effect`` or ``heartbeat_effect`` returned it.
            performed: the result, with what was observed.

        Returns:
            The proposal.

        Raises:
            RefusedError: ``CLAIM_LOST`` where the claim does not hold, with ``why`` as above; it is recorded once for
                each actor and claim that was made;
                ``UNKNOWN_PROPOSAL``.
        """
        return self._claims.complete(claim, performed)

    def claimed_order(self, claim: EffectClaim) -> tuple[ExecutionOrder, EffectAttempt]:
        """Return what ``Host.perform`` needs to perform a claimed effect, besides its requirement.

        Args:
            claim: a claim on an effect of this realm.

        Raises:
            RefusedError: ``CLAIM_LOST`` where its proposal has ended.
        """
        return self._claims.order(claim)

    def offered_effects(self) -> list[OfferedEffect]:
        """Return the offered effects that wait for workers, are claimed, or are in doubt, the first requested first."""
        return self._archive.peek(offered_effects)

    @property
    def _claims(self) -> EffectClaims:
        from world.engine.effect_claims import EffectClaims

        return EffectClaims(self._acting)

    def _next_offer_s(self, most: float) -> float:
        """Return the seconds until an effect may be claimed because of the time alone.

        Args:
            most: the longest time, in seconds.
        """
        now = self._acting.now_ms()
        times = [one.claimable_from for one in self.offered_effects() if one.claimable_from > now]
        due = self._archive.peek(lambda realm: realm.next_due())
        times += [due] if due is not None else []
        return min([most, *(max(0.0, (at - now) / 1000) for at in times)])

    def _is_past(self, position: int) -> bool | None:
        """Return True where an event follows a position, else None."""
        return self._archive.peek(lambda realm: realm.position) > position or None


def check_wait(wait_s: float) -> None:
    """Check the time for which a claim waits.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s <= MAX_WAIT_S:
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"wait_s is {wait_s!r}; give 0 to {MAX_WAIT_S:g} seconds and call again."
        )


def check_names(what: str, names: Iterable[str] | None) -> None:
    """Check types of effects, or ids of workspaces: a text in place of a collection would be taken for its letters.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Collection | NoneType):
        raise RefusedError(
            ErrorCode.INVALID_VALUE, f"{what} is {names!r:.100}; give a set or list, as [{names!r:.100}]."
        )
