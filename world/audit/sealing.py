"""Making of the snapshot from which a log is folded when the contents of the events before it are removed.

The snapshot follows from the events up to its position alone, so that it can be made again from archives of these
events and compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from world.error_codes import ErrorCode
from world.errors import RefusedError
from world.events.base import Event
from world.events.proposal_events import DecisionMade, ProjectionRecorded
from world.klis.ledger_codec import ledger_to_wire
from world.log import EventLog
from world.model.canonical_json import canonical_text, read_json
from world.read_models.archive import Archive
from world.read_models.decoding import decoded
from world.read_models.live.sealed_snapshot import (
    KEPT_TOPICS,
    SealedSnapshot,
    SealedWorld,
    kept_events,
    open_snapshot,
    realm_at,
)
from world.state.realm_state import RealmState, apply_event

__all__ = ["last_commit", "seal"]

Progress = Callable[[int, int], None]

_NEAR = 4_096
"""Events before a position among which the end of a commit is looked for first."""


def last_commit(log: EventLog, upto: int) -> int:
    """Return the position of the last event of the last commit that ends at or before a position; 0 without one."""
    for after in (max(0, upto - _NEAR), 0):
        sizes = [head.size for head in log.heads(after, upto)]
        if sizes:
            return sizes[-1]
    return 0


def seal(log: EventLog, upto: int, progress: Progress | None = None) -> SealedSnapshot:
    """Return the snapshot of the state after the last event of a commit.

    Args:
        log: the log, with a current index.
        upto: position of the event.
        progress: called with the number of folded events and the total.

    Raises:
        RefusedError: ``BRANCH_BEFORE_CUT`` where a branch is at a world from which another one continued before the
            position; ``EVENT_ARCHIVED`` for a position before an earlier cut.
        DamagedLogError: the log or its index is damaged.
    """
    folding = _Sealing(log, upto)
    folding.run(progress)
    return folding.result()


class _Sealing:
    """Fold of the events up to a position, with what the state alone does not say."""

    def __init__(self, log: EventLog, upto: int) -> None:
        before = open_snapshot(log)
        self._log, self._upto, self._before = log, upto, before
        self._archive = Archive(log)
        self._realm = RealmState() if before is None else realm_at(log, before)
        self._topics = Counter[str]({} if before is None else before.topics)
        self._rejected = 0 if before is None else before.rejected
        self._records: dict[str, int] = {}
        self._decided: dict[str, int] = {}

    def run(self, progress: Progress | None) -> None:
        if self._before is not None:
            for logged in kept_events(self._log, self._before):
                self._note(decoded(logged), logged.position)
        for logged in self._log.read(self._realm.position, self._upto):
            event = decoded(logged)
            apply_event(self._realm, event, logged.position)
            self._topics[logged.topic] += 1
            self._note(event, logged.position)
            if isinstance(event, DecisionMade):
                self._rejected += event.decision.decision == "rejected"
            if progress is not None and logged.position % 1_000 == 0:
                progress(logged.position, self._upto)

    def _note(self, event: Event, position: int) -> None:
        if isinstance(event, ProjectionRecorded) and event.intent_id is not None:
            self._records[event.intent_id] = position
        elif isinstance(event, DecisionMade):
            self._decided[event.proposal_id] = position

    def result(self) -> SealedSnapshot:
        realm = self._realm
        runs = [self._log.stream(f"run:{name}", limit=1)[0].position for name in realm.runs]
        worlds = list(self._worlds())
        ledger = read_json(canonical_text(ledger_to_wire(realm.klis)))
        return SealedSnapshot(
            upto=self._upto,
            root=self._log.root_at(self._upto).root_hex,
            branches=[(one.name, one.head, one.tip) for one in realm.branches.values()],
            ledger=ledger,
            ledger_version=realm.klis_version,
            proposals=list(realm.proposals),
            decided=sorted(realm.proposals, key=lambda name: self._decided.get(name, 0)),
            runs=runs,
            kept=sorted({*self._kept(), *(self._archive.world(one.world_id).position for one in worlds)}),
            worlds=worlds,
            topics=dict(sorted(self._topics.items())),
            rejected=self._rejected,
        )

    def _kept(self) -> Iterator[int]:
        """Yield the positions of the events whose contents are needed afterwards, but for those of worlds."""
        log, upto, realm = self._log, self._upto, self._realm
        yield from (logged.position for logged in log.read(upto=upto, topics=sorted(KEPT_TOPICS)))
        for stream in (*realm.proposals, *(f"run:{name}" for name in realm.runs)):
            yield from (logged.position for logged in log.stream(stream) if logged.position <= upto)
        for proposal_id, proposal in realm.proposals.items():
            rows = self._archive.rows("verdicts_of_request", {"of_request": proposal_id})
            yield from (position for (position,) in rows if position <= upto)
            record = self._records.get(proposal.submitted.intent.intent_id)
            if record is not None:
                yield record

    def _data(self, world_id: str) -> dict[str, Any]:
        data: dict[str, Any] = read_json(canonical_text(self._archive.checked_state(world_id)))
        return data

    def _worlds(self) -> Iterator[SealedWorld]:
        """Yield the worlds that later events may refer to, each parent before its children."""
        names = dict.fromkeys(branch.head for branch in self._realm.branches.values())
        for proposal in self._realm.proposals.values():
            names |= dict.fromkeys(
                [proposal.submitted.base_world] + ([proposal.started.on_world] if proposal.started is not None else [])
            )
        for name in names:
            row = self._archive.world(name)
            yield SealedWorld(name, row.parent, row.outcome, row.height, self._data(name))
        for head in dict.fromkeys(branch.head for branch in self._realm.branches.values()):
            for child, _, height, position, branch, outcome in self._archive.rows("children", {"of_world": head}):
                if position > self._upto or child in names:
                    continue
                if outcome == "completed":
                    raise _behind(self._realm, head, branch, position)
                yield SealedWorld(child, head, outcome, height, None)


def _behind(realm: RealmState, head: str, continued: str, position: int) -> RefusedError:
    names = sorted(one.name for one in realm.branches.values() if one.head == head)
    return RefusedError(
        ErrorCode.BRANCH_BEFORE_CUT,
        f"The branch {names[0]!r} is at a world from which {continued!r} continued with event {position}; the log can "
        "be cut before that event only (`--upto`), because worlds after it may be reached again.",
        branch=names[0],
        position=position,
    )
