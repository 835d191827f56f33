"""Proposals that lack nothing but their leases: the requests before them, or the time of the retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from worldprotocol.operations.fields import shown_retry

if TYPE_CHECKING:
    from world.klis.conflict import Conflict
    from world.klis.ledger_view import ReadableLedger
    from world.read_models.leases import Lack, Wait
    from world.state.realm_view import RealmView

MOST_NAMED: Final = 3
"""Leases or requests in the way that are named in words; JSON has more of them."""


def leases_wanted(realm: RealmView, proposal_id: str) -> dict[str, Any] | None:
    """Return as JSON what a proposal waits for, None where it does not wait for leases."""
    from world.read_models.leases import lack

    found = lack(realm, proposal_id)
    return None if found is None else described(realm.klis, found)


def described(ledger: ReadableLedger, lack: Lack) -> dict[str, Any]:
    """Return why a proposal waits for leases, as JSON."""
    if lack.wait is not None:
        wait = lack.wait
        return {"state": "queued", "since": wait.request.since, "waitsFor": edges(ledger, wait), "more": wait.more}
    return {"state": "retrying", "attempts": lack.dies, "retryAt": lack.retry_at}


def edges(ledger: ReadableLedger, wait: Wait, shown: Any = str) -> list[dict[str, Any]]:
    """Return what is in the way of a request, as JSON; ``shown`` says how resources are shown."""
    return [_edge(ledger, wait.request.triples[one.intent], one, shown) for one in wait.conflicts]


def _edge(ledger: ReadableLedger, wanted: Any, conflict: Conflict, shown: Any) -> dict[str, Any]:
    return {
        "wants": f"{wanted.predicate} {shown(wanted.resource.text)}",
        "kind": "lease" if conflict.lease_id is not None else "turn",
        "holder": conflict.holder,
        "holderSession": conflict.session,
        "holderPriority": ledger.agents[conflict.holder][0],
        "what": f"{conflict.predicate} {shown(conflict.resource)}",
        "leaseId": conflict.lease_id,
        "behind": conflict.request_id,
    }


def in_words(waiting: dict[str, Any], now: int) -> str:
    """Say what a proposal waits for, after the word "waits".

    Args:
        waiting: see ``leases_wanted``.
        now: ms since 1970.
    """
    if waiting["state"] == "queued":
        ways = [_way(edge) for edge in waiting["waitsFor"][:MOST_NAMED]]
        more = " and others" if waiting["more"] or len(waiting["waitsFor"]) > MOST_NAMED else ""
        behind = f"in the queue behind {', '.join(ways)}{more}"
        return f"for leases, {behind if ways else 'and nothing is in its way'}"
    tried = f"for leases that were not free in {attempts(waiting['attempts'])}"
    return f"{tried}; it is tried again {shown_retry(waiting['retryAt'], is_due=waiting['retryAt'] <= now)}"


def _way(edge: dict[str, Any]) -> str:
    verb = "holds" if edge["kind"] == "lease" else "waits for"
    return f"{edge['holder']}, who {verb} {edge['what']}"


def attempts(number: int) -> str:
    """Return how often a proposal was tried."""
    return "1 attempt" if number == 1 else f"{number} attempts"
