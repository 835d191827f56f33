"""Adoption, retirement and shadow of policies over HTTP; a repeated request records nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from tests.server.kiosk import handlers, kiosk
from tests.server.served import PATH, founded
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.server.app import create_app
from worldprotocol.server.service import RealmToServe, Service

RULES = 'name = "{name}"\n[[rules]]\nid = "all"\nverdict = "approve"\n'

ASKED: tuple[tuple[str, dict[str, Any], str | None, int, dict[str, Any]], ...] = (
    ("/policies", {"name": "house"}, "p-1", 200, {"name": "house", "adopted": True}),
    ("/policies", {"name": "house"}, None, 200, {"name": "house", "adopted": False}),
    ("/policies", {"name": "draft"}, "p-1", 409, {"code": "IDEMPOTENCY_CONFLICT"}),
    ("/policies", {"name": "rules.toml"}, None, 404, {"code": "UNKNOWN_POLICY"}),
    ("/policies:shadow", {"name": "draft", "actors": ["bot"]}, "p-2", 200, {"name": "draft", "changed": True}),
    ("/policies:shadow", {"name": "draft", "actors": ["bot"]}, None, 200, {"name": "draft", "changed": False}),
    ("/policies:shadow", {"name": None}, "p-3", 200, {"name": None, "changed": True}),
    ("/policies:shadow", {}, None, 400, {"code": "INVALID_VALUE"}),
    ("/policies/house:retire", {"reason": "replaced"}, "p-4", 200, {"name": "house"}),
    ("/policies/house:retire", {"reason": "replaced"}, None, 409, {"code": "POLICY_NOT_ADOPTED"}),
    ("/policies/house:retire", {}, None, 400, {"code": "INVALID_VALUE"}),
)


def test_policies_are_adopted_shadowed_and_retired_once(tmp_path: Path) -> None:
    place, files = founded(tmp_path), []
    for name in ("house", "draft"):
        files.append(tmp_path / f"{name}.toml")
        files[-1].write_text(RULES.replace("{name}", name))
    given: dict[str, Any] = {"domain": kiosk, "effects": handlers, "policies": list(map(str, files))}
    with Realm.open(place.log, **given, on_change="hold") as realm:
        app = create_app(Service.of(ServerConfig(), [RealmToServe("main", realm)]))

        async def ask() -> None:
            transport, headers = httpx.ASGITransport(app), {"Authorization": f"Bearer {place.tokens['ops']}"}
            async with httpx.AsyncClient(transport=transport, base_url="http://kiosk", headers=headers) as client:
                for path, body, key, status, members in ASKED:
                    keyed = {} if key is None else {"Idempotency-Key": key}
                    answers = [
                        await client.post(PATH + path, json=body, headers=keyed) for _ in range(1 if key is None else 3)
                    ]
                    assert {one.status_code for one in answers} == {status}, answers[0].text
                    assert all(one.json() == answers[0].json() for one in answers)
                    assert members.items() <= answers[0].json().items()

        asyncio.run(ask())
        topics = Counter(event.TOPIC for _, event in realm.events() if event.TOPIC.startswith(("policy.", "shadow.")))
    assert topics == {"policy.adopted": 1, "shadow.configured": 2, "policy.retired": 1}


READS_STATE = """
name = "house"
[[rules]]
id = "as_before"
verdict = "approve"
when = "intent.input.item == base.data.orders.first"
"""


def test_an_explanation_shows_what_conditions_read_to_readers_alone(tmp_path: Path) -> None:
    place, policy = founded(tmp_path), tmp_path / "house.toml"
    policy.write_text(READS_STATE)
    given: dict[str, Any] = {"domain": kiosk, "effects": handlers, "policies": [str(policy)]}
    with Realm.open(place.log, **given, on_change="adopt") as realm:
        first = {"item": "hidden words", "number": "first"}
        realm.act("kid", "order.place", first, scope=["orders.first"])
        realm.adopt_policy("house", by="ops")
        realm.bind("kid", {"kind": "policy_rules", "policy": "house"}, by="ops")
        judged = realm.act("kid", "order.place", {"item": "tea", "number": "second"}, scope=["orders.second"])
        app = create_app(Service.of(ServerConfig(), [RealmToServe("main", realm)]))

        async def explained(actor: str) -> str:
            headers = {"Authorization": f"Bearer {place.tokens[actor]}"}
            transport = httpx.ASGITransport(app)
            async with httpx.AsyncClient(transport=transport, base_url="http://kiosk", headers=headers) as client:
                answer = await client.get(f"{PATH}/proposals/{judged.proposal_id}/explanation")
                assert answer.status_code == 200, answer.text
                return answer.text

        assert "hidden words" in asyncio.run(explained("all"))
        assert "hidden words" not in asyncio.run(explained("kid"))
