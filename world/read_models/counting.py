"""Counts of earlier proposals at many points of one log, as a backtest needs them.

The index is queried once for all proposals that match some conditions, and each count is computed from the cached
result. The counts equal those of ``Archive.count``, because the part of a log before a point never changes.
``Archive.count`` is used directly for points after the end of the log at the time of the query, and for more proposals
than the cache can hold.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from operator import le
from typing import Any, Final, Unpack

from world.events.proposal_events import ProposalSubmitted
from world.read_models.archive import Archive
from world.state.ports import Conditions

__all__ = ["MAX_KEPT", "Counts"]

MAX_KEPT: Final = 1_000_000
"""Maximum number of cached proposals of 16 bytes each; with more of them every count is a query of the index."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """Proposals that match some conditions: positions from which on they match, ascending, and submission times."""

    places: array[int]
    times: array[int]
    is_in_order: bool
    upto: int

    def count(self, before: int, since_ms: int | None) -> int:
        upto = bisect_left(self.places, before)
        if since_ms is None:
            return upto
        if self.is_in_order:
            return upto - bisect_left(self.times, since_ms, 0, upto)
        return sum(at >= since_ms for at in self.times[:upto])


class Counts:
    """Cached counts of the earlier proposals of one log.

    Args:
        archive: archive of the log.
    """

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self._kept: OrderedDict[tuple[tuple[str, Any], ...], _Kept | None] = OrderedDict()
        self._size = 0

    def count(self, before: int, own: ProposalSubmitted, **conditions: Unpack[Conditions]) -> int:
        """Count earlier proposals as ``Archive.count`` does, without the judged proposal.

        Args:
            before: the position at which it is judged, after its submission and before its decision.
            own: its submission.
            **conditions: as for ``world.state.ports.History``.

        Raises:
            RefusedError: as ``Archive.count``.
            DamagedLogError: as ``Archive.count``.
        """
        since_ms = conditions.get("since_ms")
        compared: dict[str, Any] = {name: value for name, value in conditions.items() if name != "since_ms"}
        kept = self._under(compared) if _is_plain(compared, since_ms) else None
        if kept is None or before > kept.upto + 1:
            return self._archive.count(before, **conditions, other_than=own.proposal_id)
        return kept.count(before, since_ms) - _is_under(own, since_ms, compared)

    def _under(self, conditions: Mapping[str, str]) -> _Kept | None:
        """Return all proposals that match conditions, or None where they exceed the cache."""
        key = tuple(conditions.items())
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        kept = self._kept[key] = self._read(conditions)
        self._size += _size(kept)
        while self._size > MAX_KEPT and len(self._kept) > 1:
            self._size -= _size(self._kept.popitem(last=False)[1])
        return kept

    def _read(self, conditions: Mapping[str, str]) -> _Kept | None:
        upto = self._archive.log.head().size
        rows = self._archive.moments(MAX_KEPT, conditions)
        if len(rows) == MAX_KEPT:
            return None
        rows.sort(key=lambda row: row[1])
        times = [row[0] for row in rows]
        is_in_order = all(map(le, times, islice(times, 1, None)))
        return _Kept(array("q", [row[1] for row in rows]), array("q", times), is_in_order, upto)


def _size(kept: _Kept | None) -> int:
    return 1 if kept is None else 1 + len(kept.places)


def _is_plain(compared: Mapping[str, Any], since_ms: Any) -> bool:
    """Return whether values have the types of the log's columns; other types are compared by the database."""
    for value in compared.values():
        if type(value) is not str:
            return False
    return since_ms is None or type(since_ms) is int


def _is_under(own: ProposalSubmitted, since_ms: int | None, conditions: Mapping[str, str]) -> bool:
    """Return whether the judged proposal, which is undecided, matches the conditions."""
    for name, value in conditions.items():
        if name == "actor_id":
            its = own.actor.actor_id
        elif name == "action":
            its = own.intent.body.type
        elif name == "intent_key":
            its = own.intent.intent_key
        else:
            return False
        if its != value:
            return False
    return since_ms is None or own.at >= since_ms
