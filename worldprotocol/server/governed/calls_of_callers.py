"""The open calls of a realm by their callers: sessions, and runs, which are named by the keys of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from world.pipeline.unit_of_work import UnitOfWork
from world.state.proposal import Proposal
from worldprotocol.agents.call_values import EFFECT
from worldprotocol.agents.command_runs import has_begun, is_run
from worldprotocol.api.realm import Realm
from worldprotocol.server.governed.heard_callers import CallerName

__all__ = ["begun_at", "begun_run", "call_with_key", "calls_by_session", "calls_of_session", "keys_of"]


def calls_of_session(proposals: Iterable[Proposal], name: CallerName) -> Iterator[Proposal]:
    """Yield the calls of a session.

    Args:
        proposals: open proposals.
        name: actor and id of the session.
    """
    return (one for one in proposals if (one.submitted.actor.actor_id, one.session) == name)


def calls_by_session(proposals: Iterable[Proposal]) -> dict[CallerName, list[Proposal]]:
    """Return the attended calls among open proposals by their sessions."""
    found: dict[CallerName, list[Proposal]] = {}
    for one in proposals:
        if one.submitted.attended is not None and one.session is not None:
            found.setdefault((one.submitted.actor.actor_id, one.session), []).append(one)
    return found


def call_with_key(proposals: Iterable[Proposal], name: CallerName) -> Proposal | None:
    """Return the call that was begun with a key; None where none is open.

    Args:
        proposals: open proposals.
        name: actor and key of the call.
    """
    actor_id, key = name
    own = (one for one in proposals if one.submitted.actor.actor_id == actor_id)
    return next((one for one in own if key in keys_of(one)), None)


def keys_of(proposal: Proposal) -> Iterator[str]:
    """Yield the keys with which calls of a proposal were begun."""
    for name, claim in proposal.claims.items():
        if claim.key is not None and proposal.requested[name].requirement.type == EFFECT:
            yield claim.key


def begun_at(proposal: Proposal) -> int:
    """Return when a call was proposed or claimed last, in ms since 1970.

    Args:
        proposal: its proposal.
    """
    return max([proposal.submitted.at, *(one.at for one in proposal.claims.values())])


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
