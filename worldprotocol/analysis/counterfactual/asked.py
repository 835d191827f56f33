"""Input of a counterfactual: the event after which it begins, and its changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from authority import Policy
from world.core import Domain
from world.limits import Limits

__all__ = ["WHATIF", "Insertion", "WhatIf"]

WHATIF: Final = "whatif"
"""Actor id in the scratch log for commands that have no recorded actor."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """Intent that is submitted only in the counterfactual.

    Args:
        actor: the acting actor; registered in the log.
        body: the intent's body in wire form.
        branch: the branch to move; None is the active one.
        at: time of the submission, ms since 1970; None is the start of the counterfactual.
    """

    actor: str
    body: dict[str, Any]
    branch: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Changes to a log whose consequences are computed.

    Args:
        address: the real log; it is only read.
        domain: the domain, or a reference to it.
        domains: other domains that were in force at some time, or references to them; domains without Python functions
            are read from the log.
        start: position of the last event that is kept unchanged.
        drop: ids of proposals that are not submitted.
        policies: policies in force from the start. A policy with the name of one in force replaces it; any other
            replaces all policies that actors are bound to.
        insert: additional intents.
        at_hand: loaded policies, or references to policies.
        folder: start of relative references.
        limits: limits of the pipeline.
        scratch: file of the scratch log, created at the end; None is a temporary file.
    """

    address: str
    domain: Domain | str
    start: int
    domains: Sequence[Domain | str] = ()
    drop: Sequence[str] = ()
    policies: Sequence[Policy] = ()
    insert: Sequence[Insertion] = ()
    at_hand: Sequence[Policy | str] = ()
    folder: Path = field(default_factory=Path)
    limits: Limits = field(default_factory=Limits)
    scratch: Path | None = None
