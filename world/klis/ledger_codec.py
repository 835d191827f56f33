"""Codec of the lease ledger as JSON, which is stored beside the log.

The stored content equals the fold of the same events; derived indexes are rebuilt. It is a cache: the events are
authoritative, and ``verify`` compares.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from world.error_codes import ErrorCode
from world.errors import DamagedLogError
from world.klis.ledger import Ledger
from world.klis.ledger_steps import add_lease, queue_request, refuse_request
from world.klis.ledger_view import ReadableLedger
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.session import AgentKey, Died, Lease, RefusedRequest, Request, Session, SessionName
from world.klis.settings import KlisSettings
from world.klis.triple import Triple, read_triple

__all__ = ["ledger_to_wire", "read_ledger"]


def ledger_to_wire(ledger: ReadableLedger) -> dict[str, Any]:
    """Return a ledger as JSON; ordered content is a list."""
    wire = {
        "settings": None if ledger.settings is None else ledger.settings.to_wire(),
        "types": ledger.types.to_wire(),
        "clock": ledger.clock,
        "agents": [[rank[0], name] for name, rank in ledger.agents.items()],
        "keys": [[key.key_id, key.agent_id, key.public, key.revoked] for key in ledger.keys.values()],
        "nonces": [[agent, nonce, at] for (agent, nonce), at in ledger.nonces.items()],
        "died": [[agent, session, died.dies, died.at] for (agent, session), died in ledger.died.items()],
        "ended": [list(item) for item in ledger.ended.items()],
        "lastToken": ledger.last_token,
        "sequence": ledger.sequence,
        "verdicts": dict(ledger.verdicts),
        "leases": [_lease_wire(lease) for lease in ledger.leases.values()],
        "requests": [_request_wire(request) for request in ledger.requests.values()],
    }
    if ledger.signed_from:
        wire["signedFrom"] = ledger.signed_from
    if ledger.refused:
        wire["refused"] = [_refused_wire(request) for request in ledger.refused.values()]
    return wire


def read_ledger(wire: Mapping[str, Any]) -> Ledger:
    """Return the ledger of a result of ``ledger_to_wire``.

    Raises:
        DamagedLogError: ``INDEX_DAMAGED`` for any other value.
    """
    try:
        return _read(wire)
    except (KeyError, TypeError, ValueError, AttributeError, DamagedLogError) as error:
        raise DamagedLogError(
            ErrorCode.INDEX_DAMAGED,
            f"The lease ledger kept beside the log cannot be read ({error!r}); `worldctl doctor --rebuild` drops it.",
        ) from None


def _read(wire: Mapping[str, Any]) -> Ledger:
    ledger = Ledger(
        settings=None if wire["settings"] is None else KlisSettings.recorded(wire["settings"]),
        types=ResourceTypes.recorded(wire["types"]) if wire["types"] else STANDARD,
        clock=wire["clock"],
        agents={name: (priority, name) for priority, name in wire["agents"]},
        keys={row[0]: AgentKey(row[0], row[1], row[2], revoked=row[3]) for row in wire["keys"]},
        signers={row[1]: None for row in wire["keys"]},
        nonces=OrderedDict(((agent, nonce), at) for agent, nonce, at in wire["nonces"]),
        ended=dict(wire["ended"]),
        last_token=wire["lastToken"],
        signed_from=wire.get("signedFrom", 0),
        sequence=wire["sequence"],
        verdicts=dict(wire["verdicts"]),
    )
    for agent_id, session_id, dies, at in wire["died"]:
        _session(ledger, agent_id, session_id).dies = dies
        ledger.died[agent_id, session_id] = Died(dies, at)
    for row in wire["leases"]:
        session = _session(ledger, row[2], row[3])
        add_lease(ledger, _read_lease(ledger, session.name, row), session)
    for row in wire["requests"]:
        request_id, agent_id, session_id, triples, since, sequence, ttl_ms, deadline = row
        session = _session(ledger, agent_id, session_id)
        wanted = tuple(_read_triple(one, ledger.types) for one in triples)
        queue_request(ledger, Request(request_id, session.name, wanted, since, sequence, ttl_ms, deadline), session)
    for request_id, agent_id, session_id, triples, sequence, blocked in wire.get("refused", ()):
        name = SessionName(agent_id, session_id, ledger.agents[agent_id])
        wanted = tuple(_read_triple(one, ledger.types) for one in triples)
        refuse_request(ledger, RefusedRequest(request_id, name, wanted, sequence, blocked))
    ledger.refusals.free_all()
    return ledger


def _session(ledger: Ledger, agent_id: str, session_id: str) -> Session:
    return ledger.added(SessionName(agent_id, session_id, ledger.agents[agent_id]))


def _lease_wire(lease: Lease) -> list[Any]:
    return [
        lease.lease_id,
        lease.token,
        lease.session.agent_id,
        lease.session.session_id,
        _triple_wire(lease.triple),
        lease.verdict_id,
        lease.granted_at,
        lease.ttl_ms,
        lease.expires_at,
        lease.hold_until,
    ]


def _read_lease(ledger: Ledger, session: SessionName, row: list[Any]) -> Lease:
    lease_id, token, _, _, triple, verdict_id, granted_at, ttl_ms, expires_at, hold_until = row
    read = _read_triple(triple, ledger.types)
    return Lease(lease_id, token, session, read, verdict_id, granted_at, ttl_ms, expires_at, hold_until)


def _request_wire(request: Request) -> list[Any]:
    return [
        request.request_id,
        request.session.agent_id,
        request.session.session_id,
        [_triple_wire(triple) for triple in request.triples],
        request.since,
        request.sequence,
        request.ttl_ms,
        request.deadline,
    ]


def _refused_wire(request: RefusedRequest) -> list[Any]:
    return [
        request.request_id,
        request.session.agent_id,
        request.session.session_id,
        [_triple_wire(triple) for triple in request.triples],
        request.sequence,
        request.blocked,
    ]


def _triple_wire(triple: Triple) -> list[str]:
    return [triple.predicate.value, triple.resource.text, triple.confidence.value]


def _read_triple(row: list[str], types: ResourceTypes) -> Triple:
    predicate, resource, confidence = row
    return read_triple(predicate, resource, types, confidence=confidence)
