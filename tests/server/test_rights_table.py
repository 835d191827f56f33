"""Every operation with every right and with none: what the table does not permit is refused."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from tests.server.examples import EXAMPLES
from tests.server.kiosk import handlers, kiosk
from tests.server.served import NO_TLS, Served, founded
from tests.support.tables import for_each
from world.events.verification import RIGHTS
from worldprotocol.api.config import ServerConfig
from worldprotocol.api.realm import Realm
from worldprotocol.operations.registry import declared_operations
from worldprotocol.server.answers import ANSWERS
from worldprotocol.server.app import create_app
from worldprotocol.server.call import Authorized
from worldprotocol.server.operation_table import HANDLERS, OPERATIONS, STREAMS, Operation
from worldprotocol.server.service import RealmToServe, Service

REFUSED = {"RIGHT_MISSING", "SIGN_IN_REQUIRED", "TOKEN_NOT_VALID"}
BODIES = {**EXAMPLES, "commands.run": {"arguments": ["none"]}}
"""A command has rights of its own: ``tests/remote/test_command_rights.py`` tries each."""

PARAMETERS = {
    "realm": "main",
    "proposal_id": "none",
    "world_id": "HEAD",
    "position": "1",
    "kind": "world",
    "client": "claude-code",
    "server": "git",
    "request_id": "none",
    "token_id": "none",
    "key_id": "none",
    "subject_id": "none",
    "code": "RIGHT_MISSING",
    "actor_id": "bot",
    "job_id": "none",
    "level": "0",
    "tile": "000.p/1",
    "named": "house",
    "name": "house",
    "run_id": "none",
}

QUERIES = {
    "worlds.blame": {"path": "orders"},
    "worlds.bisect": {"path": "orders", "becomes": "{}"},
    "proofs.consistency": {"from": "1"},
}


@pytest.fixture(scope="module")
def tokens(served: Served) -> dict[str | None, str]:
    """Return a token for each right alone, of an actor that has all; None is for an actor without rights."""
    found: dict[str | None, str] = {None: served.place.tokens["nil"]}
    with Realm.open(served.place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        for right in RIGHTS:
            found[right] = realm.access.create_token("all", by="operator", can=[right]).token
    return found


def asked(served: Served, operation: Operation, token: str | None) -> tuple[int, str | None]:
    """Send the example of an operation; return the status and the code of a problem."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    path = operation.path.format(**PARAMETERS)
    query = QUERIES.get(operation.name, {})
    body = BODIES.get(operation.name)
    with (
        served.client() as client,
        client.stream(operation.method, path, json=body, headers=headers, params=query) as answer,
    ):
        if answer.headers["content-type"] != "application/problem+json":
            return answer.status_code, None
        answer.read()
        assert answer.json()["type"] == f"/v1/errors/{answer.json()['code']}"
        assert answer.json()["status"] == answer.status_code
        return answer.status_code, answer.json()["code"]


@pytest.fixture(scope="module")
def dead(served: Served, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return credentials of an actor with all rights that verify nobody, each with what is wrong."""
    with Realm.open(served.place.log, domain=kiosk, effects=handlers, on_change="hold") as realm:
        expired = realm.access.create_token("all", by="operator", ttl_ms=1).token
        revoked = realm.access.create_token("all", by="operator")
        realm.access.revoke_token(revoked.created.token_id, by="operator", reason="lost")
        sound = realm.access.create_token("all", by="operator").token
    other = founded(tmp_path_factory.mktemp("other")).tokens["all"]
    prefix, token_id, secret = sound.split("_", 2)
    return {
        "an expired token": expired,
        "a revoked token": revoked.token,
        "a token of another realm": other,
        "another secret": f"{prefix}_{token_id}_{'A' * len(secret)}",
        "the secret of another token": f"{prefix}_{token_id}_{other.split('_', 2)[2]}",
        "no secret": f"{prefix}_{token_id}_",
        "no id": f"{prefix}__{secret}",
        "another kind": f"wp2_{token_id}_{secret}",
    }


@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
@pytest.mark.slow
def test_no_operation_accepts_a_token_that_is_not_in_force(
    served: Served, dead: dict[str, str], operation: Operation
) -> None:
    for what, token in dead.items():
        status, code = asked(served, operation, token)
        if operation.is_public:
            assert status < 400, what
        else:
            expected = "SIGN_IN_REQUIRED" if what == "another kind" else "TOKEN_NOT_VALID"
            assert (status, code) == (401, expected), what


@for_each("right", [*RIGHTS, None])
@for_each("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_needs_one_of_its_rights(
    served: Served, tokens: dict[str | None, str], operation: Operation, right: Any
) -> None:
    status, code = asked(served, operation, tokens[right])
    if operation.is_public or right in operation.rights or operation.name == "realms.list":
        assert code not in REFUSED
        assert status < 500
    else:
        assert (status, code) == (403, "RIGHT_MISSING")


@for_each("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_an_operation_without_credentials_is_refused_unless_it_is_public(served: Served, operation: Operation) -> None:
    status, code = asked(served, operation, None)
    assert (status < 400) if operation.is_public else (status, code) == (401, "SIGN_IN_REQUIRED")


def test_a_caller_without_rights_is_told_of_no_realm(served: Served, tokens: dict[str | None, str]) -> None:
    with served.client("nil") as client:
        assert client.get("/v1/realms").json() == {"realms": []}


def test_every_refusal_by_rights_is_counted_and_not_in_the_log(served: Served, tokens: dict[str | None, str]) -> None:
    with served.place.realm() as realm:
        size = realm.log.head().size

    def count() -> float:
        with served.client("ops") as client:
            lines = client.get("/metrics").text.splitlines()
        wanted = 'worldprotocol_refused_total{code="RIGHT_MISSING",operation="branches.switch"}'
        return next((float(line.split()[-1]) for line in lines if line.startswith(wanted)), 0.0)

    before = count()
    assert asked(served, OPERATIONS["branches.switch"], tokens["reader"])[0] == 403
    assert count() == before + 1
    with served.place.realm() as realm:
        assert realm.log.head().size == size


def test_the_table_the_handlers_and_the_answers_name_the_same_operations(tmp_path: Any) -> None:
    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk) as realm:
        app = create_app(Service.of(ServerConfig(), [RealmToServe("main", realm)]))
        routes = {getattr(route, "name", "") for route in app.routes}
    declared = set(declared_operations())
    assert set(OPERATIONS) == routes - {"openapi", "mcp", "pages", "start"}
    assert set(OPERATIONS) - declared == set(HANDLERS) == set(ANSWERS)
    assert declared.isdisjoint(HANDLERS)
    assert {one.name for one in declared_operations().values() if one.is_stream} == set(STREAMS)


def test_a_route_outside_of_the_table_is_refused(tmp_path: Any) -> None:
    async def open_door(call: Authorized) -> str:
        return call.actor_id

    place = founded(tmp_path)
    with Realm.open(place.log, domain=kiosk) as realm:
        app = create_app(Service.of(ServerConfig(), [RealmToServe("main", realm)]))
        app.add_api_route("/v1/realms/{realm}/door", open_door, name="door")

        async def ask() -> httpx.Response:
            transport, headers = httpx.ASGITransport(app), {"Authorization": f"Bearer {place.tokens['all']}"}
            async with httpx.AsyncClient(
                transport=transport, base_url="http://kiosk", headers=headers, verify=NO_TLS
            ) as client:
                return await client.get("/v1/realms/main/door")

        answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["code"]) == (403, "RIGHT_MISSING")
