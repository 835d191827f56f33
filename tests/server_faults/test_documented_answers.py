"""Every documented answer of every operation: it occurs, and it is as the description says; and nothing else occurs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.plugins.forms import scaled
from tests.server.examples import EXAMPLES
from tests.server.served import ORDER, Served, founded, serving
from worldprotocol.server.openapi import PROBLEMS
from worldprotocol.server.operation_table import OPERATIONS, Operation

pytestmark = pytest.mark.slow

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
STREAMS = {name for name in OPERATIONS if name.endswith(".stream")}
IN_REALM = [one for one in OPERATIONS.values() if "{realm}" in one.path and not one.is_public]


@pytest.fixture(scope="module")
def document(served: Served) -> dict[str, Any]:
    """Return the description that a server gives."""
    with served.client() as client:
        found: dict[str, Any] = client.get("/openapi.json").json()
    return found


@pytest.fixture(scope="module")
def subjects(served: Served) -> dict[str, list[str]]:
    """Return, by the name of a parameter of a path, what there is."""
    done = served.submit("kid", ORDER, "subject-1").json()
    waits = served.submit("bot", ORDER, "subject-2").json()
    ships = served.submit("kid", ORDER | {"type": "order.ship", "scopeProposal": {"allowedPaths": ["orders.s"]}}).json()
    proposals = [one["proposalId"] for one in (done, waits, ships)]
    return {
        "proposal_id": proposals,
        "world_id": [done["worldId"], done["baseWorld"], "HEAD"],
        "position": ["1", "7"],
        "kind": ["proposal", "intent", "world", "decision", "verdict"],
        "subject_id": [*proposals, "subject-1", done["worldId"]],
        "code": ["RIGHT_MISSING", "DAMAGED_LOG"],
    }


@pytest.mark.parametrize("name", sorted(OPERATIONS.keys() - STREAMS))
def test_requests_about_what_there_is_get_documented_answers(
    served: Served, document: dict[str, Any], subjects: dict[str, list[str]], name: str
) -> None:
    operation = OPERATIONS[name]
    attacked = schemathesis.openapi.from_dict(document)[operation.path][operation.method]
    credential = {"Authorization": f"Bearer {served.place.tokens['all']}"}

    @settings(
        max_examples=scaled(100, ci=6),
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate],
    )
    @given(case=attacked.as_strategy(), data=st.data())
    def attack(case: Any, data: st.DataObject) -> None:
        chosen = {"realm": "main"} | {
            one: data.draw(st.sampled_from(subjects[one])) for one in subjects if f"{{{one}}}" in operation.path
        }
        case.path_parameters = {
            one: chosen.get(one, value) for one, value in ({**(case.path_parameters or {}), **chosen}).items()
            if f"{{{one}}}" in operation.path
        }  # fmt: skip
        if name in EXAMPLES and data.draw(st.booleans()):
            case.body = EXAMPLES[name]
        case.call_and_validate(base_url=served.url, headers=credential, checks=CHECKS, timeout=60)

    attack()


def asked(client: httpx.Client, operation: Operation, realm: str = "main", **more: Any) -> httpx.Response:
    """Send a request that would be accepted, but for what is to be refused."""
    path = operation.path.format_map(Absent(realm=realm))
    query = {"path": "orders"} if operation.name == "worlds.blame" else {}
    if operation.method == "POST" and "content" not in more:
        more["json"] = EXAMPLES[operation.name]
    with client.stream(more.pop("method", operation.method), path, params=query, **more) as answer:
        if answer.headers["content-type"].startswith("text/event-stream"):
            return answer
        answer.read()
    return answer


class Absent(dict[str, str]):
    """Parameters of a path; one that is not given is 1."""

    def __missing__(self, key: str) -> str:
        return "1"


def check(document: dict[str, Any], operation: Operation, answer: httpx.Response, status: int, code: str) -> None:
    """Check that an answer is the documented problem."""
    assert (answer.status_code, answer.json()["code"]) == (status, code), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    described = document["paths"][operation.path][operation.method.lower()]["responses"][str(status)]
    content = document["components"]["responses"][described["$ref"].rpartition("/")[2]]["content"]
    schema = content["application/problem+json"]["schema"] | {"components": document["components"]}
    Draft202012Validator(schema).validate(answer.json())
    assert (int(answer.headers.get("retry-after", 0)) >= 1) == (status in (429, 503))
    assert ("www-authenticate" in answer.headers) == (status == 401)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_refusal_of_every_operation_is_as_documented(served: Served, document: dict[str, Any], name: str) -> None:
    operation = OPERATIONS[name]
    with served.client() as client, served.client("nil") as nil, served.client("all") as everyone:
        if not operation.is_public:
            check(document, operation, asked(client, operation), 401, "SIGN_IN_REQUIRED")
            bad = {"Authorization": "Bearer wp1_0198b2c4-6f3e-7a10-8c55-2f6d1f0a9b01_" + "A" * 43}
            check(document, operation, asked(client, operation, headers=bad), 401, "TOKEN_NOT_VALID")
        if operation in IN_REALM or name == "server.metrics":
            check(document, operation, asked(nil, operation), 403, "RIGHT_MISSING")
        if operation in IN_REALM:
            check(document, operation, asked(everyone, operation, realm="none"), 404, "UNKNOWN_REALM")
        other = asked(everyone, operation, method="DELETE")
        check(document, operation, other, 405, "METHOD_NOT_ALLOWED")
        large = asked(everyone, operation, content=b" " * 200_000)
        check(document, operation, large, 413, "REQUEST_TOO_LARGE")
        long = asked(everyone, operation, headers={"X-Long": "a" * 70_000})
        check(document, operation, long, 431, "REQUEST_HEAD_TOO_LARGE")


@pytest.fixture(scope="module")
def hurried(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Return a server on which an actor may send one request, and practically no second one."""
    limits = "requests_per_second = 1\nburst = 1"
    with serving(founded(tmp_path_factory.mktemp("hurried"), server=limits)) as running:
        yield running


@pytest.mark.parametrize("name", [one.name for one in OPERATIONS.values() if not one.is_public])
def test_every_operation_limits_the_rate_of_its_caller(hurried: Served, document: dict[str, Any], name: str) -> None:
    operation = OPERATIONS[name]
    with hurried.client("nil") as client, hurried.client("aud") as other:
        while (answer := asked(client, operation)).status_code != 429:
            assert answer.status_code in (200, 403)  # the allowance is refilled with time
        check(document, operation, answer, 429, "TOO_MANY_REQUESTS")
        assert "nil@main sent more than 1 requests at once" in answer.json()["detail"]
        assert asked(other, OPERATIONS["errors.read"]).status_code == 404  # public, and so without a limit of an actor


def test_every_documented_problem_has_an_error_code_of_its_status(document: dict[str, Any]) -> None:
    from world.error_codes import ErrorCode

    statuses = {str(one.http_status) for one in ErrorCode}
    assert PROBLEMS.keys() <= statuses
    for operation in OPERATIONS.values():
        responses = document["paths"][operation.path][operation.method.lower()]["responses"]
        assert PROBLEMS.keys() <= responses.keys()
