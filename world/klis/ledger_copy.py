"""Building of a ledger from another one, or from its published view."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from world.klis.ledger import Ledger
from world.klis.ledger_steps import add_lease, queue_request
from world.klis.session import SessionName

if TYPE_CHECKING:
    from world.klis.ledger_view import LedgerView

__all__ = ["ledger_copy"]


def ledger_copy(source: Ledger | LedgerView) -> Ledger:
    """Return an independent ledger with the state of a ledger or of a view; O(leases)."""
    twin = Ledger(
        settings=source.settings,
        types=source.types,
        clock=source.clock,
        agents=dict(source.agents),
        keys=dict(source.keys),
        signers=dict(source.signers),
        nonces=OrderedDict(source.nonces),
        ended=dict(source.ended),
        last_token=source.last_token,
        signed_from=source.signed_from,
        sequence=source.sequence,
        verdicts=dict(source.verdicts),
        died=OrderedDict(source.died),
    )
    for (agent_id, session_id), died in source.died.items():
        twin.added(SessionName(agent_id, session_id, source.agents[agent_id])).dies = died.dies
    for lease in source.leases.values():
        add_lease(twin, lease, twin.added(lease.session))
    for request in source.requests.values():
        queue_request(twin, request, twin.added(request.session))
    return twin
