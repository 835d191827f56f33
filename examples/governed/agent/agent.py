"""An agent that plans, and takes a governed session for every step: ``python agent.py``, in this folder.

A session gets its leases first. Where an older agent is in the way it dies, and asks again when the verdict says. A step
that goes beyond what it declared is stopped before it happens, what it did until then is given back, and the agent goes
on with its plan.
"""

from __future__ import annotations

import time

from steps import Step, plan

from world.errors import Refused, ScopeViolationError
from worldprotocol import World


def perform(world: World, agent: str, step: Step) -> str:
    """Do one step under leases, again and again until its turn comes; returns how it ended."""
    while True:
        try:
            with world.host.session(agent=agent, reads=step.reads, writes=step.writes) as session:
                step.work()
        except ScopeViolationError as violation:
            return f"stopped: {violation.message}"
        except Refused as refused:
            if refused.code != "DIED":
                raise
            time.sleep(refused.details["retry_after_ms"] / 1000)
        else:
            return f"{session.outcome}, recorded as {session.run.run_id}"


def main() -> None:
    """Go through the plan."""
    with World.open_or_create("world.db", domain="domain.yaml", workspace=".") as world:
        for step in plan():
            print(f"{step.name}: {perform(world, 'ann', step)}")


if __name__ == "__main__":
    main()
