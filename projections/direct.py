"""Intents that a system produces itself, without a projection (intent specification 8).

For schedulers, migrations and automation. Their projectionId begins with ``system:`` and their source and
actor are systems (SD-1, SD-2); in all else they are intents like any other, judged like any other (SD-4,
INV-SD3).
"""

from __future__ import annotations

import re
from typing import Any, Final

from projections.issuer import Issuer, IssueRequest
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance, IntentOrigin
from world.model.intent_origin import DIRECT_PREFIX, check_direct, is_direct, not_direct
from world.model.source import SourceEvent

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
        RefusedError: ``NOT_A_DIRECT_INTENT`` for an actor that is no system or a bad job name; ``INVALID_VALUE``
            for a bad event id or payload.
    """
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise RefusedError(
            "NOT_A_DIRECT_INTENT",
            f"{repr(job)[:80]} names no job: give letters, digits, '.', '_', '-' and '/' only, such as "
            f"'scheduler' (the prefix {DIRECT_PREFIX!r} is added).",
        )
    source = SourceEvent.read({"kind": "system", "eventId": event_id, "payload": payload})
    if actor.kind != "system":
        raise not_direct(IntentOrigin(projection_id=DIRECT_PREFIX + job, source=source.ref, actor=actor))
    return issuer.issue(IssueRequest(schema_hash, DIRECT_PREFIX + job, actor, source, body, note))
