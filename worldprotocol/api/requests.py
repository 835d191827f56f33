"""What a caller asks of a realm, brought into form before the realm is asked, and what comes of a source event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from world.core import ComputeContext, Domain, genesis
from world.errors import RefusedError
from world.limits import Limits
from world.model.canonical_json import read_json
from world.model.intent import IntentBody, IntentScope
from world.state.proposal import Proposal
from world.state.realm_state import RealmState
from worldprotocol.api.bootstrap import load_any_domain

MAX_HEADER_BYTES: Final = 65_536
"""Longest first line of an export that is read to tell what a file is."""


@dataclass(frozen=True, slots=True)
class ProjectionOutcome:
    """What came of a source event.

    Args:
        projection_id: the projection that answered, None when none did.
        reason: why no intent was selected, where the projection said so.
        proposal: the proposal, None when no intent was selected.
    """

    projection_id: str | None
    reason: str | None
    proposal: Proposal | None


def fitting(
    domain: Domain | str | Path, data: Mapping[str, Any] | None, folder: Path | None, limits: Limits | None = None
) -> Domain:
    """Return the domain, once it is sure that a realm can begin with this data: nothing is made otherwise.

    Args:
        domain: a domain, a reference to one, or a file.
        data: initial data that differs from the domain's defaults.
        folder: where a relative reference starts; None is the current folder.
        limits: of the pipeline; None are the usual ones.

    Raises:
        RefusedError: ``INVALID_DATA``, ``COMPUTED_TIMED_OUT``, and what the domain refuses.
    """
    at_hand = load_any_domain(domain, base=folder)
    (limits or Limits()).in_time(lambda: genesis(at_hand, ComputeContext(now=0, random_seed=""), data))
    return at_hand


def with_a_way_out(refused: RefusedError) -> RefusedError:
    """Return the refusal, saying how a realm is founded where there is none, and what can be done with an export."""
    if refused.code == "NOT_A_LOG" and not refused.details.get("is_empty"):
        hint = _about_export(Path(str(refused.details.get("path"))))
        return RefusedError(refused.code, refused.message + hint, **refused.details)
    if not is_foundable(refused) or "make it first" in refused.message:  # its folder is missing
        return refused
    told = f"{refused.message} `worldctl init` (Realm.create) founds a realm there."
    return RefusedError(refused.code, told, **refused.details)


def is_foundable(refused: RefusedError) -> bool:
    """Tell whether opening was refused only because no log is there yet: no file, no tables, or no log of that name."""
    return refused.code == "LOG_NOT_FOUND" or (refused.code == "NOT_A_LOG" and bool(refused.details.get("is_empty")))


def _about_export(path: Path) -> str:
    """Return what to do with a file that is an export of a log; nothing where it is something else."""
    try:
        with path.open("rb") as lines:
            head = read_json(lines.readline(MAX_HEADER_BYTES))
    except (OSError, RefusedError):
        return ""
    if not isinstance(head, dict) or head.get("worldProtocol") != "log":
        return ""
    if "redacted" in head:
        return " It is a redacted export: `worldctl verify FILE` checks it, and nothing can look at its states."
    return " It is an export of one: `worldctl import` reads it into a log."


def waiting_in(realm: RealmState) -> list[Proposal]:
    """Return copies of the proposals that people are asked about."""
    return [proposal.copy() for proposal in realm.proposals.values() if proposal.asked is not None]


def schema_in_force(realm: RealmState) -> str:
    """Return the hash of the schema in force."""
    return realm.schema_hash


def scope_of(given: IntentScope | Mapping[str, Any] | str | Iterable[str] | None) -> IntentScope | None:
    """Return a scope that is given as such, in wire form, or as patterns, of which one may stand alone.

    Raises:
        RefusedError: ``INVALID_VALUE``.
    """
    if given is None or isinstance(given, IntentScope):
        return given
    if isinstance(given, Mapping):
        return IntentScope.read(given)
    is_several = isinstance(given, Iterable) and not isinstance(given, str)
    return IntentScope.read({"allowedPaths": list(given) if is_several else [given]})


def body_of(action: str, given: Any, scope: Any) -> IntentBody:
    """Return an intent's body; raises ``RefusedError`` ``INVALID_VALUE``, ``NOT_CANONICAL``."""
    return IntentBody.read({"type": action, "input": given, "scopeProposal": scope_of(scope)})
