"""A harbour with verified callers: rights and tokens, a proposal, an answer and leases of callers verified in each way.

``record`` plays the same scenes with the same clock and the same ids, so it writes the same log byte by byte.
"""

from __future__ import annotations

import hashlib

from tests.golden.garden import START, the_same_worker
from tests.golden.harbour import SETTINGS, harbour
from world.clock import ManualClock, SequentialIds
from world.engine.access_commands import create_token
from world.errors import RefusedError
from world.events.access_events import TokenCreated
from world.events.verification import UNAUTHENTICATED, Verification
from world.limits import Limits
from worldprotocol.api.realm import Realm

HOUR = 3_600_000


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(
        address, domain=harbour, clock=clock, ids=SequentialIds("access"), limits=Limits(klis=SETTINGS)
    )
    world.register("ada", "human")
    world.register("ben", "agent", binding={"kind": "hitl", "ask": ["ada"]})
    world.register("cleo", "human", binding={"kind": "auto_approve"})
    shell = world.as_caller(UNAUTHENTICATED)
    shell.access.grant("ben", "actor", by="operator")
    shell.access.grant("ada", "approver", by="operator")
    shell.access.grant("ada", "operator", by="operator")
    shell.access.grant("cleo", "reader", by="operator", redaction=["inputs"])
    token = _token(shell, "token-1", "ben", can=["actor"])
    ben = world.as_caller(Verification(method="token", actor_id="ben", token_id=token))
    ada = world.as_caller(Verification(method="jwt", actor_id="ada", issuer="https://id.example", subject="u-1"))
    asked = ben.act("ben", "pay", {"ship": "ben", "amount": 1}, scope=["tolls.ben"])
    _refused(ben, asked.proposal_id)
    ada.decide(asked.proposal_id, "approve", by="ada", reason="seen")
    held = ben.leases.acquire(agent="ben", session="quay", resource="FILE:/harbour/quay", ttl_ms=4_000)
    ben.leases.desk.heartbeat(held.lease_ids, agent_id="ben", session_id="quay")
    ben.leases.desk.release(held.lease_ids, agent_id="ben", session_id="quay")
    ada.create_branch("plan", by="ada")
    ada.access.grant("cleo", "actor", by="ada")
    peer = world.as_caller(Verification(method="peer", actor_id="cleo", uid=1_000))
    peer.act("cleo", "pay", {"ship": "cleo", "amount": 2}, scope=["tolls.cleo"])
    ada.access.revoke("cleo", "actor", by="ada", reason="only for the day")
    ada.access.revoke_token(token, by="ada", reason="its machine was sold")
    shell.act("ben", "pay", {"ship": "ben", "amount": 3}, scope=["tolls.ben"])
    world.act("cleo", "pay", {"ship": "cleo", "amount": 4}, scope=["tolls.cleo"])
    return world


def _token(world: Realm, token_id: str, actor: str, *, can: list) -> str:
    """Create a token with a secret that is the same each time."""
    digest = hashlib.sha256(b"the secret of " + token_id.encode()).hexdigest()
    token = TokenCreated(
        at=0, token_id=token_id, actor_id=actor, digest=digest, expires_at=0, by="operator", can=can, note="golden"
    )
    world._acting.run(lambda work: create_token(work, token, HOUR))
    return token_id


def _refused(ben: Realm, proposal_id: str) -> None:
    """Try what the caller may not do; nothing is recorded."""
    for attempt in (
        lambda: ben.act("cleo", "pay", {"ship": "cleo", "amount": 9}, scope=["tolls.cleo"]),
        lambda: ben.decide(proposal_id, "approve", by="ada"),
        lambda: ben.create_branch("own", by="ben"),
    ):
        try:
            attempt()
        except RefusedError:
            continue
        raise AssertionError("this was to be refused")
