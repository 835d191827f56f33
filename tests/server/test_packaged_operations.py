"""Operations of an installed package: over HTTP, in the API description, with rights and keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.kiosk import handlers, kiosk
from tests.server.served import PATH, founded
from tests.support.outside import install
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.operations.registry import GROUP, declared_operations
from worldprotocol.server.app import create_app
from worldprotocol.server.operation_table import OPERATIONS, all_operations
from worldprotocol.server.service import RealmToServe, Service

ACME = '''
"""An operation: the actors of a kind."""

from typing import Literal

from worldprotocol.operations import AnswerForm, OperationCall, RequestForm, operation


class CountActors(RequestForm, frozen=True, kw_only=True):
    """Which actors."""

    kind: Literal["human", "agent", "system"]


class ActorCount(AnswerForm, frozen=True, kw_only=True):
    """How many."""

    count: int


@operation("acme.count", "GET /acme/{kind}", "auditor", example=(CountActors(kind="agent"), ActorCount(count=2)))
def count_actors(call: OperationCall, request: CountActors) -> ActorCount:
    """Count the actors of a kind."""
    return ActorCount(count=sum(one.kind == request.kind for one in call.view.actors.values()))
'''


@pytest.fixture
def packaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the package for the test."""
    site = tmp_path / "site"
    install(site, "acme_operations", ACME, {})
    points = site / "acme_operations-1.0.dist-info" / "entry_points.txt"
    points.write_text(f"[{GROUP}]\nacme = acme_operations\n", encoding="utf-8")
    monkeypatch.syspath_prepend(site)
    declared_operations.cache_clear()
    monkeypatch.setitem(OPERATIONS, "acme.count", declared_operations()["acme.count"])
    yield
    declared_operations.cache_clear()


@pytest.mark.usefixtures("packaged")
def test_a_package_adds_an_operation(tmp_path: Path) -> None:
    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk, effects=handlers) as realm:
        app = create_app(Service.of(ServerConfig(), [RealmToServe("main", realm)]))

        async def ask(path: str, actor: str) -> httpx.Response:
            headers = {"Authorization": f"Bearer {place.tokens[actor]}"}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://main") as client:
                return await client.get(path, headers=headers)

        async def answers() -> list[httpx.Response]:
            asked = [(f"{PATH}/acme/agent", "aud"), (f"{PATH}/acme/agent", "bot"), (f"{PATH}/acme/plant", "aud")]
            return [await ask(*one) for one in [*asked, ("/openapi.json", "aud")]]

        counted, refused, invalid, description = asyncio.run(answers())
        agents = sum(one.kind == "agent" for one in realm.realm().actors.values())
    assert counted.json() == {"count": agents}
    assert (refused.status_code, refused.json()["code"]) == (403, "RIGHT_MISSING")
    assert (invalid.status_code, invalid.json()["code"]) == (400, "INVALID_VALUE")
    described: dict[str, Any] = description.json()["paths"]["/v1/realms/{realm}/acme/{kind}"]["get"]
    assert described["operationId"] == "acme.count"
    assert described["x-rights"] == ["auditor"]
    assert {one["name"] for one in described["parameters"]} == {"realm", "kind"}
    assert description.json()["components"]["schemas"]["ActorCount"]["required"] == ["count"]


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [("acme.count", "leases.list"), ("acme.count", "intents.submit"), ("GET /acme/{kind}", "GET /worlds")],
)
def test_no_package_takes_the_place_of_an_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, theirs: str, ours: str
) -> None:
    install(tmp_path, "acme_twice", ACME.replace(theirs, ours), {})
    (tmp_path / "acme_twice-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nacme = acme_twice\n")
    monkeypatch.syspath_prepend(tmp_path)
    declared_operations.cache_clear()
    try:
        with pytest.raises(ValueError, match=r"leases\.list|intents\.submit|acme\.count"):
            all_operations()
    finally:
        monkeypatch.undo()
        declared_operations.cache_clear()
