"""A process whose clock is off: it takes leases, or confirms its clock, and prints what came of it.

``python -m tests.pipeline.clock_child ADDRESS OFF_MS lease AGENT RESOURCE`` asks for one lease of 500 ms.
``python -m tests.pipeline.clock_child ADDRESS OFF_MS many AGENT COUNT`` takes leases and gives them back.
``python -m tests.pipeline.clock_child ADDRESS OFF_MS confirm REASON`` confirms the clock.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.pipeline.shop import shop
from world.clock import SystemClock
from world.errors import RefusedError
from worldprotocol import Realm


class Off(SystemClock):
    """The system's wall clock, wrong by some milliseconds; its boot clock is right."""

    def __init__(self, off_ms: int) -> None:
        """Be wrong."""
        self.off_ms = off_ms

    def now_ms(self) -> int:
        """Return the wrong time, ms since 1970."""
        return super().now_ms() + self.off_ms


def manifest(agent: str, resource: str) -> dict[str, Any]:
    """Return the request for one lease."""
    scope = [{"predicate": "MUTATES", "resource": resource}]
    return {"ver": "1.0", "agent_id": agent, "session_id": f"s-{agent}", "scope": scope}


def act(world: Realm, what: str, *rest: str) -> Any:
    """Do what the command line says, and return what is printed."""
    desk = world.leases.desk
    if what == "lease":
        verdict = desk.request(manifest(rest[0], rest[1]), by=rest[0], ttl_ms=500)
        return {"status": verdict.status, "at": verdict.at}
    if what == "confirm":
        done = world.confirm_clock(reason=rest[0])
        return None if done is None else done.at
    for number in range(int(rest[1])):
        verdict = desk.request(manifest(rest[0], f"FILE:/{rest[0]}/{number}"), by=rest[0], ttl_ms=60_000)
        ids = [lease.lease_id for lease in verdict.leases]
        desk.release(ids, agent_id=rest[0], session_id=f"s-{rest[0]}")
    return int(rest[1])


def main(address: str, off_ms: str, *what: str) -> None:
    """Open the realm, act, and print one line of JSON."""
    with Realm.open(address, domain=shop, clock=Off(int(off_ms))) as world:
        try:
            told = {"done": act(world, *what)}
        except RefusedError as refused:
            told = {"refused": refused.code, "message": refused.message, **refused.details}
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
