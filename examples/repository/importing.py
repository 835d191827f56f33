"""Importing the history: every branch in the order of merging, the maintainer's answers, the scheduler's clean-ups.

Running it again continues: what is in the log is found there and left alone. So is an import that was killed::

    python -m examples.repository.importing FOLDER [BRANCHES]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from examples.repository.branches import branch
from examples.repository.domain import repository
from examples.repository.effects import mailing_list, outbox
from examples.repository.history import DAY_MS, Session, members_of, read_sessions
from examples.repository.inbox import answer_to
from examples.repository.rules import MAINTAINER, policy
from examples.repository.timing import HistoryClock, HistoryIds
from world.errors import RefusedError
from world.events.proposal_events import ProjectionRecorded
from world.read_models.decoding import decoded
from worldprotocol.api.realm import Realm

WORLD_NAME: Final = "world.db"
"""The log's file, in the folder of the import."""

SCHEDULER: Final = "scheduler"
"""The system actor that proposes clean-ups."""

ANSWER_EVERY: Final = 10
"""Branches between two looks of the maintainer into her inbox."""

SWEEP_EVERY: Final = 100
"""Branches between two clean-ups."""

KEEP_MS: Final = 365 * DAY_MS
"""How long a tombstone is kept, in milliseconds."""

PATIENCE_MS: Final = 365 * DAY_MS
"""How long a proposal waits for the maintainer, in milliseconds."""

BINDING: Final[Mapping[str, Any]] = {
    "kind": "policy_rules",
    "policy": policy.name,
    "ask": [MAINTAINER],
    "timeoutMs": PATIENCE_MS,
    "onTimeout": "reject",
}
"""Binding of all actors but the maintainer."""

Progress = Callable[[int, int], None]
"""Called with the numbers of imported branches and of all branches."""


class Import:
    """An import into the world of a folder, opened where it stopped last, or founded.

    Args:
        folder: holds the log and the outbox; made where it is missing.
        sessions: the branches, in the order of merging.
        sent: called after a mail to the mailing list was sent and before its result is recorded.
    """

    def __init__(self, folder: Path, sessions: Sequence[Session], *, sent: Callable[[], None] | None = None) -> None:
        """Open or found the world, and register all actors."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.sessions = sessions
        self._sent = sent
        self.done, now_ms = _done_before(folder / WORLD_NAME)
        self.clock = HistoryClock(now_ms or sessions[0].start_ms)
        self.ids = HistoryIds(self.clock)
        self.realm = self._opened()
        try:
            self._register()
        except BaseException:
            self.realm.close()
            raise

    def run(self, progress: Progress | None = None) -> None:
        """Import what is not in the log yet."""
        first = max((at for at, one in enumerate(self.sessions) if one.session in self.done), default=0)
        for at in range(first, len(self.sessions)):
            self._step(at)
            if progress is not None:
                progress(at + 1, len(self.sessions))

    def _step(self, at: int) -> None:
        """Import one branch with what follows it; what a killed run did of it already stays as it is."""
        session = self.sessions[at]
        self.clock.move_to(session.end_ms)
        if session.session not in self.done:
            self.ids.about(session.session)
            self.realm.project(session.event, session.agent)
        if (at + 1) % ANSWER_EVERY == 0:
            self._answer_inbox()
        if (at + 1) % SWEEP_EVERY == 0:
            self._sweep((at + 1) // SWEEP_EVERY)
        self.ids.about(None)

    def _answer_inbox(self) -> None:
        for proposal in self.realm.inbox():
            answer = answer_to(proposal)
            if answer is not None:
                self.ids.about(f"answer-{proposal.proposal_id}")
                self.realm.decide(
                    proposal.proposal_id, answer.choice, by=MAINTAINER, scope=answer.scope, reason=answer.reason
                )

    def _sweep(self, number: int) -> None:
        """Propose to remove the tombstones that are older than ``KEEP_MS``, as the scheduler."""
        before = self.clock.now_ms() - KEEP_MS
        paths = old_tombstones(self.realm.data(), before)
        if not paths:
            return
        self.ids.about(f"sweep-{number}")
        try:
            self.realm.act(
                SCHEDULER,
                "tombstones.sweep",
                {"before": before, "paths": paths},
                scope=["data.areas.*"],
                note=f"clean-up {number}",
            )
        except RefusedError as refused:
            if refused.code != "INTENT_ALREADY_SUBMITTED":  # proposed before a kill, and not completed
                raise

    def _opened(self) -> Realm:
        parts: dict[str, Any] = {
            "domain": repository,
            "projections": [branch],
            "policies": [policy],
            "effects": [outbox(self.folder), mailing_list(self.folder, sent=self._sent)],
            "clock": self.clock,
            "ids": self.ids,
        }
        address = self.folder / WORLD_NAME
        try:
            return Realm.create(address, **parts)
        except RefusedError as refused:
            if refused.code != "ALREADY_FOUNDED":
                raise
        realm = Realm.open(address, **parts)
        realm.adopt_policy(policy.name)
        return realm

    def _register(self) -> None:
        """Register the actors that are not registered yet."""
        bound = self.realm.realm().bindings
        members = members_of(read_sessions())
        if MAINTAINER not in bound:
            self.realm.register(MAINTAINER, "human", binding={"kind": "hitl"})
        if SCHEDULER not in bound:
            self.realm.register(SCHEDULER, "system", binding=BINDING)
        for agent in sorted({one.agent for one in self.sessions} - bound.keys()):
            role = "member" if agent in members else "contributor"
            self.realm.register(agent, "agent", binding=BINDING, meta={"role": role})


def old_tombstones(data: Any, before: int) -> list[str]:
    """Return the paths that were deleted before a time (ms since 1970), sorted."""
    return sorted(
        path
        for area in data["areas"].values()
        for path, entry in area["files"].items()
        if not entry["present"] and entry["at"] < before
    )


def _done_before(address: Path) -> tuple[set[str], int]:
    """Return the branches that a log holds already, and the time of its last event (ms since 1970, 0 without)."""
    if not address.exists() or address.stat().st_size == 0:  # empty: killed before anything was written
        return set(), 0
    with Realm.open_read_only(address) as realm:
        size = realm.log.head().size
        last = decoded(realm.log.event_at(size)).at if size else 0
        recorded = (decoded(logged) for logged in realm.log.read(topics=[ProjectionRecorded.TOPIC]))
        return {event.source.event_id for event in recorded if isinstance(event, ProjectionRecorded)}, last


def main(arguments: Sequence[str]) -> int:
    """Import into a folder and print the number of each branch when it is done; returns the exit code."""
    folder, *most = arguments
    running = Import(Path(folder), read_sessions(int(most[0]) if most else None))
    with running.realm:
        running.run(lambda done, _: print(done, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
