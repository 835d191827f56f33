"""Keys of requests about leases: equal requests to several servers at once take one lease."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.server.kiosk import handlers, kiosk
from tests.server.served import founded
from world.events.lease_events import LeasesReleased, VerdictGiven
from world.events.verification import Verification
from worldprotocol.api.callers.recorded_keys import RequestKeys, says_acquire
from worldprotocol.api.realm import Realm
from worldprotocol.operations.registry import recorded_topics

pytestmark = pytest.mark.slow

SERVERS = 2
CALLERS = 4


def caller(key: str) -> Verification:
    return Verification(method="peer", actor_id="kid", uid=1, key=key)


def test_equal_requests_to_several_servers_at_once_take_one_lease(tmp_path: Path) -> None:
    place = founded(tmp_path)
    realms = [Realm.open(place.log, domain=kiosk, effects=handlers) for _ in range(SERVERS)]
    hosts = [(realm, RequestKeys(realm.log, recorded_topics())) for realm in realms]

    def acquire(host: tuple[Realm, RequestKeys], key: str) -> Any:
        scope = [{"predicate": "MUTATES", "resource": f"FILE:/{key}"}]
        manifest = {"ver": "1.0", "agent_id": "kid", "session_id": f"s-{key}", "scope": scope}
        return host[1].once(
            host[0],
            caller(key),
            lambda acting: acting.leases.desk.request(manifest, by="kid"),
            says=says_acquire(manifest, f"s-{key}", None),
            repeated=lambda events: events[0],
        )

    def release(host: tuple[Realm, RequestKeys], key: str, lease_ids: list[str]) -> Any:
        return host[1].once(
            host[0],
            caller(f"release-{key}"),
            lambda acting: acting.leases.desk.release(lease_ids, agent_id="kid", session_id=f"s-{key}"),
            says=lambda events: [one.lease_ids for one in events] == [lease_ids],
            repeated=lambda _: "repeated",
        )

    keys = [f"key-{number}" for number in range(10)]
    try:
        with ThreadPoolExecutor(SERVERS * CALLERS) as pool:
            for key in keys:
                verdicts = list(pool.map(lambda host, key=key: acquire(host, key), hosts * CALLERS))
                assert len({one.verdict_id for one in verdicts}) == 1
                ids = [one.lease_id for one in verdicts[0].leases]
                list(pool.map(lambda host, key=key, ids=ids: release(host, key, ids), hosts * CALLERS))
        recorded = [one for _, one in realms[0].events() if isinstance(one, VerdictGiven | LeasesReleased)]
        assert len(recorded) == 2 * len(keys)
        assert {one.verified.key for one in recorded if one.verified} == {*keys, *(f"release-{key}" for key in keys)}
        assert RequestKeys(realms[1].log, recorded_topics())._events(
            caller("key-3")
        )  # a server that starts later knows them too
        assert acquire((realms[1], RequestKeys(realms[1].log, recorded_topics())), "key-3").status == "Granted"
        assert not realms[1].realm().klis.leases
    finally:
        for realm in realms:
            realm.close()
