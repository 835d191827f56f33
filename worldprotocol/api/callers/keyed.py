"""Submissions that may be repeated: the caller's key is the intentId, which a log holds once."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Unpack

from msgspec import structs

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.caller_events import Attended
from world.events.proposal_events import ProjectionRecorded
from world.model.intent import IntentInstance
from world.model.snapshot import Snapshot
from world.model.source import SourceEvent
from world.state.proposal import Proposal
from worldprotocol.api.options import SubmitOptions
from worldprotocol.api.realm import Realm
from worldprotocol.api.requests import ProjectionOutcome, submission

__all__ = ["check_key", "key_conflict", "open_twin", "project_keyed", "proposal_of_intent", "submit_keyed"]

_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:~-]{0,199}")

Projection = tuple[ProjectionRecorded | None, IntentInstance | RefusedError | None]


def check_key(key: str) -> str:
    """Return a key of a caller.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if not _KEY.fullmatch(key):
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"{key[:80]!r} is no key of a request: 1 to 200 letters, digits and `. _ : ~ -`, beginning with a letter "
            "or a digit. Use a new UUID for each request.",
        )
    return key


def proposal_of_intent(realm: Realm, intent_id: str) -> Proposal | None:
    """Return the proposal that carries an intentId; None where it was not submitted."""
    rows = realm.archive.rows("by_intent", {"of_intent": intent_id})
    return realm.proposal(str(rows[0][0])) if rows else None


def open_twin(realm: Realm, intent: IntentInstance) -> Proposal | None:
    """Return the open, undecided proposal of the same actor with the same intentKey.

    Args:
        realm: the realm.
        intent: the intent that would be submitted.

    Returns:
        The proposal; None where there is none, or the intent was submitted before: then it has a proposal of its own.
    """
    if proposal_of_intent(realm, intent.intent_id) is not None:
        return None
    actor_id, intent_key = intent.meta.origin.actor.actor_id, intent.intent_key
    for one in realm.realm().proposals.values():
        is_same = one.submitted.intent.intent_key == intent_key and one.submitted.actor.actor_id == actor_id
        if is_same and one.status in ("submitted", "evaluating"):
            return one
    return None


def submit_keyed(
    realm: Realm, intent: IntentInstance, *, attended: Attended | None = None, **options: Unpack[SubmitOptions]
) -> Proposal:
    """Submit an intent; where its intentId was submitted before with the same content, return that proposal.

    Args:
        realm: the realm.
        intent: the intent, whose ``intent_id`` is the key.
        attended: how the call of a tool is attended; None for every other intent.
        **options: as for ``Realm.submit``.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT`` where the key was used for another intent; the codes of ``Realm.submit``.
    """
    try:
        if attended is None:
            return realm.submit(intent, **options)
        return realm._acting.submit(structs.replace(submission(intent, **options), attended=attended))
    except RefusedError as refused:
        if refused.code != "INTENT_ALREADY_SUBMITTED":
            raise
    earlier = proposal_of_intent(realm, intent.intent_id)
    assert earlier is not None
    _check_same(earlier, intent.meta.origin.actor.actor_id, intent.intent_id)
    if earlier.submitted.intent.body != intent.body:
        raise key_conflict(intent.intent_id, earlier.proposal_id)
    return earlier


def project_keyed(
    realm: Realm, source: SourceEvent, actor_id: str, key: str | None, **options: Unpack[SubmitOptions]
) -> ProjectionOutcome:
    """Project a source event; where the key was used before for this event, return the proposal of then.

    Args:
        realm: the realm.
        source: the event.
        actor_id: the acting actor.
        key: intentId of the selected intent; None makes one.
        **options: as for ``Realm.project``.

    Raises:
        RefusedError: ``IDEMPOTENCY_CONFLICT``, and the codes of ``Realm.project``.
    """
    if key is None:
        return realm.project(source, actor_id, **options)
    earlier = proposal_of_intent(realm, key)
    if earlier is None:
        actor = realm._actor(actor_id)
        projector = _with_key(realm._composed.projector(source, actor), key)
        try:
            done = realm._acting.project(projector, lambda intent: submission(intent, **options), options.get("branch"))
        except RefusedError as refused:
            earlier = proposal_of_intent(realm, key) if refused.code == "INTENT_ALREADY_SUBMITTED" else None
            if earlier is None:
                raise
        else:
            record = done.record
            return ProjectionOutcome(
                None if record is None else record.projection_id,
                None if record is None else record.result.reason,
                done.proposal,
            )
    _check_same(earlier, actor_id, key)
    origin = earlier.submitted.intent.meta.origin
    if (origin.source.kind, origin.source.event_id) != (source.kind, source.event_id):
        raise key_conflict(key, earlier.proposal_id)
    return ProjectionOutcome(origin.projection_id, None, earlier)


def _with_key(projector: Callable[..., Projection], key: str) -> Callable[..., Projection]:
    """Return a projector whose selected intent has the key as its id, in the record too."""

    def project(snapshot: Snapshot, schema_hash: str, world: str, at: int) -> Projection:
        record, intent = projector(snapshot, schema_hash, world, at)
        if isinstance(intent, IntentInstance):
            intent = structs.replace(intent, intent_id=key)
            record = None if record is None else structs.replace(record, intent_id=key)
        return record, intent

    return project


def _check_same(earlier: Proposal, actor_id: str, key: str) -> None:
    if earlier.submitted.actor.actor_id != actor_id:
        raise key_conflict(key, None)


def key_conflict(key: str, proposal_id: str | None) -> RefusedError:
    """Return the refusal of a key that was used for another intent.

    Args:
        key: the key.
        proposal_id: the proposal of that intent, where it is known.
    """
    details: Mapping[str, Any] = {} if proposal_id is None else {"proposal_id": proposal_id}
    return RefusedError(
        ErrorCode.IDEMPOTENCY_CONFLICT,
        f"The key {key} was used for another intent; use a new key for a new intent.",
        **details,
    )
