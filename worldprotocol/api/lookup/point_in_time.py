"""Points in the past, as the option ``--at`` of commands and the parameter ``at`` of the HTTP API name them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from world.clock import SystemClock
from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import KLIS_STREAM
from world.events.proposal_events import DecisionMade
from world.model.new_names import HEAD
from world.read_models.decoding import decoded
from world.read_models.lineage import Heads, heads_at, recorded_by
from worldprotocol.api.lookup.id_lookup import KINDS, as_position, candidates, find, head_named, not_unique
from worldprotocol.api.time_parsing import moment_of

if TYPE_CHECKING:
    from world.klis.ledger_view import ReadableLedger
    from world.state.realm_view import RealmView
    from worldprotocol.api.realm import Realm

__all__ = ["Point", "PointInTime", "end_of_commit", "moment", "point_of", "world_at"]

MIN_MS_DIGITS: Final = 12
"""Digits that a time in ms since 1970 has at least, so that it is not taken for a position beyond the log: 1973."""

BATCH: Final = 256
"""Events of the lease ledger fetched at once."""

_WITH_A_PAST: Final = ("world", "proposal", "intent", "decision")
"""Kinds of ids that name a point in the past; runs and sessions last."""


@dataclass(frozen=True, slots=True)
class Point:
    """A point in the past, as a person names one.

    Args:
        position: the last event that had happened then.
        kind: what was named: position, branch, world, proposal or time.
        world_id: the world that was named, or that the proposal made; None where the point names none.
        branch: the branch of the proposal that was named; None is the active one.
        at_ms: the time that was named, ms since 1970; None where none was.
    """

    position: int
    kind: str
    world_id: str | None = None
    branch: str | None = None
    at_ms: int | None = None


def point_of(world: Realm, named: str) -> Point:
    """Return the point in the past that a text names.

    A position up to the end of the log, 0 before the first event; a branch or ``HEAD``; the beginning of the id of a
    world, a proposal, an intent or a decision; or a time as ``log --since`` takes it, which is the last event recorded
    by then. A world and a proposal denote the end of the commit that sealed or ended them, so that what was
    committed with them belongs to it.

    Args:
        world: an open realm.
        named: what was typed. Digits are a position as far as the log goes, and beyond it ids or ms since 1970.

    Raises:
        RefusedError: ``NOT_FOUND``, also for a time before the log began or that is still to come; ``AMBIGUOUS`` with
            the candidates.
    """
    position = as_position(world, named)
    if position is not None:
        return Point(position, "position")
    head = head_named(world, named)
    at_ms = _as_time(named)
    kinds = [kind for kind in _WITH_A_PAST if kind != "decision" or at_ms is None]
    found = [] if head is not None or not named else candidates(world, named, kinds)
    exact = [one for one in found if one[1] == named]
    readings = exact or [*([("branch", named)] if head else []), *found, *([] if at_ms is None else [("time", named)])]
    if not readings:
        raise RefusedError(
            ErrorCode.NOT_FOUND,
            f"{named!r} names no point in the past: it is neither a position up to {world.log.head().size} nor a "
            "branch, HEAD, the beginning of the id of a world or proposal, or a time such as 2024-05-01T12:00:00Z, "
            "ms since 1970, or 2h; `worldctl worlds` and `worldctl branch list` list what there is.",
        )
    if len(readings) > 1:
        raise not_unique(named, readings)
    kind, name = readings[0]
    if kind == "time":
        return _point_of_time(world, named, at_ms or 0)
    if kind in ("branch", "world"):
        row = world.archive.world(head or name)
        return Point(end_of_commit(world, row.position), kind, row.world_id)
    return _point_of_proposal(world, kind, name)


@dataclass(slots=True)
class PointInTime:
    """What a command looks at: the log as it is, or as it stood at a point in the past.

    Args:
        world: the realm.
        position: the last event that had happened.
        now: ms since 1970, by which it is judged what is overdue: of the clock, or the time of the point.
        point: None for now.
    """

    world: Realm
    position: int
    now: int
    point: Point | None = None

    def realm(self) -> RealmView:
        """Return actors, policies, branches, leases and open proposals; for the past all events are folded."""
        return self.world.realm() if self.point is None else self.world.archive.fold_realm(self.position)

    def ledger(self) -> ReadableLedger:
        """Return leases, requests, agents and keys; for the past the ledger's own events are folded.

        Of a cut log, all events after the cut are folded.
        """
        if self.point is None:
            return self.world.realm().klis
        try:
            return self._folded_ledger()
        except RefusedError as refused:
            if refused.code != ErrorCode.EVENT_ARCHIVED:
                raise
            return self.realm().klis

    def _folded_ledger(self) -> ReadableLedger:
        from world.klis.ledger import Ledger

        ledger, version = Ledger(), 0
        while logged := self.world.log.stream(KLIS_STREAM, after=version, limit=BATCH):
            for one in logged:
                if one.position > self.position:
                    return ledger
                ledger.fold(decoded(one))
            version += len(logged)
        return ledger

    def find(self, named: str, kinds: Collection[str] = KINDS) -> tuple[str, str]:
        """Return the kind and id of what a text names, as ``finding.find``; a branch, and HEAD, as it stood then.

        Raises:
            RefusedError: ``NOT_FOUND``; ``AMBIGUOUS`` with the candidates; ``UNKNOWN_BRANCH`` for one that was created
                later.
        """
        if self.point is None or "world" not in kinds or head_named(self.world, named) is None:
            return find(self.world, named, kinds)
        return "world", self.heads().head(None if named == HEAD else named)

    def heads(self) -> Heads:
        """Return the branches."""
        if self.point is None:
            realm = self.world.realm()
            return Heads(realm.active, dict(realm.branches))
        return heads_at(self.world.archive, self.position)

    def world_id(self, branch: str | None = None) -> str:
        """Return a branch's head; None is the world that the point names, else the head of the active branch.

        Raises:
            RefusedError: ``UNKNOWN_BRANCH``.
        """
        if self.point is None:
            return self.world.branch(branch).head
        if branch is None and self.point.world_id is not None:
            return self.point.world_id
        return self.heads().head(branch or self.point.branch)

    def check_seen(self, what: str, position: int) -> None:
        """Refuse what was recorded after this moment.

        Args:
            what: the beginning of a sentence, such as ``Realm 1a2b was sealed``.
            position: of the event.

        Raises:
            RefusedError: ``NOT_FOUND``.
        """
        if position > self.position:
            rendered = f"{what} by event {position}, which is after event {self.position}."
            raise RefusedError(ErrorCode.NOT_FOUND, rendered, position=position)


def moment(world: Realm, at: str | None) -> PointInTime:
    """Return what is looked at: the point that was typed after ``--at``, or now.

    Raises:
        RefusedError: as ``point_of``.
    """
    if at is None:
        return PointInTime(world, world.log.head().size, SystemClock().now_ms())
    point = point_of(world, at)
    now = point.at_ms
    if now is None:
        now = decoded(world.log.event_at(point.position)).at if point.position else 0
    return PointInTime(world, point.position, now, point)


def world_at(world: Realm, at: str | None, branch: str | None = None) -> tuple[str, Point]:
    """Return the world that stood at a point, and the point.

    Args:
        world: an open realm.
        at: what was typed; None is now.
        branch: whose head it is; None is the world that the point names, else the head of the active branch then.

    Raises:
        RefusedError: as ``point_of``; ``UNKNOWN_BRANCH`` where there was no such branch then.
    """
    then = moment(world, at)
    return then.world_id(branch), then.point or Point(then.position, "position")


def _point_of_time(world: Realm, named: str, at_ms: int) -> Point:
    size = world.log.head().size
    position = recorded_by(world.archive, at_ms)
    if position == 0 and size:
        first = _rendered(decoded(world.log.event_at(1)).at)
        raise RefusedError(ErrorCode.NOT_FOUND, f"{named!r} is before the log began, at {first}.", first=first)
    last = decoded(world.log.event_at(size)).at if size else 0
    if at_ms > max(last, SystemClock().now_ms()):
        raise RefusedError(ErrorCode.NOT_FOUND, f"{named!r} is in the future; name a time in the past.")
    return Point(position, "time", at_ms=at_ms)


def _rendered(at_ms: int) -> str:
    from worldprotocol.api.proposal_summary import moment as words_of

    return words_of(at_ms)


def _point_of_proposal(world: Realm, kind: str, proposal_id: str) -> Point:
    events = world.log.stream(proposal_id)
    proposal = world.proposal(proposal_id)
    position = events[-1].position
    if kind == "decision":
        position = next(one.position for one in events if one.topic == DecisionMade.TOPIC)
    made = proposal.world_id if kind != "decision" else None
    return Point(end_of_commit(world, position), "proposal", made, proposal.branch)


def _as_time(named: str) -> int | None:
    """Return ms since 1970 of a time; None where a text is none. Few digits are none."""
    if named.isascii() and named.isdigit() and len(named) < MIN_MS_DIGITS:
        return None
    try:
        return moment_of(named, SystemClock().now_ms())
    except ValueError:
        return None


def end_of_commit(world: Realm, position: int) -> int:
    """Return the last position of the commit that an event belongs to: a tree head is stored with each commit."""
    head = next(world.log.heads(position - 1), None)
    return position if head is None else head.size
