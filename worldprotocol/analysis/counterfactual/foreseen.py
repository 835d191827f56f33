"""What nobody can compute again, and the branch takes from the record: how long backups took, which files existed, and
what was broken off.

A rule or an action that took longer than it may, or a policy that judged though it was not the adopted one, was a fault
of the process of then. The branch has the same fault in the same place, unless another policy judges there: so nothing
comes to something else only because this machine is a faster one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from authority.policies.policy import TIMED_OUT
from host.executor import ACTION_TIMED_OUT, is_time_out
from world.events.base import Event
from world.events.execution_events import ExecutionStarted
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.events.proposal_events import DecisionMade, ProposalFailed
from world.model.decision import ENGINE, DecisionRecord, Ruling
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
"""What the text of an event has in it that is worth reading."""


@dataclass(slots=True)
class Foreseen:
    """What of the later record nobody can compute again.

    Args:
        existence: whether a file existed, by the session that depends on it, what the check came before, and resource.
        backups: when backups were done, ms since 1970, by the session for whose leases they were made.
        rulings: by proposal, what was ruled where a rule was broken off, or by a policy that was not adopted.
        errors: by proposal, the error in wire form where its action was broken off.
        taken: ids of the proposals for which one of them was made use of.
    """

    existence: dict[tuple[str, str, str], bool] = field(default_factory=dict)
    backups: dict[str, int] = field(default_factory=dict)
    rulings: dict[str, Ruling] = field(default_factory=dict)
    errors: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)


def foresee(source: EventLog, after: int) -> Foreseen:
    """Look ahead in a log from a position on."""
    found = Foreseen()
    for logged in source.read(after, topics=sorted(_SIGNS)):
        if not any(sign in logged.state for sign in _SIGNS[logged.topic]):
            continue
        event = decoded(logged)
        _note_existence(found, event)
        if isinstance(event, VerdictGiven) and event.backup:
            found.backups[event.session_id] = event.at
        elif isinstance(event, DecisionMade):
            record = DecisionRecord.from_wire(event.decision)
            if _is_fault(record):
                words = record.authority, record.reason
                ruling = Ruling("reject", *words, trace=record.trace, policy_hash=record.policy_hash)
                found.rulings[event.proposal_id] = ruling
        elif isinstance(event, ProposalFailed) and is_time_out(event.error):
            found.errors[event.proposal_id] = event.error
    return found


def _note_existence(found: Foreseen, event: Event) -> None:
    """Take in what was observed of the files that something depends on."""
    if isinstance(event, VerdictGiven):
        session, before = event.session_id, "grant"
    elif isinstance(event, RequestWithdrawn):
        session, before = event.request_id, "grant"
    elif isinstance(event, DecisionMade | ExecutionStarted):
        session, before = event.proposal_id, "execution" if isinstance(event, ExecutionStarted) else "grant"
    else:
        return
    for one in event.existence or ():
        found.existence[session, before, one["resource"]] = one["exists"]


def _is_fault(record: DecisionRecord) -> bool:
    """Tell whether a rejection came of a rule that was broken off, or of a policy that was not the adopted one."""
    if record.decision != "rejected":
        return False
    return any(
        (one.rule == ENGINE and one.source == "policy in force")
        or (one.answer == "error" and one.reason.startswith(TIMED_OUT))
        for one in record.trace
    )
