"""SVG timeline of sessions: held leases, waits and conflicts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from conformance.klis_sessions import Phase, SessionTimes
from worldprotocol.duration_text import duration

__all__ = ["draw", "select"]

_LEFT, _PLOT, _RIGHT = 250, 760, 360
_TOP, _ROW, _BOTTOM = 88, 18, 44
_BAR = 11
_MAX_TICKS: Final = 8
_LABEL_CHARS, _NOTE_CHARS = 34, 58
_COLOURS: Final = {"hold": "#009e73", "wait": "#e69f00", "retry": "#cc79a7"}
_LEGEND: Final = (("hold", "held its leases"), ("wait", "waited in the queue"), ("retry", "died, and requested again"))
_SECOND, _MINUTE, _HOUR, _DAY = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS: Final = (
    *(base * 10**power for power in range(3) for base in (1, 2, 5)),
    *(base * _SECOND for base in (1, 2, 5, 10, 15, 30)),
    *(base * _MINUTE for base in (1, 2, 5, 10, 15, 30)),
    *(base * _HOUR for base in (1, 2, 3, 6, 12)),
    *(base * _DAY * 10**power for power in range(12) for base in (1, 2, 5)),
)
_NO_XML: Final = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def select(
    courses: Sequence[SessionTimes], *, rows: int, start: int | None = None, end: int | None = None
) -> list[SessionTimes]:
    """Return the sessions that a timeline shows, in order of start.

    Args:
        courses: all sessions.
        rows: maximum number: sessions with the longest waits, each with the first session that it waited for.
        start: only sessions that ended at this time or later, ms.
        end: only sessions that began at this time or earlier, ms.
    """
    shown = [
        course
        for course in courses
        if (start is None or _end(course) >= start) and (end is None or course.plan.start_ms <= end)
    ]
    longest = sorted(shown, key=lambda course: (-course.waited_ms, course.plan.start_ms, course.plan.session))
    by_name = {course.plan.session: course for course in shown}
    chosen: dict[str, SessionTimes] = {}
    for course in longest:
        if len(chosen) >= rows:
            break
        chosen[course.plan.session] = course
        for phase in course.phases[:1]:
            if phase.behind in by_name and len(chosen) < rows:
                chosen[phase.behind] = by_name[phase.behind]
    return sorted(chosen.values(), key=lambda course: (course.plan.start_ms, course.plan.session))


def draw(
    courses: Sequence[SessionTimes], *, title: str, rows: int = 40, start: int | None = None, end: int | None = None
) -> str:
    """Return a timeline as an SVG document.

    Args:
        courses: all sessions.
        title: title of the timeline.
        rows: maximum number of sessions; see ``select``.
        start: start of the time axis, ms; None is the start of the first session shown.
        end: end of the time axis, ms; None is the end of the last one shown.
    """
    shown = select(courses, rows=rows, start=start, end=end)
    first = min((course.plan.start_ms for course in shown), default=0) if start is None else start
    last = max((_end(course) for course in shown), default=first) if end is None else end
    picture = _Picture(first, max(last, first + 1), len(shown))
    subtitle = f"{len(shown)} of {len(courses)} sessions: the longest waits, and the sessions that caused them"
    body = [*picture.frame(title, subtitle), *picture.axis()]
    for row, course in enumerate(shown):
        body += picture.row(row, course)
    return "\n".join([*body, "</svg>", ""])


@dataclass(frozen=True, slots=True)
class _Picture:
    """Layout: times from ``first`` to ``last`` (ms) on the x axis, ``rows`` on the y axis."""

    first: int
    last: int
    rows: int

    @property
    def floor(self) -> int:
        return _TOP + max(self.rows, 1) * _ROW

    def x(self, at: int) -> float:
        within = min(max(at, self.first), self.last)
        return _LEFT + _PLOT * ((within - self.first) / (self.last - self.first))

    def frame(self, title: str, subtitle: str) -> Iterator[str]:
        width, height = _LEFT + _PLOT + _RIGHT, self.floor + _BOTTOM
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="11" fill="#222">'
        )
        yield f"<title>{_text(title)}</title>"
        yield f'<rect width="{width}" height="{height}" fill="#fff"/>'
        yield f'<text x="16" y="26" font-size="16" font-weight="bold">{_text(title)}</text>'
        yield f'<text x="16" y="44" fill="#555">{_text(subtitle)}</text>'
        across = _LEFT
        for kind, words in _LEGEND:
            yield f'<rect x="{across}" y="56" width="14" height="{_BAR}" fill="{_COLOURS[kind]}"/>'
            yield f'<text x="{across + 20}" y="66">{words}</text>'
            across += 40 + 7 * len(words)
        yield f'<text x="16" y="{_TOP - 6}" fill="#555">session, agent</text>'
        yield f'<text x="{_LEFT + _PLOT + 12}" y="{_TOP - 6}" fill="#555">waited, first cause</text>'

    def axis(self) -> Iterator[str]:
        span = self.last - self.first
        step = next((step for step in _STEPS if span // step <= _MAX_TICKS), _STEPS[-1])
        for at in range(-(-self.first // step) * step, self.last + 1, step):
            x = f"{self.x(at):.1f}"
            yield f'<line x1="{x}" y1="{_TOP}" x2="{x}" y2="{self.floor}" stroke="#ddd"/>'
            yield f'<text x="{x}" y="{self.floor + 16}" text-anchor="middle">{duration(at)}</text>'
        yield f'<line x1="{_LEFT}" y1="{self.floor}" x2="{_LEFT + _PLOT}" y2="{self.floor}" stroke="#555"/>'

    def row(self, row: int, course: SessionTimes) -> Iterator[str]:
        y = _TOP + row * _ROW + 3
        label = f"{course.plan.session}, {course.plan.agent}"
        yield f'<text x="{_LEFT - 8}" y="{y + 9}" text-anchor="end">{_text(label, _LABEL_CHARS)}</text>'
        for kind, begin, end, words in _bars(course):
            if end < self.first or begin > self.last:
                continue
            x = self.x(begin)
            width = max(self.x(end) - x, 1.5)  # short spans stay visible
            yield (
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_BAR}" fill="{_COLOURS[kind]}">'
                f"<title>{_text(words)}</title></rect>"
            )
        yield f'<text x="{_LEFT + _PLOT + 12}" y="{y + 9}">{_text(_note(course), _NOTE_CHARS)}</text>'


def _bars(course: SessionTimes) -> Iterator[tuple[str, int, int, str]]:
    name = course.plan.session
    until = course.granted_at if course.granted_at is not None else _end(course)
    ends = [*(phase.since for phase in course.phases[1:]), until]
    for phase, end in zip(course.phases, ends, strict=False):
        verb = "waits for" if phase.kind == "wait" else "dies behind"
        yield phase.kind, phase.since, end, f"{name} {verb} {_behind(phase)}, {duration(end - phase.since)}"
    if course.granted_at is not None:
        held = ", ".join(f"{triple.predicate} {triple.resource.text}" for triple in course.plan.manifest.triples[:20])
        yield "hold", course.granted_at, _end(course), f"{name} holds {held} for {duration(course.plan.hold_ms)}"


def _note(course: SessionTimes) -> str:
    if not course.phases:
        return "not at all"
    died = f", died {course.dies} x" if course.dies else ""
    return f"{duration(course.waited_ms)}{died}, {_behind(course.phases[0])}"


def _behind(phase: Phase) -> str:
    return f"{phase.behind} ({phase.resource})"


def _end(course: SessionTimes) -> int:
    known = (course.released_at, course.granted_at, *(phase.since for phase in course.phases[-1:]))
    return next((at for at in known if at is not None), course.plan.start_ms)


def _text(words: str, most: int | None = None) -> str:
    """Return escaped XML text of at most ``most`` characters."""
    if most is not None and len(words) > most:
        words = words[: most - 1] + "…"
    return escape(_NO_XML.sub("\ufffd", words))
