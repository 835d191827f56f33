"""The open calls of a realm by their callers: sessions, and runs, which are named by the keys of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import EFFECT
from worldprotocol.agents.command_runs import has_begun, is_run
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.heard_callers import CallerName

__all__ = ["begun_run", "calls_of_session", "keys_of"]


def calls_of_session(proposals: Iterable[Proposal], name: CallerName) -> Iterator[Proposal]:
    """Yield the calls of a session.

    Args:
        proposals: open proposals.
        name: actor and id of the session.
    """
    return (one for one in proposals if (one.submitted.actor.actor_id, one.session) == name)


def keys_of(proposal: Proposal) -> Iterator[str]:
    """Yield the keys with which calls of a proposal were begun."""
    for name, claim in proposal.claims.items():
        if claim.key is not None and proposal.requested[name].requirement.type == EFFECT:
            yield claim.key


def begun_run(realm: Realm, proposal: Proposal, work: UnitOfWork | None = None) -> str | None:
    """Return the key of the call whose run began, by the log and by a unit; None where none did.

    Args:
        realm: the realm.
        proposal: an open proposal.
        work: a unit whose events are not on the log yet.
    """
    if not is_run(proposal):
        return None
    emitted = [] if work is None else [one.event for one in work.emitted]
    claims = (one for one in proposal.claims.values() if one.key is not None)
    return next((one.key for one in claims if has_begun(realm, one, emitted)), None)
