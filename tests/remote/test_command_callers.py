"""What operators do over a server is refused under the log's lock to a caller without the right, or of another name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from authority import Policy
from tests.server.kiosk import kiosk
from world.errors import RefusedError
from world.events.verification import Verification
from world.klis.settings import KlisSettings
from world.limits import Limits
from worldprotocol.api.realm import Realm

pytestmark = pytest.mark.slow

house = Policy("house", [])
COMMANDS: dict[str, Callable[[Realm, str], Any]] = {
    "actor.registered": lambda realm, by: realm.register("new", "agent", by=by),
    "actor.bound": lambda realm, by: realm.bind("bot", {"kind": "hitl", "ask": ["ops"]}, by=by),
    "policy.retired": lambda realm, by: realm.retire_policy("house", by=by),
    "policy.adopted": lambda realm, by: realm.adopt_policy("house", by=by),
    "shadow.configured": lambda realm, by: realm.shadow("house", by=by),
    "key.registered": lambda realm, by: realm.leases.desk.register_key("bot", b"k" * 32, by=by),
    "key.revoked": lambda realm, by: realm.leases.desk.revoke_key(
        next(iter(realm.realm().klis.keys)), by=by, reason="x"
    ),
}
"""By topic, in an order in which each is possible."""


def test_an_operator_is_recorded_and_others_are_refused(tmp_path: Path) -> None:
    limits = Limits(klis=KlisSettings.read({"administrators": "operator ops bot"}))
    with Realm.create(str(tmp_path / "world.db"), domain=kiosk, policies=[house], limits=limits) as realm:
        for name in ("ops", "bot"):
            realm.register(name, "human", binding={"kind": "auto_approve"})
        realm.access.grant("ops", "operator", by="operator")
        realm.access.grant("bot", "actor", by="operator")
        for topic, command in COMMANDS.items():
            size = realm.log.head().size
            for actor, by, code in (("bot", "bot", "RIGHT_MISSING"), ("ops", "bot", "NOT_THE_VERIFIED_ACTOR")):
                with pytest.raises(RefusedError) as caught:
                    command(realm.as_caller(Verification(method="peer", actor_id=actor, uid=1)), by)
                assert caught.value.code == code, topic
            assert realm.log.head().size == size
            command(realm.as_caller(Verification(method="peer", actor_id="ops", uid=1)), "ops")
            (event,) = [one for one in realm.log.read(size) if one.topic == topic]
            assert b'"verified":{"actorId":"ops","method":"peer","uid":1}' in event.state
