"""Several processes on one log: no lease is granted twice, and none that was granted is lost by a kill (KLIS-3)."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.pipeline.leasing_child import COUNTED, LIMITS
from tests.pipeline.shop import shop
from tests.support.patience import PATIENCE_S
from world.audit.verify import verify
from world.errors import RefusedError
from world.events.lease_events import LeasesExpired, LeasesReleased, LeasesRevoked, VerdictGiven
from world.read_models.decoding import decoded
from worldprotocol import Realm

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 12


def child(address: str, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.pipeline.leasing_child", address, *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def create(address: str) -> None:
    with Realm.create(address, domain=shop, limits=LIMITS) as world:
        for age, agent in enumerate(("ann", "bob", "cleo")):
            world.leases.desk.register_agent(agent, by="test", priority=age)


def granted(world: Realm) -> list[VerdictGiven]:
    verdicts = (decoded(event) for event in world.log.read(0, topics=[VerdictGiven.TOPIC]))
    return [event for event in verdicts if isinstance(event, VerdictGiven) and event.leases]


def ended(world: Realm) -> dict[str, str]:
    """Return which leases ended by the log, and how: released, expired or revoked."""
    kinds = (LeasesReleased, LeasesExpired, LeasesRevoked)
    events = (decoded(event) for event in world.log.read(0, topics=[kind.TOPIC for kind in kinds]))
    return {lease: event.TOPIC for event in events if isinstance(event, kinds) for lease in event.lease_ids}


@pytest.mark.requirement("KP-5a", "KP-3d", "KM-2.2", "CARD-log")
@pytest.mark.slow
def test_processes_that_share_a_log_are_never_granted_the_same_thing_at_once(
    shared_log_url: str, tmp_path: Path
) -> None:
    create(shared_log_url)
    (tmp_path / "number").write_text("0")
    agents = ("ann", "bob", "cleo")
    children = [child(shared_log_url, "count", agent, str(tmp_path), str(ROUNDS)) for agent in agents]
    told = [one.communicate(timeout=PATIENCE_S)[0].split("\n") for one in children]
    assert told == [["ready", "done", ""]] * len(agents)
    assert (tmp_path / "number").read_text() == str(ROUNDS * len(agents))
    tokens = [int(token) for token in (tmp_path / "tokens").read_text().split()]
    assert len(tokens) == ROUNDS * len(agents)
    assert all(one < other for one, other in pairwise(tokens))
    with Realm.open(shared_log_url, domain=shop, limits=LIMITS) as world:
        assert not world.realm().klis.leases
        assert not world.realm().klis.requests
        assert verify(world.log).ok


@pytest.mark.requirement("KP-4a", "CARD-log", "CARD-replay")
@pytest.mark.slow
def test_after_sigkill_no_granted_lease_is_lost_and_none_is_granted_twice(shared_log_url: str) -> None:
    create(shared_log_url)
    dice = random.Random(7)
    told: dict[str, tuple[int, str]] = {}
    for _ in range(2):
        children = [child(shared_log_url, "hoard", agent) for agent in ("ann", "bob")]
        for one in children:
            assert one.stdout is not None
            for _ in range(dice.randint(8, 30)):  # it is killed in the middle of whatever comes next
                words = one.stdout.readline().split()
                if len(words) == 3:
                    told[words[0]] = (int(words[1]), words[2])
            one.send_signal(signal.SIGKILL)
        for one in children:
            assert one.stdout is not None
            rest, _ = one.communicate()
            for line in rest.split("\n"):
                words = line.split()
                if len(words) == 3:
                    told[words[0]] = (int(words[1]), words[2])
    assert told
    with Realm.open(shared_log_url, domain=shop, limits=LIMITS) as world:
        assert verify(world.log).ok
        assert {lease: what for lease, what in ended(world).items() if lease in told} == {}
        active = world.realm().klis.leases
        for lease_id, (token, resource) in told.items():
            assert (active[lease_id].token, active[lease_id].triple.resource.text) == (token, resource)
        ids = [lease.lease_id for verdict in granted(world) for lease in verdict.leases]
        tokens = [lease.token for verdict in granted(world) for lease in verdict.leases]
        assert len(set(ids)) == len(ids)
        assert tokens == sorted(set(tokens))
        common: dict[str, set[str]] = {}
        for lease in active.values():
            common.setdefault(lease.triple.resource.text, set()).add(lease.session.agent_id)
        assert all(len(holders) == 1 for holders in common.values())
        taken = next(iter(told.values()))[1]
        with pytest.raises(RefusedError, match="older") as refused:
            world.leases.acquire(agent="cleo", resource=taken, timeout=0)
        assert refused.value.code == "DIED"
        assert world.leases.acquire(agent="cleo", resource=COUNTED, timeout=0).is_active
