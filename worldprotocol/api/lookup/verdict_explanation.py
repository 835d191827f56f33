"""Why a verdict about leases was given: the request, the leases in its way, the two ages, and what happened next.

``worldctl explain`` and the HTTP API use it. Source: KLIS; CARD-audit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.lease_events import LeasesRevoked, RequestWithdrawn, VerdictGiven
from world.klis.manifest import ENGINE_ONLY, read_manifest
from world.read_models.decoding import decoded
from world.read_models.leases import Shown, explain
from world.read_models.lineage import number
from world.read_models.live.request_events import ends_of_leases, events_of_request
from world.read_models.live.state_loading import index_damaged
from worldprotocol.api.lookup.id_lookup import candidates, only

if TYPE_CHECKING:
    from world.klis.ledger_view import ReadableLedger
    from worldprotocol.api.bootstrap import LoggedEvent
    from worldprotocol.api.lookup.point_in_time import PointInTime

__all__ = ["find_explained", "verdict_wire"]

KINDS: Final = ("verdict", "proposal", "intent", "decision")
"""What can be explained."""

AT_LEAST_ONCE_ALLOWED: Final[dict[str, Any]] = {
    "max_triples": 1 << 53,
    "max_resource_chars": 1 << 53,
    "max_depth": 1 << 53,
    "min_subtree_depth": 0,
    "manifest_rules": 1,
}
"""What a recorded manifest was once within, whatever the limits are today."""


def verdict_wire(then: PointInTime, position: int, verdict: VerdictGiven, shown: Shown = str) -> dict[str, Any]:
    """Return why a verdict was given as JSON, and what the log says later about its request.

    Args:
        then: the point in time.
        position: position of the verdict.
        verdict: the verdict.
        shown: how resources are shown.
    """
    ledger = then.ledger()
    why = explain(ledger, verdict, _asked(then, ledger, position, verdict), shown)
    return {
        "verdictId": verdict.verdict_id,
        "position": position,
        "at": verdict.at,
        "status": verdict.status,
        "cause": verdict.cause,
        "agentId": verdict.agent_id,
        "priority": why.rank[0],
        "sessionId": verdict.session_id,
        "requestId": verdict.request_id,
        "channel": verdict.channel,
        "asked": [dict(one) for one in why.asked],
        "reasons": list(why.reasons),
        "moreConflicts": verdict.more_conflicts,
        "rule": why.rule,
        "retryAfterMs": verdict.retry_after_ms,
        "leases": [{**one.to_wire(), "resource": shown(one.resource)} for one in verdict.leases],
        "after": list(_after(then, ledger, position, verdict)),
    }


def find_explained(then: PointInTime, named: str) -> tuple[str | None, tuple[int, VerdictGiven] | None]:
    """Return the proposal, if it is one, and the verdict with its position: the named one, or the last one about it.

    Args:
        then: the point in time.
        named: the beginning of the id of a proposal, an intent, a decision or a verdict, or the id of a request.

    Raises:
        RefusedError: ``NOT_FOUND``, ``AMBIGUOUS``.
    """
    found = only(named, candidates(then.world, named, KINDS) if named else [])
    kind, name = found or ("request", named)
    if kind == "verdict":
        position = number(then.world.archive.rows("verdict", {"of_verdict": name})[0][0])
        then.check_seen(f"Verdict {name} was given", position)
        return None, (position, _verdict(then, position))
    positions = _about(then, name, then.position)
    if found is None and not positions:
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"No proposal and no verdict has an id that begins with {named!r}, and no verdict is about a request of "
            f"that id{'' if then.point is None else f' up to event {then.position}'}; "
            "`worldctl log --topic verdict.given` lists them.",
        )
    last = (positions[-1], _verdict(then, positions[-1])) if positions else None
    return None if found is None else name, last


def _about(then: PointInTime, request: str, upto: int) -> list[int]:
    """Return the positions of the verdicts about a request up to an event."""
    rows = then.world.archive.rows("verdicts_of_request", {"of_request": request})
    return sorted(position for (at,) in rows if (position := number(at)) <= upto)


def _verdict(then: PointInTime, position: int) -> VerdictGiven:
    event = decoded(then.world.log.event_at(position))
    if not isinstance(event, VerdictGiven):
        raise index_damaged("it misplaces a verdict")
    return event


def _asked(then: PointInTime, ledger: ReadableLedger, position: int, verdict: VerdictGiven) -> list[dict[str, Any]]:
    """Return the effective triples that a verdict is about."""
    first = verdict
    if verdict.manifest is None:  # judged again: the manifest is that of the last verdict before that has one
        before = (_verdict(then, at) for at in reversed(_about(then, verdict.request_id, position - 1)))
        found = next((one for one in before if one.manifest is not None), None)
        if found is None:
            raise index_damaged("it lacks the verdict that has a request's manifest")
        first = found
    manifest = read_manifest(
        first.manifest or {},
        settings=replace(ledger.in_force, **AT_LEAST_ONCE_ALLOWED),
        types=ledger.types,
        wide=ENGINE_ONLY,
    )
    return [{"predicate": one.predicate.value, "resource": one.resource.text} for one in manifest.triples]


def _after(then: PointInTime, ledger: ReadableLedger, position: int, verdict: VerdictGiven) -> Iterator[dict[str, Any]]:
    """Yield what the log says later about the request and its leases, up to the point in time."""
    archive, own = then.world.archive, {one.lease_id for one in verdict.leases}
    given = archive.event_at(position)
    found: list[tuple[LoggedEvent, Any]] = [
        *events_of_request(archive, verdict.request_id, after=position, ledger=ledger),
        *ends_of_leases(archive.log, given, {one for one in own if one not in ledger.leases}),
    ]
    for logged, event in sorted(found, key=lambda one: one[0].position):
        if logged.position > then.position:
            return
        rendered = {"position": logged.position, "at": event.at, "topic": logged.topic}
        if isinstance(event, VerdictGiven):
            yield {**rendered, "status": event.status, "verdictId": event.verdict_id}
        elif isinstance(event, RequestWithdrawn):
            yield {**rendered, "reason": event.reason}
        else:
            why = {"by": event.by, "reason": event.reason} if isinstance(event, LeasesRevoked) else {}
            yield {**rendered, "leaseIds": sorted(own & set(event.lease_ids)), **why}
