"""Counterfactual replay in a scratch log; the real log is only read (CARD-audit)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.proposal_events import ProjectionRecorded, ProposalSubmitted
from world.events.realm_events import BranchCreated
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.index import WorldIndex
from worldprotocol.analysis.counterfactual.asked import WhatIf
from worldprotocol.analysis.counterfactual.replaying import Replaying
from worldprotocol.analysis.counterfactual.report import WhatIfReport, report_of
from worldprotocol.analysis.counterfactual.scratch import copy_beginning, cut_before, scratch_log
from worldprotocol.analysis.counterfactual.staging import prepared
from worldprotocol.analysis.counterfactual.world_mapping import made_with
from worldprotocol.api.bootstrap import EventLog
from worldprotocol.api.lookup.id_lookup import proposal_id
from worldprotocol.api.lookup.point_in_time import point_of
from worldprotocol.api.read_only import open_for_reading
from worldprotocol.api.realm import Realm

__all__ = ["cut_of", "start_of", "what_if"]

PROGRESS_EVERY: Final = 500
"""Events between two reports of progress."""

AHEAD: Final = 2
"""Number of following events given with each event."""

Progress = Callable[[int, int], None]


def what_if(question: WhatIf, progress: Progress = lambda done, total: None) -> WhatIfReport:
    """Replay a log with changes from a given event on, and report the differences.

    Args:
        question: the changes.
        progress: called with events done and in all.

    Raises:
        RefusedError: ``NOT_AFTER_START`` for a proposal that was submitted before the start; ``SCHEMA_MISMATCH``,
            ``POLICY_NOT_AT_HAND``; ``INVALID_VALUE`` for policies that would replace each other; ``UNKNOWN_ACTOR`` and
            the codes of ``submit`` for insertions; ``FILE_EXISTS``, ``INVALID_TARGET``; the codes of opening the log
            and loading references.
        DamagedLogError: the log contradicts itself; run ``verify`` first.
    """
    view = WorldIndex(checkpoint_every=question.limits.checkpoint_every)
    with open_for_reading(question.address) as source, scratch_log(question.scratch, view) as scratch:
        _check_dropped(source, question)
        size = source.head().size
        copy_beginning(source, scratch, view, question.start, lambda done: progress(done, size))
        replaying = prepared(question, source, scratch)
        try:
            _replay(replaying, source, (question.start, size), progress)
            return report_of(question, replaying)
        finally:
            replaying.protocol.close()


def _replay(replaying: Replaying, source: EventLog, stretch: tuple[int, int], progress: Progress) -> None:
    replaying.begin()
    for position, event, stream, coming in _ahead(source, *stretch):
        replaying.take(position, event, stream, coming)
        if replaying.stopped is not None:
            return
        if position % PROGRESS_EVERY == 0:
            progress(position, stretch[1])
    replaying.end()
    progress(stretch[1], stretch[1])


def _ahead(source: EventLog, after: int, upto: int) -> Iterator[tuple[int, Event, str, list[Event]]]:
    """Yield position, event, stream and the following events."""
    events = ((one.position, decoded(one), one.stream) for one in source.read(after, upto))
    window = deque(islice(events, AHEAD + 1))
    while window:
        position, event, stream = window.popleft()
        yield position, event, stream, [one for _, one, _ in window]
        window.extend(islice(events, 1))


def cut_of(archive: Archive, *, world: str | None = None, position: int | None = None, drop: Sequence[str] = ()) -> int:
    """Return the position of the last event that a counterfactual keeps.

    Args:
        archive: archive of the real log.
        world: the last world that is kept.
        position: an event that is kept, with the events that follow from it.
        drop: ids of proposals; without a world and a position the counterfactual begins before the first of them.

    Raises:
        RefusedError: ``UNKNOWN_WORLD``, ``UNKNOWN_PROPOSAL``, ``INVALID_VALUE`` without any of these.
    """
    if world is not None:
        return cut_before(archive.log, archive.world(world).position)
    if position is not None:
        return cut_before(archive.log, position)
    if not drop:
        raise RefusedError(ErrorCode.INVALID_VALUE, "The start is not given; use --from WORLD, or --drop PROPOSAL.")
    first = min(_submitted_at(archive.log, name) for name in drop)
    before = [decoded(one) for one in archive.log.read(max(0, first - 3), first)]
    own = [before.pop()]
    if before and isinstance(before[-1], ProjectionRecorded) and before[-1].proposal_id in drop:
        own.insert(0, before.pop())
    if before and isinstance(before[-1], BranchCreated) and made_with(before[-1], own):
        own.insert(0, before.pop())
    return first - len(own)


def start_of(realm: Realm, begin: str | None, drop: Sequence[str]) -> tuple[int, list[str]]:
    """Return the position of the last event that a counterfactual keeps, and the ids of the dropped proposals.

    Args:
        realm: an open realm.
        begin: the world or the point after which it begins; None is before the first dropped proposal.
        drop: proposals, by the beginnings of their ids.

    Raises:
        RefusedError: as ``point_of`` and ``cut_of``; ``AMBIGUOUS``.
    """
    dropped = [proposal_id(realm, given) for given in drop]
    if begin is None:
        return cut_of(realm.archive, drop=dropped), dropped
    point = point_of(realm, begin)
    world = point.world_id if point.kind in ("world", "branch") else None
    return cut_of(realm.archive, world=world, position=point.position, drop=dropped), dropped


def _submitted_at(log: EventLog, name: str) -> int:
    for logged in log.stream(name):
        if logged.topic == ProposalSubmitted.TOPIC:
            return logged.position
    raise RefusedError(ErrorCode.UNKNOWN_PROPOSAL, f"There is no proposal {name!r}.", proposal_id=name)


def _check_dropped(source: EventLog, question: WhatIf) -> None:
    for name in question.drop:
        at = _submitted_at(source, name)
        submitted = decoded(next(source.read(at - 1, at)))
        if isinstance(submitted, ProposalSubmitted) and submitted.migration is not None:
            raise RefusedError(
                ErrorCode.INVALID_VALUE,
                f"Proposal {name} is the migration of a branch. It is part of the adoption of a domain and cannot be "
                "dropped alone. Drop proposals before it, or insert intents.",
                proposal_id=name,
            )
        if at <= question.start:
            raise RefusedError(
                ErrorCode.NOT_AFTER_START,
                f"Proposal {name} was submitted before the start of the counterfactual, so it cannot be dropped. "
                "Name an earlier world, or omit --from.",
                proposal_id=name,
            )
