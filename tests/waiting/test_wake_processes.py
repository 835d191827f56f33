"""What one process frees wakes what another one waits with, through the log: on SQLite and on PostgreSQL.

Every timer comes ten minutes later, so nothing but the release continues what waits.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.patience import PATIENCE_S
from tests.waiting.till import CAKE, check_nothing_waits, open_till, until_waiting
from world.errors import RefusedError
from world.events.lease_events import VerdictGiven
from world.klis.settings import KlisSettings
from world.limits import Limits
from world.read_models.decoding import decoded
from worldprotocol import Realm
from worldprotocol.api.leasing.acquiring import Cancel

pytestmark = pytest.mark.requirement("LIVE-wake")

ROOT = Path(__file__).parent.parent.parent
LATE = Limits(klis=KlisSettings(backoff_ms=600_000, max_backoff_ms=600_000))
STATE, FILE = "STATE:/main/*", "FILE:/src/a.py"


def opened(address: str) -> Realm:
    realm = open_till(address, limits=LATE)
    for age, agent in enumerate(("old", "young", "bot")):
        realm.leases.desk.register_agent(agent, by="test", priority=age + 1)
    return realm


def process(address: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.waiting.till", address, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def release_elsewhere(address: str, held: Any) -> None:
    """Release leases in another process."""
    with process(address, "release", ",".join(held.lease_ids), held.session) as releasing:
        assert releasing.wait(PATIENCE_S) == 0


def verdicts(realm: Realm, name: str) -> list[tuple[str, str]]:
    events = [decoded(logged) for logged in realm.log.read()]
    mine = [event for event in events if isinstance(event, VerdictGiven) and name in (event.request_id, event.agent_id)]
    return [(event.status, event.cause) for event in mine]


@pytest.mark.slow
def test_a_release_by_another_process_continues_what_this_one_waits_for(shared_log_url: str) -> None:
    with opened(shared_log_url) as realm:
        held = realm.leases.acquire(agent="old", resource=STATE)
        waiting = [realm.act("bot", "sell", CAKE).proposal_id for _ in range(3)]
        assert [realm.proposal(name).status for name in waiting] == ["evaluating"] * 3
        release_elsewhere(shared_log_url, held)
        assert [realm.wait(name, PATIENCE_S).status for name in waiting] == ["completed"] * 3
        assert [verdicts(realm, name) for name in waiting] == [[("Die", "request"), ("Granted", "wake")]] * 3
        check_nothing_waits(realm)


@pytest.mark.slow
def test_a_direct_request_that_died_is_made_again_when_another_process_releases(shared_log_url: str) -> None:
    with opened(shared_log_url) as realm:
        held, got = realm.leases.acquire(agent="old", resource=FILE), list[Any]()

        def acquire() -> None:
            got.append(realm.leases.acquire(agent="young", resource=FILE, retry=True, timeout=PATIENCE_S))

        asking = threading.Thread(target=acquire)
        asking.start()
        until_waiting(realm)
        release_elsewhere(shared_log_url, held)
        asking.join(PATIENCE_S)
        assert got[0].is_active
        assert verdicts(realm, "young") == [("Die", "request"), ("Granted", "request")]
        check_nothing_waits(realm)


def test_a_wait_of_a_direct_request_ends_when_what_it_died_of_is_free(tmp_path: Path) -> None:
    with opened(str(tmp_path / "w.db")) as realm:
        first, second = (realm.leases.acquire(agent="old", resource=one) for one in (FILE, "FILE:/src/b.py"))

        async def acquire() -> Any:
            wanted = [FILE, "FILE:/src/b.py"]
            return await realm.leases.acquire_async(agent="young", resources=wanted, retry=True, timeout=PATIENCE_S)

        async def play() -> Any:
            asking = asyncio.create_task(acquire())
            await asyncio.to_thread(until_waiting, realm)
            first.release()
            await asyncio.to_thread(until_waiting, realm)
            assert verdicts(realm, "young") == [("Die", "request")]  # the other one is still held
            second.release()
            return await asking

        assert asyncio.run(play()).is_active
        assert verdicts(realm, "young") == [("Die", "request"), ("Granted", "request")]
        check_nothing_waits(realm)


def test_a_wait_for_what_a_request_died_of_ends_with_its_time_or_when_it_is_cancelled(tmp_path: Path) -> None:
    with opened(str(tmp_path / "w.db")) as realm, realm.leases.acquire(agent="old", resource=FILE):
        with pytest.raises(RefusedError) as late:
            realm.leases.acquire(agent="young", resource=FILE, retry=True, timeout=0.05)
        cancel, found = Cancel(), list[str]()

        def acquire() -> None:
            with pytest.raises(RefusedError) as refused:
                realm.leases.acquire(agent="young", resource=FILE, retry=True, cancel=cancel)
            found.append(refused.value.code)

        asking = threading.Thread(target=acquire)
        asking.start()
        until_waiting(realm)
        cancel.cancel()
        asking.join(PATIENCE_S)
        assert (late.value.code, found) == ("DIED", ["WAIT_CANCELLED"])
        check_nothing_waits(realm)
