"""Concurrent sessions in virtual time: their waits, deaths and grants, decided by the real lease commands.

At its start a session declares its scope; once granted it holds it for as long as it took in the file. A session that
waits stays in the queue; one that dies asks again after the time its verdict names. At equal times all releases come
first, then waiting requests are judged again, oldest first, then requests are made in order of session id. An agent's
priority is the time of its first request (design: KLIS in the pipeline; KP-3a to KP-3d).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.lease_events import VerdictGiven
from world.klis.lease_manager import LeaseManager, RequestOptions
from world.klis.ledger import Ledger
from world.klis.manifest import Manifest, read_manifest
from world.klis.resources.resource_types import STANDARD, ResourceTypes
from world.klis.settings import KlisSettings
from world.model.canonical_json import read_json
from world.model.immutable_json import thaw

__all__ = ["Phase", "SessionPlan", "SessionTimes", "Totals", "read_sessions", "run_sessions"]

MAX_FAULTS: Final = 100
"""So many bad lines are spelt out; all are counted."""

_CHANNEL: Final = {"kind": "simulated"}
_RELEASE, _REQUEST = 0, 1
_MAX_MS: Final = 1 << 52
_PROGRESS_EVERY: Final = 4_096


class _Line(BaseModel):
    """A line of a file of sessions."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    session: str
    agent: str
    start_ms: int = Field(ge=0, le=_MAX_MS)
    end_ms: int = Field(ge=0, le=_MAX_MS)
    scope: list[Any]


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """What a session wants: from ``start_ms`` on, its manifest's leases for ``hold_ms``."""

    session: str
    agent: str
    start_ms: int
    hold_ms: int
    manifest: Manifest


@dataclass(frozen=True, slots=True)
class Phase:
    """A time without leases: in the queue (``wait``) or repeated requests (``retry``), with the sessions in the way.

    Args:
        kind: ``wait`` or ``retry``.
        since: ms; it ends where the next one begins, or at the grant.
        behind: id of the session that stood in the way first.
        resource: what that session held or wanted.
    """

    kind: Literal["wait", "retry"]
    since: int
    behind: str
    resource: str


@dataclass(slots=True)
class SessionTimes:
    """What became of a session; times in ms, None while it has not come to that."""

    plan: SessionPlan
    phases: list[Phase] = field(default_factory=list)
    dies: int = 0
    granted_at: int | None = None
    released_at: int | None = None

    @property
    def waited_ms(self) -> int:
        """From its start to the grant, ms."""
        return (self.granted_at or self.plan.start_ms) - self.plan.start_ms


@dataclass(frozen=True, slots=True)
class Totals:
    """Results of all sessions together.

    Args:
        sessions: how many there were.
        granted_at_once: sessions whose first verdict was Granted.
        waited: sessions that ever got the verdict Wait.
        died: sessions that ever got the verdict Die.
        retries: requests made again after a Die.
        max_held: most leases in force at one time.
        total_wait_ms: from start to grant, over all sessions.
        max_wait_ms: the longest of these.
        verdicts: how often each was given.
    """

    sessions: int
    granted_at_once: int
    waited: int
    died: int
    retries: int
    max_held: int
    total_wait_ms: int
    max_wait_ms: int
    verdicts: dict[str, int]

    def to_wire(self) -> dict[str, Any]:
        """Return the totals as JSON."""
        return asdict(self)


def read_sessions(
    lines: Iterable[tuple[int, bytes | RefusedError]],
    *,
    settings: KlisSettings | None = None,
    types: ResourceTypes = STANDARD,
) -> list[SessionPlan]:
    """Read a file of sessions: ``{session, agent, start_ms, end_ms, scope}`` a line.

    Args:
        lines: number and text of each, or why it cannot be read.
        settings: the limits that scopes are read under; None is the defaults.
        types: the resource types in force.

    Raises:
        RefusedError: ``INVALID_SESSIONS`` with every bad line's number and code in ``faults``; nothing is run then.
    """
    plans: dict[str, SessionPlan] = {}
    faults: list[dict[str, Any]] = []
    bad = 0
    for number, line in lines:
        try:
            plan = _plan(line, settings or KlisSettings(), types)
            if plan.session in plans:
                raise RefusedError(
                    ErrorCode.INVALID_SESSION, f"The session {plan.session!r} is there already.", path="$.session"
                )
        except RefusedError as refused:
            bad += 1
            if len(faults) < MAX_FAULTS:
                rendered = {"line": number, "code": refused.code, "message": f"{refused.message} [{refused.code}]"}
                faults.append({"path": f"line {number}", **rendered})
            continue
        plans[plan.session] = plan
    if bad:
        more = f" The first {MAX_FAULTS} are:" if bad > len(faults) else ""
        raise RefusedError(
            ErrorCode.INVALID_SESSIONS, f"{bad} of the lines cannot be run.{more}", count=bad, faults=faults
        )
    return list(plans.values())


