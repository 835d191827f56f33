"""Waiting for a proposal: until it has ended, or until it is decided.

``Realm.wait`` raises when its time is over, as ``concurrent.futures`` does: its caller has nothing else to return to.
``wait`` of ``Realm.act``, ``submit`` and ``project`` returns the proposal as it is then: the intent stays submitted,
and an error would suggest to submit it again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Literal, TypeAlias

from world.error_codes import ErrorCode
from world.errors import RefusedError, WaitTimeoutError
from world.read_models.archive import Archive
from world.state.proposal import Proposal

__all__ = ["Until", "has_come", "look_for", "still_open", "timeout_seconds", "wait_for_proposal", "wait_seconds"]

Until: TypeAlias = Literal["ended", "decided"]
"""What is waited for: the end of a proposal, or its decision."""


def wait_for_proposal(archive: Archive, proposal: Proposal | str, timeout: float | None, until: Until) -> Proposal:
    """Wait in the calling thread; see ``Realm.wait``.

    Args:
        archive: of the log.
        proposal: the proposal, or its id.
        timeout: seconds; None is unlimited.
        until: what is waited for.

    Raises:
        WaitTimeoutError: ``NOT_ENDED_IN_TIME``.
        RefusedError: ``UNKNOWN_PROPOSAL``, ``INVALID_VALUE``, ``LOG_CLOSED``.
    """
    seconds, (proposal_id, look) = timeout_seconds(timeout), look_for(archive, proposal, until)
    found = look()
    if found is None and seconds != 0:
        found = archive.expectations.wait(proposal_id, look, seconds)
    if found is None:
        raise still_open(archive.proposal(proposal_id), seconds, until)
    return found


def look_for(archive: Archive, proposal: Proposal | str, until: Until) -> tuple[str, Callable[[], Proposal | None]]:
    """Return the id of a proposal, and the function that returns it as soon as it has come so far.

    Raises:
        RefusedError: ``INVALID_VALUE`` for another ``until``.
    """
    if until not in ("ended", "decided"):
        raise RefusedError(ErrorCode.INVALID_VALUE, f"until is {until!r:.80}; it must be 'ended' or 'decided'.")
    proposal_id = proposal.proposal_id if isinstance(proposal, Proposal) else proposal
    return proposal_id, partial(_look, archive, proposal_id, until)


def has_come(proposal: Proposal, until: Until) -> bool:
    """Return whether a proposal has come as far as is waited for."""
    return proposal.is_terminal or (until == "decided" and proposal.decision is not None)


def still_open(proposal: Proposal, seconds: float | None, until: Until) -> WaitTimeoutError:
    """Return the error for a wait whose time is over."""
    return WaitTimeoutError(
        ErrorCode.NOT_ENDED_IN_TIME,
        f"Proposal {proposal.proposal_id} is {proposal.status} and "
        f"{'has not ended' if until == 'ended' else 'is not decided'} after {seconds:g} s. It continues: wait again, "
        "or answer it if it waits for a person.",
        proposal_id=proposal.proposal_id,
        status=proposal.status,
    )


def wait_seconds(wait: float | bool | None) -> float | None:
    """Return the seconds that the option ``wait`` of a submission means: 0 does not wait, None is unlimited.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if wait is True:
        return None
    return 0.0 if wait is None or wait is False else timeout_seconds(wait, "wait")


def timeout_seconds(timeout: object, name: str = "timeout") -> float | None:
    """Check a time in seconds; return None for no limit.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:  # refuses NaN too
        allowed = "None for no limit" if name == "timeout" else "True for no limit"
        raise RefusedError(
            ErrorCode.INVALID_VALUE,
            f"{name} is {timeout!r:.100}; it must be a number of seconds from 0, or {allowed}.",
        )
    return None if timeout >= threading.TIMEOUT_MAX else float(timeout)  # the longest wait of the threading module


def _look(archive: Archive, proposal_id: str, until: Until) -> Proposal | None:
    proposal = archive.proposal(proposal_id)
    return proposal if has_come(proposal, until) else None
