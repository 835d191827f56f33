"""What a counterfactual asks: where the branch leaves the record, and what is otherwise in it."""

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
"""Whom the scratch log names where nobody of the record did something."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """An intent that nobody submitted.

    Args:
        actor: who acts; registered in the log.
        body: the intent's body in wire form.
        branch: whose head it moves; None is the active one.
        at: when, ms since 1970; None is at once, where the branch begins.
    """

    actor: str
    body: dict[str, Any]
    branch: str | None = None
    at: int | None = None


@dataclass(frozen=True, slots=True)
class WhatIf:
    """A question about a log.

    Args:
        address: the real log; it is only read.
        domain: the domain, or a reference to it.
        domains: others that were in force at some time, or references to them; one that is portable data needs not be
            at hand, the log holds it.
        start: position of the event behind which the branch begins.
        drop: ids of proposals that are not submitted.
        policies: that are in force from the beginning on. One whose name is in force stands in the place of that
            policy; any other stands in the place of all that actors are bound to.
        insert: intents that are submitted besides.
        at_hand: policies at hand, or references to them.
        folder: where references start.
        limits: of the pipeline.
        scratch: file of the scratch log, which comes to be when all is done; None is a temporary one.
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
