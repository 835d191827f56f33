"""What an open proposal waits for, in words that an agent can act on."""

from __future__ import annotations

from typing import Any, Final

from world.events.lease_events import VerdictGiven
from world.events.proposal_events import ProposalSuperseded
from world.events.resource_values import NamedConflict
from world.klis.conflict import Conflict
from world.read_models.decoding import decoded
from world.read_models.leases import lack
from world.state.proposal import Proposal
from world.state.proposal_queues import awaits_caller
from worldprotocol.api.proposal_summary import moment
from worldprotocol.api.realm import Realm

__all__ = ["waits_for", "with_waits"]

MOST_NAMED: Final = 3
"""Conflicts that are named; the log has all of them."""


def waits_for(realm: Realm, proposal: Proposal) -> str:
    """Return what an open proposal waits for, after the words "It waits for".

    Args:
        realm: its realm.
        proposal: an open proposal.
    """
    ruling = proposal.asked
    if ruling is not None:
        asked = ["any person" if one == "*" else one for one in ruling.ask]
        until = f" until {moment(proposal.deadline)}" if proposal.deadline is not None else ""
        why = f" ({ruling.reason.rstrip('.')})" if ruling.reason else ""
        return f"an answer of {' or '.join(asked)}{until}{why}"
    view = realm.realm()
    if awaits_caller(view.klis, proposal):
        return "its call: it was approved, and continues when the same call is repeated"
    missing = lack(view, proposal.proposal_id)
    if missing is not None:
        held = _holders(realm, proposal.proposal_id, missing.wait.conflicts if missing.wait is not None else ())
        again = (
            ""
            if missing.wait is not None or not missing.retry_at
            else f"; it asks for them again when they are free, at the latest at {moment(missing.retry_at)}"
        )
        return f"resources that others use: {held}{again}" if held else "its turn to use resources"
    if proposal.held is not None:
        return f"the operator: {proposal.held.cause} differs ({', '.join(proposal.held.names)})"
    return f"its execution ({proposal.status})"


def with_waits(realm: Realm, proposal: Proposal) -> dict[str, Any]:
    """Return a proposal as JSON, with what it waits for, or by whom and why it was withdrawn.

    Args:
        realm: its realm.
        proposal: the proposal.

    Returns:
        ``Proposal.to_wire``; an open one has ``waits`` besides: ``for``, in words, and ``people``, whether it waits for
        the answer of a person. One that was withdrawn has ``withdrawn``: ``by`` and ``reason``.
    """
    shown = proposal.to_wire()
    if not proposal.is_terminal:
        shown["waits"] = {"for": waits_for(realm, proposal), "people": proposal.asked is not None}
    elif proposal.status == "superseded":
        events = [decoded(one) for one in realm.log.stream(proposal.proposal_id)]
        last = next((one for one in reversed(events) if isinstance(one, ProposalSuperseded)), None)
        if last is not None and last.by is not None:
            shown["withdrawn"] = {"by": last.by, "reason": last.reason}
    return shown


def _holders(realm: Realm, proposal_id: str, conflicts: tuple[Conflict, ...]) -> str:
    """Return the conflicts of a request: those of the queue, else those of its last verdict."""
    found: list[Conflict] | list[NamedConflict] = list(conflicts)
    if not found:
        rows = realm.archive.rows("verdicts_of_request", {"of_request": proposal_id})
        events = [decoded(realm.archive.event_at(int(row[0]))) for row in rows[-1:]]
        found = [one for event in events if isinstance(event, VerdictGiven) for one in event.conflicts]
    words = dict.fromkeys(_holder(realm, one) for one in found[:MOST_NAMED])
    more = " and others" if len(found) > MOST_NAMED else ""
    return f"{', '.join(words)}{more}"


def _holder(realm: Realm, conflict: Conflict | NamedConflict) -> str:
    resource = str(conflict.resource).removeprefix("FILE:")
    lease = realm.realm().klis.leases.get(conflict.lease_id or "")
    verb = "is next for" if conflict.lease_id is None else "held" if lease is None else "holds"
    since = "" if lease is None else f" since {moment(lease.granted_at)}"
    return f"{conflict.holder} {verb} {conflict.predicate} on {resource}{since}"
