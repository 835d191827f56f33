"""Recheck of verdicts: every recorded manifest is read, authenticated and arbitrated again (KP-5a, CARD-replay)."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from world.error_codes import ErrorCode
from world.errors import DivergenceError, RefusedError
from world.events.lease_events import RequestWithdrawn, VerdictGiven
from world.klis.identity.authentication import channel_fault
from world.klis.identity.signature import verify
from world.klis.kernel import arbitrate
from world.klis.ledger import Ledger
from world.klis.manifest import ENGINE_ONLY, Manifest, Triple, read_manifest
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.model.record import to_wire
from world.pipeline.leasing.missed_wakes import MissedWake
from world.pipeline.leasing.proposal_manifest import manifest_of
from world.pipeline.unit_of_work import UnitOfWork
from world.state.realm_state import RealmState

__all__ = ["missed_wake", "recheck_channel", "recheck_manifest", "recheck_verdict"]


def recheck_verdict(ledger: Ledger, event: VerdictGiven, made: Manifest | None = None) -> DivergenceError | None:
    """Compute a recorded verdict again, with the ledger before it.

    Args:
        ledger: the ledger folded from all events before the event.
        event: the recorded verdict.
        made: the manifest that ``recheck_manifest`` made again, which need not be read again from the event.

    Returns:
        The divergence; None if the result equals the record.
    """
    try:
        triples = _asked_for(ledger, event, made)
    except RefusedError as refused:
        return _diverged(event, {"manifest": {"recorded": event.status, "now": refused.to_dict()}})
    if triples is None or event.agent_id not in ledger.agents:
        return _diverged(event, {"request": {"recorded": event.request_id, "now": "no such request"}})
    given = arbitrate(
        ledger, ledger.session(event.agent_id, event.session_id), triples, event.at, queued=event.cause == "queue"
    )
    recorded: dict[str, Any] = {
        "status": event.status,
        "conflicts": to_wire(event.conflicts),
        "moreConflicts": event.more_conflicts,
        "retryAfterMs": event.retry_after_ms,
        "granted": [[lease.predicate, lease.resource] for lease in event.leases],
        "wanted": to_wire(event.wanted),
    }
    granted = triples if given.status == "Granted" else ()
    is_left = given.status != "Granted" and event.cause == "request" and event.ttl_ms is None
    is_kept = event.queued or (is_left and ledger.in_force.wake_rules >= 2)
    now = {
        "status": given.status,
        "conflicts": [conflict.named().to_wire() for conflict in given.conflicts],
        "moreConflicts": given.more_conflicts,
        "retryAfterMs": given.retry_after_ms,
        "granted": [[triple.predicate.value, triple.resource.text] for triple in granted],
        "wanted": [triple.claim().to_wire() for triple in triples] if is_kept else [],
    }
    differences = {
        name: {"recorded": recorded[name], "now": now[name]} for name in recorded if recorded[name] != now[name]
    }
    return _diverged(event, differences) if differences else None


def _asked_for(ledger: Ledger, event: VerdictGiven, made: Manifest | None) -> tuple[Triple, ...] | None:
    """Return the triples of the verdict's manifest or waiting request."""
    if event.cause in ("queue", "wake"):
        request = (ledger.requests if event.cause == "queue" else ledger.refused).get(event.request_id)
        same = request is not None and (request.session.agent_id, request.session.session_id) == (
            event.agent_id,
            event.session_id,
        )
        return request.triples if request is not None and same else None
    if event.manifest is None:
        return None
    kind = (event.channel or {}).get("kind")
    if made is not None and kind == "engine" and _is_of_states(made, ledger.types):
        manifest = made
    else:
        wide = ENGINE_ONLY if kind == "engine" else frozenset[str]()
        manifest = read_manifest(
            event.manifest, settings=ledger.in_force, types=ledger.types, wide=wide, on_the_way=kind == "run"
        )
    if (manifest.agent_id, manifest.session_id) != (event.agent_id, event.session_id):
        return None
    if kind == "signed":
        keys = [key for key in ledger.keys.values() if key.agent_id == event.agent_id and not key.revoked]
        verify(manifest, [b64decode(key.public) for key in keys])
    return manifest.triples


def _is_of_states(manifest: Manifest, types: ResourceTypes) -> bool:
    """Return whether a manifest equal to this one reads alike: all its resources are states, of the own types.

    One with a confidence is read: 1 equals True, which no manifest may have.
    """
    is_standard = types is STANDARD or types.get("STATE") == STANDARD["STATE"]
    if not is_standard or any("confidence" in item for item in manifest.document["scope"]):
        return False
    return all(triple.resource.type == "STATE" for triple in manifest.triples)


def recheck_channel(realm: RealmState, event: VerdictGiven) -> DivergenceError | None:
    """Authenticate a recorded request again, by the settings, keys, runs and proposals before it (KM-7.1).

    Args:
        realm: the state folded from all events before the event.
        event: the recorded verdict.

    Returns:
        The divergence; None if the request is authenticated as recorded.
    """
    fault = channel_fault(realm.klis, event, runs=realm.runs, proposals=realm.proposals.keys())
    if fault is None:
        return None
    return _diverged(event, {"channel": {"recorded": event.channel, "now": fault}})


def recheck_manifest(work: UnitOfWork, event: VerdictGiven) -> tuple[DivergenceError | None, Manifest | None]:
    """Create a proposal's manifest again, from its ruling and its action's declaration.

    Args:
        work: the realm before the event, and the loaded domain.
        event: the recorded verdict; verdicts on other requests are not checked here.

    Returns:
        The divergence, None if the result equals the record; and the manifest, where it was created and equals it.
    """
    proposal = work.realm.proposals.get(event.request_id)
    if proposal is None or event.manifest is None:
        return None, None
    if proposal.submitted.schema_hash != work.domain.schema.hash:
        return None, None  # its ruling says that it cannot be rechecked
    ruling = proposal.last_ruling
    manifest: Manifest | None = None
    try:
        manifest = manifest_of(work, proposal, ruling.approved_scope)
        now: Any = None if manifest is None else dict(manifest.document)
    except RefusedError as refused:
        now = refused.to_dict()
    if now == event.manifest:
        return None, manifest
    return _diverged(event, {"manifest": {"recorded": event.manifest, "now": now}}), None


def missed_wake(missed: MissedWake) -> DivergenceError:
    """Return the divergence of a verdict that a pass left out."""
    due = missed.missing
    return DivergenceError(
        ErrorCode.WAKE_MISSING,
        missed.message,
        request_id=due.request_id,
        due="Withdrawn" if isinstance(due, RequestWithdrawn) else due.status,
        freed=list(missed.freed),
    )


def _diverged(event: VerdictGiven, differences: dict[str, Any]) -> DivergenceError:
    return DivergenceError(
        ErrorCode.VERDICT_DIFFERS,
        f"Verdict {event.verdict_id} on {event.agent_id!r} differs from the record in: {', '.join(differences)}.",
        verdict_id=event.verdict_id,
        differences=[{"at": name, **both} for name, both in differences.items()],
    )
