"""Conditions on events of ``/log`` and ``/log/stream``, and the bounded search for the events that meet them.

The conditions are those of ``worldctl log``. An event that is hidden from the caller meets none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import BaseModel, Field

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.codec import TOPICS
from worldprotocol.api.bootstrap import LoggedEvent
from worldprotocol.api.lookup.log_filter import LogFilter
from worldprotocol.api.time_parsing import moment_of
from worldprotocol.server.call import Call

__all__ = ["ALL", "EventConditions", "FoundEvents", "LogConditions", "Stretch", "find_events", "stretch_of"]

SEARCHED: Final = 20_000
"""Positions that one request searches for conditions on the content of events; `next` of the answer continues."""

SEARCHED_PROPOSALS: Final = 2_000
"""The same for conditions on the proposals that events are about."""

WINDOW: Final = 1_000
"""Positions that are read at once, first."""


class EventConditions(BaseModel):
    """Conditions on events, as parameters of a query; all that are given have to hold."""

    types: str | None = Field(
        default=None, max_length=4_000, description="Topics, separated by commas, such as `proposal.submitted`."
    )
    stream: str | None = Field(default=None, min_length=1, max_length=1_000, description="Stream of the events.")
    actor: str | None = Field(
        default=None, min_length=1, max_length=1_000, description="Actor of the event, or of its proposal."
    )
    action: str | None = Field(default=None, min_length=1, max_length=1_000)
    branch: str | None = Field(default=None, min_length=1, max_length=1_000)
    proposal: str | None = Field(default=None, min_length=1, max_length=1_000)
    text: str | None = Field(
        default=None, min_length=1, max_length=1_000, description="Text of the state as JSON, in upper or lower case."
    )

    @property
    def topics(self) -> list[str] | None:
        """The topics; None is all.

        Raises:
            RefusedError: ``INVALID_VALUE`` for one that does not exist.
        """
        if self.types is None:
            return None
        named = [one.strip() for one in self.types.split(",")]
        unknown = [one for one in named if one not in TOPICS]
        if unknown:
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"There is no topic {unknown[0][:80]!r}; docs/reference/log-format.md lists them.",
            )
        return named

    def filter(self, call: Call, upto: int | None = None) -> LogFilter | None:
        """Return the filter of ``worldctl log`` with these conditions; None without conditions.

        Args:
            call: the request.
            upto: position after which events do not count for the status of a proposal.

        Raises:
            RefusedError: ``RIGHT_MISSING`` for a condition on proposals by a reader with redaction; ``INVALID_VALUE``.
        """
        given: dict[str, Any] = self.model_dump(exclude={"at", "before"}, exclude_none=True)
        if not given:
            return None
        if call.visibility.rules and {"action", "status"} & set(given):
            raise RefusedError(
                ErrorCode.RIGHT_MISSING,
                "The conditions `action` and `status` look at all events of a proposal, of which some may be hidden "
                "from a reader with redaction; leave them out.",
            )
        given.pop("types", None)
        now = call.service.clock.now_ms()
        try:
            given |= {name: moment_of(given[name], now) for name in ("since", "until") if name in given}
        except ValueError as wrong:
            raise RefusedError(ErrorCode.INVALID_VALUE, f"{wrong}.") from None
        alone = bool(call.visibility.rules)
        return LogFilter(call.hosted.realm, topics=self.topics, upto=upto, alone=alone, **given)


class LogConditions(EventConditions):
    """Conditions on events that are in the log."""

    status: str | None = Field(default=None, min_length=1, max_length=100)
    since: str | None = Field(default=None, min_length=1, max_length=100, description="ISO 8601, ms since 1970, or 2h.")
    until: str | None = Field(default=None, min_length=1, max_length=100, description="As `since`.")
    at: str | None = Field(default=None, min_length=1, max_length=200, description="The log at a point in the past.")
    before: int | None = Field(
        default=None, ge=0, le=2**53, description="Position after the last event; absent, the end."
    )


ALL: Final = LogConditions()


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of the log.

    Args:
        after: position before the first event.
        upto: last position.
        is_reversed: whether the newest event comes first.
    """

    after: int
    upto: int
    is_reversed: bool


@dataclass(slots=True)
class FoundEvents:
    """Events that meet conditions.

    Args:
        events: the events, each with whether it is hidden from the caller.
        searched: the stretch that was searched.
        cursor: `after`, or `before` where the newest event comes first, of what is left; None at the end.
    """

    events: list[tuple[LoggedEvent, bool]]
    searched: Stretch
    cursor: int | None


def stretch_of(call: Call, wanted: LogConditions, after: int, order: Literal["oldest", "newest"]) -> Stretch:
    """Return the stretch that a request names.

    Raises:
        RefusedError: as ``Call.moment``.
    """
    end = call.hosted.realm.log.head().size if wanted.at is None else call.moment(wanted.at).position
    upto = end if wanted.before is None else max(0, min(wanted.before - 1, end))
    return Stretch(min(after, upto), upto, order == "newest")


def find_events(call: Call, wanted: LogConditions, stretch: Stretch, limit: int) -> FoundEvents:
    """Return the events of a stretch that meet conditions, at most ``limit`` of them.

    Args:
        call: the request.
        wanted: the conditions.
        stretch: where they are searched for.
        limit: most events.

    Raises:
        RefusedError: as ``EventConditions.filter``.
    """
    chosen = wanted.filter(call, stretch.upto if wanted.at is not None else None)
    found: list[tuple[LoggedEvent, bool]] = []
    done = stretch.upto if stretch.is_reversed else stretch.after
    for after, upto in _windows(stretch, chosen, limit, is_redacted=bool(call.visibility.rules)):
        log = call.hosted.realm.log
        read = log.read(after, upto, topics=wanted.topics, stream=wanted.stream, skip_archived=True)
        shown = call.visibility.events(read)
        for event, is_hidden in reversed(shown) if stretch.is_reversed else shown:
            if chosen is not None and (is_hidden or chosen.match(event) is None):
                continue
            found.append((event, is_hidden))
            if len(found) == limit:
                return _found(found, stretch, event.position - stretch.is_reversed)
        done = after if stretch.is_reversed else upto
    return _found(found, stretch, done)


def _found(events: list[tuple[LoggedEvent, bool]], stretch: Stretch, done: int) -> FoundEvents:
    """Return found events; ``done`` is the position between what was searched and what is left."""
    if stretch.is_reversed:
        return FoundEvents(events, Stretch(done, stretch.upto, True), done + 1 if done > stretch.after else None)
    return FoundEvents(events, Stretch(stretch.after, done, False), done if done < stretch.upto else None)


def _windows(stretch: Stretch, chosen: LogFilter | None, limit: int, *, is_redacted: bool) -> Iterator[tuple[int, int]]:
    """Yield the parts of a stretch that are read at once, in its order, as far as one request searches.

    Topics and streams are conditions of the database's index, so that their windows grow up to the whole stretch. For
    a caller with redaction they do not, because what is searched would depend on hidden events.
    """
    least, upto = stretch.after, stretch.upto
    by_index = not is_redacted and (chosen is None or not chosen.narrows)
    size = limit if chosen is None else WINDOW
    if not by_index:
        most = SEARCHED if chosen is None or not chosen.narrows_proposals else SEARCHED_PROPOSALS
        least, upto = (max(least, upto - most), upto) if stretch.is_reversed else (least, min(upto, least + most))
    while least < upto:
        if stretch.is_reversed:
            begin = max(least, upto - size)
            yield begin, upto
            upto = begin
        else:
            end = min(upto, least + size)
            yield least, end
            least = end
        size *= 4 if by_index else 1