def _plan(line: bytes | RefusedError, settings: KlisSettings, types: ResourceTypes) -> SessionPlan:
    if isinstance(line, RefusedError):
        raise line
    try:
        rendered = _Line.model_validate(thaw(read_json(line)))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(("$", *map(str, first["loc"])))
        raise RefusedError(ErrorCode.INVALID_SESSION, f"{where}: {first['msg']}.", path=where) from None
    if rendered.end_ms < rendered.start_ms:
        raise RefusedError(
            ErrorCode.INVALID_SESSION, f"It ends at {rendered.end_ms}, before it starts.", path="$.end_ms"
        )
    wire = {"ver": "1.0", "session_id": rendered.session, "agent_id": rendered.agent, "scope": rendered.scope}
    manifest = read_manifest(wire, settings=settings, types=types)
    return SessionPlan(
        rendered.session, rendered.agent, rendered.start_ms, rendered.end_ms - rendered.start_ms, manifest
    )


def run_sessions(
    plans: Sequence[SessionPlan],
    *,
    settings: KlisSettings | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    hear: Callable[[Event], None] = lambda event: None,
) -> tuple[Totals, list[SessionTimes]]:
    """Run sessions until each of them has held its leases.

    Args:
        plans: the sessions; their order makes no difference.
        settings: what the ledger goes by; None is the defaults.
        progress: called with the numbers of granted sessions and of all sessions.
        hear: handed every event that the ledger is folded from.

    Returns:
        The totals, and the course of each session in order of start.
    """
    simulation = _Simulation(plans, settings or KlisSettings(), progress, hear)
    simulation.run()
    return simulation.totals(), list(simulation.courses.values())


class _Simulation:
    def __init__(
        self,
        plans: Sequence[SessionPlan],
        settings: KlisSettings,
        progress: Callable[[int, int], None],
        hear: Callable[[Event], None],
    ) -> None:
        ordered = sorted(plans, key=lambda plan: (plan.start_ms, plan.session))
        self.courses = {plan.session: SessionTimes(plan) for plan in ordered}
        self._due: list[tuple[int, int, str]] = [(plan.start_ms, _REQUEST, plan.session) for plan in ordered]
        heapify(self._due)
        self._progress, self._hear = progress, hear
        self._granted = self._max_held = self._at_once = 0
        self._waited: set[str] = set()
        self.ledger = Ledger()
        number = itertools.count(1)
        self._desk = LeaseManager(self.ledger, emit=self._emit, new_id=lambda: f"{next(number):012x}")
        self._desk.configure(replace(settings, wake_rules=1), 0, by="simulation")  # a session asks again by its timer

    def run(self) -> None:
        due, leases = self._due, self.ledger.leases
        for step in itertools.count():
            if not due:
                return
            now, kind, session = heappop(due)
            if kind == _RELEASE:
                self._release(now, session)
            else:
                self._desk.request(
                    self.courses[session].plan.manifest,
                    now,
                    channel=_CHANNEL,
                    options=RequestOptions(until_sealed=True, queue=True),
                )
            if len(leases) > self._max_held:
                self._max_held = len(leases)
            if not step % _PROGRESS_EVERY:
                self._progress(self._granted, len(self.courses))

    def totals(self) -> Totals:
        courses = self.courses.values()
        waits = [course.waited_ms for course in courses]
        verdicts = dict(self.ledger.verdicts)
        return Totals(
            sessions=len(waits),
            granted_at_once=self._at_once,
            waited=len(self._waited),
            died=sum(course.dies > 0 for course in courses),
            retries=verdicts["Die"],
            max_held=self._max_held,
            total_wait_ms=sum(waits),
            max_wait_ms=max(waits, default=0),
            verdicts=verdicts,
        )

    def _release(self, now: int, session: str) -> None:
        """Release all sessions that end at this instant, before any waiting one is judged again."""
        done = [session]
        while self._due and self._due[0][:2] == (now, _RELEASE):
            done.append(heappop(self._due)[2])
        for name in done:
            self.courses[name].released_at = now
        self._desk.release_sessions([(self.courses[name].plan.agent, name) for name in done], now)

    def _emit(self, event: Event) -> None:
        self.ledger.fold(event)
        if type(event) is VerdictGiven:
            self._note(event)
        self._hear(event)

    def _note(self, verdict: VerdictGiven) -> None:
        now, name = verdict.at, verdict.session_id
        course = self.courses[name]
        if verdict.status == "Granted":
            self._granted += 1
            self._at_once += not course.phases
            course.granted_at = now
            heappush(self._due, (now + course.plan.hold_ms, _RELEASE, name))
            return
        if verdict.status == "Wait":
            self._waited.add(name)
            kind: Literal["wait", "retry"] = "wait"
        else:
            assert verdict.retry_after_ms is not None
            course.dies += 1
            heappush(self._due, (now + verdict.retry_after_ms, _REQUEST, name))
            kind = "retry"
        if not course.phases or course.phases[-1].kind != kind:
            first = verdict.conflicts[0]
            course.phases.append(Phase(kind, now, first.session, first.resource))
