"""A shop whose sales by ``kid`` wait for ``ann``; also a process that answers them, or waits for them.

``python -m tests.waiting.till ADDRESS ROLE PROPOSAL``: ``answer`` approves a proposal; ``ask`` submits one, prints its
id, and ends without closing; ``wait`` prints "waiting" once it waits for a proposal, and then its status; ``release``
releases the leases of ``old`` with these ids, in the session that follows.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from tests.pipeline.shop import Bank, house, shop
from tests.support.patience import PATIENCE_S
from worldprotocol import AsyncRealm, Realm

CAKE = {"item": "cake", "count": 1}


def open_till(address: str, timeout_ms: int | None = None, **parts: Any) -> Realm:
    """Found a shop in which time passes by itself."""
    parts.setdefault("effects", [Bank().handler()])
    realm = Realm.create(address, domain=shop, policies=[house], **parts)
    asking: dict[str, Any] = {"kind": "hitl", "ask": ["ann"]}
    realm.register("ann", "human", binding={"kind": "auto_approve"})
    realm.register("bot", "agent", binding={"kind": "policy_rules", "policy": "house"})
    realm.register("kid", "human", binding=asking if timeout_ms is None else {**asking, "timeoutMs": timeout_ms})
    return realm


def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds; fails where it never does."""
    looked = threading.Event()
    for _ in range(int(PATIENCE_S * 200)):
        if condition():
            return
        looked.wait(0.005)
    raise AssertionError("it never came so far")


def until_waiting(realm: Realm, number: int = 1) -> None:
    """Return when so many callers wait."""
    until(lambda: realm.archive.expectations.count == number)


def expecting(realm: Realm) -> int:
    """Return how many threads of this realm look for what its callers wait for; not those of realms of other tests."""
    watched = realm.archive.expectations
    looking = [] if watched._looking is None else [watched._looking.thread]
    return sum(one.is_alive() for one in (*watched._stopped, *looking))


def pool_threads(realm: AsyncRealm) -> int:
    """Return how many threads the realm's own pool has."""
    return len(realm._pool._executor._threads)


def check_nothing_waits(realm: Realm) -> None:
    """Check that no expectation of a realm is left, and return when its thread has ended."""
    assert realm.archive.expectations.count == 0
    until(lambda: expecting(realm) == 0)


def main(address: str, role: str, proposal_id: str = "", session_id: str = "") -> None:
    """Play a role."""
    with Realm.open(address, domain=shop, policies=[house], effects=[Bank().handler()]) as realm:
        if role == "answer":
            realm.decide(proposal_id, "approve", by="ann")
        elif role == "release":
            realm.leases.desk.release(proposal_id.split(","), agent_id="old", session_id=session_id)
        elif role == "ask":
            print(realm.act("kid", "sell", CAKE).proposal_id, flush=True)
            os._exit(0)
        else:

            def tell() -> None:
                until_waiting(realm)
                print("waiting", flush=True)

            say = threading.Thread(target=tell)
            say.start()
            print(realm.wait(proposal_id, PATIENCE_S).status, flush=True)
            say.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
