"""The real Claude Code and Codex are ended at random moments and in every way: nothing of their calls stays.

The agents of npm are driven by scripted models. What is ended is the agent, its hook, its terminal or its connection;
the call waits for a person, runs, or is at any other point.
"""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from tests.agents.driven.driven_agents import LOOKS_S, Driven, driven
from tests.agents.hooked import hooked
from tests.plugins.forms import IS_SHORT, scaled
from tests.server.served import Served
from tests.support.patience import until
from world.audit.verify import verify
from world.events.caller_events import CallerLeft

pytestmark = [pytest.mark.slow, pytest.mark.timeout(scaled(7_200, ci=900))]

LIMIT_S: Final = 20.0
"""Time after which nothing of an ended agent is left, in seconds; measured by the long form."""

YIELDS_S: Final = 30.0
"""Time after which Codex ends the wait for its command, in seconds: it makes a call whose hook lost its shell."""

WAYS: Final = (
    "agent KILL",
    "agent TERM",
    "agent INT",
    "terminal",
    "connection",
    "hook KILL",
    "hook TERM",
    "hook INT",
)
POINTS: Final = {
    "asked": "tail -f /dev/null && git push origin main",
    "running": "tail -f /dev/null",
    "approved": "tail -f /dev/null && git push origin main",
    "any": "tail -f /dev/null",
}
"""Where a call is when something ends, and its command, which asks a person or runs confined."""


def inbox(served: Served) -> list[dict[str, Any]]:
    with served.client("ann") as client:
        return list(client.get("/v1/realms/main/inbox").json()["inbox"])


def approve(served: Served, entry: dict[str, Any]) -> int:
    body = {"choice": "approve", "reason": "go ahead", "shown": entry["shown"]}
    with served.client("ann") as client:
        return client.post(f"/v1/realms/main/proposals/{entry['proposalId']}:answer", json=body).status_code


def left(served: Served) -> list[str]:
    """Return the leases, claims, waiting requests and entries of the inbox."""
    with served.place.realm() as realm:
        view = realm.realm()
        claims = [f"claim of {one.proposal_id}" for one in view.proposals.values() if one.claims]
        leases = [*view.klis.leases, *view.klis.requests]
    return [*claims, *leases, *(one["proposalId"] for one in inbox(served))]


def reached(served: Served, agent: Driven, point: str, chance: random.Random) -> None:
    """Wait until the call of an agent is at a point."""
    if point == "any":
        until(lambda: not agent.is_running() or agent.hooks() or is_begun(agent), pause_s=0.05)
        time.sleep(chance.uniform(0.0, 1.0))
        return
    if point != "running":
        until(lambda: not agent.is_running() or inbox(served), pause_s=LOOKS_S)
        assert agent.is_running(), agent.said
    if point == "approved":
        [entry] = inbox(served)
        assert approve(served, entry) in (200, 202)
    if point != "asked":
        until(lambda: not agent.is_running() or is_begun(agent), pause_s=LOOKS_S)
        assert agent.is_running(), agent.said


def is_begun(agent: Driven) -> bool:
    """Whether the command of an agent runs."""
    with suppress(psutil.Error):
        return any(one.name() == "tail" for one in agent.process.children(recursive=True))
    return False


@pytest.mark.parametrize("kind", ["claude-code", "codex"])
def test_killed_agents_leave_no_lease_no_claim_and_no_entry(kind: str, tmp_path: Path) -> None:
    chance, times = random.Random(f"{kind} 31"), {}
    ways = [(way, point) for way in WAYS for point in POINTS if "hook" not in way or point in ("asked", "any")]
    chance.shuffle(ways)
    with hooked(tmp_path, "wait_s = 120") as served:
        for number in range(scaled(100, ci=5)):
            way, point = ways[number % len(ways)]
            with driven(served, kind, POINTS[point], tmp_path / f"home-{number}") as agent:
                reached(served, agent, point, chance)
                late = inbox(served)
                what = f"{number}: {agent.end(way, chance)}, {point}"
                ended = time.monotonic()
                if late and chance.random() < 0.5:
                    approve(served, late[0])
                until(lambda: not left(served), pause_s=LOOKS_S)
                times[what] = time.monotonic() - ended
                print(f"{kind} {what}: {times[what]:.2f} s", flush=True)  # the long form is a measurement
        with served.place.realm() as realm:
            assert verify(realm.log).ok
            noticed = {one.noticed_by for _, one in realm.events() if isinstance(one, CallerLeft)}
    assert noticed <= {"connection", "process", "renewal"}
    assert noticed
    late_ends = {what: taken for what, taken in times.items() if taken >= longest_s(kind, what)}
    assert IS_SHORT or not late_ends, late_ends


def longest_s(kind: str, what: str) -> float:
    """Return the time after which nothing is left; an agent whose hook was killed lives, and may be making its call."""
    return LIMIT_S + YIELDS_S if kind == "codex" and "hook KILL" in what else LIMIT_S
