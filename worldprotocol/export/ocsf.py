"""Decisions and outcomes of proposals as OCSF events of the class API Activity (6003).

Each of these events of a log is one OCSF event: a decision, and the end of an execution.

===================  ==========  ============  =======================
event                action      disposition   status
===================  ==========  ============  =======================
approved             Allowed     Allowed       Other (``Approved``)
rejected             Denied      Blocked       Failure
proposal.completed   Allowed     Allowed       Success
proposal.failed      Allowed     Allowed       Failure
===================  ==========  ============  =======================

The actor is that of the intent, the operation its action. The log records no network address: the source endpoint names
the actor. ``metadata.uid`` identifies the event, ``metadata.correlation_uid`` the proposal. Inputs are left out. A
hidden event has no OCSF form; where the submission of a proposal is hidden, its actor and action are left out.
Source: OCSF 1.8.0, class ``api_activity`` with the profile ``security_control``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from world.events.base import Event
from world.events.proposal_events import DecisionMade, ProposalCompleted, ProposalFailed, ProposalSubmitted
from world.read_models.decoding import decoded
from worldprotocol.api.bootstrap import EventLog, LoggedEvent
from worldprotocol.export.cloud_events import CloudEvents
from worldprotocol.export.redaction import Redaction

__all__ = ["ApiActivities"]

OCSF_VERSION: Final = "1.8.0"
"""Version of the schema."""

MAX_KEPT: Final = 1_000
"""Submissions that are kept in memory."""

_CLASS_UID: Final = 6003
_OTHER: Final = 99
_USER_TYPES: Final = {"human": (1, "User"), "agent": (4, "Service"), "system": (3, "System")}
_ALLOWED: Final = {"action_id": 1, "action": "Allowed", "disposition_id": 1, "disposition": "Allowed"}
_BLOCKED: Final = {"action_id": 2, "action": "Denied", "disposition_id": 2, "disposition": "Blocked"}
_SUCCESS: Final = {"status_id": 1, "status": "Success", "severity_id": 1, "severity": "Informational"}
_FAILURE: Final = {"status_id": 2, "status": "Failure", "severity_id": 2, "severity": "Low"}
_APPROVED: Final = {**_SUCCESS, "status_id": _OTHER, "status": "Approved"}


class ApiActivities:
    """Events of one log as OCSF events.

    Args:
        log: the log.
        redaction: what is hidden from the reader.
    """

    def __init__(self, log: EventLog, redaction: Redaction) -> None:
        self._log = log
        self._redaction = redaction
        self._cloud = CloudEvents(log)
        self._submission = lru_cache(MAX_KEPT)(self._read_submission)

    def form(self, logged: LoggedEvent, is_hidden: bool = False) -> dict[str, Any] | None:
        """Return an event as OCSF; None for a hidden event, and for one of another topic.

        Args:
            logged: the event.
            is_hidden: whether it is hidden from the reader.

        Raises:
            DamagedLogError: ``EVENT_CHANGED`` and others of reading the log.
        """
        if is_hidden or logged.topic not in (DecisionMade.TOPIC, ProposalCompleted.TOPIC, ProposalFailed.TOPIC):
            return None
        event = decoded(logged)
        submission = self._submission(logged.stream)
        actor = {"app_name": "World Protocol"} if submission is None else _actor(submission)
        operation = "redacted" if submission is None else submission.intent.body.type
        request = {} if submission is None else {"request": {"uid": submission.intent.intent_id}}
        outcome = _outcome(event)
        return {
            "class_uid": _CLASS_UID,
            "class_name": "API Activity",
            "category_uid": _CLASS_UID // 1_000,
            "category_name": "Application Activity",
            "activity_id": _OTHER,
            "activity_name": operation,
            "type_uid": _CLASS_UID * 100 + _OTHER,
            "type_name": "API Activity: Other",
            "time": event.at,
            "actor": actor,
            "src_endpoint": {"svc_name": "redacted" if submission is None else submission.actor.actor_id},
            **outcome,
            "api": {
                "operation": operation,
                "service": {"name": "World Protocol", "uid": self._cloud.source},
                **request,
                **outcome["api"],
            },
            "metadata": {
                "version": OCSF_VERSION,
                "product": {"name": "World Protocol", "vendor_name": "World Protocol"},
                "profiles": ["security_control"],
                "uid": f"{self._cloud.source}:{logged.position}",
                "sequence": logged.position,
                "event_code": logged.topic,
                "log_name": self._cloud.source,
                "correlation_uid": logged.stream,
            },
            "unmapped": {"leaf": logged.leaf.hex(), **outcome["unmapped"]},
        }

    def _read_submission(self, stream: str) -> ProposalSubmitted | None:
        """Return the submission of a proposal; None where it is hidden from the reader."""
        for first in self._log.stream(stream, limit=1):
            if self._redaction and self._redaction.hides(first):
                return None
            event = decoded(first)
            if isinstance(event, ProposalSubmitted):
                return event
        return None


def _actor(submission: ProposalSubmitted) -> dict[str, Any]:
    actor = submission.actor
    type_id, kind = _USER_TYPES[actor.kind]
    name = {} if actor.name is None else {"name": actor.name}
    return {"user": {"uid": actor.actor_id, "type_id": type_id, "type": kind, **name}}


def _outcome(event: Event) -> Mapping[str, Any]:
    """Return the members of an OCSF event that depend on what became of the proposal."""
    if isinstance(event, ProposalCompleted):
        return {**_ALLOWED, **_SUCCESS, "message": "Completed.", "api": {}, "unmapped": {"worldId": event.world_id}}
    if isinstance(event, ProposalFailed):
        error = {"error": event.error.code, "error_message": event.error.message}
        detail = {"status_code": event.error.code, "status_detail": event.error.message}
        unmapped = {"worldId": event.world_id}
        return {
            **_ALLOWED,
            **_FAILURE,
            **detail,
            "message": "Failed.",
            "api": {"response": error},
            "unmapped": unmapped,
        }
    assert isinstance(event, DecisionMade)
    record = event.decision
    uid = {} if record.policy_hash is None else {"uid": record.policy_hash}
    denied = {"error": record.decision, "error_message": record.reason}
    return {
        **(_ALLOWED | _APPROVED if record.decision == "approved" else _BLOCKED | _FAILURE),
        "status_code": record.decision,
        "status_detail": record.reason,
        "message": record.reason,
        "policy": {"name": record.authority, **uid},
        "api": {} if record.decision == "approved" else {"response": denied},
        "unmapped": {"decisionId": record.decision_id, "rules": record.decisive_rules},
    }
