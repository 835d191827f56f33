"""Collection of a report's figures in one pass over a log.

Beside the figures, memory holds the open proposals, leases and runs, and one row for each branch. Hidden events
(``--redact``) are skipped, so that the report depends only on events that its reader may see.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final

from world.errors import RefusedError
from world.events.realm_events import LogFounded
from world.model.record import WireForm
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from worldprotocol.export.redaction import Redaction
from worldprotocol.report.decisions import Decisions
from worldprotocol.report.effects import Effects
from worldprotocol.report.leases import LeasesPart
from worldprotocol.report.lineage import LineagePart
from worldprotocol.report.proposals import NEWEST, Proposals
from worldprotocol.report.runs import Runs
from worldprotocol.report.tally import EventPosition, Part

if TYPE_CHECKING:
    from worldprotocol.api.bootstrap import LoggedEvent

__all__ = ["RealmReport", "Window", "gather"]

EVERY: Final = 1_000
"""Events between two reports of progress."""

Progress = Callable[[int, int], None]
"""Called with the number of events done and of all events."""


@dataclass(frozen=True, slots=True)
class Window(WireForm):
    """Range of the events that a report counts.

    Args:
        after: the position before the first event.
        upto: position of the last event; the report shows the log at this position.
        since: the requested start as text, for the page; None without one.
        until: the requested end as text.
    """

    after: int
    upto: int
    since: str | None = None
    until: str | None = None
    WIRE: ClassVar = "after upto since until"


class RealmReport(WireForm):
    """Figures of a log.

    Args:
        archive: archive of the log.
        window: range of the counted events.
        redaction: rules for hidden events.
        every: list all proposals instead of the newest; needs memory for each.
    """

    WIRE: ClassVar = (
        "log head=_head window from=begin to=end events proposals decisions lineage leases effects runs redacted?"
    )

    def __init__(self, archive: Archive, window: Window, redaction: Redaction, *, every: bool = False) -> None:
        self.window = window
        self._archive = archive
        self._head = archive.log.root_at(window.upto)
        self._redaction = redaction
        self.proposals = Proposals(None if every else NEWEST)
        self.decisions = Decisions(self.proposals)
        self.lineage = LineagePart(self.proposals, self._position_of)
        self.leases = LeasesPart()
        self.effects = Effects(self.proposals)
        self.runs = Runs(self.proposals)
        self._topics: Counter[str] = Counter()
        self._hidden = 0
        self._times: tuple[int, int] | None = None
        self._log_id: str | None = None
        self._steps = self._all_steps()

    def _all_steps(self) -> Mapping[str, list[Callable[[Any, EventPosition], None]]]:
        steps: dict[str, list[Callable[[Any, EventPosition], None]]] = defaultdict(list)
        parts: tuple[Part, ...] = (
            self.proposals,
            self.decisions,
            self.lineage,
            self.leases,
            self.effects,
            self.runs,
        )
        for part in parts:
            for kind, step in part.steps().items():
                steps[kind.TOPIC].append(step)
        steps[LogFounded.TOPIC].append(self._on_founded)
        return dict(steps)

    def read(self, progress: Progress | None = None) -> None:
        """Read the log.

        Raises:
            DamagedLogError: an event was changed.
        """
        log, window = self._archive.log, self.window
        self._redaction.learn(log)
        last: LoggedEvent | None = None
        for logged in log.read(upto=window.upto):
            if progress is not None and logged.position % EVERY == 0:
                progress(logged.position, window.upto)
            if self._redaction and self._redaction.hides(logged):
                self._hidden += logged.position > window.after
                continue
            if logged.position > window.after:
                self._begin(logged)
                self._topics[logged.topic] += 1
                last = logged
            self._take(logged)
        if last is not None and self._times is not None:
            at = decoded(last).at
            self._times = (self._times[0], at)
            self.leases.at(at)

    def _begin(self, logged: LoggedEvent) -> None:
        if self._times is None:
            at = decoded(logged).at
            self._times = (at, at)
            self.leases.at(at)

    def _take(self, logged: LoggedEvent) -> None:
        steps = self._steps.get(logged.topic)
        if steps is None:
            return
        event = decoded(logged)
        moment = EventPosition(logged.position, logged.position > self.window.after)
        for step in steps:
            step(event, moment)
        self.effects.ended(event)
        self.proposals.forget(event)

    def _on_founded(self, event: LogFounded, _moment: EventPosition) -> None:
        self._log_id = event.log_id

    def _position_of(self, world_id: str) -> int | None:
        if self._redaction:  # the position may belong to a hidden event
            return None
        try:
            return self._archive.world(world_id).position
        except RefusedError:
            return None

    @property
    def log(self) -> dict[str, Any]:
        """Name and id of the log."""
        return {"name": self._archive.log.name, "logId": self._log_id}

    @property
    def begin(self) -> int | None:
        """Time of the first counted event, ms since 1970; None without one."""
        return None if self._times is None else self._times[0]

    @property
    def end(self) -> int | None:
        """Time of the last counted event."""
        return None if self._times is None else self._times[1]

    @property
    def events(self) -> dict[str, Any]:
        """Number of counted events, in all and by topic."""
        return {"counted": sum(self._topics.values()), "byTopic": dict(sorted(self._topics.items()))}

    @property
    def redacted(self) -> dict[str, Any] | None:
        """Rules that hid events, and the number of hidden events; None without rules."""
        return {"rules": list(self._redaction.kinds), "hidden": self._hidden} if self._redaction else None

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield the listed proposals, newest first."""
        yield from self.proposals


def gather(
    archive: Archive,
    window: Window,
    *,
    redaction: Redaction | None = None,
    every: bool = False,
    progress: Progress | None = None,
) -> RealmReport:
    """Collect the figures of a log in one pass.

    Args:
        archive: of the log.
        window: range of the counted events; earlier events are read for open proposals, leases and runs.
        redaction: rules for hidden events.
        every: list all proposals.
        progress: called with the number of events read and of all events.

    Raises:
        DamagedLogError: an event is not what was logged.
        RefusedError: ``INDEX_NOT_CURRENT``.
    """
    report = RealmReport(archive, window, Redaction(()) if redaction is None else redaction, every=every)
    report.read(progress)
    return report
