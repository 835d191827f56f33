"""Recorded facts that cannot be computed again.

These are the duration of backups, the existence of files, and time-outs. A rule or an action that exceeded its time
limit, or a ruling by a policy other than the adopted one, was a fault of the recording process. The counterfactual
repeats the fault, unless another policy judges the case: the speed of this machine changes no result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from authority.policies.policy import TIMED_OUT
from host.executor import ACTION_TIMED_OUT, is_time_out
from world.events.base import Event
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalFailed
from world.model.decision import ENGINE, DecisionRecord, Ruling
from world.model.snapshot import ErrorValue
from world.read_models.decoding import decoded
from worldprotocol.api.bootstrap import EventLog

__all__ = ["Foreseen", "foresee"]

EXISTENCE: Final = b'"existence":['

_SIGNS: Final = {
    VerdictGiven.TOPIC: (b'"backup":true', EXISTENCE),
    RequestWithdrawn.TOPIC: (EXISTENCE,),
    ExecutionStarted.TOPIC: (EXISTENCE,),
    DecisionMade.TOPIC: (TIMED_OUT.encode(), b"at hand is not the one that was adopted", EXISTENCE),
    ProposalFailed.TOPIC: (ACTION_TIMED_OUT.encode(),),
}
"""Texts by which relevant events are recognised before they are decoded."""


@dataclass(slots=True)
class Foreseen:
    """Facts of the later record that cannot be computed again.

    Args:
        existence: existence of files, by the dependent session, the step before which it was checked, and resource.
        backups: end times of backups, ms since 1970, by the session of the leases.
        rulings: by proposal, rulings with a time-out or by a policy that was not adopted.
        errors: by proposal, the error of an action that timed out.
        taken: ids of the proposals for which one of these facts was used.
    """

    existence: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    backups: dict[str, int] = field(default_factory=dict)
    rulings: dict[str, Ruling] = field(default_factory=dict)
    errors: dict[str, ErrorValue] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)


def foresee(source: EventLog, after: int) -> Foreseen:
    """Collect the facts of a log after a position."""
    found = Foreseen()
    for logged in source.read(after, topics=sorted(_SIGNS)):
        if not any(sign in logged.state for sign in _SIGNS[logged.topic]):
            continue
        event = decoded(logged)
        _note_existence(found, event)
        if isinstance(event, VerdictGiven) and event.backup:
            found.backups[event.session_id] = event.at
        elif isinstance(event, DecisionMade):
            record = event.decision
            if _is_fault(record):
                words = record.authority, record.reason
                ruling = Ruling("reject", *words, trace=record.trace, policy_hash=record.policy_hash)
                found.rulings[event.proposal_id] = ruling
        elif isinstance(event, ProposalFailed) and is_time_out(event.error):
            found.errors[event.proposal_id] = event.error
    return found


def _note_existence(found: Foreseen, event: Event) -> None:
    """Record the observed existence of files."""
    if isinstance(event, VerdictGiven):
        session, before = event.session_id, "grant"
    elif isinstance(event, RequestWithdrawn):
        session, before = event.request_id, "grant"
    elif isinstance(event, DecisionMade | ExecutionStarted):
        session, before = event.proposal_id, "execution" if isinstance(event, ExecutionStarted) else "grant"
    else:
        return
    for one in event.existence or ():
        found.existence[session, before, one.resource] = one.exists


def _is_fault(record: DecisionRecord) -> bool:
    """Return whether a rejection was caused by a time-out or a policy that was not adopted."""
    if record.decision != "rejected":
        return False
    return any(
        (one.rule == ENGINE and one.source == "policy in force")
        or (one.answer == "error" and one.reason.startswith(TIMED_OUT))
        for one in record.trace
    )
