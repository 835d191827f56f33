"""Intents that a system produces itself, without a projection (intent specification 8).

For schedulers, migrations and automation. Their projectionId begins with ``system:`` and their source and
actor are systems (SD-1, SD-2); in all else they are intents like any other, judged like any other (SD-4,
INV-SD3).
"""

from __future__ import annotations

import re
from typing import Any, Final

from projections.contract import DIRECT_PREFIX
from projections.issuer import Issuer, IssueRequest
from world.actor import ActorRef
from world.errors import Refused
from world.intent import IntentBody, IntentInstance
from world.source import SourceEvent

__all__ = ["check_direct", "direct", "is_direct"]

_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


def direct(
    issuer: Issuer,
    *,
    schema_hash: str,
    actor: ActorRef,
    event_id: str,
    body: IntentBody,
    job: str = "direct",
    payload: Any = None,
    note: str | None = None,
) -> IntentInstance:
    """Issue an intent that a system produced itself (INT-8.1, INT-8.2).

    Args:
        issuer: gives it its identity.
        schema_hash: the schema in force.
        actor: the system that is responsible; its kind must be ``system``.
        event_id: what triggered it, such as the run of a scheduled job; the same run gives the same id.
        body: what is wanted; equal runs produce equal bodies (SD-3).
        job: what produced it: ``scheduler``, ``migration``; the origin's projectionId is ``system:`` and
            this.
        payload: what the trigger carried, JSON.
        note: for people; never part of the meaning.

    Raises:
        Refused: ``NOT_A_DIRECT_INTENT`` for an actor that is no system or a bad job name; ``INVALID_VALUE``
            for a bad event id or payload.
    """
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise Refused(
            "NOT_A_DIRECT_INTENT",
            f"{repr(job)[:80]} names no job: give letters, digits, '.', '_', '-' and '/' only, such as "
            f"'scheduler' (the prefix {DIRECT_PREFIX!r} is added).",
        )
    source = SourceEvent.read({"kind": "system", "eventId": event_id, "payload": payload})
    if actor.kind != "system":
        raise _not_direct(DIRECT_PREFIX + job, source.kind, actor)
    return issuer.issue(IssueRequest(schema_hash, DIRECT_PREFIX + job, actor, source, body, note))


def is_direct(instance: IntentInstance) -> bool:
    """Tell whether an instance says that a system produced it directly (SD-1)."""
    return instance.meta.origin.projection_id.startswith(DIRECT_PREFIX)


def check_direct(instance: IntentInstance, schema_hash: str | None = None) -> None:
    """Refuse an instance that says it was produced directly and breaks the rules for that; others pass.

    Args:
        instance: from anywhere.
        schema_hash: the schema in force, to check the intentKey too (INV-SD3); None leaves that out.

    Raises:
        Refused: ``NOT_A_DIRECT_INTENT`` when source or actor is no system, or nothing follows the prefix;
            ``WRONG_SCHEMA`` when the intentKey does not follow from the body.
    """
    origin = instance.meta.origin
    if not is_direct(instance):
        return
    if origin.source.kind != "system" or origin.actor.kind != "system":
        raise _not_direct(origin.projection_id, origin.source.kind, origin.actor)
    if origin.projection_id == DIRECT_PREFIX:
        raise Refused(
            "NOT_A_DIRECT_INTENT",
            f"The projectionId {DIRECT_PREFIX!r} names no job; write {DIRECT_PREFIX}scheduler.",
        )
    if schema_hash is not None and instance.intent_key != instance.body.key(schema_hash):
        raise Refused(
            "WRONG_SCHEMA",
            "The intentKey does not follow from the intent under the schema in force. Issue it again.",
            expected=instance.body.key(schema_hash),
            given=instance.intent_key,
        )


def _not_direct(projection_id: str, source_kind: str, actor: ActorRef) -> Refused:
    return Refused(
        "NOT_A_DIRECT_INTENT",
        f"The projectionId {projection_id!r} marks a system direct intent, but its source is {source_kind!r} "
        f"and its actor {actor.actor_id!r} is {actor.kind!r}; both must be 'system'.",
        projection=projection_id,
        actor_id=actor.actor_id,
    )
