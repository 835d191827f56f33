"""Intents that a system issues itself, without a projection.

For schedulers, migrations and automation. Their projectionId begins with ``system:`` and their source and actor are
systems (SD-1, SD-2); otherwise they are ordinary intents and judged as such (SD-4, INV-SD3). Source: intent
specification 8.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from projections.issuer import Issuer, IssueRequest
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.model.actor import ActorRef
from world.model.intent import IntentBody, IntentInstance, IntentOrigin
from world.model.intent_origin import DIRECT_PREFIX, check_direct, is_direct, not_direct
from world.model.source import SourceEvent

__all__ = ["Trigger", "check_direct", "direct", "is_direct"]

_JOB: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")


@dataclass(frozen=True, slots=True)
class Trigger:
    """Event that causes a system to issue an intent.

    Args:
        event_id: id of the event, such as the run of a scheduled job; the same run has the same id.
        job: the job that issues the intent, such as ``scheduler``; the projectionId is ``system:`` and this.
        payload: the payload of the event, JSON.
    """

    event_id: str
    job: str = "direct"
    payload: Any = None


def direct(
    issuer: Issuer,
    *,
    schema_hash: str,
    actor: ActorRef,
    trigger: Trigger,
    body: IntentBody,
    note: str | None = None,
) -> IntentInstance:
    """Issue an intent of a system without a projection (INT-8.1, INT-8.2).

    Args:
        issuer: assigns the identity.
        schema_hash: the schema in force.
        actor: the system that is responsible; its kind must be ``system``.
        trigger: the event that caused it.
        body: the intent's body; equal runs produce equal bodies (SD-3).
        note: a remark for people; never part of the meaning.

    Raises:
        RefusedError: ``NOT_A_DIRECT_INTENT`` for an actor that is not a system or an invalid job name;
            ``INVALID_VALUE`` for an invalid event id or payload.
    """
    job = trigger.job
    if not isinstance(job, str) or not _JOB.fullmatch(job):
        raise RefusedError(
            ErrorCode.NOT_A_DIRECT_INTENT,
            f"{repr(job)[:80]} is not a valid job name: use letters, digits, '.', '_', '-' and '/' only, such as "
            f"'scheduler' (the prefix {DIRECT_PREFIX!r} is added).",
        )
    source = SourceEvent.read({"kind": "system", "eventId": trigger.event_id, "payload": trigger.payload})
    if actor.kind != "system":
        raise not_direct(IntentOrigin(projection_id=DIRECT_PREFIX + job, source=source.ref, actor=actor))
    return issuer.issue(IssueRequest(schema_hash, DIRECT_PREFIX + job, actor, source, body, note))
