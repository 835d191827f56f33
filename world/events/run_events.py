"""Events of governed runs: code and commands of agents, watched from beginning to end (KLIS-6 section 4; KO-4).

They are read and written by ``world.events.codec`` like all others.
"""

from __future__ import annotations

from typing import ClassVar

from world.events.base import Event, Wire

__all__ = ["RunAmended", "RunClosed", "RunCompared", "RunObserved", "RunOpened", "RunRolledBack", "RunViolated"]


class RunOpened(Event, frozen=True, kw_only=True):
    """A governed run began: code or a command of an agent, under its leases and its declaration (KO-4).

    ``kind`` is ``python`` or ``command``; ``held_by`` says what holds it to its declaration. ``existence`` says of the
    files that it depends on that they existed before it began (``world.pipeline.existence``).
    """

    TOPIC: ClassVar[str] = "run.opened"
    run_id: str
    agent_id: str
    session_id: str
    kind: str
    mode: str
    declared: list[Wire]
    verdict_id: str
    lease_ids: list[str]
    worker: str
    held_by: list[str] = []
    command: list[str] = []
    existence: list[Wire] | None = None


class RunObserved(Event, frozen=True, kw_only=True):
    """Side effects that were seen and allowed, each once, with how often so far (KO-2.1).

    ``run_id`` is the proposal's id where the effects of a proposal were watched.
    """

    TOPIC: ClassVar[str] = "run.observed"
    run_id: str
    observed: list[Wire]


class RunViolated(Event, frozen=True, kw_only=True):
    """A side effect outside of what was declared; ``violation.blocked`` says whether it was stopped (KO-3)."""

    TOPIC: ClassVar[str] = "run.violated"
    run_id: str
    violation: Wire


class RunAmended(Event, frozen=True, kw_only=True):
    """In permissive mode the scope was widened by a lease on the way (KO-3.2b)."""

    TOPIC: ClassVar[str] = "run.amended"
    run_id: str
    predicate: str
    resource: str
    verdict_id: str
    lease_ids: list[str]


class RunRolledBack(Event, frozen=True, kw_only=True):
    """What a run had leased for change is as it was before its leases (KO-3.3); ``failed`` says what is not."""

    TOPIC: ClassVar[str] = "run.rolled_back"
    run_id: str
    verdict_id: str
    restored: list[str] = []
    removed: list[str] = []
    failed: list[str] = []


class RunCompared(Event, frozen=True, kw_only=True):
    """What the comparison of contents found: ``changes`` of the run, and ``foreign`` ones, which others made."""

    TOPIC: ClassVar[str] = "run.compared"
    run_id: str
    changes: list[Wire] = []
    foreign: list[Wire] = []


class RunClosed(Event, frozen=True, kw_only=True):
    """A governed run ended: ``completed``, ``failed``, ``violated``, ``lost`` its leases, or ``interrupted``.

    ``unused`` is what it declared and did not make use of, which is no violation (KO-4); ``more_unused`` says how much
    of that is not spelt out.
    """

    TOPIC: ClassVar[str] = "run.closed"
    run_id: str
    outcome: str
    unused: list[Wire] = []
    more_unused: int = 0
    exit_code: int | None = None
    reason: str | None = None
