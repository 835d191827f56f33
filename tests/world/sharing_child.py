"""A process on a log that other processes use as well: it obeys one command a line and answers with one line of JSON.

``sell`` has a proposal completed, ``lease`` takes a lease and keeps it; both, and ``look``, print what a read shows.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.pipeline.shop import house, shop
from worldprotocol import Realm


def seen(world: Realm) -> dict[str, Any]:
    """Return what readers of a process see."""
    realm = world.realm()
    return {
        "position": realm.position,
        "head": realm.branches["main"].head,
        "sold": world.data()["sold"],
        "leases": sorted(realm.klis.leases),
    }


def lease(world: Realm, number: int) -> None:
    """Take a lease that nobody else wants."""
    scope = [{"predicate": "MUTATES", "resource": f"FILE:/held/{number}"}]
    manifest = {"ver": "1.0", "agent_id": "holder", "session_id": f"s{number}", "scope": scope}
    assert world.leases.desk.request(manifest, by="holder", ttl_ms=3_000_000).leases


def main(address: str) -> None:
    """Obey the lines of the standard input."""
    with Realm.open(address, domain=shop, policies=[house]) as world:
        print("ready", flush=True)
        for number, line in enumerate(sys.stdin):
            if line.strip() == "sell":
                assert world.act("cron", "sell", {"item": "tea", "count": 0}).status == "completed"
            elif line.strip() == "lease":
                lease(world, 1_000 + number)
            print(json.dumps(seen(world)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
