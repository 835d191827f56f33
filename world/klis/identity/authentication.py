"""Authentication of lease requests by the ``authentication`` setting (KM-7.1).

- ``signed``: every request needs a signature.
- ``channel``: the caller's identity suffices for a request in its own name. A request in another name, or of an
  unidentified caller, needs a signature; so does every request of an agent that ever had a key, since a revoked key
  must not make its agent easier to impersonate.
- ``open``: no request needs one, and the claimed identity is recorded; the default of logs without the setting.

The ``channel`` of a request records how it was authenticated: ``signed`` with a key, ``vouched`` for by the caller,
``run`` for the engine on behalf of an open run, ``engine`` for a proposal. Source: KLIS-1 section 7.
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
    """Return whether no authentication is required, by setting or in an old log."""
    return ledger.in_force.authentication in (None, "open")


def why_signature(ledger: Ledger, agent_id: str, by: str | None) -> str | None:
    """Return why a request needs a signature, as a clause; None where it needs none.

    Args:
        ledger: the settings and keys in force.
        agent_id: the agent of the request.
        by: the caller's identity; None for an unidentified caller.
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
        "or send the request in the agent's own name"
    )


def run_fault(runs: Mapping[str, RunOpened], run_id: object, agent_id: str) -> str | None:
    """Return why a request cannot be made for a run, as a clause; None where it can."""
    opened = runs.get(run_id) if isinstance(run_id, str) else None
    if opened is None:
        return f"no run {run_id!r} is open"
    return None if opened.agent_id == agent_id else f"run {run_id} is that of {opened.agent_id!r}"


def channel_fault(
    ledger: Ledger, event: VerdictGiven, *, runs: Mapping[str, RunOpened], proposals: Collection[str]
) -> str | None:
    """Return the contradiction of a recorded channel with the ledger, if any.

    ``world.klis.identity.signature`` verifies the signatures themselves.

    Args:
        ledger: the fold of everything before the event.
        event: the first verdict on the request; later ones have no manifest, and no fault.
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
            return f"it was sent by the unknown channel {kind!r}"
