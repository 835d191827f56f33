"""A process that takes leases: ``count`` what nobody else may touch meanwhile, or ``hoard`` until it is killed.

``python -m tests.pipeline.leasing_child ADDRESS count AGENT DIRECTORY ROUNDS`` raises a number in a file by reading and
writing it, ROUNDS times, each time under a lease, and tells when somebody else is there too.
``python -m tests.pipeline.leasing_child ADDRESS hoard AGENT`` takes one lease after the other and tells each.
"""

from __future__ import annotations

import itertools
import os
import sys
from pathlib import Path

from tests.pipeline.shop import shop
from tests.support.patience import PATIENCE_S
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol import Realm

LIMITS = Limits(klis=KlisSettings(backoff_ms=1, max_backoff_ms=16, default_ttl_ms=KlisSettings().max_ttl_ms))
"""Leases expire after a day: on a machine with much to do these tests take longer than the usual minute."""
COUNTED = "FILE:/counted"


def count(world: Realm, agent: str, directory: Path, rounds: int) -> None:
    """Raise the number; a file that must not exist yet tells who else is there."""
    number, inside = directory / "number", directory / "inside"
    for turn in range(rounds):
        predicate = "MUTATES" if turn % 3 else "DELETES"
        with world.leases.acquire(
            agent=agent, resource=COUNTED, predicate=predicate, timeout=PATIENCE_S, retry=True
        ) as held:
            try:
                os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                say(f"not alone with token {held.token}")
            number.write_text(str(int(number.read_text()) + 1))
            with (directory / "tokens").open("a") as tokens:
                tokens.write(f"{held.token}\n")
            inside.unlink(missing_ok=True)
    say("done")


def hoard(world: Realm, agent: str) -> None:
    """Take leases for ever, one file each and sometimes a file that others want too."""
    for number in itertools.count():
        resources = [f"FILE:/{agent}/{number}", f"FILE:/common/{number}"]
        verdict = world.leases.desk.request(
            {
                "ver": "1.0",
                "agent_id": agent,
                "session_id": "hoard",
                "scope": [{"predicate": "MUTATES", "resource": one} for one in resources],
            },
            by=agent,
        )
        for lease in verdict.leases:
            say(f"{lease.lease_id} {lease.token} {lease.resource}")


def say(line: str) -> None:
    """Tell the parent something at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(address: str, what: str, agent: str, *rest: str) -> None:
    """Do what the command line says."""
    with Realm.open(address, domain=shop, limits=LIMITS) as world:
        say("ready")
        if what == "count":
            count(world, agent, Path(rest[0]), int(rest[1]))
        else:
            hoard(world, agent)


if __name__ == "__main__":
    main(*sys.argv[1:])
