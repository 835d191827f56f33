"""The recorded history: merged branches with author, time, and the changes of each path.

``sessions.jsonl`` counts time from the first branch on and holds sixteen years in 50,391,903 ticks; one tick is taken
for ten seconds here, and the first branch is dated to ``ORIGIN_MS``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from world.model.source import SourceEvent

SESSIONS: Final = Path(__file__).with_name("sessions.jsonl")
"""The recording."""

ORIGIN_MS: Final = 1_270_080_000_000
"""The time that is taken for tick 0: 2010-04-01 00:00 UTC, in ms since 1970."""

TICK_MS: Final = 10_000
"""Milliseconds of one tick."""

DAY_MS: Final = 86_400_000
"""Milliseconds of a day."""

MEMBER_BRANCHES: Final = 20
"""Branches after which the project made its author a member; the operator supplies the names."""


@dataclass(frozen=True, slots=True)
class Session:
    """One merged branch.

    Args:
        session: its name, unique.
        agent: whose branch it is.
        start_ms: when it began, ms since 1970.
        end_ms: when it was merged, ms since 1970.
        scope: what it did, as predicate and resource.
    """

    session: str
    agent: str
    start_ms: int
    end_ms: int
    scope: tuple[dict[str, Any], ...]

    @property
    def event(self) -> SourceEvent:
        """The branch as the event that a hosting service sends when it is merged."""
        payload = {
            "session": self.session,
            "agent": self.agent,
            "startMs": self.start_ms,
            "endMs": self.end_ms,
            "scope": list(self.scope),
        }
        return SourceEvent.read({"kind": "api", "eventId": self.session, "payload": payload, "occurredAt": self.end_ms})


def read_sessions(most: int | None = None) -> list[Session]:
    """Return the branches in the order in which they were merged.

    Args:
        most: only so many of the first; None is all.
    """
    with SESSIONS.open(encoding="utf-8") as lines:
        sessions = [_session(json.loads(line)) for line in lines]
    sessions.sort(key=lambda one: (one.end_ms, one.session))
    return sessions[:most]


def members_of(sessions: Sequence[Session]) -> frozenset[str]:
    """Return the agents who are members of the project."""
    branches = Counter(one.agent for one in sessions)
    return frozenset(agent for agent, number in branches.items() if number >= MEMBER_BRANCHES)


def _session(rendered: dict[str, Any]) -> Session:
    start, end = (ORIGIN_MS + rendered[name] * TICK_MS for name in ("start_ms", "end_ms"))
    return Session(rendered["session"], rendered["agent"], start, end, tuple(rendered["scope"]))
