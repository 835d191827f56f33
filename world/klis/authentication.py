"""Which requests for leases need a signature, by the realm's ``authentication`` setting (KLIS-1 section 7, KM-7.1).

- ``signed``: every request needs one.
- ``channel``: the caller's own identity is enough for a request in its own name. A request in another name, or one that
  a caller hands in without naming itself, needs a signature; so does every request of an agent that ever had a key,
  since a key that was revoked must not make its agent easier to imitate.
- ``open``: none needs one, and the caller's word is recorded. So it is in a log that does not record the setting.

How a request was authenticated is its ``channel``: ``signed`` with a key, ``vouched`` for by the caller, ``run`` for
what the engine asks in the name of a run that is open, ``engine`` for what it asks for a proposal.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from world.events.lease_events import VerdictGiven
    from world.events.run_events import RunOpened
    from world.klis.ledger import Ledger

__all__ = ["channel_fault", "is_open", "run_fault", "why_signature"]

_SIGN = "sign it with `worldctl klis sign` and hand it in as a manifest"


def is_open(ledger: Ledger) -> bool:
    """Return whether the caller's word is enough in every name: chosen, or from before the setting was recorded."""
    return ledger.in_force.authentication in (None, "open")


def why_signature(ledger: Ledger, agent_id: str, by: str | None) -> str | None:
    """Return why a request needs a signature, and what to do, as a clause; None where it needs none.

    Args:
        ledger: the settings and keys in force.
        agent_id: in whose name the request is.
        by: the caller's identity; None where the caller did not name itself.
    """
    if is_open(ledger):
        return None
    if agent_id in ledger.signers:
        keys = [key for key in ledger.keys.values() if key.agent_id == agent_id and not key.revoked]
        if keys:
            return f"the agent has the registered key {keys[0].key_id}: {_SIGN}"
        return f"every key of the agent is revoked: register a new one (`worldctl keys register`), and {_SIGN}"
    if ledger.in_force.authentication == "signed":
        return (
            "this realm takes signed manifests only ([klis] authentication) and the agent has no key: register one "
            f"(`worldctl keys register`), and {_SIGN}"
        )
    if by == agent_id:
        return None
    caller = "a caller that did not name itself" if by is None else repr(by)
    return (
        f"it is handed in by {caller}, and the agent has no key: register one (`worldctl keys register`), and {_SIGN}; "
        "or let the agent ask in its own name"
    )


def run_fault(runs: Mapping[str, RunOpened], run_id: object, agent_id: str) -> str | None:
    """Return why a request cannot be made in the name of a run, as a clause; None where it can."""
    opened = runs.get(run_id) if isinstance(run_id, str) else None
    if opened is None:
        return f"no run {run_id!r} is open"
    return None if opened.agent_id == agent_id else f"run {run_id} is that of {opened.agent_id!r}"


def channel_fault(
    ledger: Ledger, event: VerdictGiven, *, runs: Mapping[str, RunOpened], proposals: Collection[str]
) -> str | None:
    """Return why a recorded request could not have been authenticated as its verdict says; None where it could.

    Signatures themselves are for ``world.klis.signature``.

    Args:
        ledger: the fold of everything before the event.
        event: the first verdict about the request; others have no manifest, and no fault.
        runs: the runs that are open, by id.
        proposals: ids of the proposals that have not ended.
    """
    if event.manifest is None or is_open(ledger):
        return None
    channel: Mapping[str, Any] = event.channel or {}
    match channel.get("kind"):
        case "signed":
            return None if channel.get("keyId") in ledger.keys else f"there is no key {channel.get('keyId')!r}"
        case "engine":
            is_proposal = event.request_id in proposals and event.session_id == event.request_id
            return None if is_proposal else f"request {event.request_id} is not that of a proposal"
        case "run":
            return run_fault(runs, channel.get("runId"), event.agent_id)
        case "vouched":
            return why_signature(ledger, event.agent_id, channel.get("by"))
        case kind:
            return f"it came by the unknown channel {kind!r}"
