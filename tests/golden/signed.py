"""A harbour with signed intents, and with browser sessions that began with a link and at an issuer.

``record`` plays the same scenes with the same clock, ids and keys, so it writes the same log byte by byte.
"""

from __future__ import annotations

import hashlib
from typing import Any

from tests.golden.garden import START, the_same_worker
from tests.golden.harbour import SETTINGS, harbour
from world.clock import ManualClock, SequentialIds
from world.engine.access_commands import create_token
from world.errors import RefusedError
from world.events.access_events import TokenCreated
from world.events.verification import UNAUTHENTICATED, BrowserSession, Verification
from world.klis.identity.signature import public_key
from world.limits import Limits
from worldprotocol.api.callers.signing import signature_of
from worldprotocol.api.realm import Realm

HOUR = 3_600_000
FIRST, SECOND = (hashlib.sha256(name).digest() for name in (b"first key of ben", b"second key of ben"))
ISSUER = "https://id.example"


@the_same_worker()
def record(address: str) -> Realm:
    """Found a harbour and play its scenes; the caller closes it."""
    clock = ManualClock(START, 10)
    world = Realm.create(
        address, domain=harbour, clock=clock, ids=SequentialIds("signed"), limits=Limits(klis=SETTINGS)
    )
    world.register("ada", "human")
    world.register("ben", "agent", binding={"kind": "hitl", "ask": ["ada"]})
    shell = world.as_caller(UNAUTHENTICATED)
    shell.access.grant("ben", "actor", by="operator")
    shell.access.grant("ada", "approver", by="operator")
    keys = [world.leases.desk.register_key("ben", public_key(one), by="operator") for one in (FIRST, SECOND)]

    asked = _submitted(world, shell, clock, 1, FIRST)
    ada = world.as_caller(_session(shell, "token-1", BrowserSession(method="oidc", issuer=ISSUER, subject="u-1")))
    ada.decide(asked, "approve", by="ada", reason="seen")
    world.leases.desk.revoke_key(keys[0], by="operator", reason="lost")
    ben = world.as_caller(Verification(method="signature", actor_id="ben", key_id=keys[1]))
    asked = _submitted(world, ben, clock, 2, SECOND)
    ada = world.as_caller(_session(shell, "token-2", BrowserSession(method="link")))
    ada.decide(asked, "reject", by="ada", reason="too much")
    _refused(lambda: _submitted(world, shell, clock, 3, FIRST))
    _refused(lambda: ben.act("ben", "pay", {"ship": "ben", "amount": 4}, scope=["tolls.ben"]))
    return world


def _submitted(world: Realm, caller: Realm, clock: ManualClock, amount: int, key: bytes) -> str:
    """Submit a signed intent and return the id of its proposal."""
    intent = world.issue("ben", "pay", {"ship": "ben", "amount": amount}, scope=["tolls.ben"])
    signature = signature_of(world, intent, key, now_ms=clock.now_ms())
    return caller.submit(intent, signature=signature).proposal_id


def _session(world: Realm, token_id: str, session: BrowserSession) -> Verification:
    """Begin a session of ada with a secret that is the same each time."""
    token = TokenCreated(
        at=0,
        token_id=token_id,
        actor_id="ada",
        digest=hashlib.sha256(b"the secret of " + token_id.encode()).hexdigest(),
        expires_at=0,
        by="operator",
        note="golden",
        session=session,
    )
    world._acting.run(lambda work: create_token(work, token, HOUR))
    return session.verification("ada", token_id)


def _refused(attempt: Any) -> None:
    """Try what is not accepted; nothing is recorded."""
    try:
        attempt()
    except RefusedError:
        return
    raise AssertionError("this was to be refused")
