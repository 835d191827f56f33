"""A call of a tool by an agent, and the answers to it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from world.errors import RefusedError
from world.events.caller_events import Attended
from world.events.claim_events import EffectClaimed
from world.events.proposal_events import ProposalSubmitted
from world.model.canonical_json import canonical_bytes
from world.model.immutable_json import MAX_SAFE_INTEGER
from world.model.snapshot import EffectAnswer
from world.state.effect_claim import EffectClaim
from world.state.proposal import Proposal
from worldprotocol.api.callers.keyed import key_of

__all__ = [
    "ATTEMPT",
    "EFFECT",
    "Allowed",
    "Answer",
    "Denied",
    "StillWaiting",
    "ToolCall",
    "content_of",
    "digest_of",
    "exact_integers",
    "is_claim_of",
    "is_proposed_as",
    "not_yet",
]

EFFECT: Final = "tool.call"
"""Type of the effect that is the performance of a call."""

ATTEMPT: Final = "~"
"""Between the key of a call and the name of an attempt, in the key of a claim, or a number, in that of a proposal."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call of a tool by an agent.

    Args:
        key: the agent's own id of the call, the same for a repeated request; a key of a request.
        action: the action of the domain that represents it, such as ``file.edit``.
        input: the action's input, JSON; it holds the meaning of the call, and not its id.
        has_own_id: whether the key is the id of this call alone; otherwise equal calls have the same key, one after
            another.
        trace: JSON that is recorded with the proposal, such as the session and the tool.
        branch: branch of the proposal; None is the active one.
        excludes_equal: whether it waits until every equal call of the actor that was begun has ended, and is refused
            while one of them is in doubt: where the caller has no id that survives its own restart, such a call may be
            this one.
        scope: patterns of the data that the action writes; none by default.
        attempt: name of this attempt at the call. None is a caller that may ask again before it calls the tool, and
            gets the same claim. A caller that calls the tool at once has a new name for each attempt, so that a call
            that was begun before is not made twice.
        attended: how it is attended: it lives as long as its caller. None is a call that its caller may resume days
            later.
    """

    key: str
    action: str
    input: Mapping[str, Any]
    has_own_id: bool = True
    trace: Mapping[str, Any] | None = None
    branch: str | None = None
    excludes_equal: bool = False
    scope: tuple[str, ...] = ()
    attempt: str | None = None
    attended: Attended | None = None

    @property
    def claim_key(self) -> str:
        """The key with which its effect is claimed."""
        return self.key if self.attempt is None else f"{self.key}{ATTEMPT}{self.attempt}"


@dataclass(frozen=True, slots=True)
class Allowed:
    """The call may be made now; its result has to be reported under the claim.

    Args:
        proposal: its proposal.
        claim: the claim on its effect.
    """

    proposal: Proposal
    claim: EffectClaim


@dataclass(frozen=True, slots=True)
class Denied:
    """The call must not be made.

    Args:
        proposal: its proposal.
        code: ``REJECTED``, ``SUPERSEDED``, ``MADE_ALREADY``, ``IN_DOUBT`` for a call like one whose result is unknown,
            or the code of the error with which the execution failed.
        reason: why, in a sentence for the agent.
        result: of a call that was made already, what was recorded; None where there is no result.
    """

    proposal: Proposal
    code: str
    reason: str
    result: EffectAnswer | None = None


@dataclass(frozen=True, slots=True)
class StillWaiting:
    """The call waits for people, leases or another process; ask again.

    Args:
        proposal: its proposal.
        waits_for: what it waits for, after the words "It waits for".
    """

    proposal: Proposal
    waits_for: str


Answer = Allowed | Denied | StillWaiting


def content_of(value: Any) -> bytes:
    """Return the canonical text of JSON, or the usual one where its numbers or texts have no canonical form."""
    try:
        return canonical_bytes(value)
    except (RefusedError, ValueError, TypeError, OverflowError):
        return json.dumps(value, sort_keys=True).encode()


def exact_integers(value: Any) -> tuple[Any, list[str]]:
    """Return JSON in which decimal texts take the place of integers beyond 2^53, and the JSON pointers of those.

    A double does not represent such integers, so a rule would compare, and a person read, another one.
    """
    pointers: list[str] = []

    def exact(inner: Any, pointer: str) -> Any:
        if isinstance(inner, dict):
            return {
                name: exact(one, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
                for name, one in inner.items()
            }
        if isinstance(inner, list):
            return [exact(one, f"{pointer}/{index}") for index, one in enumerate(inner)]
        if isinstance(inner, int) and abs(inner) > MAX_SAFE_INTEGER:
            pointers.append(pointer)
            return str(inner)
        return inner

    return exact(value, ""), pointers


def digest_of(content: bytes) -> dict[str, Any]:
    """Return what is recorded of a result in place of its content: ``sha256`` and ``bytes``."""
    return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}


def not_yet(proposal_id: str, waits_for: str) -> str:
    """Return the answer for an agent whose call waits.

    Args:
        proposal_id: its proposal.
        waits_for: what it waits for, after the words "It waits for".
    """
    return (
        f"Not yet: it waits for {waits_for}. Nothing was done. Proposal {proposal_id} stays open; do something else, "
        "and repeat exactly this call later: it continues this proposal."
    )


def is_claim_of(key: str, claim: EffectClaimed) -> bool:
    """Return whether a claim is that of the call with this key, or of an attempt at it."""
    return claim.key is not None and key in (claim.key, claim.key.rpartition(ATTEMPT)[0])


def is_proposed_as(key: str, submitted: ProposalSubmitted) -> bool:
    """Return whether a proposal is of the call with this key: it was submitted with it, or with it and a number."""
    name = key_of(submitted)
    beginning, _, number = name.rpartition(ATTEMPT)
    return name == key or (beginning == key and number.isdecimal())
