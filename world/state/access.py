"""Rights and tokens in force, and whether a recorded caller had the right to what it did.

The engine refuses with ``access_fault`` what ``verify`` reports with it, so both decide by one function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.events.access_events import RightGranted, RightRevoked, TokenCreated, TokenRevoked
from world.events.base import Event
from world.events.caller_events import CallerLeft
from world.events.claim_events import EffectClaimed, EffectExtended
from world.events.execution_events import (
    EffectDropped,
    EffectFulfilled,
    EffectResolved,
    EffectRetried,
    ExecutionCancelled,
)
from world.events.lease_events import (
    KeyRegistered,
    KeyRevoked,
    LeaseRenewed,
    LeasesReleased,
    LeasesRevoked,
    RequestWithdrawn,
    VerdictGiven,
)
from world.events.policy_events import PolicyAdopted, PolicyRetired, ShadowConfigured
from world.events.proposal_events import HumanAnswered, ProposalSubmitted, ProposalSuperseded
from world.events.realm_events import ActorBound, ActorRegistered, BranchCreated, BranchSwitched
from world.events.verification import Right, Verification
from world.events.writer_events import WriterClosed, WriterOpened

__all__ = ["ACCESS_STEPS", "NEEDING_RIGHTS", "AccessFault", "Rights", "access_fault", "right_fault"]

Rights = Mapping[str, RightGranted]
"""The rights of one actor by name, with the event that granted each."""


class AccessFault(NamedTuple):
    """Why a caller may not do something.

    Args:
        code: code of the refusal.
        message: a sentence.
    """

    code: ErrorCode
    message: str


def right_fault(realm: Any, verified: Verification, rights: tuple[Right, ...], at: int) -> AccessFault | None:
    """Return why a verified caller has none of some rights at a time; None where it has one.

    Args:
        realm: the state of the realm at that time (``world.state.realm_view.ReadableRealm``).
        verified: the caller.
        rights: any one of them suffices.
        at: ms since 1970.
    """
    if not verified.is_verified:
        return None
    actor_id = verified.actor_id or ""
    can: list[Right] | None = None
    if verified.uses_token:
        token = realm.tokens.get(verified.token_id or "")
        if token is None or token.actor_id != actor_id:
            return AccessFault(
                ErrorCode.TOKEN_NOT_VALID,
                f"The token {verified.token_id} of {actor_id!r} is unknown or was revoked; create another one "
                "(`worldctl token create`).",
            )
        if at >= token.expires_at:
            return AccessFault(
                ErrorCode.TOKEN_NOT_VALID,
                f"The token {verified.token_id} of {actor_id!r} expired at {token.expires_at} (ms); create another one "
                "(`worldctl token create`).",
            )
        fault = _session_fault(token, verified)
        if fault is not None:
            return fault
        can = token.can
    held = [right for right in realm.rights.get(actor_id, {}) if can is None or right in can]
    if any(right in held for right in rights):
        return None
    what = f"the token {verified.token_id} of {actor_id!r}" if can is not None else f"{actor_id!r}"
    return AccessFault(
        ErrorCode.RIGHT_MISSING,
        f"This needs the right {' or '.join(rights)}; {what} has {', '.join(held) or 'no right'}. An operator grants "
        f"it with `worldctl rights grant {actor_id} {rights[0]}`.",
    )


def _session_fault(token: TokenCreated, verified: Verification) -> AccessFault | None:
    """Return why a token cannot verify in the way that is stated; None where it can.

    The token of a session verifies in the way in which the session began. In logs before sessions were recorded, the
    token of a session of a one-time link has only a note.
    """
    session, stated = token.session, (verified.method, verified.issuer, verified.subject)
    if session is None:
        is_right = verified.method != "oidc"
    else:
        is_right = stated == (session.method, session.issuer, session.subject)
    if is_right:
        return None
    return AccessFault(
        ErrorCode.TOKEN_NOT_VALID,
        f"The token {token.token_id} does not verify {token.actor_id!r} by {verified.method}; sign in again.",
    )


def access_fault(realm: Any, event: Event) -> AccessFault | None:
    """Return why the verified caller of an event may not cause it; None where it may, or no caller was verified.

    Args:
        realm: the state before the event.
        event: the event, which may record a verification.
    """
    verified: Verification | None = getattr(event, "verified", None)
    need = _NEEDS.get(type(event))
    if verified is None or need is None or not verified.is_verified:
        return None
    if verified.method == "signature" and not isinstance(event, ProposalSubmitted):
        words = f"A signature of an intent does not permit {event.TOPIC}; sign in."
        return AccessFault(ErrorCode.UNAUTHENTICATED, words)
    named, rights = need(realm, event)
    if named is not None and named != verified.actor_id:
        return AccessFault(
            ErrorCode.NOT_THE_VERIFIED_ACTOR,
            f"The caller was verified as {verified.actor_id!r} and cannot act as {named!r}; sign in as {named!r}.",
        )
    return right_fault(realm, verified, rights, event.at)


Need = tuple[str | None, tuple[Right, ...]]
"""The actor that an event names as its cause, None where it names none; and the rights of which one is needed."""


def _submission(_: Any, event: ProposalSubmitted) -> Need:
    return event.actor.actor_id, ("actor",)


def _answer(_: Any, event: HumanAnswered) -> Need:
    rights: tuple[Right, ...] = ("approver", "actor") if event.answer.choice == "reply" else ("approver",)
    return event.answer.by.actor_id, rights


def _verdict(_: Any, event: VerdictGiven) -> Need:
    is_signed = (event.channel or {}).get("kind") == "signed"  # another caller may hand in a signed manifest
    return None if is_signed else event.agent_id, ("actor",)


def _request(_: Any, __: RequestWithdrawn) -> Need:
    return None, ("actor",)  # another caller may have handed in a signed manifest


def _renewal(realm: Any, event: LeaseRenewed) -> Need:
    lease = realm.klis.leases.get(event.lease_id)
    return None if lease is None else lease.session.agent_id, ("actor",)


def _release(_: Any, event: LeasesReleased) -> Need:
    return event.agent_id, ("actor",)


def _operation(_: Any, event: Any) -> Need:
    return event.by, ("operator",)


def _withdrawal(realm: Any, event: ProposalSuperseded) -> Need:
    proposal = realm.proposals.get(event.proposal_id)
    is_own = proposal is not None and proposal.submitted.actor.actor_id == event.by
    return event.by, ("actor", "operator") if is_own else ("operator",)


def _leaving(_: Any, event: CallerLeft) -> Need:
    is_own = event.verified is not None and event.verified.verified_actor == event.actor_id
    return (event.actor_id, ("actor", "operator")) if is_own else (None, ("operator",))


def _claim(realm: Any, event: EffectClaimed | EffectDropped) -> Need:
    proposal = realm.proposals.get(event.proposal_id)
    performer = _performer(proposal, event.requirement_id)
    if isinstance(event, EffectDropped):  # it changes nothing
        return None, ("worker",) if proposal is not None and performer is None else ("worker", "actor")
    return (None, ("worker",)) if performer is None else (performer, ("actor",))


def _claimed(realm: Any, event: EffectExtended | EffectFulfilled | EffectRetried) -> Need:
    proposal = realm.proposals.get(event.proposal_id)
    performer = _performer(proposal, event.requirement_id)
    if performer is not None:
        return performer, ("actor",)
    claim = None if proposal is None else proposal.claims.get(event.requirement_id)
    return None if claim is None else claim.subject or claim.worker, ("worker",)


def _performer(proposal: Any, requirement_id: str) -> str | None:
    """Return the actor who alone performs an effect; None where workers do."""
    asked = (
        None if proposal is None else proposal.requested.get(requirement_id) or proposal.in_doubt.get(requirement_id)
    )
    is_by_actor = asked is not None and asked.offer is not None and asked.offer.by_actor
    actor: str | None = proposal.submitted.actor.actor_id if is_by_actor else None
    return actor


_NEEDS: Final[Mapping[type[Event], Callable[[Any, Any], Need]]] = {
    ProposalSubmitted: _submission,
    HumanAnswered: _answer,
    VerdictGiven: _verdict,
    RequestWithdrawn: _request,
    LeaseRenewed: _renewal,
    LeasesReleased: _release,
    LeasesRevoked: _operation,
    ExecutionCancelled: _operation,
    ProposalSuperseded: _withdrawal,
    EffectResolved: _operation,
    CallerLeft: _leaving,
    BranchCreated: _operation,
    EffectClaimed: _claim,
    EffectDropped: _claim,
    EffectExtended: _claimed,
    EffectFulfilled: _claimed,
    EffectRetried: _claimed,
    BranchSwitched: _operation,
    ActorRegistered: _operation,
    ActorBound: _operation,
    WriterOpened: _operation,
    WriterClosed: _operation,
    PolicyAdopted: _operation,
    PolicyRetired: _operation,
    ShadowConfigured: _operation,
    KeyRegistered: _operation,
    KeyRevoked: _operation,
    RightGranted: _operation,
    RightRevoked: _operation,
    TokenCreated: _operation,
    TokenRevoked: _operation,
}
NEEDING_RIGHTS: Final = frozenset(_NEEDS)
"""The types of events whose verified caller needs a right; ``access_fault`` finds none in others."""


def _granted(realm: Any, event: RightGranted) -> None:
    realm.rights[event.actor_id] = {**realm.rights.get(event.actor_id, {}), event.right: event}


def _revoked(realm: Any, event: RightRevoked) -> None:
    left = {name: one for name, one in realm.rights.get(event.actor_id, {}).items() if name != event.right}
    if left:
        realm.rights[event.actor_id] = left
    else:
        realm.rights.pop(event.actor_id, None)


def _token(realm: Any, event: TokenCreated) -> None:
    if event.token_id in realm.tokens:
        raise DamagedLogError(ErrorCode.BAD_EVENT, f"The token {event.token_id} was created twice.")
    realm.tokens[event.token_id] = event


def _token_revoked(realm: Any, event: TokenRevoked) -> None:
    realm.tokens.pop(event.token_id, None)


ACCESS_STEPS: Final[Mapping[type[Event], Callable[[Any, Any], None]]] = {
    RightGranted: _granted,
    RightRevoked: _revoked,
    TokenCreated: _token,
    TokenRevoked: _token_revoked,
}
"""How the events of access change the state of a realm."""
