"""Submissions and projections that may be repeated, and what earlier releases recorded of them.

The key of a submission is in the verification that the log records with it. Earlier releases recorded it as the
intentId, which an intent that its caller issued still has as its key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from msgspec import structs

from world.errors import RefusedError
from world.events.caller_events import Attended
from world.events.proposal_events import ProposalSubmitted
from world.events.verification import Verification
from world.model.intent import IntentInstance
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.callers.request_keys import key_conflict, once
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome, submission

__all__ = [
    "caller_of",
    "has_body",
    "has_source",
    "key_of",
    "open_twin",
    "projected",
    "proposal_of_intent",
    "proposal_of_key",
    "submit_attended",
    "submit_once",
]


def caller_of(realm: Realm, actor_id: str) -> Verification:
    """Return who acts on a realm: its verified caller (``Realm.as_caller``), or an actor whom nothing verified.

    Args:
        realm: the realm.
        actor_id: the actor that is named; it owns the keys of what it does.
    """
    from world.engine.verified_commands import VerifiedProtocol

    protocol = realm._acting
    if isinstance(protocol, VerifiedProtocol) and protocol.verified.actor_id is not None:
        return protocol.verified
    return Verification(method="unauthenticated", actor_id=actor_id)


def key_of(submitted: ProposalSubmitted) -> str:
    """Return the key with which an intent was submitted; the intentId where it had none."""
    verified = submitted.verified
    return submitted.intent.intent_id if verified is None or verified.key is None else verified.key


def proposal_of_intent(realm: Realm, intent_id: str) -> Proposal | None:
    """Return the proposal that carries an intentId; None where it was not submitted."""
    rows = realm.archive.rows("by_intent", {"of_intent": intent_id})
    return realm.proposal(str(rows[0][0])) if rows else None


def proposal_of_key(realm: Realm, actor_id: str, key: str) -> Proposal | None:
    """Return the proposal that an actor submitted with a key; None where there is none.

    Without a verification, earlier releases recorded the key as the intentId.

    Raises:
        RefusedError: ``EVENT_ARCHIVED`` where the events with the key were removed from a cut log.
    """
    events = realm.archive.events_of_key(actor_id, key)
    if events:
        return realm.proposal(events[0].proposal_id) if isinstance(events[0], ProposalSubmitted) else None
    earlier = proposal_of_intent(realm, key)
    return earlier if earlier is not None and earlier.submitted.actor.actor_id == actor_id else None


def open_twin(realm: Realm, intent: IntentInstance) -> Proposal | None:
    """Return the open, undecided proposal of the same actor with the same intentKey; None where there is none.

    Args:
        realm: the realm.
        intent: the intent that would be submitted.
    """
    actor_id, intent_key = intent.meta.origin.actor.actor_id, intent.intent_key
    for one in realm.realm().proposals.values():
        is_same = one.submitted.intent.intent_key == intent_key and one.submitted.actor.actor_id == actor_id
        if is_same and one.status in ("submitted", "evaluating"):
            return one
    return None


def submit_attended(
    realm: Realm, intent: IntentInstance, attended: Attended, **options: Unpack[SubmitOptions]
) -> Proposal:
    """Submit the call of a tool that its caller attends; options and errors as of ``Realm.submit``."""
    return realm._acting.submit(structs.replace(submission(intent, **options), attended=attended))


def submit_once(
    realm: Realm,
    caller: Verification | None,
    intent: IntentInstance,
    *,
    attended: Attended | None = None,
    continues: bool = False,
    **options: Unpack[SubmitOptions],
) -> Proposal:
    """Submit an intent; a repeated request with its key returns its proposal.

    Args:
        realm: the realm.
        caller: the caller, as ``keyed`` returns it; without a key it is submitted in any case. None is that of
            the realm.
        intent: the intent; where its intentId is the key, an equal one that was submitted with it is returned, too.
        attended: how the call of a tool is attended; None for every other intent.
        continues: return an open, undecided proposal of the same actor with the same intentKey where there is one.
        **options: as for ``Realm.submit``.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where the caller used the key for another request; the codes of
            ``Realm.submit``.
    """

    def run(acting: Realm) -> Proposal:
        twin = open_twin(acting, intent) if continues else None
        if twin is not None and not _is_recorded(realm, caller):
            return twin
        if attended is None:
            return acting.submit(intent, **options)
        return submit_attended(acting, intent, attended, **options)

    def again(events: Sequence[Any]) -> Proposal:
        return realm.proposal(events[0].proposal_id)

    if caller is None:
        return run(realm)
    try:
        return once(realm, caller, run, again=again, is_same=has_body(intent))
    except RefusedError as refused:
        if refused.code != "INTENT_ALREADY_SUBMITTED" or caller.key != intent.intent_id:
            raise
    earlier = proposal_of_intent(realm, intent.intent_id)
    assert earlier is not None
    if earlier.submitted.actor.actor_id != intent.meta.origin.actor.actor_id:
        raise key_conflict(intent.intent_id)
    if earlier.submitted.intent.body != intent.body:
        raise key_conflict(intent.intent_id, earlier.proposal_id)
    return earlier


def _is_recorded(realm: Realm, caller: Verification | None) -> bool:
    """Return whether a request of a caller with its key was recorded."""
    if caller is None or caller.key is None or caller.actor_id is None:
        return False
    return bool(realm.archive.events_of_key(caller.actor_id, caller.key))


def projected(proposal: Proposal) -> ProjectionOutcome:
    """Return the outcome of an earlier projection by the proposal of the intent that it selected."""
    return ProjectionOutcome(proposal.submitted.intent.meta.origin.projection_id, None, proposal)


def has_body(intent: IntentInstance) -> Callable[[Any], bool]:
    """Return whether an event is the submission of an intent with the same body."""
    return lambda event: isinstance(event, ProposalSubmitted) and event.intent.body == intent.body


def has_source(source: SourceEvent) -> Callable[[Any], bool]:
    """Return whether an event is the submission of an intent that was selected for the same source event."""

    def is_same(event: Any) -> bool:
        if not isinstance(event, ProposalSubmitted):
            return False
        before = event.intent.meta.origin.source
        return (before.kind, before.event_id) == (source.kind, source.event_id)

    return is_same
